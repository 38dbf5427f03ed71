"""pfl: `PyTorchFedProxBridge.do_proximal_sgd`, through `PyTorchModel` (pfl/internal/bridge/pytorch)."""

from types import MappingProxyType

import torch
from in_torch import Net, batches, flat
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.bridge.pytorch.proximal import PyTorchFedProxBridge
from pfl.model.pytorch import PyTorchModel


class Dataset(list):
    """Batches as pfl's datasets yield them."""

    train_kwargs = MappingProxyType({})

    def iter(self, size):
        return iter(self)


class Learner(Net):
    """A network with what pfl calls."""

    def loss(self, X, y):
        return torch.nn.functional.cross_entropy(self(X), y)

    def metrics(self, X, y):
        return {}


def client(algorithm, model, hyper, server, data, rows):
    net = Learner(model, server["w"])
    wrapped = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    how = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=hyper["lr"], local_batch_size=hyper["B"]
    )
    mu = hyper.get("mu", 0.0)
    PyTorchFedProxBridge.do_proximal_sgd(wrapped, Dataset(batches(data, rows["D"])), how, mu)
    return {"upload": {"w": flat(net)}}
