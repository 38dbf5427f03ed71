"""FL4Health: SCAFFOLD's corrections of a client and its strategy, in loops of ours."""

import sys

import flwr.common
import numpy as np
import torch
from in_torch import Net, client_batches, cut, do_without, flat, loss

do_without(
    "opacus", "dp_accounting", "torchvision", "pandas", "sklearn", "wandb", "PIL", "torchmetrics"
)
do_without("tqdm", "psutil", "pytorch_metric_learning", "ecos", "qpth", "monai", "nnunetv2")
sys.modules["flwr.common.parameter"] = flwr.common  # where newer releases have the same functions

from fl4health.clients.scaffold_client import ScaffoldClient  # noqa: E402
from fl4health.strategies.scaffold import Scaffold  # noqa: E402


def round(algorithm, model, hyper, state, data, plan):
    w, lr = state["server"]["w"], hyper["lr"]
    server, clients = state.get("object"), state.get("objects")
    if server is None:
        server, clients = Scaffold.__new__(Scaffold), []
        server.server_model_weights, server.server_control_variates = [w], [np.zeros_like(w)]
        server.fraction_fit, server.learning_rate = len(plan["clients"]) / 2, hyper["server_lr"]
        for _ in range(2):
            it = ScaffoldClient.__new__(ScaffoldClient)
            it.client_control_variates, it.device, it.learning_rate = None, "cpu", lr
            clients.append(it)
    sent = []
    for k in plan["clients"]:
        it, net = clients[k], Net(model, w)
        parts = [x.numpy() for x in cut(net, server.server_control_variates[0])]
        it.model, it.server_control_variates = net, parts
        it.server_model_weights = [p.detach().numpy().copy() for p in net.parameters()]
        it.client_control_variates = it.client_control_variates or [0 * x for x in parts]
        pairs, sgd = client_batches(data, plan, k), torch.optim.SGD(net.parameters(), lr)
        for X, y in pairs:
            sgd.zero_grad()
            loss(net(X), y).backward()
            it.modify_grad()
            sgd.step()
        it.update_control_variates(len(pairs))
        change = [x.ravel() for x in it.client_control_variates_updates]
        sent.append([flat(net), np.concatenate(change)])
    mean = server.aggregate(sent)
    server.server_model_weights = server.compute_updated_weights(mean[:1])
    server.server_control_variates = server.compute_updated_control_variates(mean[1:])
    return {"server": {"w": server.server_model_weights[0]}, "object": server, "objects": clients}
