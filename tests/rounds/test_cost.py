"""What a round costs, counted by hand: floats that travel, derivatives, samples in them."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from helpers import (
    MODELS,
    SIZES,
    make_algorithm,
    make_batch,
    make_federation,
    play,
)

from fedref import Batch
from fedref.algorithms.fedavg import FedAvg
from fedref.models.numerics import Array
from fedref.rounds.cost import Counter, Counts, RoundLog, columns, count_floats, flops, total
from fedref.sampling import Sampling

EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)
SAMPLES, PER_EPOCH, K = sum(SIZES), 2 + 1 + 3 + 1 + 2, len(SIZES)  # ⌈n_k/4⌉ of (7, 1, 12, 3, 5)


def test_a_gradient_of_scores_is_counted_and_not_changed():
    """Two clients at once, five rows each: two gradients of ten samples in all."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D = make_batch(model, rng, n=5)
    w = rng.normal(size=(2, 1, model.d))
    r = np.stack([model.logits(w[0, 0], D.X)] * 2)[:, None]
    counter = Counter(model)
    g = counter.vjp(w, D.X, r)
    assert counter.counts == Counts(grads=2, grad_samples=10)
    np.testing.assert_array_equal(g, model.vjp(w, D.X, r))


@pytest.mark.parametrize(
    ("importance", "grads", "samples"),
    [
        ("gradient-square", K, SAMPLES),
        ("fisher", SAMPLES, SAMPLES),
        ("mas", SAMPLES, SAMPLES),
        ("si", 0, 0),
    ],
)
def test_costs_of_apfl_while_importance_is_renewed(importance, grads, samples):
    """z = 2: rounds 1, 2, 3 send importance up; F travels down once it is not 0."""
    model = MODELS["mlp"]
    algorithm = make_algorithm("apfl", importance=importance, z=2, delta_mu=0.0)
    _, logs = play(algorithm, model, make_federation(model), EVERYONE, rounds=5)
    unit = K * model.d
    assert [log.floats_up // unit for log in logs] == [1, 2, 2, 2, 1]
    assert [log.floats_down // unit for log in logs] == [1, 1, 2, 2, 2]
    extra = np.array([0, 1, 1, 1, 0])
    assert [log.counts.grads for log in logs] == (2 * PER_EPOCH + grads * extra).tolist()
    assert [log.counts.grad_samples for log in logs] == (2 * SAMPLES + samples * extra).tolist()


@pytest.mark.parametrize(("s", "samples"), [([], 0), ([2.0], 1), ([0.0], 0), ([1.0, 0.0, 0.5], 2)])
def test_samples_of_weight_0_are_free(s, samples):
    model = MODELS["logistic"]
    counter, D = Counter(model), make_batch(model, np.random.default_rng(0), len(s))
    counter.grad(np.ones(model.d), D._replace(s=np.array(s)))
    assert counter.counts == Counts(1, 0, samples, 0)


def test_counter_counts_leading_axes_and_leaves_padding_out():
    model = MODELS["logistic"]
    rng = np.random.default_rng(0)
    counter = Counter(model)
    D = make_batch(model, rng, 5, lead=(2,))
    s = np.array([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    w = rng.normal(size=(2, model.d))
    counter.grad(w, Batch(D.X, D.y, s))
    counter.hvp(w, w, D)
    counter.grad(w[0], D)  # one w, two batches
    assert counter.counts == (4, 2, 17, 10)
    assert counter.d == model.d  # everything else is the model's


def test_measurements_are_the_mean_over_clients():
    """A diagnosis is neither counted nor sent."""

    @dataclass(frozen=True)
    class Measures(FedAvg):
        def client_metrics(self, model, sent, local, data) -> dict[str, float]:
            X: Array = data().X
            model.grad(sent.w, data())
            return {"n": float(len(X))}

    model = MODELS["mlp"]
    _, (log,) = play(Measures(), model, make_federation(model), EVERYONE, rounds=1)
    assert log.measured == {"n": SAMPLES / K}
    assert log.counts.grads == 2 * PER_EPOCH


def test_floats_and_totals():
    message = (np.ones((2, 3)), 1.5, np.float32(2), 3, True, np.arange(4), [np.zeros(2, complex)])
    assert count_floats(message) == 6 + 1 + 1 + 2  # whole numbers and flags are free
    assert total([Counts(1, 2, 3, 4), Counts(10, 20, 30, 40)]) == (11, 22, 33, 44)
    assert total([]) == Counts() == (0, 0, 0, 0)


def test_flops_and_the_columns_of_a_round():
    """2 operations a product of the derivatives, as the model states them."""
    model, products = MODELS["mlp"], 3 * 4 + 4 * 3
    counts = Counts(5, 7, 11, 13)
    grad, hvp = model.work  # how many products these are: tests/rounds/test_work.py
    assert grad > products
    assert flops(model, counts) == 2 * (grad * 11 + hvp * 13)
    log = RoundLog(100, 200, counts, 3, 2, 1)
    assert set(columns(model, RoundLog(), np.float64).values()) == {0}
    for dtype, size in ((np.float32, 4), (np.float64, 8)):
        assert columns(model, log, dtype) == {
            "bytes_down": 100 * size,
            "bytes_up": 200 * size,
            "grads": 5,
            "hvps": 7,
            "flops": flops(model, counts),
            "stragglers": 3,
            "dropped": 2,
            "failed": 1,
        }


def test_the_command_does_not_wait_for_what_it_may_not_need():
    code = (
        "import sys, fedref.commands.run; sys.exit(bool({'scipy', 'matplotlib'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
