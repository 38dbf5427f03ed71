"""FL4Health: APFL's module and client's steps, FedProx's penalty (fl4health/clients, losses)."""

import sys

import flwr.common
import torch
from in_torch import Net, batches, do_without, flat, loss, take_steps

do_without(
    "opacus", "dp_accounting", "torchvision", "pandas", "sklearn", "wandb", "PIL", "torchmetrics"
)
do_without("tqdm", "psutil", "pytorch_metric_learning", "ecos", "qpth", "monai", "nnunetv2")

sys.modules["flwr.common.parameter"] = flwr.common  # where newer releases have the same functions

from fl4health.clients.apfl_client import ApflClient  # noqa: E402
from fl4health.losses.weight_drift_loss import WeightDriftLoss  # noqa: E402
from fl4health.model_bases.apfl_base import ApflModule  # noqa: E402


def client(algorithm, model, hyper, server, data, rows, client=None):
    net, pairs, lr = Net(model, server["w"]), batches(data, rows["D"]), hyper["lr"]
    if algorithm == "fedprox":
        there, drift = [p.detach().clone() for p in net.parameters()], WeightDriftLoss("cpu")
        return take_steps(net, lr, pairs, lambda z, y: loss(z, y) + drift(net, there, hyper["mu"]))
    it = ApflClient.__new__(ApflClient)  # without files and reports
    it.model = ApflModule(Net(model, client["v"]), hyper["adaptive_alpha"], float(client["a"]), lr)
    it.model.global_model, it.criterion, sgd = net, loss, torch.optim.SGD
    it.optimizers = {
        "global": sgd(net.parameters(), lr),
        "local": sgd(it.model.local_model.parameters(), lr),
    }
    for step, (X, y) in enumerate(pairs):
        it.train_step(X, y)
        it.update_after_step(step)
    return {
        "upload": {"w": flat(net)},
        "client": {"v": flat(it.model.local_model), "a": it.model.alpha},
    }
