"""Linear SVM against hand numbers, and at the kink."""

import numpy as np
import pytest

from fedref.models import LinearSVM
from fedref.models.batch import Batch


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("y", [-1, 1])
def test_at_the_kink_a_sample_is_not_active(squared, y):
    """yz = 1 exactly: loss 0, subgradient 0, no curvature; a hair inside it is active."""
    model = LinearSVM(2, squared=squared)
    D = Batch(np.array([[0.5, 0.25]]), np.array([y]))
    w, v = y * np.array([1.0, 2.0, 0.0]), np.ones(3)
    assert model.logits(w, D.X) == y
    assert model.loss(w, D) == 0
    assert not model.grad(w, D).any()
    assert not model.hvp(w, v, D).any()
    assert model.loss(w * (1 + 1e-15), D) == 0
    assert model.grad(np.nextafter(w, 0), D).any()
    assert model.hvp(np.nextafter(w, 0), v, D).any() == squared


@pytest.mark.parametrize("squared", [False, True])
def test_losses_of_known_margins(squared):
    model = LinearSVM(1, squared=squared, bias=False)
    X = np.array([[2.0], [1.0], [0.5], [0.0], [-1.0]])
    got = model.sample_losses(np.ones(1), Batch(X, np.ones(5, int)))
    assert got.tolist() == ([0, 0, 0.25, 1, 4] if squared else [0, 0, 0.5, 1, 2])


def test_predict():
    """+1 above 0, else −1: at 0 too."""
    model = LinearSVM(1)
    X = np.array([[-1.0], [0.0], [1.0]])
    assert model.predict(np.array([1.0, 0.0]), X).tolist() == [-1, -1, 1]
    assert model.predict(np.array([1.0, 0.5]), X).tolist() == [-1, 1, 1]
