"""higher: `innerloop_ctx` and its differentiable SGD (higher/__init__.py, higher/optim.py)."""

import higher
import torch
from in_torch import Net, batch, cut, flat, loss


def meta_gradient(variant, model, hyper, **inputs):
    net = Net(model, inputs["theta"])
    rates = [torch.tensor(hyper["alpha"])] * len(net.layers)
    if variant == "fedmeta-sgd":
        rates = [a.clone().requires_grad_() for a in cut(net, inputs["alpha"])]
    groups = [{"params": [p], "lr": 0.1} for p in net.parameters()]
    first_order = variant == "fedmeta-fomaml"
    with higher.innerloop_ctx(
        net, torch.optim.SGD(groups), track_higher_grads=not first_order, override={"lr": rates}
    ) as (adapted, optimiser):
        for _ in range(hyper["inner_steps"]):
            X, y = batch(inputs["S"])
            optimiser.step(loss(adapted(X), y))
        X, y = batch(inputs["Q"])
        outer = loss(adapted(X), y)
        at = list(adapted.parameters() if first_order else adapted.parameters(time=0))
        wanted = at + (rates if variant == "fedmeta-sgd" else [])
        grads = torch.autograd.grad(outer, wanted)
    if variant == "fedmeta-sgd":
        return {"g_theta": flat(grads[: len(at)]), "g_alpha": flat(grads[len(at) :])}
    return flat(grads)
