"""FedProx: the proximal term, γ-inexactness, stragglers, adaptive μ, dissimilarity."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    SIZES,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
)

from fedref import Batch, tree
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import (
    FedProx,
    ProxSent,
    adapt_mu,
    dissimilarity,
    inexactness,
    objective,
    prox_gradient,
)
from fedref.rounds.cost import count_floats
from fedref.sampling import Sampling

EVERYONE = Sampling(len(SIZES), epochs=3, batch_size=4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"weighting": "uniform"}, {"drop": True}])
def test_mu_0_is_fedavg_to_the_bit(kind, options):
    """With the same weighting and the same treatment of stragglers."""
    model, federated = MODELS[kind], make_federation(MODELS[kind])
    config = replace(EVERYONE, clients_per_round=4, stragglers=0.5)
    options = {"drop": False, **options}
    prox, _ = play(FedProx(lr=0.1, mu=0.0, **options), model, federated, config)
    avg, _ = play(FedAvg(lr=0.1, **options), model, federated, config)
    assert [same(a.server.w, b.server.w) for a, b in zip(prox, avg)] == [True] * 4
    assert FedProx().weighting == FedAvg().weighting
    assert (FedProx().drop, FedAvg().drop) == (False, True)


def test_mu_pulls_towards_the_model_that_was_sent():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    moved = []
    for mu in (0.0, 0.5, 2.0):
        states, _ = play(FedProx(lr=0.1, mu=mu), model, federated, EVERYONE, rounds=1)
        moved.append(np.linalg.norm(states[1].server.w - states[0].server.w))
    assert moved[0] > moved[1] > moved[2] > 0


# -- γ


def test_fedprox_gamma_of_a_stack_is_each_one_s_own():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, w0, D = rng.normal(size=(3, model.d)), rng.normal(size=model.d), make_batch(model, rng, 5)
    got = inexactness(model, w, w0, D, mu=0.5)
    expected = [inexactness(model, one, w0, D, mu=0.5) for one in w]
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    starts = rng.normal(size=w.shape)
    got = inexactness(model, w, starts, D, mu=0.5)
    expected = [inexactness(model, *pair, D, mu=0.5) for pair in zip(w, starts)]
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_fedprox_gamma_that_is_just_reached_is_reached():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, sent, D = (
        rng.normal(size=model.d),
        ProxSent(np.ones(model.d), 0.5),
        make_batch(model, rng, 5),
    )
    gamma = float(inexactness(model, w, sent.w, D, mu=0.5))
    for until, stops in ((gamma, True), (0.999 * gamma, False)):
        assert FedProx(until_gamma=until).stop(model, sent, w, lambda: D) is stops


# -- systems heterogeneity


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_one_epoch_with_stragglers_is_defined(drop, unit):
    """E = 1: every straggler does that one epoch."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    config = Sampling(len(SIZES), **{unit: 1}, batch_size=4, stragglers=0.9)
    algorithm = FedProx(drop=drop)
    states, logs = play(algorithm, model, federated, config, rounds=2)
    if drop:
        assert [(log.stragglers, log.dropped) for log in logs] == [(5, 5)] * 2
        assert same(states[-1], states[0])  # all dropped: nothing changes
    else:
        full, _ = play(algorithm, model, federated, replace(config, stragglers=0.0), rounds=2)
        assert same(states, full)


# -- adaptive μ


def test_mu_does_not_fall_below_0():
    assert adapt_mu(0.05, 4, 2.0, 1.0) == (0.0, 0)
    assert adapt_mu(0.0, 4, 2.0, 1.0) == (0.0, 0)
    assert adapt_mu(0.0, 3, 2.0, 1.0) == (0.0, 4)
    assert adapt_mu(0.0, 4, 1.0, 2.0) == (0.1, 0)
    assert adapt_mu(0.3, 4, 1.0, 1.0) == (0.3, 0)


def test_fedprox_b_weighs_a_client_by_its_sample_weights():
    """Weights 1, 0, 2 are the samples 1, 3, 3: counts and gradients alike."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, D, other = rng.normal(size=model.d), make_batch(model, rng, 3), make_batch(model, rng, 4)
    weighted = Batch(D.X, D.y, np.array([1.0, 0.0, 2.0]))
    repeated = Batch(D.X[[0, 2, 2]], D.y[[0, 2, 2]])
    heavy = Batch(other.X, other.y, np.full(4, 3.0))
    twelve = Batch(np.repeat(other.X, 3, 0), np.repeat(other.y, 3))
    got = dissimilarity(model, w, [weighted, heavy])
    np.testing.assert_allclose(got, dissimilarity(model, w, [repeated, twelve]), rtol=1e-12)


# -- dissimilarity


def test_no_input_of_the_functions_is_written_to():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, w, w0 = tree.freeze((make_batch(model, rng, 4), *rng.normal(size=(2, model.d))))
    for f in (objective, prox_gradient, inexactness):
        f(model, w, w0, D, mu=0.3)
    dissimilarity(model, w, [D, D])
    assert make_algorithm("fedprox").until_gamma == 0


@pytest.mark.parametrize(
    ("measures", "names"), [(True, ["gamma", "penalty"]), (False, ["penalty"])]
)
def test_gamma_is_measured_unless_it_is_not_wanted(measures, names):
    model = MODELS["mlp"]
    algorithm = FedProx(measure_gamma=measures)
    _, (log,) = play(algorithm, model, make_federation(model), EVERYONE, rounds=1)
    assert list(log.measured) == names


def test_mu_travels_down_as_one_float():
    model, algorithm = MODELS["mlp"], FedProx()
    assert (
        count_floats(algorithm.download(algorithm.initial(model, np.zeros(model.d)))) == model.d + 1
    )
