"""Primitives against scipy.special and the complex step, in their tails and at their kinks."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from fedref import checks
from fedref.models import numerics as nx

#: Both signs, both tails, and zero.
Z = np.array([-1e4, -800.0, -40.0, -3.0, -1e-9, 0.0, 1e-9, 0.5, 40.0, 800.0, 1e4])
ACTIVATIONS = {
    "elu": lambda z: np.where(z > 0, z, np.exp(np.minimum(z, 0)) - 1),
    "relu": lambda z: (z + np.abs(z)) / 2,
    "tanh": lambda z: 2 * special.expit(2 * z) - 1,
}


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


moderate = st.floats(-30, 30)
rows = (
    st.integers(1, 6)
    .flatmap(lambda n: st.lists(st.lists(moderate, min_size=n, max_size=n), min_size=1, max_size=4))
    .map(np.array)
)


@given(rows, st.integers(0, 99))
@example(np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]]), 1)
def test_values_of_rows(z, seed):
    y = np.random.default_rng(seed).integers(0, z.shape[-1], len(z))
    expected = -special.log_softmax(z, -1)[np.arange(len(z)), y]
    for got, right in (
        (nx.softmax(z), special.softmax(z, -1)),
        (nx.logsumexp(z), special.logsumexp(z, -1)),
        (nx.cross_entropy(z, y), expected),
        (nx.cross_entropy(np.stack([z, z + 1]), y), [expected, expected]),  # one y for two stacks
    ):
        np.testing.assert_allclose(got, right, rtol=1e-13, atol=1e-13)


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
    z, v, phi = np.zeros(3), np.full(3, direction), nx.ACTIVATIONS
    for f, slope in (
        (nx.sigmoid, 0.25), (nx.softplus, 0.5), (nx.exp_neg_abs, -1.0), (phi["elu"].value, 1.0),
        (phi["tanh"].value, 1.0),
    ):  # fmt: skip
        got = checks.complex_step_derivative(f, z, v)
        np.testing.assert_allclose(got, slope * v, rtol=1e-15)
    zero = np.zeros(1)  # a = φ(0): ELU″ is 1 from the left, 0 from the right
    assert (phi["elu"].slope(zero), phi["elu"].curvature(zero), phi["relu"].slope(zero)) == (
        1,
        0,
        0,
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_slopes_and_curvatures_by_their_output(name):
    phi = nx.ACTIVATIONS[name]
    np.testing.assert_allclose(phi.value(Z), ACTIVATIONS[name](Z), atol=1e-15)
    z = np.array([-30.0, -2.0, -0.3, 0.2, 1.7, 5.0])  # away from the kink
    np.testing.assert_allclose(phi.slope(phi.value(z)), derivative(phi.value, z), atol=1e-15)
    curvature = derivative(lambda z: phi.slope(phi.value(z)), z)
    np.testing.assert_allclose(phi.curvature(phi.value(z)), curvature, atol=1e-15)


@given(st.tuples(*map(st.integers, (1, 1, 1, 1), (3, 5, 4, 3))), st.integers(0, 99))
def test_argmax_mask_is_argmax(shape, seed):
    z = np.random.default_rng(seed).integers(0, 3, shape).astype(float)  # many ties
    first = nx.argmax_mask(z)
    assert first.dtype == bool
    np.testing.assert_array_equal(first.sum(-3), 1)
    np.testing.assert_array_equal(first.argmax(-3), z.argmax(-3))  # NumPy's argmax is the first too


def test_argmax_mask_goes_by_the_real_part_and_never_pools_a_nan_away():
    for z in ([1 + 5j, 1 - 5j, 0 + 9j], [-0.0, 0.0, -0.0]):
        first = nx.argmax_mask(np.reshape(z, (3, 1, 1)))
        assert first.ravel().tolist() == [True, False, False]
    z = np.array([1.0, np.nan, 2.0]).reshape(3, 1, 1)
    assert np.isnan((nx.argmax_mask(z) * z).sum(-3))
