"""p2pfl: aggregators of p2pfl/learning/aggregators, after FedAvg's local steps in loops of ours."""

import sys
from types import ModuleType

import numpy as np
from in_torch import do_without, space, train_clients

do_without("grpc", "ray", "opentelemetry", "datasets", "psutil", "flax", "tensorflow", "rich")
do_without("opendp")
sys.modules["p2pfl.management.logger"] = ModuleType("p2pfl.management.logger")
sys.modules["p2pfl.management.logger"].logger = space(debug=print, info=print)

from p2pfl.learning.aggregators.fedavg import FedAvg  # noqa: E402
from p2pfl.learning.aggregators.fedopt import FedAdagrad, FedAdam, FedYogi  # noqa: E402

KINDS = {"fedavg": FedAvg, "fedadam": FedAdam, "fedyogi": FedYogi, "fedadagrad": FedAdagrad}


class Model:
    """What the aggregators read of a model."""

    def __init__(self, parts, n, info=None):
        self.parts, self.n, self.info = parts, n, info

    get_parameters = lambda self: self.parts  # noqa: E731
    get_num_samples = lambda self: self.n  # noqa: E731
    get_contributors = lambda self: []  # noqa: E731
    get_info = lambda self, name: self.info  # noqa: E731
    add_info = lambda self, name, info: None  # noqa: E731
    build_copy = lambda self, params, num_samples, **_: Model(params, num_samples)  # noqa: E731


def round(algorithm, model, hyper, state, data, plan):
    w, h, it = state["server"]["w"], hyper, state.get("object")
    if it is None:
        settings = {}
        if "tau" in h:
            settings = {"eta": h["server_lr"], "beta_1": h["beta1"], "tau": h["tau"]}
        if algorithm in ("fedadam", "fedyogi"):
            settings["beta_2"] = h["beta2"]
        it = KINDS[algorithm](**settings)
        it.set_addr("server")
        if algorithm != "fedavg":
            it.aggregate([Model([w], 1)])  # its first call keeps the model that all begin with
    sent = [Model([w_k], n) for _, w_k, n in train_clients(model, h, w, data, plan)]
    return {"server": {"w": np.array(it.aggregate(sent).parts[0])}, "object": it}
