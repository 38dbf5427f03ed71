"""The MLP against a forward pass written with loops, and at the kinks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from fedref.boundary.errors import ConfigError
from fedref.models import MLP, Logistic
from fedref.models.batch import Batch

ACTIVATIONS = {
    "elu": lambda z: z if z > 0 else np.expm1(z),
    "relu": lambda z: max(z, 0.0),
    "tanh": np.tanh,
}


def slow_scores(sizes, activation, w, x):
    """One sample, one number at a time, with a layout of its own."""
    at, a = 0, list(x)
    for l, (p, q) in enumerate(pairwise(sizes)):
        W, b = w[at : at + p * q], w[at + p * q : at + p * q + q]
        z = [sum(a[i] * W[i * q + o] for i in range(p)) + b[o] for o in range(q)]
        a = z if l == len(sizes) - 2 else [ACTIVATIONS[activation](t) for t in z]
        at += p * q + q
    assert at == len(w)
    return a


@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(data=st.data())
def test_loss_by_its_definition(activation, data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    model = MLP(sizes[0], sizes[1:-1], sizes[-1], activation, l2=0.3)
    w = rng.standard_normal(model.d)
    D = Batch(rng.standard_normal((3, sizes[0])), rng.integers(0, sizes[-1], 3))
    z = np.array([slow_scores(sizes, activation, w, x) for x in D.X])
    losses = -special.log_softmax(z, -1)[np.arange(3), D.y]
    np.testing.assert_allclose(
        model.logits(w, D.X), z, rtol=0, atol=1e-14 * max(1, np.abs(z).max())
    )
    np.testing.assert_allclose(model.sample_losses(w, D), losses, rtol=1e-12, atol=1e-13)
    expected = losses.mean() + 0.15 * sum(w * w)
    assert model.loss(w, D) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(model.predict(w, D.X), z.argmax(-1))


def test_without_hidden_layers_it_is_logistic_regression():
    rng = np.random.default_rng(0)
    mlp, logistic = MLP(4, (), 3, l2=0.1), Logistic(4, 3, l2=0.1)
    w, v = rng.standard_normal((2, mlp.d))
    D = Batch(rng.standard_normal((7, 4)), rng.integers(0, 3, 7))
    assert mlp.loss(w, D) == logistic.loss(w, D)
    np.testing.assert_array_equal(mlp.grad(w, D), logistic.grad(w, D))
    np.testing.assert_allclose(mlp.hvp(w, v, D), logistic.hvp(w, v, D), rtol=1e-13)


def at_zero(activation):
    """A hidden unit whose input is exactly 0, above it weights ±1 to two classes of p = 1/2."""
    model = MLP(1, (1,), 2, activation)
    w = np.array([1.0, -2.0, 1.0, -1.0, 0.0, 0.0])  # W₁, b₁, W₂, b₂
    return model, w, Batch(np.array([[2.0]]), np.array([0]))


def test_the_slope_of_relu_at_0_is_0():
    model, w, D = at_zero("relu")
    # δ = p − 1_y = (−1/2, 1/2) below the weights (1, −1) would be −1; the slope 0 stops it.
    assert model.grad(w, D).tolist() == [0, 0, 0, 0, -0.5, 0.5]


def test_the_slope_of_elu_at_0_is_1_and_its_curvature_0():
    model, w, D = at_zero("elu")
    assert model.grad(w, D).tolist() == [-2, -1, 0, 0, -0.5, 0.5]
    # R{z₁} = 1 moves R{δ₂} = ppᵀ-term (1/2, −1/2), and R{δ₁} = (1/2)·1 + (−1/2)(−1) + φ″·(−1).
    h = model.hvp(w, np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]), D)
    np.testing.assert_allclose(h, [2, 1, -0.5, 0.5, 0.5, -0.5], rtol=1e-15)


def test_seed_network():
    model = MLP(784, (80, 60), 10)
    assert model.d == 784 * 80 + 80 + 80 * 60 + 60 + 60 * 10 + 10 == 68270
    assert model.shapes == ((784, 80), (80,), (80, 60), (60,), (60, 10), (10,))
    assert model.activation == "elu"
    assert (model.features, model.classes) == (784, 10)
    W1, b1, *_ = model.unpack(model.init(np.random.default_rng(0)))
    assert 0.99 / 28 < np.abs(W1).max() <= 1 / 28
    assert 0.8 / 28 < np.abs(b1).max() <= 1 / 28


def test_widths_may_come_as_a_list():
    assert MLP(3, [], 2) == MLP(3, (), 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((784, 80, 10), "MLP hidden is 80, expected a list"),
        ((3, (2.5,), 2), "MLP hidden is 2.5, expected a whole number"),
        ((3, (), 0), "MLP classes is 0, expected a whole number, at least 1"),
        ((0, (), 2), "MLP features is 0, expected a whole number, at least 1"),
        ((3, (-1,), 2), "MLP hidden is -1, expected a whole number, at least 1"),
        ((3, (), 2, "rleu"), "MLP: unknown activation 'rleu': did you mean 'relu'"),
        (((3, 4, 2),), r"MLP features is \(3, 4, 2\), expected a whole number"),
    ],
)
def test_bad_arguments(wrong, message):
    with pytest.raises(ConfigError, match=message):
        MLP(*wrong)
