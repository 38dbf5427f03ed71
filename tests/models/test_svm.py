"""Linear SVM against hand numbers, sums written out, and at the kink."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedref.models import LinearSVM
from fedref.models.batch import Batch

sizes = st.integers(1, 6)


@given(sizes, sizes, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_loss_gradient_and_hvp_written_out(p, B, squared, bias, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((B, p)), rng.choice([-1, 1], B)
    w, v = rng.standard_normal((2, p + bias))
    loss, g, h = 0.15 * sum(w * w), 0.3 * w, 0.3 * v
    for j in range(B):
        x = [*X[j], 1.0] if bias else [*X[j]]  # the bias is a feature that is always 1
        x = np.array(x)
        m = 1 - y[j] * sum(x * w)
        if m > 0:
            loss = loss + (m**2 if squared else m) / B
            g = g - (2 * m if squared else 1) * y[j] * x / B
            h = h + (2 * x * sum(x * v) / B if squared else 0)
    model, D = LinearSVM(p, 0.3, squared, bias), Batch(X, y)
    assert model.loss(w, D) == pytest.approx(loss, rel=1e-13)
    np.testing.assert_allclose(model.grad(w, D), g, rtol=0, atol=1e-13 * np.abs(g).max())
    np.testing.assert_allclose(model.hvp(w, v, D), h, rtol=0, atol=1e-13 * np.abs(h).max())


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


def test_the_hinge_has_no_curvature_but_that_of_l2():
    rng = np.random.default_rng(0)
    D = Batch(rng.standard_normal((7, 3)), rng.choice([-1, 1], 7))
    w, v = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(LinearSVM(3).hvp(w, v, D), np.zeros(4))
    np.testing.assert_array_equal(LinearSVM(3, l2=0.3).hvp(w, v, D), 0.3 * v)


def test_label_0_is_refused():
    with pytest.raises(ValueError, match=r"expected one of \(-1, 1\)"):
        LinearSVM(2).loss(np.zeros(3), Batch(np.ones((2, 2)), np.array([0, 1])))


def test_predict():
    """+1 above 0, else −1: at 0 too."""
    model = LinearSVM(1)
    X = np.array([[-1.0], [0.0], [1.0]])
    assert model.predict(np.array([1.0, 0.0]), X).tolist() == [-1, -1, 1]
    assert model.predict(np.array([1.0, 0.5]), X).tolist() == [-1, 1, 1]


def test_layout():
    assert LinearSVM(3).shapes == ((3, 1), (1,))
    assert LinearSVM(3, bias=False).shapes == ((3, 1),)
    assert LinearSVM(3).d == 4
    assert LinearSVM(3).labels == (-1, 1)
    assert not LinearSVM(3).init(np.random.default_rng(0)).any()


def test_integer_labels_do_not_turn_float32_into_float64():
    X = np.ones((2, 3), np.float32)
    D = Batch(X, np.array([-1, 1]))
    for squared in (False, True):
        model = LinearSVM(3, squared=squared)
        w = np.zeros(4, np.float32)
        assert model.sample_losses(w, D).dtype == np.float32
        assert model.grad(w, D).dtype == np.float32
        assert model.hvp(w, w, D).dtype == np.float32
