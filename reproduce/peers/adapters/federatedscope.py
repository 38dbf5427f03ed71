"""FederatedScope: the loss plus mu times `ProximalRegularizer`, as its trainer computes it."""

from federatedscope.core.regularizer.proximal_regularizer import ProximalRegularizer
from in_torch import Net, batches, loss, space, take_steps


def client(algorithm, model, hyper, server, data, rows):
    net = Net(model, server["w"])
    server_weights = [p.detach().clone() for p in net.parameters()]
    ctx = space(model=net, weight_init=server_weights)

    def objective(z, y):
        return loss(z, y) + hyper["mu"] * ProximalRegularizer()(ctx)

    return take_steps(net, hyper["lr"], batches(data, rows["D"]), objective)
