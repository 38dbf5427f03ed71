"""What every model has besides `checks.check_model` (tests/conformance/test_sources.py has that)
and besides what `fedref check` proves: kinks, bits of a stack, types, layouts in memory, extremes."""

import numpy as np
import pytest
from helpers import MODELS, NUMERIC, every_model, make_point, same, worst_error
from scipy.sparse.linalg import eigsh

from fedref import checks
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, linear_operator
from fedref.models.batch import Batch


class InParts(LSTM):
    """An LSTM with memory for two rows at once."""

    rows = 2


#: Sizes at which BLAS takes other routes than at those of a drawn model.
LARGE = [
    BinaryLogistic(40), Logistic(33, 4, l2=0.3), LinearSVM(40, squared=True), LinearSVM(21, bias=False),
    MLP(40, (33, 21), 3), MLP(17, (40,), 4, "relu"), MLP(38, (), 3, "tanh"),
    CNN((14, 13, 3), (3, 2), 3, 20, 3), CNN((9, 10), (3,), 2, 33, 2, "tanh", "mean"),
    LSTM(5, 3, 6, 2, (3, 5), l2=0.1), InParts(5, 3, 6, 2, (3, 5), l2=0.1),
]  # fmt: skip


def derivatives(model, w, v, D):
    return [model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)]


PAPERS = [Logistic(784, 10), MLP(784), CNN(), LSTM(81, 80, 20)]


@pytest.mark.parametrize("model", [*PAPERS, *LARGE], ids=str)
def test_derivatives_at_the_sizes_of_the_papers_are_complex_steps(model):
    """Dual numbers, and so `fedref check`, reach small models only."""
    w, v, D = make_point(model, 2, weights=True)
    slope = checks.complex_step_derivative(lambda w: model.loss(w, D), w, v)
    assert model.grad(w, D) @ v == pytest.approx(slope, rel=1e-10)
    expected = checks.complex_step_hvp(lambda w: model.grad(w, D), w, v)
    assert worst_error(model.hvp(w, v, D), expected) <= 1e-10


@pytest.mark.parametrize("sign", [1, -1])
def test_a_complex_step_takes_the_first_of_equal_maxima(sign):
    model = CNN((3, 3), (1,), 2, 2, 2)
    w, v, _ = make_point(model, 1)
    model.unpack(w)[0][...] = 1  # the four windows have equal sums, and slopes of two kinds
    D = Batch(np.array([[1.0, 0, 1, 0, 1, 0, 1, 0, 1]]), np.array([1]))
    slope = checks.complex_step_derivative(lambda w: model.loss(w, D), w, sign * v)
    assert model.grad(w, D) @ (sign * v) == pytest.approx(slope, rel=1e-10)


# Leading axes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("model", LARGE, ids=str)
def test_a_stack_of_clients_equals_the_loop_bit_for_bit(model, n, dtype):
    w, v, D = make_point(model, n, (3,), (3,), weights=True)
    w, v = w.astype(dtype), v.astype(dtype)
    if model.inputs == "numbers":
        D = D._replace(X=D.X.astype(dtype))

    def outputs(w, v, D):
        z = model.logits(w, D.X)
        more = model.sample_losses(w, D), model.predict(w, D.X), z, model.vjp(w, D.X, z)
        return tuple(np.asarray(x) for x in (*derivatives(model, w, v, D), *more))

    stacked = outputs(w, v, D)
    for k in range(3):
        own = Batch(*(part[k].copy() for part in D))
        assert same(outputs(w[k].copy(), v[k].copy(), own), tuple(x[k, ...] for x in stacked))


