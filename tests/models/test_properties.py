"""What every model has besides `checks.check_model` (tests/test_strategies.py holds drawn models to that)."""

import numpy as np
import pytest
from helpers import NUMERIC, every_model, make_point, same, worst_error
from hypothesis import assume, given
from hypothesis import strategies as st

from fedref import checks, strategies
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.batch import Batch

every_family = pytest.mark.parametrize("family", strategies.FAMILIES)
#: Sizes at which BLAS takes other routes than at those of a drawn model.
LARGE = [
    BinaryLogistic(40), Logistic(33, 4, l2=0.3), LinearSVM(40, squared=True), LinearSVM(21, bias=False),
    MLP(40, (33, 21), 3), MLP(17, (40,), 4, "relu"), MLP(38, (), 3, "tanh"),
    CNN((14, 13, 3), (3, 2), 3, 20, 3), CNN((9, 10), (3,), 2, 33, 2, "tanh", "mean"),
]  # fmt: skip


def derivatives(model, w, v, D):
    return [model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)]


def hvp_error(model, w, v, D):
    """The error of Hv, relative to max_j Σ_k |H_jk v_k| by complex step: the terms may cancel."""

    def times(v):
        return checks.complex_step_hvp(lambda w: model.grad(w, D), w, v)

    terms = times(v * np.eye(model.d)[:, None])[:, 0]  # (d, d)
    scale = np.abs(terms).sum(0).max()
    return np.abs(model.hvp(w, v, D) - times(v)).max() / (scale or 1)


@pytest.mark.parametrize("model", [*NUMERIC.values(), CNN((7, 8, 2), (2, 1), 2, 2, 3)], ids=str)
def test_derivatives_at_a_random_point(model):
    """No drawn CNN has two layers of kernels."""
    w, v, D = make_point(model, weights=True)
    reports = checks.check_model(strategies.Problem(model, w, v, D))
    assert [name for name, report in reports.items() if not report.ok] == []


@every_family
@given(data=st.data())
def test_hvp_at_kinks_is_the_complex_step_both_ways(family, data):
    """Rows and parameters are halves and whole numbers: many scores are at a kink, or tie."""
    drawn = strategies.problems(strategies.models(family), kinks=True, weights=True)
    model, w, v, D = data.draw(drawn)
    assume(np.abs(model.logits(w, D.X)).max() <= 3)  # at p = 1 − 1e-4, p − 1 has 12 digits
    assert hvp_error(model, w, v, D) <= 1e-12
    assert hvp_error(model, w, -v, D) <= 1e-12


@every_family
@given(data=st.data())
def test_vjp_is_the_complex_step_of_the_scores(family, data):
    model, w, _, D = data.draw(strategies.problems(strategies.models(family)))
    z = model.logits(w, D.X)
    r = np.random.default_rng(1).standard_normal(z.shape)
    expected = checks.complex_step_gradient(lambda w: (r * model.logits(w, D.X)).sum(), w)
    assert worst_error(model.vjp(w, D.X, r), expected) <= 1e-12


# Leading axes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 7])
@pytest.mark.parametrize("model", LARGE, ids=str)
def test_a_stack_of_clients_equals_the_loop_bit_for_bit(model, n, dtype):
    w, v, D = make_point(model, n, (3,), (3,), weights=True)
    w, v, D = w.astype(dtype), v.astype(dtype), D._replace(X=D.X.astype(dtype))

    def outputs(w, v, D):
        z = model.logits(w, D.X)
        more = model.sample_losses(w, D), model.predict(w, D.X), z, model.vjp(w, D.X, z)
        return tuple(np.asarray(x) for x in (*derivatives(model, w, v, D), *more))

    stacked = outputs(w, v, D)
    for k in range(3):
        own = Batch(*(part[k].copy() for part in D))
        assert same(outputs(w[k].copy(), v[k].copy(), own), tuple(x[k, ...] for x in stacked))


@pytest.mark.parametrize("leads", [((2, 1), (3,)), ((), (3,)), ((3,), ())], ids=str)
@pytest.mark.parametrize("weights", [False, True])
@every_model
def test_leading_axes_broadcast(model, weights, leads):
    w, v, D = make_point(model, 5, *leads, weights)
    s = np.ones(D.y.shape) if D.s is None else D.s
    loss, grad, hvp = derivatives(model, w, v, D)
    lead = np.broadcast_shapes(*leads)
    assert (loss.shape, grad.shape, hvp.shape) == (lead, (*lead, model.d), (*lead, model.d))
    assert model.sample_losses(w, D).shape == model.predict(w, D.X).shape == (*lead, 5)
    w, v = (np.broadcast_to(x, (*lead, model.d)) for x in (w, v))
    X, y, s = (np.broadcast_to(x, (*lead, *x.shape[len(leads[1]) :])) for x in (D.X, D.y, s))
    for at in np.ndindex(lead):
        one = derivatives(model, w[at], v[at], Batch(X[at], y[at], s[at]))
        for got, expected in zip((loss, grad, hvp), one):
            assert worst_error(np.atleast_1d(got[at]), np.atleast_1d(expected)) <= 1e-13


@every_model
def test_hvp_takes_many_vectors_at_once(model):
    w, _, D = make_point(model)
    H = model.hvp(w, np.eye(model.d), D)  # (d, d)
    columns = [model.hvp(w, e, D) for e in np.eye(model.d)]
    np.testing.assert_allclose(H, columns, rtol=0, atol=1e-14 * np.abs(H).max())


@every_model
def test_per_sample_gradients(model):
    w, _, D = make_point(model, weights=True)
    g = model.grad(w, D.per_sample())  # (B, d)
    for j in range(7):
        one = Batch(*(x[j : j + 1] for x in D))
        assert worst_error(g[j], model.grad(w, one)) <= 1e-14
    mean = np.average(g, 0, D.s)  # each holds the L2 term once, and so does the mean
    assert worst_error(mean, model.grad(w, D)) <= 1e-13


# Weights and L2


@every_model
@pytest.mark.parametrize("lead", [(), (3,)])
def test_without_a_sample_the_l2_term_is_left(model, lead):
    w, v, D = make_point(model, 5, lead, lead)
    expected = [model.l2 / 2 * (w * w).sum(-1), model.l2 * w, model.l2 * v]
    empty = Batch(D.X[..., :0, :], D.y[..., :0])
    for none in (D._replace(s=np.zeros(D.y.shape)), empty, empty._replace(s=np.zeros((*lead, 0)))):
        for got, right in zip(derivatives(model, w, v, none), expected):
            np.testing.assert_array_equal(got, right)
    assert model.predict(w, empty.X).shape == (*lead, 0)


@every_model
def test_the_loss_is_the_weighted_mean_plus_l2(model):
    w, _, D = make_point(model, 7, (2,), (2,), weights=True)
    mean = np.average(model.sample_losses(w, D), -1, D.s)
    expected = mean + model.l2 / 2 * np.linalg.norm(w, axis=-1) ** 2
    np.testing.assert_allclose(model.loss(w, D), expected, rtol=1e-13)
