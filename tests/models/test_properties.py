"""The derivatives of every model, on random sizes, leading axes, weights and labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_problems import (
    KINDS,
    LEADS,
    WIDE,
    dot,
    error,
    every_kind,
    every_model,
    make,
    problems,
)

from fedref import checks
from fedref.models import LinearSVM, Logistic
from fedref.models.batch import Batch

# Derivatives


@every_kind
@given(data=st.data())
def test_gradient_is_the_complex_step_of_the_loss(kind, data):
    model, w, _, D = data.draw(problems(KINDS[kind]))
    g = model.grad(w, D)
    assert error(g, checks.complex_step_gradient(lambda w: model.loss(w, D), w)) <= 1e-12


def hvp_error(model, w, v, D):
    """The error of Hv, relative to max_j Σ_k |H_jk v_k| by complex step.

    Hv is a sum of the terms H_·k v_k, and rounding goes by the terms: with two nearly saturated
    classes R{z} − p·R{z} cancels and the sum is a thousand times smaller than they are.
    """

    def times(v):
        return checks.complex_step_hvp(lambda w: model.grad(w, D), w, v)

    lead = [1] * max(v.ndim - 1, D.y.ndim - 1)
    terms = times(v * np.eye(model.d).reshape(model.d, *lead, model.d))  # (d, ..., d)
    scale = np.abs(terms).sum(0).max(-1)
    difference = np.abs(model.hvp(w, v, D) - times(v)).max(-1)
    return (difference / np.where(scale > 0, scale, 1)).max()


@every_kind
@given(data=st.data())
def test_hvp_is_the_complex_step_of_the_gradient(kind, data):
    assert hvp_error(*data.draw(problems(KINDS[kind]))) <= 1e-12


@every_kind
@given(data=st.data())
def test_hvp_at_kinks_is_the_complex_step_both_ways(kind, data):
    """Rows and parameters are whole numbers: many scores and margins are exactly at a kink, or tie."""
    model, w, v, D = data.draw(problems(KINDS[kind]))
    w, D = np.round(w), D._replace(X=np.round(D.X))
    assert hvp_error(model, w, v, D) <= 1e-12
    assert hvp_error(model, w, -v, D) <= 1e-12


def test_hvp_at_a_kink_by_hand():
    """Squared hinge, w = (0, −1), x = 0, y = −1: the margin is 0, so H is that of (0.5/2)‖w‖²."""
    model, D = LinearSVM(1, l2=0.5, squared=True), Batch(np.zeros((1, 1)), np.array([-1]))
    w, v = np.array([0.0, -1.0]), np.array([0.0, 1.0])
    for u in (v, -v):
        by_step = checks.complex_step_hvp(lambda w: model.grad(w, D), w, u)
        assert by_step.tolist() == model.hvp(w, u, D).tolist() == (0.5 * u).tolist()


@pytest.mark.parametrize("seed", [4, 638, 810])
def test_hvp_where_its_terms_cancel(seed):
    """Relative to Hv itself this one is 1e-12 off, from rounding; relative to its terms it is not."""
    model, (w_lead, X_lead) = Logistic(6, 2), LEADS[4]
    model, w, v, D = make(model, 1, w_lead, X_lead, seed=seed)
    assert hvp_error(model, w, v, D) <= 1e-12

    class Wrong(Logistic):
        def hvp(self, w, v, D):
            return super().hvp(w, v, D) * (1 + 1e-8)

    assert hvp_error(Wrong(6, 2), w, v, D) > 1e-12


@every_kind
@given(data=st.data())
def test_vjp_is_the_complex_step_of_the_scores(kind, data):
    model, w, _, D = data.draw(problems(KINDS[kind]))
    z = model.logits(w, D.X)
    r = np.random.default_rng(1).standard_normal(z.shape)
    axes = tuple(range(np.broadcast(w[..., 0], D.y[..., 0]).ndim, z.ndim))
    expected = checks.complex_step_gradient(lambda w: (r * model.logits(w, D.X)).sum(axes), w)
    assert error(model.vjp(w, D.X, r), expected) <= 1e-12


# Leading axes


def outputs(model, w, v, D):
    z = model.logits(w, D.X)
    return [
        model.loss(w, D),
        model.sample_losses(w, D),
        model.grad(w, D),
        model.hvp(w, v, D),
        model.predict(w, D.X),
        z,
        model.vjp(w, D.X, z),
    ]


@every_kind
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]))
def test_a_stack_of_clients_equals_the_loop_bit_for_bit(kind, data, dtype):
    model, w, v, D = data.draw(problems(WIDE[kind], leads=[((3,), (3,))]))
    w, v, D = w.astype(dtype), v.astype(dtype), D._replace(X=D.X.astype(dtype))
    stacked = outputs(model, w, v, D)
    for k in range(3):
        own = Batch(*(None if part is None else part[k].copy() for part in D))
        alone = outputs(model, w[k].copy(), v[k].copy(), own)
        for got, expected in zip(stacked, alone, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got[k], expected)


@every_kind
@given(data=st.data())
def test_leading_axes_broadcast(kind, data):
    model, w, v, D = data.draw(problems(KINDS[kind], leads=[((2, 1), (3,)), ((), (3,))]))
    s = np.ones(D.y.shape) if D.s is None else D.s
    loss, grad, hvp = model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)
    lead = np.broadcast_shapes(w.shape[:-1], D.y.shape[:-1])
    assert (loss.shape, grad.shape, hvp.shape) == (lead, (*lead, model.d), (*lead, model.d))
    assert model.sample_losses(w, D).shape == model.predict(w, D.X).shape == (*lead, D.y.shape[-1])
    for at in np.ndindex(lead):
        i, k = ((*at[:1], 0) if w.ndim > 1 else ()), at[-1]
        one = Batch(D.X[k], D.y[k], s[k])
        assert loss[at] == pytest.approx(model.loss(w[i], one), rel=1e-13)
        assert error(grad[at], model.grad(w[i], one)) <= 1e-13
        assert error(hvp[at], model.hvp(w[i], v[i], one)) <= 1e-13


@every_model
def test_hvp_takes_many_vectors_at_once(model):
    _, w, _, D = make(model)
    H = model.hvp(w, np.eye(model.d), D)  # (d, d)
    columns = [model.hvp(w, e, D) for e in np.eye(model.d)]
    np.testing.assert_allclose(H, columns, rtol=0, atol=1e-14 * np.abs(H).max())


@every_model
def test_per_sample_gradients(model):
    _, w, _, D = make(model, weights="random")
    g = model.grad(w, D.per_sample())  # (B, d)
    assert g.shape == (7, model.d)
    for j in range(7):
        one = Batch(D.X[j : j + 1], D.y[j : j + 1])
        assert error(g[j], model.grad(w, one)) <= 1e-14
    mean = (D.s[:, None] * g).sum(
        0
    ) / D.s.sum()  # each holds the L2 term once, and so does the mean
    assert error(mean, model.grad(w, D)) <= 1e-13


# Weights and L2


@every_kind
@given(data=st.data())
def test_an_integer_weight_repeats_a_sample_and_0_removes_it(kind, data):
    model, w, v, D = data.draw(problems(KINDS[kind], leads=LEADS[:1]))
    s = np.random.default_rng(1).integers(0, 3, D.y.shape)
    s[0] = 2
    weighted, repeated = D._replace(s=s), Batch(np.repeat(D.X, s, 0), np.repeat(D.y, s))
    assert model.loss(w, weighted) == pytest.approx(model.loss(w, repeated), rel=1e-13)
    assert error(model.grad(w, weighted), model.grad(w, repeated)) <= 1e-12
    assert error(model.hvp(w, v, weighted), model.hvp(w, v, repeated)) <= 1e-12


@every_kind
@given(data=st.data())
def test_the_loss_is_the_weighted_mean_plus_l2(kind, data):
    model, w, _, D = data.draw(problems(KINDS[kind]))
    s = np.ones(D.y.shape) if D.s is None else D.s
    mean = np.average(
        model.sample_losses(w, D), -1, np.broadcast_to(s, (*model.loss(w, D).shape, s.shape[-1]))
    )
    expected = mean + model.l2 / 2 * np.linalg.norm(w, axis=-1) ** 2
    np.testing.assert_allclose(model.loss(w, D), expected, rtol=1e-13)


@every_model
@pytest.mark.parametrize("lead", [(), (3,)])
def test_all_zero_weights_leave_the_l2_term_alone(model, lead):
    _, w, v, D = make(model, 5, lead, lead)
    D = D._replace(s=np.zeros(D.y.shape))
    np.testing.assert_array_equal(model.loss(w, D), model.l2 / 2 * dot(w, w))
    np.testing.assert_array_equal(model.grad(w, D), model.l2 * w)
    np.testing.assert_array_equal(model.hvp(w, v, D), model.l2 * v)


@every_model
def test_an_empty_batch_has_the_l2_term_alone(model):
    _, w, v, D = make(model)
    for s in (None, np.zeros(0)):
        D = Batch(D.X[:0], D.y[:0], s)
        assert model.loss(w, D) == model.l2 / 2 * dot(w, w)
        np.testing.assert_array_equal(model.grad(w, D), model.l2 * w)
        np.testing.assert_array_equal(model.hvp(w, v, D), model.l2 * v)
        assert model.predict(w, D.X).shape == (0,)
