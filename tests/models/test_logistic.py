"""Logistic regression against hand numbers."""

import numpy as np
import pytest

from fedref.models import BinaryLogistic, Logistic
from fedref.models.batch import Batch


def test_binary_by_hand():
    """x = (1, 2), y = 1, θ = (log 3, 0), b = 0: σ = 3/4."""
    model = BinaryLogistic(2)
    D = Batch(np.array([[1.0, 2.0]]), np.array([1]))
    w = np.array([np.log(3), 0, 0])
    assert model.loss(w, D) == pytest.approx(np.log(4 / 3), rel=1e-15)
    np.testing.assert_allclose(model.grad(w, D), [-1 / 4, -1 / 2, -1 / 4], rtol=1e-15)
    h = model.hvp(w, np.array([1.0, 0, 0]), D)  # σ(1−σ) = 3/16
    np.testing.assert_allclose(h, [3 / 16, 6 / 16, 3 / 16], rtol=1e-15)


def test_binary_keeps_its_digits_in_both_tails():
    model = BinaryLogistic(1, bias=False)
    w = np.ones(1)
    for z, y in [(40.0, 1), (-40.0, 0)]:
        D = Batch(np.array([[z]]), np.array([y]))
        assert model.loss(w, D) == pytest.approx(np.exp(-40.0), rel=1e-14, abs=0)
        assert model.grad(w, D) == pytest.approx(-40 * np.exp(-40.0), rel=1e-14, abs=0)
        assert model.hvp(w, w, D) == pytest.approx(1600 * np.exp(-40.0), rel=1e-14, abs=0)
    D = Batch(np.array([[1e4], [-1e4]]), np.array([0, 1]))
    np.testing.assert_array_equal(model.sample_losses(w, D), [1e4, 1e4])
    np.testing.assert_array_equal(model.sample_losses(w, D._replace(y=1 - D.y)), [0, 0])


def test_binary_predicts_1_above_0():
    model = BinaryLogistic(1)
    X = np.array([[-1.0], [0.0], [1.0]])
    assert model.predict(np.array([1.0, 0.0]), X).tolist() == [0, 0, 1]
    assert model.predict(np.array([1.0, 1.5]), X).tolist() == [1, 1, 1]


def test_multinomial_by_hand():
    """x = (2), W = (log 2, 0, 0)/2, b = 0: p = (2, 1, 1)/4."""
    model = Logistic(1, 3)
    D = Batch(np.array([[2.0]]), np.array([1]))
    w = np.array([np.log(2) / 2, 0, 0, 0, 0, 0])
    assert model.loss(w, D) == pytest.approx(np.log(4), rel=1e-15)
    np.testing.assert_allclose(model.grad(w, D), [1, -1.5, 0.5, 0.5, -0.75, 0.25], rtol=1e-14)
    h = model.hvp(w, np.array([0, 0, 0, 1.0, 0, 0]), D)  # (diag(p) − ppᵀ) e₀ = (4, −2, −2)/16
    np.testing.assert_allclose(h, [0.5, -0.25, -0.25, 0.25, -0.125, -0.125], rtol=1e-14)


def test_multinomial_with_huge_logits():
    model = Logistic(1, 2)
    D = Batch(np.array([[1.0], [1.0]]), np.array([0, 1]))
    w = np.array([1e4, -1e4, 0, 0])
    np.testing.assert_array_equal(model.sample_losses(w, D), [0, 2e4])
    np.testing.assert_array_equal(model.grad(w, D), [0.5, -0.5, 0.5, -0.5])


def test_two_classes_are_the_binary_model():
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((7, 3)), rng.integers(0, 2, 7), rng.standard_normal(4)
    two = np.concatenate([np.stack([0 * w[:3], w[:3]], 1).ravel(), [0, w[3]]])
    binary, multinomial = BinaryLogistic(3), Logistic(3, 2)
    D = Batch(X, y)
    assert binary.loss(w, D) == pytest.approx(multinomial.loss(two, D), rel=1e-14)
    W, b = multinomial.unpack(multinomial.grad(two, D))
    np.testing.assert_allclose(binary.grad(w, D), [*W[:, 1], b[1]], rtol=1e-13)
    np.testing.assert_array_equal(binary.predict(w, X), multinomial.predict(two, X))


def test_one_class_is_no_choice():
    model = Logistic(2, 1)
    D = Batch(np.ones((3, 2)), np.zeros(3, int))
    w = np.ones(3)
    assert model.loss(w, D) == 0
    assert not model.grad(w, D).any()
    assert model.predict(w, D.X).tolist() == [0, 0, 0]
