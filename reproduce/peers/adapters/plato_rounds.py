"""Plato, the package: SCAFFOLD's and FedDyn's strategies (plato/trainers/strategies/algorithms)."""

import sys
from tempfile import mkdtemp
from types import ModuleType

import numpy as np
from in_torch import Net, client_batches, cut, do_without, flat, loss, space, take_steps

do_without("lightly", "torch_optimizer", "timm")
for name in ("plato.config", "plato.models", "plato.models.registry", "plato.trainers.optimizers"):
    sys.modules[name] = ModuleType(name)  # settings and registries are not measured
sys.modules["plato.config"].Config = lambda: space(trainer=space(), clients=space(total_clients=2))
sys.modules["plato.models"].registry = sys.modules["plato.models.registry"]

from plato.trainers.strategies.algorithms import feddyn_strategy as feddyn  # noqa: E402
from plato.trainers.strategies.algorithms.scaffold_strategy import SCAFFOLDUpdateStrategy  # noqa: E402


class Named(Net):
    """A network whose parameters have "weight" in their names, which SCAFFOLD's strategy asks for."""

    def __init__(self, model, w):
        super().__init__(model, w)
        for i, p in enumerate(self.parameters()):
            self.register_parameter(f"weight{i}", p)


def round(algorithm, model, hyper, state, data, plan):
    w, folder = state["server"]["w"], state.get("folder") or mkdtemp()
    ends, c_s, more = [], state.get("c", np.zeros_like(w)), 0
    for k in plan["clients"]:
        net, lr, pairs = Named(model, w), hyper["lr"], client_batches(data, plan, k)
        names = [n for n, _ in net.named_parameters()]
        c = space(model=net, client_id=k, device="cpu", state={"learning_rate": lr})
        it = feddyn.FedDynUpdateStrategy(f"{folder}/{k}")
        if algorithm == "scaffold":
            c.state["server_control_variate"] = dict(zip(names, cut(net, c_s)))
            it = SCAFFOLDUpdateStrategy(f"{folder}/{k}")
        it.setup(c)
        it.on_train_start(c)
        if algorithm == "scaffold":
            take_steps(net, lr, pairs, loss, lambda: it.after_step(c))  # noqa: B023
        else:
            penalty = feddyn.FedDynLossStrategy(hyper["alpha"], loss, adaptive_alpha=False)
            penalty.setup(c)
            take_steps(net, lr, pairs, lambda z, y: penalty.compute_loss(z, y, c))  # noqa: B023
        it.on_train_end(c)
        ends.append(flat(net))
        if algorithm == "scaffold":
            more = more + flat(c.state["client_control_variate_delta"].values()) / 2
    w = np.mean(ends, 0)  # both of its servers average; SCAFFOLD's adds the mean Δc_i to c
    return {"server": {"w": w}, "folder": folder, "c": c_s + more}
