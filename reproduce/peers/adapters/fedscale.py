"""FedScale: `ClientOptimizer.update_client_weight`, called after each step as its TorchClient does."""

import torch
from fedscale.cloud.execution.optimizers import ClientOptimizer
from in_torch import Net, batches, flat, space

loss = torch.nn.CrossEntropyLoss()


def client(algorithm, model, hyper, server, data, rows):
    if algorithm != "fedprox":
        raise NotImplementedError
    net = Net(model, server["w"])
    there = [p.detach().clone() for p in net.parameters()]
    sgd = torch.optim.SGD(net.parameters(), lr=hyper["lr"])
    conf = space(gradient_policy="fed-prox", learning_rate=hyper["lr"], proxy_mu=hyper["mu"])
    for X, y in batches(data, rows["D"]):
        sgd.zero_grad()
        loss(net(X), y).backward()
        sgd.step()
        ClientOptimizer().update_client_weight(conf, net, there)
    return {"upload": {"w": flat(net)}}
