"""The five rounds that are timed: (algorithm, model, federation, plan) of each, on made-up data."""

import numpy as np

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedmeta import MetaSGD
from fedref.algorithms.per_fedavg import PerFedAvg
from fedref.models import CNN, MLP, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.sampling import Plan, Sampling, make_plan

#: name → what is timed.
NAMES = {
    "W1": "FedAvg, logistic 784→10, 10 power-law clients of 69 samples on average, E = 5, B = 10",
    "W2": "Per-FedAvg (exact), MLP 784-80-60-10, 10 clients, τ = 10, B = 40",
    "W3": "Meta-SGD, the same MLP, 10 clients, 20 support and 20 query samples",
    "W4": "FedAvg, CNN of 1 034 380 parameters, 10 clients of 100 grey 32×32 images, E = 1, B = 10",
    "W5": "FedAvg, linear SVM, 23 clients of about 1900 samples of 100 features, E = 5, B = 10",
}


def federation(sizes: Array, X: Array, y: Array, scale: float = 1.0) -> Federation:
    """Clients that hold their rows side by side, nobody with test rows."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    nothing = Part(np.zeros(0, np.int64), np.zeros_like(offsets))
    train = Part(np.arange(offsets[-1]), offsets)
    return Federation(Source(X, y), train, nothing, scale=scale)


def pixels(sizes: Array, features: int, rng: np.random.Generator) -> Federation:
    n = int(sizes.sum())
    X = rng.integers(0, 256, (n, features), dtype=np.uint8)
    return federation(sizes, X, rng.integers(0, 10, n), 255.0)


def workload(name: str) -> tuple[AnyAlgorithm, Model, Federation, Plan]:
    rng = np.random.default_rng(3)
    algorithm: AnyAlgorithm
    model: Model
    if name == "W1":
        sizes = np.array([151, 118, 96, 80, 66, 54, 43, 34, 27, 21])
        algorithm, model, data = FedAvg(lr=0.05), Logistic(784, 10), pixels(sizes, 784, rng)
        sampling = Sampling(10, epochs=5, batch_size=10)
    elif name == "W2":
        algorithm, model = PerFedAvg(alpha=0.01, beta=0.01), MLP(784, (80, 60), 10)
        data = pixels(np.full(10, 200), 784, rng)
        sampling = Sampling(10, steps=10, batch_size=40)
    elif name == "W3":
        algorithm, model = MetaSGD(alpha=0.01, beta=0.01), MLP(784, (80, 60), 10)
        data = pixels(np.full(10, 40), 784, rng)
        sampling = Sampling(10, steps=1, support=0.5)
    elif name == "W4":
        algorithm, model = FedAvg(lr=0.05), CNN()
        data = pixels(np.full(10, 100), 1024, rng)
        sampling = Sampling(10, epochs=1, batch_size=10)
    else:
        sizes = 1900 + rng.integers(-400, 400, 23)
        X = rng.normal(size=(int(sizes.sum()), 100)).astype(np.float32)
        y = np.where(X @ rng.normal(size=100) > 0, 1, -1)
        algorithm, model = FedAvg(lr=0.001), LinearSVM(100, l2=1e-3)
        data, sampling = federation(sizes, X, y), Sampling(23, epochs=5, batch_size=10)
    return algorithm, model, data, make_plan(sampling, data.train.sizes, 0, 1, algorithm.roles)
