"""Tools of the adapters for PyTorch: a network with fedref's parameters, batches, stand-ins."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
loss = torch.nn.functional.cross_entropy


class Net(torch.nn.Module):
    """An MLP (ELU) or logistic regression; its weights (in, out) and biases are cut from a flat w."""

    def __init__(self, model, w):
        super().__init__()
        sizes = [int(np.prod(shape)) for shape in model["shapes"]]
        cut = torch.split(torch.tensor(w), sizes)
        pieces = [torch.nn.Parameter(x.reshape(s).clone()) for x, s in zip(cut, model["shapes"])]
        self.layers = torch.nn.ParameterList(pieces)
        self.device = torch.device("cpu")

    def forward(self, X):
        *hidden, W, b = self.layers
        for U, c in zip(hidden[::2], hidden[1::2]):
            X = torch.nn.functional.elu(X @ U + c)
        return X @ W + b


def flat(tensors):
    """Return a network's parameters, or tensors, as one NumPy vector."""
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.parameters()
    return np.concatenate([np.asarray(x.detach()).ravel() for x in tensors])


def cut(net, x):
    """Return a flat vector as tensors with the shapes of the network's parameters."""
    parts = torch.split(torch.tensor(x), [p.numel() for p in net.parameters()])
    return [x.reshape(p.shape) for x, p in zip(parts, net.parameters())]


def batch(D, rows=slice(None)):
    """Return (X, y) of these rows, without padding."""
    rows = rows if isinstance(rows, slice) else rows[rows >= 0]
    return torch.tensor(D["X"][rows]), torch.tensor(D["y"][rows])


def batches(data, rows):
    """Return the batches of a client's local steps as a list, in the place of a loader."""
    return [batch(data, line) for line in rows]


def take_steps(net, lr, batches, objective, after=lambda: None):
    """Run a client's local steps in a loop of ours; objective : of (the network's outputs, labels)."""
    sgd = torch.optim.SGD(net.parameters(), lr=lr)
    for X, y in batches:
        sgd.zero_grad()
        objective(net(X), y).backward()
        sgd.step()
        after()
    return {"upload": {"w": flat(net)}}


def client_batches(data, plan, k):
    """Return the batches of client k in a round of all clients."""
    own = slice(*data["offsets"][k : k + 2])
    rows = plan["rows"]["D"][list(plan["clients"]).index(k)]
    return batches({"X": data["X"][own], "y": data["y"][own]}, rows[(rows >= 0).any(1)])


def train_clients(model, hyper, w, data, plan):
    """Run FedAvg's clients of a round; return for each its name, its w and its rows, as (k, w_k, n)."""
    ends = []
    for k, n in zip(plan["clients"], plan["sizes"]):
        sent = take_steps(Net(model, w), hyper["lr"], client_batches(data, plan, k), loss)
        ends.append((f"client {k}", sent["upload"]["w"], int(n)))
    return ends


def space(**names):
    """Return settings as a project reads them: space(common=space(lr=0.1)).common.lr."""
    return SimpleNamespace(**names)


class Anything(type):
    """The type of stand-ins: whatever is read off them is a stand-in again."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {"__init__": lambda self, *a, **k: None})


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that supplies stand-ins for the modules of packages that are never called."""

    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Anything("stand_in", (), {}), name)
        return module

    def exec_module(self, module):
        pass


def do_without(*packages, always=False):
    """Import stand-ins for packages that are not installed; with `always`, even for those that are."""
    sys.meta_path.insert(0 if always else len(sys.meta_path), StandIn(packages))


def without_init(*packages):
    """Let packages be imported without their __init__, which imports what is never called."""
    for name in packages:
        where = importlib.util.find_spec(name)
        if where is None:
            raise ImportError(f"no module named {name}")
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = list(where.submodule_search_locations)
