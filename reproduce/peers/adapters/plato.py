"""Plato: `FedProxLocalObjective` (examples/customized_client_training/fedprox/fedprox_trainer.py)."""

import sys
from types import ModuleType

import torch
from in_torch import Net, batches, space, take_steps

SETTINGS = space(clients=space())
for name in ("plato", "plato.config", "plato.trainers", "plato.trainers.basic"):
    sys.modules[name] = ModuleType(name)  # the trainer's base and the settings are not measured
sys.modules["plato.config"].Config = lambda: SETTINGS
sys.modules["plato.trainers"].basic = sys.modules["plato.trainers.basic"]
sys.modules["plato.trainers.basic"].Trainer = object

from fedprox_trainer import FedProxLocalObjective  # noqa: E402


def client(algorithm, model, hyper, server, data, rows):
    SETTINGS.clients.proximal_term_penalty_constant = hyper["mu"]
    net = Net(model, server["w"])
    objective = FedProxLocalObjective(net, torch.device("cpu")).compute_objective
    return take_steps(net, hyper["lr"], batches(data, rows["D"]), objective)
