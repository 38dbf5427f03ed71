"""What holds for every model, on random sizes, leading axes, weights and labels."""

import doctest
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import cg, eigsh

from fedref import batch, checks
from fedref.batch import Batch
from fedref.models import (
    CNN,
    MLP,
    BinaryLogistic,
    LinearSVM,
    Logistic,
    base,
    cnn,
    linear_operator,
    logistic,
    mlp,
    svm,
)

width = st.integers(1, 5)
wide = st.integers(1, 40)
l2s = st.sampled_from([0.0, 0.3])


@st.composite
def mlps(draw, activation, size=width):
    hidden = draw(st.lists(size, max_size=2))
    return MLP(draw(size), tuple(hidden), draw(st.integers(2, 4)), activation, draw(l2s))


@st.composite
def cnns(draw, activation, pool, size=width):
    channels = draw(st.lists(st.integers(1, 3), max_size=2))
    kernel = draw(st.integers(1, 3))
    least = 1
    for _ in channels:
        least = 2 * least + kernel - 1
    sides = draw(st.tuples(st.integers(least, least + 2), st.integers(least, least + 2)))
    image = draw(st.sampled_from([sides, (*sides, 1), (*sides, 3)]))
    classes = draw(st.integers(2, 4))
    return CNN(image, channels, kernel, draw(size), classes, activation, pool, draw(l2s))


def kinds(size):
    """A strategy for every kind of model, by name."""
    flags, size = st.booleans(), size.map(lambda n: n + 1)  # in one dimension sums can cancel
    return {
        "binary": st.builds(BinaryLogistic, size, l2s, flags),
        "logistic": st.builds(Logistic, size, st.integers(2, 4), l2s),
        "hinge": st.builds(LinearSVM, size, l2s, st.just(False), flags),
        "squared hinge": st.builds(LinearSVM, size, l2s, st.just(True), flags),
        "mlp elu": mlps("elu", size),
        "mlp relu": mlps("relu", size),
        "mlp tanh": mlps("tanh", size),
        "cnn relu max": cnns("relu", "max", size),
        "cnn elu max": cnns("elu", "max", size),
        "cnn tanh mean": cnns("tanh", "mean", size),
        "cnn relu mean": cnns("relu", "mean", size),
    }


KINDS = kinds(width)
WIDE = kinds(wide)
every_kind = pytest.mark.parametrize("kind", KINDS)

# One small model of each kind, for what does not depend on sizes.
FIXED = {
    "binary": BinaryLogistic(5, l2=0.1),
    "logistic": Logistic(5, 3, l2=0.1),
    "hinge": LinearSVM(5, l2=0.1),
    "squared hinge": LinearSVM(5, l2=0.1, squared=True),
    "mlp elu": MLP(5, (4,), 3, l2=0.1),
    "mlp relu": MLP(5, (4,), 3, "relu", l2=0.1),
    "mlp tanh": MLP(5, (4,), 3, "tanh", l2=0.1),
    "cnn max": CNN((6, 5), (2,), 2, 4, 3, l2=0.1),
    "cnn mean": CNN((7, 6, 2), (2,), 2, 4, 3, "tanh", "mean", l2=0.1),
}
every_model = pytest.mark.parametrize("model", FIXED.values(), ids=FIXED)

#: Leading axes of w (and v) and of X; with B in {1, 5, 7}, all sizes are pairwise coprime.
LEADS = [((), ()), ((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 3), (2, 3))]


class Problem(NamedTuple):
    model: Any
    w: Any
    v: Any
    D: Batch


def make(model, B=7, w_lead=(), X_lead=(), weights="none", one_class=False, seed=0):
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((2, *w_lead, model.d))
    X = rng.standard_normal((*X_lead, B, model.features))
    labels = model.labels[:1] if one_class else model.labels
    y = rng.choice(labels, (*X_lead, B))
    # Scores of at most 3: at p = 1 − 1e-4, p − 1 keeps 12 digits, in the complex step as in ours.
    w *= min(1, 3 / np.abs(model.logits(w, X)).max())
    s = None if weights == "none" else rng.uniform(0.1, 2, (*X_lead, B))
    if weights == "padded":
        s[..., 1:][rng.random((*X_lead, B - 1)) < 0.4] = 0
    return Problem(model, w, v, Batch(X, y, s))


