"""FEDn: aggregators of fedn/network/combiner, after FedAvg's local steps in loops of ours."""

import queue
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
from in_torch import do_without, train_clients, without_init

without_init("fedn", "fedn.network", "fedn.network.combiner")
do_without("requests", "urllib3", "opentelemetry")
wire = sys.modules["fedn.network.combiner.updatehandler"] = ModuleType("updatehandler")
wire.UpdateHandler = object

from fedn.utils.helpers.plugins.numpyhelper import Helper  # noqa: E402
from fedn.utils.parameters import Parameters  # noqa: E402


class Updates:
    """A combiner's queue of updates, without its messages and its store of models."""

    def __init__(self):
        self.model_updates = queue.Queue()
        self.next_model_update = self.model_updates.get

    def load_model_update(self, update, helper):
        return update.model, {"num_examples": update.n}

    def load_model(self, helper, model_id):
        return self.old

    def delete_model(self, update):
        pass


def make(algorithm):
    kind = "fedavg" if algorithm == "fedavg" else "fedopt"
    return import_module(f"fedn.network.combiner.aggregators.{kind}").Aggregator(Updates())


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]
    it = state.get("object") or make(algorithm)
    it.update_handler.old = [w]
    for k, w_k, n in train_clients(model, hyper, w, data, plan):
        update = SimpleNamespace(model=[w_k], n=n, model_id="", model_update_id=k)
        it.update_handler.model_updates.put(update)
    settings = None
    if algorithm != "fedavg":
        own = {"beta1": "beta1", "beta2": "beta2", "tau": "tau", "server_lr": "learning_rate"}
        numbers = {own[name]: float(hyper[name]) for name in own if name in hyper}
        settings = Parameters({"serveropt": algorithm.removeprefix("fed"), **numbers})
    (new,), _ = it.combine_models(Helper(), parameters=settings)
    return {"server": {"w": np.asarray(new)}, "object": it}
