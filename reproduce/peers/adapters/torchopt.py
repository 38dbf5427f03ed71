"""TorchOpt: `MetaSGD` with `extract_state_dict`, and the functional `adam` on a server."""

import numpy as np
import torch
import torchopt
from in_torch import Net, batch, flat, loss


def meta_gradient(variant, model, hyper, **inputs):
    net = Net(model, inputs["theta"])
    start = list(net.parameters())
    optimiser = torchopt.MetaSGD(net, lr=hyper["alpha"])
    for _ in range(hyper["inner_steps"]):
        X, y = batch(inputs["S"])
        optimiser.step(loss(net(X), y))
    X, y = batch(inputs["Q"])
    at = list(net.parameters()) if variant == "fedmeta-fomaml" else start
    return flat(torch.autograd.grad(loss(net(X), y), at))


def aggregate(algorithm, model, hyper, server, uploads, n, counts):
    torch.set_default_dtype(torch.float32)  # PyTorch's own; parameters are float64
    g = torch.tensor(uploads["g_theta"].mean(0))
    optimiser = torchopt.adam(lr=hyper["beta"])
    state = optimiser.init([torch.tensor(server["theta"])])
    adam = next(s for s in state if hasattr(s, "mu"))
    moments = [torch.tensor(server["m_theta"])], [torch.tensor(server["v_theta"])]
    moved = adam._replace(mu=moments[0], nu=moments[1], count=[torch.tensor(int(server["t"]))])
    state = tuple(moved if s is adam else s for s in state)
    updates, _ = optimiser.update([g], state)
    return {"server": {"theta": np.asarray(server["theta"] + updates[0].numpy())}}