@st.composite
def problems(draw, models, leads=LEADS):
    w_lead, X_lead = draw(st.sampled_from(leads))
    return make(
        draw(models),
        draw(st.sampled_from([1, 5, 7])),
        w_lead,
        X_lead,
        draw(st.sampled_from(["none", "random", "padded"])),
        draw(st.booleans()),
        draw(st.integers(0, 2**32 - 1)),
    )


def error(got, expected):
    """The largest error over the last axis, relative to its largest entry; the worst of all rows."""
    assert got.shape == expected.shape
    scale = np.abs(expected).max(-1)
    return (np.abs(got - expected).max(-1) / np.where(scale > 0, scale, 1)).max()


def dot(a, b):
    return (a * b).sum(-1)


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


@every_kind
@given(data=st.data())
def test_hvp_is_symmetric_and_linear(kind, data):
    model, w, v, D = data.draw(problems(KINDS[kind]))
    u = np.random.default_rng(1).standard_normal(v.shape)
    Hu, Hv = model.hvp(w, u, D), model.hvp(w, v, D)
    size = np.sqrt(dot(u, u) * dot(Hv, Hv)) + np.sqrt(dot(v, v) * dot(Hu, Hu))
    assert np.all(np.abs(dot(u, Hv) - dot(v, Hu)) <= 1e-13 * size)
    scale = np.abs(Hu).max() + np.abs(Hv).max()
    assert np.abs(model.hvp(w, 2 * u - 3 * v, D) - (2 * Hu - 3 * Hv)).max() <= 1e-13 * scale


SMOOTH = ["binary", "logistic", "mlp tanh", "cnn mean"]


@pytest.mark.parametrize("model", [FIXED[name] for name in SMOOTH], ids=SMOOTH)
def test_taylor_slopes_are_2_and_3(model):
    _, w, v, D = make(model, weights="random")
    v = v / np.sqrt(dot(v, v))

    def f(w):
        return model.loss(w, D)

    g, Hv = model.grad(w, D), model.hvp(w, v, D)
    assert checks.taylor_slope(f, g, w, v) == pytest.approx(2, abs=0.05)
    assert checks.taylor_slope(f, g, w, v, Hv) == pytest.approx(3, abs=0.05)
    assert checks.taylor_slope(f, 1.1 * g, w, v) == pytest.approx(1, abs=0.05)
    assert checks.taylor_slope(f, g, w, v, 1.1 * Hv) == pytest.approx(2, abs=0.05)


# Leading axes


@every_kind
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]))
def test_a_stack_of_clients_equals_the_loop_bit_for_bit(kind, data, dtype):
    model, w, v, D = data.draw(problems(WIDE[kind], leads=[((3,), (3,))]))
    w, v, X = w.astype(dtype), v.astype(dtype), D.X.astype(dtype)
    D = D._replace(X=X)
    z = model.logits(w, X)
    stacked = [
        model.loss(w, D),
        model.sample_losses(w, D),
        model.grad(w, D),
        model.hvp(w, v, D),
        model.predict(w, X),
        z,
        model.vjp(w, X, z),
    ]
    for k in range(3):
        own = Batch(X[k].copy(), D.y[k].copy(), None if D.s is None else D.s[k].copy())
        z_k = model.logits(w[k].copy(), own.X)
        alone = [
            model.loss(w[k].copy(), own),
            model.sample_losses(w[k].copy(), own),
            model.grad(w[k].copy(), own),
            model.hvp(w[k].copy(), v[k].copy(), own),
            model.predict(w[k].copy(), own.X),
            z_k,
            model.vjp(w[k].copy(), own.X, z_k),
        ]
        for got, expected in zip(stacked, alone):
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
    D = Batch(D.X[:0], D.y[:0])
    assert model.loss(w, D) == model.l2 / 2 * dot(w, w)
    np.testing.assert_array_equal(model.grad(w, D), model.l2 * w)
    np.testing.assert_array_equal(model.hvp(w, v, D), model.l2 * v)
    assert model.predict(w, D.X).shape == (0,)


