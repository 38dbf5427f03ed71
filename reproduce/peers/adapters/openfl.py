"""OpenFL: its server's mean and optimisers (openfl/interface), after FedAvg's local steps."""

import numpy as np
from in_torch import do_without, train_clients

do_without("dynaconf", "grpc", "tqdm", "rich", "docker", "tensorboard", "flatten_json")

from openfl.interface.aggregation_functions import WeightedAverage  # noqa: E402
from openfl.interface.aggregation_functions.core import AdaptiveAggregation  # noqa: E402
from openfl.utilities.optimizers.numpy import NumPyAdagrad, NumPyAdam, NumPyYogi  # noqa: E402
from openfl.utilities.types import LocalTensor  # noqa: E402

KINDS = {"fedadam": NumPyAdam, "fedyogi": NumPyYogi, "fedadagrad": NumPyAdagrad}


def make(algorithm, hyper, w):
    if algorithm == "fedavg":
        return WeightedAverage()
    h, more = hyper, {"initial_accumulator_value": 0.0}
    if algorithm != "fedadagrad":
        more["betas"] = h["beta1"], h["beta2"]
    type(AdaptiveAggregation)._instances.clear()  # they are singletons
    more |= {"learning_rate": h["server_lr"], "epsilon": h["tau"]}
    return AdaptiveAggregation(KINDS[algorithm](params={"w": w.copy()}, **more), WeightedAverage())


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]
    it = state.get("object") or make(algorithm, hyper, w)
    ends = train_clients(model, hyper, w, data, plan)
    sent = [LocalTensor(k, w_k, n / plan["sizes"].sum()) for k, w_k, n in ends]
    model_of_round = {
        "round": (t := int(plan["round"])),
        "tensor_name": "w",
        "tags": ("aggregated", "model"),
        "nparray": w,
    }
    new = it.call(sent, iter([model_of_round]), "w", t, ())
    return {"server": {"w": np.array(new)}, "object": it}
