"""Primitives against scipy.special, hand numbers and the complex step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from fedref import checks
from fedref.models import numerics as nx

#: Both signs, both tails, and zero.
Z = np.array([-1e4, -800.0, -40.0, -3.0, -1e-9, 0.0, 1e-9, 0.5, 40.0, 800.0, 1e4])
DTYPES = [np.float32, np.float64, np.longdouble, np.complex128]
moderate = st.floats(-30, 30)
rows = (
    st.integers(1, 6)
    .flatmap(lambda n: st.lists(st.lists(moderate, min_size=n, max_size=n), min_size=1, max_size=4))
    .map(np.array)
)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nx.exp_neg_abs, lambda z: np.exp(-np.abs(z))),
        (nx.sigmoid, special.expit),
        (nx.softplus, lambda z: -special.log_expit(-z)),
    ],
)
def test_values(function, expected):
    np.testing.assert_allclose(function(Z), expected(Z), rtol=1e-15)


@given(z=rows)
def test_softmax_and_logsumexp(z):
    np.testing.assert_allclose(nx.softmax(z), special.softmax(z, -1), rtol=1e-13)
    np.testing.assert_allclose(nx.logsumexp(z), special.logsumexp(z, -1), rtol=1e-13, atol=1e-14)


@given(z=rows, data=st.data())
def test_cross_entropy(z, data):
    labels = st.integers(0, z.shape[-1] - 1)
    y = np.array(data.draw(st.lists(labels, min_size=len(z), max_size=len(z))))
    expected = -special.log_softmax(z, -1)[np.arange(len(z)), y]
    np.testing.assert_allclose(nx.cross_entropy(z, y), expected, rtol=1e-13, atol=1e-13)
    stack = np.stack([z, z + 1])  # one set of labels for two stacks of logits
    np.testing.assert_allclose(
        nx.cross_entropy(stack, y), [expected, expected], rtol=1e-13, atol=1e-13
    )


def test_huge_logits():
    z = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    np.testing.assert_array_equal(nx.softmax(z), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(nx.logsumexp(z), [1e4, -1e4 + np.log(3)], rtol=1e-15)
    np.testing.assert_allclose(nx.cross_entropy(z, np.array([1, 2])), [2e4, np.log(3)], rtol=1e-12)


def test_one_hot():
    expected = [[True, False, False], [False, False, True]]
    np.testing.assert_array_equal(nx.one_hot(np.array([0, 2]), 3), expected)


def derivative(f, z):
    return checks.complex_step_derivative(f, z, np.ones_like(z))


def test_the_derivatives_of_softplus_and_sigmoid():
    z = Z[np.abs(Z) < 200]  # beyond, the step h = 1e-200 is lost in an underflow
    np.testing.assert_allclose(derivative(nx.softplus, z), special.expit(z), rtol=1e-14)
    expected = special.expit(z) * special.expit(-z)
    np.testing.assert_allclose(derivative(nx.sigmoid, z), expected, rtol=1e-14)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_derivatives_at_0_in_both_directions(direction):
    """The branch goes by the real part: 0 − ih counts as 0, not as negative. σ′(0) = ¼, and e^(−|z|)
    takes the branch of z ≥ 0."""
    z, v = np.zeros(3), np.full(3, direction)
    for f, slope in ((nx.sigmoid, 0.25), (nx.softplus, 0.5), (nx.exp_neg_abs, -1.0)):
        got = checks.complex_step_derivative(f, z, v)
        np.testing.assert_allclose(got, slope * v, rtol=1e-15)
    for name, slope in (("elu", 1.0), ("tanh", 1.0)):
        got = checks.complex_step_derivative(nx.ACTIVATIONS[name].value, z, v)
        np.testing.assert_allclose(got, slope * v, rtol=1e-15)


@given(z=rows)
def test_the_gradients_of_logsumexp_and_cross_entropy(z):
    y = np.zeros(len(z), int)
    p = special.softmax(z, -1)
    np.testing.assert_allclose(checks.complex_step_gradient(nx.logsumexp, z), p, rtol=1e-13)
    got = checks.complex_step_gradient(lambda z: nx.cross_entropy(z, y), z)
    np.testing.assert_allclose(got, p - nx.one_hot(y, z.shape[-1]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_preserved(dtype):
    z = np.array([[-2.0, 0.0, 1.5]], dtype)
    functions = [nx.exp_neg_abs, nx.sigmoid, nx.softplus, nx.logsumexp, nx.softmax]
    functions += [lambda z: nx.cross_entropy(z, np.array([1]))]
    for activation in nx.ACTIVATIONS.values():
        functions += list(activation)
    for f in functions:
        assert f(z).dtype == dtype


# Activations: φ′ and φ″ are functions of the output a = φ(z).

VALUES = {
    "elu": lambda z: np.where(z > 0, z, np.exp(np.minimum(z, 0)) - 1),
    "relu": lambda z: (z + np.abs(z)) / 2,
    "tanh": lambda z: 2 * special.expit(2 * z) - 1,
}
each = pytest.mark.parametrize("name", nx.ACTIVATIONS)


@each
def test_activation_values(name):
    np.testing.assert_allclose(nx.ACTIVATIONS[name].value(Z), VALUES[name](Z), atol=1e-15)


@each
def test_slope_and_curvature_are_the_derivatives(name):
    phi = nx.ACTIVATIONS[name]
    z = np.array([-30.0, -2.0, -0.3, 0.2, 1.7, 5.0])  # away from the kink
    np.testing.assert_allclose(phi.slope(phi.value(z)), derivative(phi.value, z), atol=1e-15)
    curvature = derivative(lambda z: phi.slope(phi.value(z)), z)
    np.testing.assert_allclose(phi.curvature(phi.value(z)), curvature, atol=1e-15)


def test_at_the_kink():
    zero = np.zeros(1)
    assert nx.ACTIVATIONS["elu"].slope(zero) == 1  # from both sides
    assert nx.ACTIVATIONS["elu"].curvature(zero) == 0  # 1 from the left, 0 from the right
    assert nx.ACTIVATIONS["relu"].slope(zero) == 0
    assert nx.ACTIVATIONS["relu"].value(np.array([-1.0, 0.0, 1.0])).tolist() == [0, 0, 1]


# Where the maximum is


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3)),
    st.integers(0, 2**32 - 1),
)
def test_argmax_mask_is_argmax(shape, seed):
    z = np.random.default_rng(seed).integers(0, 3, shape).astype(float)  # many ties
    first = nx.argmax_mask(z)
    assert first.dtype == bool
    np.testing.assert_array_equal(first.sum(-3), 1)
    np.testing.assert_array_equal(first.argmax(-3), z.argmax(-3))  # NumPy's argmax is the first too
    np.testing.assert_array_equal((first * z).sum(-3), z.max(-3))


def test_argmax_mask_goes_by_the_real_part():
    z = np.array([1 + 5j, 1 - 5j, 0 + 9j]).reshape(3, 1, 1)
    assert nx.argmax_mask(z).ravel().tolist() == [True, False, False]
    assert nx.argmax_mask(np.array([-0.0, 0.0]).reshape(2, 1, 1)).ravel().tolist() == [True, False]


def test_a_nan_is_never_pooled_away():
    z = np.array([1.0, np.nan, 2.0]).reshape(3, 1, 1)
    assert np.isnan((nx.argmax_mask(z) * z).sum(-3))
