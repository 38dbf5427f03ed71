"""What a round does beside its arithmetic, by counting. The work of models: `fedref check`, products."""

import cProfile
import gc
import pstats

import numpy as np
import pytest
from helpers import make_federation, start

from fedref.algorithms.fedavg import FedAvg
from fedref.models import LinearSVM, Logistic, base
from fedref.rounds import local_data, stack
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_clients
from fedref.rounds.stack import stack_shared
from fedref.sampling import Sampling, make_plan

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
