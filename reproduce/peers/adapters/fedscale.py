"""FedScale: `ClientOptimizer.update_client_weight`, called after each step as its TorchClient does."""

from functools import partial

from fedscale.cloud.execution.optimizers import ClientOptimizer
from in_torch import Net, batches, loss, space, take_steps


def client(algorithm, model, hyper, server, data, rows):
    net = Net(model, server["w"])
    there = [p.detach().clone() for p in net.parameters()]
    conf = space(gradient_policy="fed-prox", learning_rate=hyper["lr"], proxy_mu=hyper["mu"])
    after = partial(ClientOptimizer().update_client_weight, conf, net, there)
    return take_steps(net, hyper["lr"], batches(data, rows["D"]), loss, after)
