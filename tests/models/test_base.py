"""What the base class derives, and what it leaves to a subclass; what it holds: test_properties.py."""

from functools import wraps

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.models import BinaryLogistic, LinearSVM, Logistic, base
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
    with pytest.raises(
        ConfigError, match=r"^Wrong\.grad loses the imaginary part of w, as np\.abs"
    ):
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


def test_a_number_is_no_parameter_vector():
    with pytest.raises(ValueError, match=r"w has shape \(\), expected"):
        BinaryLogistic(3).unpack(np.array(1.0))
