"""fedbase: the step of FedProx's clients, `node.train_single_step_fedprox`, in a loop of ours."""

import torch
from in_torch import Net, batches, do_without, flat, loss

do_without("sklearn", "torchvision", "matplotlib", "pandas")

from fedbase.nodes.node import node  # noqa: E402


def client(algorithm, model, hyper, server, data, rows):
    it = node(0, torch.device("cpu"))
    it.assign_model(Net(model, server["w"]))
    it.assign_objective(loss)
    it.assign_optim(torch.optim.SGD(it.model.parameters(), lr=hyper["lr"]))
    for X, y in batches(data, rows["D"]):
        it.train_single_step_fedprox(X, y, reg_lam=hyper["mu"], reg_model=Net(model, server["w"]))
    return {"upload": {"w": flat(it.model)}}
