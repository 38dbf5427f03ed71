"""Flower's baselines: fedprox's `_train_one_epoch`; fedmeta's `train_meta` and server updates."""

import torch
from in_torch import Net, batch, batches, cut, do_without, flat
from torch.optim.optimizer import register_optimizer_step_pre_hook

do_without("flwr", "flwr_datasets", "easydict", "hydra", "omegaconf", "torchvision", "matplotlib")

from fedmeta.models import train_meta  # noqa: E402
from fedmeta.strategy import fedmeta_update_maml, fedmeta_update_meta_sgd  # noqa: E402
from fedprox.model import _train_one_epoch  # noqa: E402

CPU = torch.device("cpu")


def client(algorithm, model, hyper, server, data, rows):
    net = Net(model, server["w"])
    there = [p.detach().clone() for p in net.parameters()]
    sgd = torch.optim.SGD(net.parameters(), lr=hyper["lr"])  # theirs has weight_decay=0.001
    loader = [{"image": X, "label": y} for X, y in batches(data, rows["D"])]
    _train_one_epoch(net, there, loader, CPU, torch.nn.CrossEntropyLoss(), sgd, hyper["mu"])
    return {"upload": {"w": flat(net)}}


def meta_gradient(variant, model, hyper, theta, S, Q, alpha=None):
    """Return the gradients that reach the server's optimiser."""
    net = Net(model, theta)
    rates = [torch.tensor(hyper["alpha"])] * 6 if alpha is None else cut(net, alpha)
    rates = torch.nn.ParameterList(rates)
    _, grads = train_meta(net, [batch(S)], [batch(Q)], rates, CPU, hyper["inner_steps"])
    if variant != "fedmeta-sgd":
        return flat(torch.tensor(g) for g in grads)
    seen = []

    def note(optimiser, args, kwargs):
        seen.extend(p.grad.clone() for group in optimiser.param_groups for p in group["params"])

    hook = register_optimizer_step_pre_hook(note)
    weights = [p.detach().numpy() for p in net.parameters()]
    fedmeta_update_meta_sgd(net, rates, 0.1, weights, grads, 0.0)
    hook.remove()
    return {"g_theta": flat(seen[: len(grads)]), "g_alpha": flat(seen[len(grads) :])}


def aggregate(algorithm, model, hyper, server, uploads, n, counts):
    net = Net(model, server["theta"])
    weights = [p.detach().numpy().copy() for p in net.parameters()]
    grads = [g.numpy() for g in cut(net, uploads["g_theta"].mean(0))]
    after = fedmeta_update_maml(net, hyper["beta"], weights, grads, 0.0)
    return {"server": {"theta": flat(torch.tensor(w) for w in after)}}
