"""Plato: `FedProxLocalObjective` (examples/customized_client_training/fedprox/fedprox_trainer.py)."""

import sys
from types import ModuleType

import torch
from in_torch import Net, batches, flat, space

SETTINGS = space(clients=space())
for name in ("plato", "plato.config", "plato.trainers", "plato.trainers.basic"):
    sys.modules[name] = ModuleType(name)  # the trainer's base and the settings are not measured
sys.modules["plato.config"].Config = lambda: SETTINGS
sys.modules["plato.trainers"].basic = sys.modules["plato.trainers.basic"]
sys.modules["plato.trainers.basic"].Trainer = object

from fedprox_trainer import FedProxLocalObjective  # noqa: E402


def client(algorithm, model, hyper, server, data, rows):
    if algorithm != "fedprox":
        raise NotImplementedError
    SETTINGS.clients.proximal_term_penalty_constant = hyper["mu"]
    net = Net(model, server["w"])
    objective = FedProxLocalObjective(net, torch.device("cpu"))
    sgd = torch.optim.SGD(net.parameters(), lr=hyper["lr"])
    for X, y in batches(data, rows["D"]):
        sgd.zero_grad()
        objective.compute_objective(net(X), y).backward()
        sgd.step()
    return {"upload": {"w": flat(net)}}
