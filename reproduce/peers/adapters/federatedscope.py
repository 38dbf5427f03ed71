"""FederatedScope: `ProximalRegularizer`, times cfg.regularizer.mu in the loss, as in its trainer."""

from federatedscope.core.regularizer.proximal_regularizer import ProximalRegularizer
from in_torch import Net, batches, loss, space, take_steps


def client(algorithm, model, hyper, server, data, rows):
    net = Net(model, server["w"])
    there = [p.detach().clone() for p in net.parameters()]
    ctx = space(model=net, weight_init=there)

    def objective(z, y):
        return loss(z, y) + hyper["mu"] * ProximalRegularizer()(ctx)

    return take_steps(net, hyper["lr"], batches(data, rows["D"]), objective)
