"""Plato, the package: FedProx's loss and APFL's step (plato/trainers/strategies/algorithms)."""

import sys
from types import ModuleType

import torch
from in_torch import Net, batches, do_without, flat, loss, space, take_steps

do_without("lightly", "torch_optimizer", "timm")
for name in ("plato.config", "plato.models", "plato.models.registry", "plato.trainers.optimizers"):
    sys.modules[name] = ModuleType(name)  # settings and registries are not measured
sys.modules["plato.config"].Config = lambda: space(trainer=space(), clients=space(total_clients=2))
sys.modules["plato.models"].registry = sys.modules["plato.models.registry"]

from plato.trainers.strategies.algorithms.apfl_strategy import APFLStepStrategy  # noqa: E402
from plato.trainers.strategies.algorithms.fedprox_strategy import FedProxLossStrategy  # noqa: E402


def context(net, **state):
    return space(model=net, client_id=state.pop("k", 0), device="cpu", state=state, current_epoch=1)


def client(algorithm, model, hyper, server, data, rows, client=None):
    net = Net(model, server["w"])
    if algorithm == "apfl-deng":
        return personal(model, hyper, net, client, batches(data, rows["D"]))
    strategy, c = FedProxLossStrategy(mu=hyper["mu"], base_loss_fn=loss), context(net)
    strategy.setup(c)
    pairs = batches(data, rows["D"])
    return take_steps(net, hyper["lr"], pairs, lambda z, y: strategy.compute_loss(z, y, c))


def personal(model, hyper, net, kept, pairs):
    sgd, lr = torch.optim.SGD, hyper["lr"]
    own, w = Net(model, kept["v"]), sgd(net.parameters(), lr)
    state = {"apfl_alpha": float(kept["a"]), "apfl_adaptive_alpha": hyper["adaptive_alpha"]}
    state |= {"apfl_personalized_model": own}
    c = context(net, **state, apfl_personalized_optimizer=sgd(own.parameters(), lr))
    for i, (X, y) in enumerate(pairs):
        c.state["current_batch"] = i
        APFLStepStrategy().training_step(net, w, X, y, loss, c)
    return {"upload": {"w": flat(net)}, "client": {"v": flat(own)}}
