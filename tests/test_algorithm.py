"""Weights, the server's average, and options that are refused."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers import MODELS, make_batch

from fedref import ConfigError, checks, spec, strategies
from fedref.algorithm import (
    Algorithm,
    ClientResult,
    Cohort,
    Participant,
    weighted_mean,
    weighted_sum,
)
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import dissimilarity
from fedref.boundary.values import schema
from fedref.models.batch import Batch


def test_weighted_sum_adds_in_client_order():
    """In float32, (10⁸ + 1) − 10⁸ is 0 from the left and 1 from the right."""
    w = np.array([[1e8], [1.0], [-1e8]], np.float32)
    assert weighted_sum(np.ones(3, np.float32), w) == 0
    assert weighted_mean(np.array([0.25, 0.75]), np.array([[4.0], [8.0]])) == 7.0


def test_cohort_weights():
    cohort = Cohort(np.array([0, 3, 4]), np.array([1, 2, 1]), np.array([10, 5, 20]), 6)
    np.testing.assert_array_equal(cohort.weights("samples"), [0.25, 0.25, 0.5])
    np.testing.assert_array_equal(cohort.weights("uniform"), [0.25, 0.5, 0.25])
    with pytest.raises(ConfigError, match="did you mean 'samples'"):
        cohort.weights("sample")


#: What the equations divide by, or what would not be their mean: option, its first values in and outside.
RANGES = [
    ("apfl", "lam", 0.0, -1e-9), ("apfl", "lam", 1.0, 1.0 + 1e-9), ("apfl-deng", "alpha", 0.0, -1e-9),
    ("apfl-deng", "alpha", 1.0, 1.0 + 1e-9), ("fedavgm", "momentum", 1.0, 1.0 + 1e-9),
    ("feddyn", "alpha", 1e-9, 0), ("fednova", "lr", 1e-9, 0), ("scaffold", "lr", 1e-9, 0),
    ("fedadam", "tau", 1e-9, 0), ("per-fedavg-hf", "delta", 1e-12, 0.9e-12),
    ("fedmeta-maml", "inner_steps", 0, -1), ("per-fedavg", "inner_steps", 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "good", "bad"), RANGES)
def test_the_ends_of_a_range_belong_to_it(name, option, good, bad):
    """Each value is held to its range by tests/test_schema.py."""
    bounds = schema(ALGORITHMS[name])[option].bounds
    assert (bounds.holds(good), bounds.holds(bad)) == (True, False)


def test_the_defaults_of_an_algorithm_are_fedavg_s():
    """A step is all that must be written."""
    model, w = MODELS["svm"], np.arange(4.0)
    plain = Algorithm()
    server = plain.initial(model, w)
    assert plain.start(model, plain.download(server), None, Participant(0, 3, 1.0)) is w
    assert plain.personalised_params(model, server, None, None) is w
    assert plain.finish(model, server, w, None, None) == ClientResult(w, None, {})
    assert plain.observe_loss(server, 1.0) is server
    assert not plain.stop(model, server, w, None)
    said = (plain.roles, plain.personalised, plain.adapts_on, plain.pooled)
    assert said == (("D",), False, None, False)
    with pytest.raises(NotImplementedError):
        plain.step(model, server, w)


@dataclass(frozen=True)
class SmallerSteps(FedAvg):
    """Each client's step size is the mean's divided by its rows, from its first round on."""

    def start(self, model, sent, client_state, client):
        return sent.w, np.array(self.lr / client.n * client.weight)

    def step(self, model, sent, local, D):
        w, lr = local
        return w - lr[..., None] * model.grad(w, D), lr

    def finish(self, model, sent, local, client_state, data):
        return ClientResult(local[0])


def test_a_step_size_may_depend_on_the_client_and_an_old_start_is_told():
    def mine(f, w, rounds):
        for clients in rounds:
            ws, weights = [], spec.sample_weights(clients)
            for client, p in zip(clients, weights):
                w_k = w
                for (D,) in client.steps:
                    w_k = w_k - 0.5 / client.n * p * f.grad(w_k, D)
                ws.append(w_k)
            w = spec.average(weights, ws)
            yield w

    assert checks.check_rounds(SmallerSteps(lr=0.5), mine, draws=10).ok
    assert not checks.check_rounds(SmallerSteps(lr=0.25), mine, draws=10).ok
    drawn = strategies.traces(SmallerSteps(lr=0.5))
    wrong = strategies.smallest(drawn, lambda t: not checks.check_invariance(t)["threads"].ok, 20)
    assert wrong is None
    old = type("Old", (FedAvg,), {"start": lambda self, model, sent, client_state: sent.w})
    with pytest.raises(
        ConfigError, match=r"Old: start takes \(self, model, sent, client_state\), exp"
    ):
        old(lr=0.5)


# ---- what no round shows -------------------------------------------------------------------------


def test_a_row_of_weight_0_is_no_row_of_a_clients_share():
    model, rng = MODELS["logistic"], np.random.default_rng(0)
    w, one, other = rng.normal(size=model.d), make_batch(model, rng, 5), make_batch(model, rng, 3)
    padded = one._replace(s=np.array([1.0, 1, 0, 0, 0])), other._replace(s=np.ones(3))
    plain = Batch(one.X[:2], one.y[:2]), other
    got, expected = (dissimilarity(model, w, clients) for clients in (padded, plain))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name, cls in ALGORITHMS.items() if cls.adapts_on])
def test_without_rows_to_adapt_to_a_client_has_the_server_s_parameters(name):
    it, model, w = ALGORITHMS[name](), MODELS["svm"], np.arange(4.0)
    sent = it.download(it.initial(model, w))
    np.testing.assert_array_equal(it.personalised_params(model, sent, None, None), w)


@pytest.mark.parametrize("combine", [weighted_mean, weighted_sum])
@pytest.mark.parametrize("count", [1, 3])
def test_weights_and_vectors_are_as_many(combine, count):
    with pytest.raises(ValueError, match=f"2 weights and {count} vectors, expected one each"):
        combine(np.array([0.5, 0.5]), np.ones((count, 4)))
