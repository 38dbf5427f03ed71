"""The work that models state, and the calls that a round makes, by counting."""

import cProfile
import gc
import pstats
from math import prod

import numpy as np
import pytest
from helpers import make_batch, make_federation, start

from fedref.algorithms.fedavg import FedAvg
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic, base
from fedref.models.batch import Batch
from fedref.models.lstm import LSTM
from fedref.rounds import local_data, stack
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_clients
from fedref.rounds.stack import stack_shared
from fedref.sampling import Sampling, make_plan


class Watched(np.ndarray):
    """Arrays whose matrix products are counted: multiplications, in `Watched.products`."""

    products = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **more):
        plain = [np.asarray(x) for x in inputs]
        if ufunc in (np.matmul, np.matvec):
            a, b = plain if ufunc is np.matmul else (plain[0], plain[1][..., None])
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            Watched.products += prod(lead) * a.shape[-2] * a.shape[-1] * b.shape[-1]
        outs = None if out is None else tuple(np.asarray(x) for x in out)
        result = getattr(ufunc, method)(*plain, out=outs, **more)
        if isinstance(result, tuple):
            return tuple(x.view(Watched) for x in result)
        return np.asarray(result).view(Watched)


def watched(derivative, *arguments):
    """The multiplications of one call; what it makes anew is watched too."""
    Watched.products = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "zeros", "zeros_like"):
            make = getattr(np, name)
            patch.setattr(
                np, name, lambda *how, make=make, **more: make(*how, **more).view(Watched)
            )
        derivative(*arguments)
    return Watched.products


#: (model, gradient and HVP in forward passes)
WORK = [
    (Logistic(784, 10), 2.0, 3.0),
    (BinaryLogistic(30), 2.0, 3.0),
    (LinearSVM(30), 2.0, 3.0),
    (LinearSVM(30, squared=True, bias=False), 2.0, 3.0),
    (MLP(784, (80, 60), 10), 2.08, 3.40),
    (MLP(5, (), 3), 2.0, 3.0),
    (CNN(), 2.90, 7.50),
    (CNN((13, 12, 3), (4, 5), 2, 6, 3, pool="mean"), None, None),
    (LSTM(vocabulary=7, classes=6, length=5, embedding=3, hidden=(4, 6)), None, None),
    (LSTM(vocabulary=7, classes=6, length=5, embedding=3, hidden=(4,), output="mean"), None, None),
]


@pytest.mark.parametrize(
    ("model", "grad", "hvp"), WORK, ids=[f"{type(m).__name__}-{m.d}" for m, *_ in WORK]
)
def test_models_state_the_matrix_products_that_they_do(model, grad, hvp):
    rng = np.random.default_rng(0)
    if isinstance(model, LSTM):
        D = Batch(rng.integers(0, 7, (3, 5)).view(Watched), rng.integers(0, 6, 3))
    else:
        D = make_batch(model, rng, 3)
        D = Batch(D.X.view(Watched), D.y)
    w, v = (rng.normal(size=model.d).view(Watched) for _ in range(2))
    assert watched(model.grad, w, D) == 3 * model.work[0]
    assert watched(model.hvp, w, v, D) == 3 * model.work[1]
    assert watched(model.logits, w, D.X) == 3 * sum(model.products)
    if grad is not None:
        passes = np.array(model.work) / sum(model.products)
        np.testing.assert_allclose(passes, [grad, hvp], atol=0.005)


# -- what a round does beside its arithmetic

SIZES = (60, 60, 60)
STEPS = 30  # 5 epochs of 6 batches


def round_of(model, epochs=5):
    """(the work of a FedAvg round of 6 steps an epoch, its data), with a stack of three clients."""
    federated, algorithm = make_federation(model, SIZES), FedAvg(lr=0.01)
    plan = make_plan(Sampling(3, epochs=epochs, batch_size=10), federated.train.sizes, 0, 0)
    sent = algorithm.download(start(algorithm, model).server)
    data = gather(plan, federated, np.float64, np.arange(3), np.full(3, 1 / 3))
    return (algorithm, model, sent, [None] * 3, data), federated


@pytest.mark.parametrize(("model", "most"), [(LinearSVM(3), 23), (Logistic(3, 4), 45)])
def test_calls_of_a_step(model, most):
    """Python's and NumPy's functions and methods, operators not among them."""
    calls = []
    for epochs in (5, 5, 10):  # the first makes what is made once
        work, _ = round_of(model, epochs)
        profile = cProfile.Profile()
        gc.disable()  # Hypothesis has the collector call it
        profile.runcall(run_clients, *work)
        gc.enable()
        calls.append(pstats.Stats(profile).total_calls)
    assert calls[2] - calls[1] <= most * STEPS


@pytest.mark.parametrize("kind", [LinearSVM(3), Logistic(3, 4)])
@pytest.mark.parametrize("block", [1, 1 << 12, 1 << 19])
def test_a_round_gathers_every_batch_once(kind, block, monkeypatch):
    """However many steps a block has; labels and weights of the data are looked at once."""
    monkeypatch.setattr(local_data, "GATHER_BYTES", 0)
    monkeypatch.setattr(stack, "BLOCK_BYTES", block)
    gathered, looked = [], []
    affine, check_labels = local_data.affine, base.check_labels
    monkeypatch.setattr(local_data, "affine", lambda X, *how: gathered.append(X) or affine(X, *how))
    monkeypatch.setattr(
        base, "check_labels", lambda *what: looked.append(what) or check_labels(*what)
    )
    work, _ = round_of(kind)
    _, counts = run_clients(*work)
    assert counts == (3 * STEPS, 0, 5 * sum(SIZES), 0)
    assert sum(X.nbytes for X in gathered) == 5 * sum(SIZES) * 3 * 8
    steps = max(1, block // (3 * 10 * 3 * 8))
    assert len(gathered) == -(-STEPS // steps)
    assert len(looked) == 1


def test_a_start_that_all_share_is_not_copied():
    w = np.zeros(5)
    assert np.shares_memory(stack_shared([w, w, w]), w)
    two = stack_shared([(w, 1), (w.copy(), 1)])
    assert not np.shares_memory(two[0], w)
    np.testing.assert_array_equal(two[1], [1, 1])
    np.testing.assert_array_equal(stack_shared([w, w, w + 1]), [w, w, w + 1])
