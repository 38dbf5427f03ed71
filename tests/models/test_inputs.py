"""What every model takes and gives back: numbers of any size and type, arrays, views; what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import every_model, make_point, worst_error
from scipy.sparse.linalg import eigsh

from fedref import checks
from fedref.models import (
    linear_operator,
)
from fedref.models.batch import Batch

# Numbers


@every_model
def test_huge_scores_stay_finite(model):
    """Scores of ±1e4 and beyond; any overflow would be a warning, and warnings are errors here."""
    for scale in (1e4, -1e4):
        w, v, D = make_point(model)
        for last in model.unpack(w)[-2:]:
            last *= scale
        assert np.abs(model.logits(w, D.X)).max() > 1e3
        assert np.isfinite(model.loss(w, D))
        assert np.isfinite(model.grad(w, D)).all()
        assert np.isfinite(model.hvp(w, v, D)).all()


@every_model
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
@pytest.mark.parametrize("weights", [False, True])
def test_dtypes_are_preserved(model, dtype, weights):
    w, v, D = make_point(model, weights=weights)
    loss, grad, hvp = model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)
    real = np.zeros(0, dtype).real.dtype
    w, v, E = w.astype(dtype), v.astype(dtype), D._replace(X=D.X.astype(real))
    tolerance = 2e-5 if dtype is np.float32 else 1e-13
    for got, expected in [
        (model.loss(w, E)[..., None], loss[..., None]),
        (model.sample_losses(w, E), model.sample_losses(w.real.astype(float), D)),
        (model.grad(w, E), grad),
        (model.hvp(w, v, E), hvp),
    ]:
        assert got.dtype == dtype
        assert worst_error(got, expected) <= tolerance


@every_model
def test_longdouble_is_not_computed_in_double(model):
    eps = float(np.finfo(np.longdouble).eps)
    w, v, D = make_point(model)
    w, v, D = (
        w.astype(np.longdouble),
        v.astype(np.longdouble),
        D._replace(X=D.X.astype(np.longdouble)),
    )
    g = checks.complex_step_gradient(lambda w: model.loss(w, D), w)
    h = checks.complex_step_hvp(lambda w: model.grad(w, D), w, v)
    assert worst_error(model.grad(w, D), g) <= 200 * eps
    assert worst_error(model.hvp(w, v, D), h) <= 200 * eps


@every_model
def test_integer_pixels_are_taken_as_they_are(model):
    w, v, D = make_point(model)
    X = np.random.default_rng(1).integers(0, 4, D.X.shape, np.uint8)
    one, other = D._replace(X=X), D._replace(X=X.astype(float))
    assert worst_error(model.grad(w, one), model.grad(w, other)) <= 1e-14
    assert worst_error(model.hvp(w, v, one), model.hvp(w, v, other)) <= 1e-14


# Inputs and outputs


@every_model
@pytest.mark.parametrize("lead", [(), (3,)])
def test_read_only_inputs_work_and_stay_untouched(model, lead):
    w, v, D = make_point(model, 5, lead, lead, True)
    inputs = (w, v, *D)
    before = [a.copy() for a in inputs]
    for a in inputs:
        a.setflags(write=False)
    model.loss(w, D)
    g, h = model.grad(w, D), model.hvp(w, v, D)
    model.predict(w, D.X)
    model.vjp(w, D.X, model.logits(w, D.X))
    for a, b in zip(inputs, before):
        np.testing.assert_array_equal(a, b)
    for result in (g, h):  # a caller may go on to write to them
        assert result.flags.writeable
        assert not any(np.shares_memory(result, a) for a in inputs)


@every_model
def test_strided_inputs_give_the_same(model):
    w, v, D = make_point(model, 5, (3,), (3,), True)
    strided = [np.repeat(np.asarray(a).T, 2, 0)[::2].T for a in (w, v, *D)]
    assert not any(a.flags.c_contiguous for a in strided)
    for got, expected in [
        (model.loss(strided[0], Batch(*strided[2:])), model.loss(w, D)),
        (model.grad(strided[0], Batch(*strided[2:])), model.grad(w, D)),
        (model.hvp(strided[0], strided[1], Batch(*strided[2:])), model.hvp(w, v, D)),
    ]:
        assert worst_error(got, expected) <= 1e-13


@every_model
def test_init_is_seeded_and_of_the_right_size(model):
    a, b = (model.init(np.random.default_rng(5)) for _ in range(2))
    assert a.shape == (model.d,)
    assert a.dtype == np.float64
    np.testing.assert_array_equal(a, b)


@every_model
def test_a_model_is_a_value(model):
    assert model == replace(model)
    assert hash(model) == hash(replace(model))
    with pytest.raises(AttributeError):
        model.l2 = 1.0


# The Hessian as an operator


@every_model
def test_linear_operator_with_eigsh(model):
    w, _, D = make_point(model)
    H = model.hvp(w, np.eye(model.d), D)
    A = linear_operator(model, w, D)
    assert A.dtype == np.float64
    np.testing.assert_array_equal(A.T @ w, A @ w)
    assert A.shape == (model.d, model.d)
    expected = np.linalg.eigvalsh(H)
    if np.ptp(expected) < 1e-12:  # the hinge: l2 times the identity
        np.testing.assert_allclose(A @ np.ones(model.d), model.l2, rtol=1e-15)
        return
    top = eigsh(A, k=2, which="LA", return_eigenvectors=False, v0=np.ones(model.d))
    np.testing.assert_allclose(np.sort(top), expected[-2:], rtol=1e-10)


# What is refused


@every_model
def test_one_row_of_labels_for_many_clients_is_refused(model):
    """y (B,) would broadcast over X (K, B, p) if K = B."""
    w, v, D = make_point(model, 5, (5,), (5,))
    wrong = D._replace(y=D.y[0])
    for call in (model.loss, model.grad, model.sample_losses, lambda w, D: model.hvp(w, v, D)):
        with pytest.raises(ValueError, match=r"y has shape \(5,\), expected \(5, 5\)"):
            call(w, wrong)


@every_model
@pytest.mark.parametrize("label", ["low", "high", "fraction"])
def test_labels_out_of_range_are_refused(model, label):
    w, v, D = make_point(model)
    y = D.y.astype(float) if label == "fraction" else D.y.copy()
    y[2] = {"low": min(model.labels) - 1, "high": max(model.labels) + 1, "fraction": 0.5}[label]
    for call in (model.loss, model.grad, lambda w, D: model.hvp(w, v, D)):
        with pytest.raises(ValueError, match=rf"labels run from .* \({type(model).__name__}\)"):
            call(w, D._replace(y=y))


@every_model
def test_labels_of_any_number_type(model):
    w, _, D = make_point(model)
    for dtype in (np.int8, np.int64, np.float32):
        E = D._replace(y=D.y.astype(dtype))
        np.testing.assert_array_equal(model.grad(w, E), model.grad(w, D))
        assert model.loss(w, E) == model.loss(w, D)


@every_model
def test_nan_in_nan_out(model):
    """A kink must not turn a missing number into a finite loss."""
    w, _, D = make_point(model)
    assert np.isnan(model.loss(w, D._replace(X=np.full_like(D.X, np.nan))))


@every_model
def test_what_is_no_weight_and_no_array_is_refused(model):
    w, _, D = make_point(model)
    s = np.ones(len(D.y))
    for bad in (-1.0, np.nan):
        s[1] = bad
        with pytest.raises(ValueError, match=rf"s has the weight {bad}, expected weights ≥ 0"):
            model.loss(w, D._replace(s=s))
    with pytest.raises(ValueError, match="not all NumPy arrays"):
        model.grad(w, D._replace(y=D.y.tolist()))


@every_model
def test_wrong_shapes_are_refused(model):
    w, _, D = make_point(model)
    longer = np.zeros(model.d + 1)
    with pytest.raises(ValueError, match="w has shape"):
        model.grad(longer, D)
    with pytest.raises(ValueError, match="w has shape"):
        model.hvp(w, longer, D)
    with pytest.raises(ValueError, match="X has shape"):
        model.grad(w, D._replace(X=D.X[:, 1:]))
    with pytest.raises(ValueError, match="s has shape"):
        model.grad(w, D._replace(s=np.ones(D.y.shape[0] - 1)))
    with pytest.raises(ValueError, match="one Hessian at a time"):
        linear_operator(model, np.stack([w, w]), D)