@pytest.mark.parametrize("leads", [((2, 1), (3,)), ((), (3,)), ((3,), ())], ids=str)
@pytest.mark.parametrize("model", [*NUMERIC.values(), MODELS["lstm"]], ids=str)
def test_leading_axes_broadcast(model, leads):
    """Also over many vectors for one Hessian, and with one sample a batch."""
    w, v, D = make_point(model, 5, *leads, weights=True)
    loss, grad, hvp = derivatives(model, w, v, D)
    lead = np.broadcast_shapes(*leads)
    assert (loss.shape, grad.shape, hvp.shape) == (lead, (*lead, model.d), (*lead, model.d))
    assert model.sample_losses(w, D).shape == model.predict(w, D.X).shape == (*lead, 5)
    w, v = (np.broadcast_to(x, (*lead, model.d)) for x in (w, v))
    X, y, s = (np.broadcast_to(x, (*lead, *x.shape[len(leads[1]) :])) for x in D)
    for at in np.ndindex(lead):
        own = Batch(X[at], y[at], s[at])
        one = derivatives(model, w[at], v[at], own)
        for got, expected in zip((loss, grad, hvp), one):
            assert worst_error(np.atleast_1d(got[at]), np.atleast_1d(expected)) <= 1e-13
    H = model.hvp(w[at], np.eye(model.d), own)  # (d, d)
    np.testing.assert_allclose(v[at] @ H, hvp[at], rtol=0, atol=1e-13 * np.abs(H).max(initial=1))
    mean = np.average(model.grad(w[at], own.per_sample()), 0, own.s)  # each holds the L2 term once
    assert worst_error(mean, grad[at]) <= 1e-13


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_without_a_sample_the_l2_term_is_left(model, lead):
    w, v, D = make_point(model, 5, lead, lead)
    expected = [model.l2 / 2 * (w * w).sum(-1), model.l2 * w, model.l2 * v]
    empty = Batch(D.X[..., :0, :], D.y[..., :0])
    for none in (D._replace(s=np.zeros(D.y.shape)), empty, empty._replace(s=np.zeros((*lead, 0)))):
        for got, right in zip(derivatives(model, w, v, none), expected):
            np.testing.assert_array_equal(got, right)
    assert model.predict(w, empty.X).shape == (*lead, 0)


# Numbers


@every_model
def test_huge_scores_stay_finite_and_a_missing_number_stays_missing(model):
    """Scores of ±1e4 and beyond; any overflow would be a warning, and warnings are errors here."""
    w, v, D = make_point(model)
    assert np.isnan(model.loss(w, D._replace(X=np.full_like(D.X, np.nan))))
    for scale in (1e4, -1):
        for last in model.unpack(w)[-2:]:
            last *= scale
        assert np.abs(model.logits(w, D.X)).max() > 1e3
        assert all(np.isfinite(x).all() for x in derivatives(model, w, v, D))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
@every_model
def test_types_are_preserved_and_features_and_labels_may_be_of_any(model, dtype):
    """Pixels are whole numbers. In longdouble no step is in double."""
    w, v, D = make_point(model, weights=True)
    D = D._replace(X=np.random.default_rng(1).integers(0, 4, D.X.shape, np.uint8))
    w *= min(1, 3 / np.abs(model.logits(w, D.X)).max())
    exact = *derivatives(model, w, v, D), model.sample_losses(w, D)
    x, vx, tolerance = w.astype(dtype), v.astype(dtype), 2e-5 if dtype is np.float32 else 1e-13
    E = D._replace(X=D.X.astype(np.zeros(0, dtype).real.dtype), y=D.y.astype(np.float32))
    for got, expected in zip((*derivatives(model, x, vx, E), model.sample_losses(x, E)), exact):
        assert got.dtype == dtype
        assert worst_error(np.atleast_1d(got), np.atleast_1d(expected)) <= tolerance
    if dtype is np.longdouble:
        g = checks.complex_step_gradient(lambda w: model.loss(w, E), x)
        h = checks.complex_step_hvp(lambda w: model.grad(w, E), x, vx)
        assert worst_error(model.grad(x, E), g) <= 200 * np.finfo(dtype).eps
        assert worst_error(model.hvp(x, vx, E), h) <= 200 * np.finfo(dtype).eps


@every_model
def test_inputs_may_be_strided_and_read_only_and_stay_as_they_are(model):
    w, v, D = make_point(model, 5, (3,), (3,), True)
    inputs = [np.repeat(np.asarray(a).T, 2, 0)[::2].T for a in (w, v, *D)]
    assert not any(a.flags.c_contiguous for a in inputs)
    before = [a.copy() for a in inputs]
    for a in inputs:
        a.setflags(write=False)
    results = derivatives(model, *inputs[:2], E := Batch(*inputs[2:]))
    model.vjp(inputs[0], E.X, model.logits(inputs[0], E.X))
    for got, expected in zip(results, derivatives(model, w, v, D)):
        assert worst_error(got, expected) <= 1e-13
    for a, b in zip(inputs, before):
        np.testing.assert_array_equal(a, b)
    for result in results[1:]:  # a caller may go on to write to them
        assert result.flags.writeable
        assert not any(np.shares_memory(result, a) for a in inputs)


@every_model
def test_linear_operator_with_eigsh(model):
    w, _, D = make_point(model)
    A, expected = linear_operator(model, w, D), np.linalg.eigvalsh(model.hvp(w, np.eye(model.d), D))
    if np.ptp(expected) > 1e-12:  # the hinge's is l2 times the identity
        top = eigsh(A, k=2, which="LA", return_eigenvectors=False, v0=np.ones(model.d))
        np.testing.assert_allclose(np.sort(top), expected[-2:], rtol=1e-10)