# Numbers


@every_model
def test_huge_scores_stay_finite(model):
    """Scores of ±1e4 and beyond; any overflow would be a warning, and warnings are errors here."""
    for scale in (1e4, -1e4):
        _, w, v, D = make(model)
        for last in model.unpack(w)[-2:]:
            last *= scale
        assert np.abs(model.logits(w, D.X)).max() > 1e3
        assert np.isfinite(model.loss(w, D))
        assert np.isfinite(model.grad(w, D)).all()
        assert np.isfinite(model.hvp(w, v, D)).all()


@every_model
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
@pytest.mark.parametrize("weights", ["none", "random"])
def test_dtypes_are_preserved(model, dtype, weights):
    _, w, v, D = make(model, weights=weights)
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
        assert error(got, expected) <= tolerance


@every_model
def test_longdouble_is_not_computed_in_double(model):
    eps = float(np.finfo(np.longdouble).eps)
    _, w, v, D = make(model)
    w, v, D = (
        w.astype(np.longdouble),
        v.astype(np.longdouble),
        D._replace(X=D.X.astype(np.longdouble)),
    )
    g = checks.complex_step_gradient(lambda w: model.loss(w, D), w)
    h = checks.complex_step_hvp(lambda w: model.grad(w, D), w, v)
    assert error(model.grad(w, D), g) <= 200 * eps
    assert error(model.hvp(w, v, D), h) <= 200 * eps


@every_model
def test_integer_pixels_are_taken_as_they_are(model):
    _, w, v, D = make(model)
    X = np.random.default_rng(1).integers(0, 4, D.X.shape, np.uint8)
    one, other = D._replace(X=X), D._replace(X=X.astype(float))
    assert error(model.grad(w, one), model.grad(w, other)) <= 1e-14
    assert error(model.hvp(w, v, one), model.hvp(w, v, other)) <= 1e-14


# Inputs and outputs


@every_model
@pytest.mark.parametrize("lead", [(), (3,)])
def test_read_only_inputs_work_and_stay_untouched(model, lead):
    _, w, v, D = make(model, 5, lead, lead, "random")
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
    _, w, v, D = make(model, 5, (3,), (3,), "random")
    strided = [np.repeat(np.asarray(a).T, 2, 0)[::2].T for a in (w, v, *D)]
    assert not any(a.flags.c_contiguous for a in strided)
    for got, expected in [
        (model.loss(strided[0], Batch(*strided[2:])), model.loss(w, D)),
        (model.grad(strided[0], Batch(*strided[2:])), model.grad(w, D)),
        (model.hvp(strided[0], strided[1], Batch(*strided[2:])), model.hvp(w, v, D)),
    ]:
        assert error(got, expected) <= 1e-13


@every_kind
@given(data=st.data())
def test_unpack_gives_views_in_order(kind, data):
    model = data.draw(KINDS[kind])
    lead = data.draw(st.sampled_from([(), (3,), (2, 3)]))
    w = np.random.default_rng(0).standard_normal((*lead, model.d))
    views = model.unpack(w)
    assert [view.shape for view in views] == [(*lead, *shape) for shape in model.shapes]
    np.testing.assert_array_equal(np.concatenate([v.reshape(*lead, -1) for v in views], -1), w)
    for i, view in enumerate(views):
        view[...] = i
    sizes = [int(np.prod(shape)) for shape in model.shapes]
    np.testing.assert_array_equal(w, np.broadcast_to(np.repeat(range(len(sizes)), sizes), w.shape))


@every_kind
@given(data=st.data())
def test_init_is_seeded_and_of_the_right_size(kind, data):
    model = data.draw(KINDS[kind])
    a, b = (model.init(np.random.default_rng(5)) for _ in range(2))
    assert a.shape == (model.d,)
    assert a.dtype == np.float64
    np.testing.assert_array_equal(a, b)


