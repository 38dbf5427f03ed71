"""Importances against loops over samples."""

from functools import partial

import numpy as np
import pytest
from helpers import EXACT, KINDS, MODELS, cases, make_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import Batch
from fedref.algorithms import importance
from fedref.algorithms.apfl import APFL, compose
from fedref.algorithms.importance import (
    ESTIMATES,
    fisher,
    gradient_square,
    mas,
    synaptic_intelligence,
)
from fedref.checks import complex_step_gradient, relative_error

FLAT = (((), ()),)


def samples(D):
    """(c_j, batch of sample j alone) with Σc = 1."""
    s = np.ones(len(D.y)) if D.s is None else D.s
    return [(s[j] / s.sum(), Batch(D.X[j : j + 1], D.y[j : j + 1])) for j in range(len(D.y))]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_fedcurv_fisher_is_the_mean_of_per_sample_squares(kind, data):
    case = data.draw(cases(kind, FLAT))
    model, w, D = case.model, case.w, case.batch()
    expected = sum(
        c * complex_step_gradient(partial(model.loss, D=one), w) ** 2 for c, one in samples(D)
    )
    assert relative_error(fisher(model, w, D), expected) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_mas_is_the_mean_size_of_the_gradient_of_the_squared_scores(kind, data):
    case = data.draw(cases(kind, FLAT))
    model, w, D = case.model, case.w, case.batch()

    def squared_scores(w, X):
        return np.sum(model.logits(w, X) ** 2)

    expected = sum(
        c * np.abs(complex_step_gradient(partial(squared_scores, X=one.X), w))
        for c, one in samples(D)
    )
    assert relative_error(mas(model, w, D), expected) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_gradient_square_is_the_square_of_the_full_gradient(kind, data):
    case = data.draw(cases(kind, FLAT))
    model, w, D = case.model, case.w, case.batch()
    full = complex_step_gradient(lambda w: model.loss(w, D), w)
    assert relative_error(gradient_square(model, w, D), full**2) <= EXACT


def test_by_hand():
    """p = σ(0) = ½: gradients −½·2 and ½·4; the scores at w = 1 are 2 and 4."""
    model = MODELS["binary-logistic"].__class__(1, bias=False)
    D = Batch(np.array([[2.0], [4.0]]), np.array([1, 0]))
    assert fisher(model, np.zeros(1), D).tolist() == [(1 + 4) / 2]
    assert gradient_square(model, np.zeros(1), D).tolist() == [0.25]
    assert mas(model, np.ones(1), D).tolist() == [(2 * 2 * 2 + 2 * 4 * 4) / 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ESTIMATES)
def test_neither_order_nor_blocks_nor_weight_0_matter(name, kind, monkeypatch):
    model, rng = MODELS[kind], np.random.default_rng(0)
    D, w = make_batch(model, rng, 7), rng.normal(size=model.d)
    expected = ESTIMATES[name](model, w, D)
    assert (expected >= 0).all()
    assert expected.max() > 0
    order = rng.permutation(7)
    shuffled = ESTIMATES[name](model, w, Batch(D.X[order], D.y[order]))
    assert relative_error(shuffled, expected) <= EXACT

    more = make_batch(model, rng, 2)
    padded = Batch(
        np.concatenate([D.X, more.X]), np.concatenate([D.y, more.y]), np.repeat([2.0, 0.0], [7, 2])
    )
    assert relative_error(ESTIMATES[name](model, w, padded), expected) <= EXACT

    monkeypatch.setattr(importance, "CHUNK", 3 * model.d)  # blocks of 3, 3 and 1 samples
    assert relative_error(ESTIMATES[name](model, w, D), expected) <= EXACT


@pytest.mark.parametrize("estimate", [importance.fisher, importance.mas])
def test_samples_without_weight_measure_nothing(estimate):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D = make_batch(model, rng, 3)._replace(s=np.zeros(3))
    got = estimate(model, rng.normal(size=model.d), D)
    np.testing.assert_array_equal(got, np.zeros(model.d))


def test_synaptic_intelligence_by_hand():
    path, moved = np.array([0.4, -0.4, 0.0]), np.array([1.0, 1.0, 2.0])
    got = synaptic_intelligence(path, moved, damping=0.6)
    np.testing.assert_allclose(got, [0.4 / 1.6, 0.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(synaptic_intelligence(path, moved)[0], 0.4 / 1.1, rtol=1e-15)


@pytest.mark.parametrize("t", [0, 2])
def test_si_path_sums_to_the_fall_of_the_loss(t):
    """For small steps −Σ_j ω_j is the change of the loss along w_S's path (the point of SI), here of
    APFL's own steps, before (t = 0) and after (t = 2) the decomposition starts."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = APFL(importance="si", lr=1e-4, mu=0.0, init="continuous")
    D, w = make_batch(model, rng, 9), rng.normal(size=model.d)
    sent = algorithm.download(algorithm.initial(model, w)._replace(t=t, renew=True))
    local, fall = algorithm.start(model, sent, None), 0.0
    for _ in range(500):
        after = algorithm.step(model, sent, local, D)
        own = local.own if local.own else (np.full(4 + 3, 40.0), np.zeros(model.d))  # σ(40) = 1
        fall += model.loss(compose(model, local.w_s, *own), D)
        fall -= model.loss(compose(model, after.w_s, *own), D)  # by the move of w_S alone
        local = after
    assert fall > 1e-4
    np.testing.assert_allclose(local.si_path.sum(), fall, rtol=1e-3)
    result = algorithm.finish(model, sent, local, None, lambda: D)
    expected = synaptic_intelligence(local.si_path, local.w_s - w)
    np.testing.assert_array_equal(result.upload.importance, expected)
    assert algorithm.start(model, sent._replace(renew=False), None).si_path is None
