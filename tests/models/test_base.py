"""What the base class derives and leaves to a subclass; tails, layouts and starts by hand."""

from functools import wraps

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, base
from fedref.models.batch import Batch
from fedref.rounds.cost import Counter


def test_a_gradient_that_loses_the_complex_step_is_refused_and_a_constant_one_is_not():
    rng = np.random.default_rng(1)
    w, v, D = *rng.normal(size=(2, 4)), Batch(rng.normal(size=(50, 3)), rng.choice([-1, 1], 50))
    hinge = LinearSVM(3)  # piecewise constant, and so real at a complex w
    np.testing.assert_array_equal(base.Model.hvp(hinge, w, 9 * v, D), np.zeros(4))

    def wrong(grad):
        return type("Wrong", (LinearSVM,), {"grad": grad, "hvp": base.Model.hvp})(3)

    lossy = wrong(lambda model, w, D: np.sign(w.real) * np.abs(w))
    told = r"^Wrong\.grad loses the imaginary part of w, as np\.abs"
    with pytest.raises(ConfigError, match=told):
        lossy.hvp(w, v, D)
    np.testing.assert_array_equal(lossy.hvp(w, 0 * v, D), np.zeros(4))
    jumps = wrong(lambda model, w, D: 1.0 * (w.real > 5e-4))  # between the two steps
    np.testing.assert_array_equal(jumps.hvp(0 * w, np.ones(4), D), np.zeros(4))


def test_a_subclass_s_gradient_is_called_without_validation_too():
    def clipped(grad):
        @wraps(grad)
        def clip(self, w, D):
            return np.clip(grad(self, w, D), -1e-3, 1e-3)

        return clip

    class Own(Logistic):
        @clipped
        def grad(self, w, D):
            return super().grad(w, D)

    class Theirs(Logistic):
        grad = clipped(Logistic.grad)

    D = Batch(np.eye(2), np.array([0, 2]))
    for kind in (Own, Theirs):
        model = kind(2, 3)
        assert np.abs(Counter(model).grad(np.ones(model.d), D)).max() == 1e-3


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