@every_model
def test_a_model_is_a_value(model):
    assert model == type(model)(**{f: getattr(model, f) for f in model.__dataclass_fields__})
    assert hash(model) == hash(
        type(model)(**{f: getattr(model, f) for f in model.__dataclass_fields__})
    )
    with pytest.raises(AttributeError):
        model.l2 = 1.0


# The Hessian as an operator


@every_model
def test_linear_operator_with_eigsh(model):
    _, w, _, D = make(model)
    H = model.hvp(w, np.eye(model.d), D)
    A = linear_operator(model, w, D)
    assert A.shape == (model.d, model.d)
    expected = np.linalg.eigvalsh(H)
    if np.ptp(expected) < 1e-12:  # the hinge: l2 times the identity
        np.testing.assert_allclose(A @ np.ones(model.d), model.l2, rtol=1e-15)
        return
    top = eigsh(A, k=2, which="LA", return_eigenvectors=False, v0=np.ones(model.d))
    np.testing.assert_allclose(np.sort(top), expected[-2:], rtol=1e-10)


@pytest.mark.parametrize("name", ["binary", "logistic", "hinge", "squared hinge"])
def test_linear_operator_with_cg(name):
    model = FIXED[name]
    _, w, v, D = make(model)
    x, failed = cg(linear_operator(model, w, D), v, rtol=1e-12)
    assert not failed
    assert error(x, np.linalg.solve(model.hvp(w, np.eye(model.d), D), v)) <= 1e-10


# What is refused


@every_model
def test_one_row_of_labels_for_many_clients_is_refused(model):
    """y (B,) would broadcast over X (K, B, p) if K = B."""
    _, w, v, D = make(model, 5, (5,), (5,))
    wrong = D._replace(y=D.y[0])
    for call in (model.loss, model.grad, model.sample_losses, lambda w, D: model.hvp(w, v, D)):
        with pytest.raises(ValueError, match=r"y has shape \(5,\), expected \(5, 5\)"):
            call(w, wrong)


@every_model
@pytest.mark.parametrize("label", ["low", "high", "fraction"])
def test_labels_out_of_range_are_refused(model, label):
    _, w, v, D = make(model)
    y = D.y.astype(float) if label == "fraction" else D.y.copy()
    y[2] = {"low": min(model.labels) - 1, "high": max(model.labels) + 1, "fraction": 0.5}[label]
    for call in (model.loss, model.grad, lambda w, D: model.hvp(w, v, D)):
        with pytest.raises(ValueError, match=rf"labels run from .* \({type(model).__name__}\)"):
            call(w, D._replace(y=y))


@every_model
def test_labels_of_any_number_type(model):
    _, w, _, D = make(model)
    for dtype in (np.int8, np.int64, np.float32):
        E = D._replace(y=D.y.astype(dtype))
        np.testing.assert_array_equal(model.grad(w, E), model.grad(w, D))
        assert model.loss(w, E) == model.loss(w, D)


@every_model
def test_nan_in_nan_out(model):
    """A kink must not turn a missing number into a finite loss."""
    _, w, _, D = make(model)
    assert np.isnan(model.loss(w, D._replace(X=np.full_like(D.X, np.nan))))


@every_model
def test_what_is_no_weight_and_no_array_is_refused(model):
    _, w, _, D = make(model)
    s = np.ones(len(D.y))
    s[1] = -1
    with pytest.raises(ValueError, match=r"s has the weight -1.0, expected weights ≥ 0"):
        model.loss(w, D._replace(s=s))
    with pytest.raises(ValueError, match="not all NumPy arrays"):
        model.grad(w, D._replace(y=D.y.tolist()))


@every_model
def test_wrong_shapes_are_refused(model):
    _, w, _, D = make(model)
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


@pytest.mark.parametrize("module", [base, logistic, svm, mlp, cnn, checks, batch])
def test_docstring_examples(module):
    assert doctest.testmod(module).failed == 0
