"""learn2learn: `MAML` and `MetaSGD` (learn2learn/algorithms)."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import torch
from in_torch import Net, batch, cut, do_without, flat, loss

do_without("gym", "torchvision", "pytorch_lightning", "qpth", "requests", "tqdm", "sklearn")

# Only two algorithms are measured: the packages' __init__ would also import the rest.
for name in ("learn2learn", "learn2learn.algorithms"):
    folder = next(p for p in (Path(q, *name.split(".")) for q in sys.path) if p.is_dir())
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [str(folder)]

MAML = importlib.import_module("learn2learn.algorithms.maml").MAML
MetaSGD = importlib.import_module("learn2learn.algorithms.meta_sgd").MetaSGD


def meta_gradient(variant, model, hyper, **inputs):
    net = Net(model, inputs["theta"])
    if variant == "fedmeta-sgd":
        rates = torch.nn.ParameterList(cut(net, inputs["alpha"]))
        it = MetaSGD(net, lrs=rates)
    else:
        it = MAML(net, lr=hyper["alpha"], first_order=variant == "fedmeta-fomaml")
    learner = it.clone()
    for _ in range(hyper["inner_steps"]):
        X, y = batch(inputs["S"])
        learner.adapt(loss(learner(X), y))
    X, y = batch(inputs["Q"])
    outer = loss(learner(X), y)
    g = flat(torch.autograd.grad(outer, list(net.parameters()), retain_graph=True))
    if variant != "fedmeta-sgd":
        return g
    return {"g_theta": g, "g_alpha": flat(torch.autograd.grad(outer, list(it.lrs)))}
