"""NVIDIA FLARE: `PTFedProxLoss` and `PTScaffoldHelper` (nvflare/app_opt/pt), in loops of ours."""

from copy import deepcopy

import numpy as np
import torch
from in_torch import Net, batches, client_batches, cut, flat
from nvflare.app_opt.pt.fedproxloss import PTFedProxLoss
from nvflare.app_opt.pt.scaffold import PTScaffoldHelper

loss = torch.nn.CrossEntropyLoss()


def client(algorithm, model, hyper, server, data, rows):
    if algorithm != "fedprox":
        raise NotImplementedError
    net, there = Net(model, server["w"]), Net(model, server["w"])
    penalty, sgd = PTFedProxLoss(hyper["mu"]), torch.optim.SGD(net.parameters(), lr=hyper["lr"])
    for X, y in batches(data, rows["D"]):
        sgd.zero_grad()
        (loss(net(X), y) + penalty(net, there)).backward()
        sgd.step()
    return {"upload": {"w": flat(net)}}


def round(algorithm, model, hyper, state, data, plan):
    if algorithm != "scaffold":
        raise NotImplementedError
    x, lr = state["server"]["w"], hyper["lr"]
    c = state.get("c", np.zeros_like(x))
    clients = state.get("objects", tuple((Net(model, x), PTScaffoldHelper()) for _ in range(2)))
    sent, controls = [], []
    for k, (net, helper) in enumerate(clients):
        if "objects" not in state:
            helper.init(net)
        names = [name for name, _ in net.named_parameters()]
        net.load_state_dict(dict(zip(names, cut(net, x))))
        helper.load_global_controls(dict(zip(names, cut(net, c))))
        there, sgd = deepcopy(net), torch.optim.SGD(net.parameters(), lr=lr)
        c_global, c_local = helper.get_params()
        for X, y in client_batches(data, plan, k):
            sgd.zero_grad()
            loss(net(X), y).backward()
            sgd.step()
            helper.model_update(net, lr, c_global, c_local)
        helper.terms_update(net, lr, c_global, c_local, there)
        sent.append(flat(net))
        controls.append(np.concatenate([x.ravel() for x in helper.get_delta_controls().values()]))
    c = c + np.mean(controls, 0)
    return {"server": {"w": np.mean(sent, 0)}, "c": c, "objects": clients}
