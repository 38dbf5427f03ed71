"""FederatedScope: `ProximalRegularizer`, times cfg.regularizer.mu in the loss, as in its trainer."""

import torch
from federatedscope.core.regularizer.proximal_regularizer import ProximalRegularizer
from in_torch import Net, batches, flat, space

loss = torch.nn.CrossEntropyLoss()


def client(algorithm, model, hyper, server, data, rows):
    if algorithm != "fedprox":
        raise NotImplementedError
    net = Net(model, server["w"])
    there = [p.detach().clone() for p in net.parameters()]
    ctx = space(model=net, weight_init=there)
    sgd = torch.optim.SGD(net.parameters(), lr=hyper["lr"])
    for X, y in batches(data, rows["D"]):
        sgd.zero_grad()
        (loss(net(X), y) + hyper["mu"] * ProximalRegularizer()(ctx)).backward()
        sgd.step()
    return {"upload": {"w": flat(net)}}
