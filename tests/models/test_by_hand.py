"""Models by hand: numbers, tails, predictions, ties, layouts; and models that are one another."""

import numpy as np
import pytest

from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.batch import Batch


def test_binary_logistic_by_hand():
    """x = (1, 2), y = 1, θ = (log 3, 0), b = 0: σ = 3/4."""
    model = BinaryLogistic(2)
    D = Batch(np.array([[1.0, 2.0]]), np.array([1]))
    w = np.array([np.log(3), 0, 0])
    assert model.loss(w, D) == pytest.approx(np.log(4 / 3), rel=1e-15)
    np.testing.assert_allclose(model.grad(w, D), [-1 / 4, -1 / 2, -1 / 4], rtol=1e-15)
    h = model.hvp(w, np.array([1.0, 0, 0]), D)  # σ(1−σ) = 3/16
    np.testing.assert_allclose(h, [3 / 16, 6 / 16, 3 / 16], rtol=1e-15)


def test_binary_logistic_keeps_its_digits_in_both_tails():
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


def test_logistic_by_hand():
    """x = (2), W = (log 2, 0, 0)/2, b = 0: p = (2, 1, 1)/4. Huge scores saturate."""
    model = Logistic(1, 3)
    D = Batch(np.array([[2.0]]), np.array([1]))
    w = np.array([np.log(2) / 2, 0, 0, 0, 0, 0])
    assert model.loss(w, D) == pytest.approx(np.log(4), rel=1e-15)
    np.testing.assert_allclose(model.grad(w, D), [1, -1.5, 0.5, 0.5, -0.75, 0.25], rtol=1e-14)
    h = model.hvp(w, np.array([0, 0, 0, 1.0, 0, 0]), D)  # (diag(p) − ppᵀ) e₀ = (4, −2, −2)/16
    np.testing.assert_allclose(h, [0.5, -0.25, -0.25, 0.25, -0.125, -0.125], rtol=1e-14)
    two, D = Logistic(1, 2), Batch(np.ones((2, 1)), np.array([0, 1]))
    np.testing.assert_array_equal(two.sample_losses(1e4 * np.array([1, -1, 0, 0]), D), [0, 2e4])


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("y", [-1, 1])
def test_the_svm_at_its_kink_and_beside_it(squared, y):
    """yz = 1 exactly: loss 0, subgradient 0, no curvature; a hair inside it is active."""
    model = LinearSVM(2, squared=squared)
    D = Batch(np.array([[0.5, 0.25]]), np.array([y]))
    w, v = y * np.array([1.0, 2.0, 0.0]), np.ones(3)
    assert (model.logits(w, D.X), model.loss(w, D)) == (y, 0)
    assert not model.grad(w, D).any()
    assert not model.hvp(w, v, D).any()
    assert model.loss(w * (1 + 1e-15), D) == 0
    assert model.grad(np.nextafter(w, 0), D).any()
    assert model.hvp(np.nextafter(w, 0), v, D).any() == squared
    line, X = LinearSVM(1, squared=squared, bias=False), np.array([[2.0], [1], [0.5], [0], [-1]])
    got = line.sample_losses(np.ones(1), Batch(X, np.ones(5, int)))
    assert got.tolist() == ([0, 0, 0.25, 1, 4] if squared else [0, 0, 0.5, 1, 2])


@pytest.mark.parametrize("model", [BinaryLogistic(1), LinearSVM(1)])
def test_a_score_of_0_predicts_the_lower_label(model):
    low, high = model.labels
    X = np.array([[-1.0], [0.0], [1.0]])
    assert model.predict(np.array([1.0, 0.0]), X).tolist() == [low, low, high]
    assert model.predict(np.array([1.0, 0.5]), X).tolist() == [low, high, high]


def test_a_cnn_without_convolutions_is_an_mlp_and_one_class_is_no_choice():
    rng = np.random.default_rng(0)
    one, other = CNN((3, 4, 2), (), hidden=5, classes=3), MLP(24, (5,), 3, "relu")
    w, v = rng.standard_normal((2, other.d))
    D = Batch(rng.standard_normal((7, 24)), rng.integers(0, 3, 7))
    assert one.shapes == other.shapes
    assert one.loss(w, D) == other.loss(w, D)
    np.testing.assert_array_equal(one.grad(w, D), other.grad(w, D))
    np.testing.assert_allclose(one.hvp(w, v, D), other.hvp(w, v, D), rtol=1e-13)
    alone, D = Logistic(2, 1), Batch(np.ones((3, 2)), np.zeros(3, int))
    assert alone.loss(np.ones(3), D) == alone.grad(np.ones(3), D).any() == 0
    assert alone.predict(np.ones(3), D.X).tolist() == [0, 0, 0]


VECTOR, TWO, TEN = ((3, 1), (1,)), (0, 1), tuple(range(10))


@pytest.mark.parametrize(
    ("model", "features", "d", "shapes", "labels"),
    [
        (BinaryLogistic(3), 3, 4, VECTOR, TWO),
        (BinaryLogistic(3, bias=False), 3, 3, VECTOR[:1], TWO),
        (Logistic(3, 2), 3, 8, ((3, 2), (2,)), TWO),
        (LinearSVM(3), 3, 4, VECTOR, (-1, 1)),
        (LinearSVM(3, bias=False), 3, 3, VECTOR[:1], (-1, 1)),
        (MLP(784), 784, 68_270, ((784, 80), (80,), (80, 60), (60,), (60, 10), (10,)), TEN),
        (CNN(), 1024, 1_034_380, ((5, 5, 1, 20), (20,), (5, 5, 20, 50), (50,), (1250, 800), (800,),
                            (800, 10), (10,)), TEN),
        (CNN([16, 16]), 256, 74_380, ((5, 5, 1, 20), (20,), (5, 5, 20, 50), (50,), (50, 800), (800,),
                            (800, 10), (10,)), TEN),  # the smallest image; lists are tuples
        (LSTM(81, 80, 80), 80, 81 * 8 + 264 * 1024 + 1024 + 256 * 80 + 80,
         ((81, 8), (264, 1024), (1024,), (256, 80), (80,)), tuple(range(80))),
    ],
    ids=str,
)  # fmt: skip
def test_layout_and_start(model, features, d, shapes, labels):
    assert (model.features, model.d, model.shapes) == (features, d, shapes)
    assert tuple(model.labels) == labels
    assert hash(model)
    assert (model.inputs == "codes") == isinstance(model, LSTM)
    starts_at_0 = not model.init(np.random.default_rng(0)).any()
    assert starts_at_0 == isinstance(model, BinaryLogistic | Logistic | LinearSVM)
