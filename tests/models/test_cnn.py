"""The CNN at ties and kinks, and on its sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedref.models import CNN, MLP, cnn
from fedref.models.batch import Batch

# The two linear maps and their transposes: ⟨Eᵀy, x⟩ = ⟨y, Ex⟩.


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)
)
def test_add_windows_is_the_transpose_of_windows(k, B, c, more_h, more_w):
    H, W = k + 1 + more_h, k + 1 + more_w
    grid = cnn.Grid((H, W, c), ((H - k + 1) // 2, (W - k + 1) // 2, 1))
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, B * H * W, c)).astype(float)  # whole numbers: sums are exact
    A = cnn.windows(x, grid, k)
    y = rng.integers(-9, 9, A.shape).astype(float)
    assert (cnn.add_windows(y, grid, k) * x).sum() == (y * A).sum()


def test_windows_by_hand():
    """A 3×3 image, 2×2 windows: four of them, in one pool."""
    image = np.arange(9.0)
    expected = [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    assert cnn.windows(image[:, None], cnn.Grid((3, 3, 1), (1, 1, 1)), 2).tolist() == expected
    two = np.stack([image, -image], -1)  # a second channel
    got = cnn.windows(two, cnn.Grid((3, 3, 2), (1, 1, 1)), 2)
    assert got[1].tolist() == [1, -1, 2, -2, 4, -4, 5, -5]


# Ties and kinks


@pytest.mark.parametrize("winners", [(p, q) for q in range(4) for p in range(q)])
def test_a_tie_in_the_pool_goes_to_the_first_in_row_major_order(winners):
    """Two pixels of the window tie at 1 through different input channels: (1, 0) and (0, 1)."""
    first, second = winners
    image = np.zeros((4, 2))
    image[first], image[second] = (1, 0), (0, 1)
    model = CNN((2, 2, 2), (1,), 1, 1, 2)
    w = np.zeros(model.d)
    kernel, _, W1, _, W2, _ = model.unpack(w)
    kernel[...], W1[...], W2[...] = 1, 1, [[1, -1]]
    D = Batch(image.reshape(1, 8), np.array([1]))
    p = 1 / (1 + np.exp(-2))  # of class 0: scores 1 and −1
    g = model.unpack(model.grad(w, D))
    np.testing.assert_allclose(g[0].ravel(), [2 * p, 0], rtol=1e-15)  # all to the first
    np.testing.assert_allclose(g[1], 2 * p, rtol=1e-15)
    Rkernel = np.zeros(model.d)
    model.unpack(Rkernel)[0][0, 0, 1] = 1  # moves the second one only, which is not picked
    assert not model.hvp(w, Rkernel, D).any()


def test_what_the_pool_drops_has_no_effect():
    model = CNN((5, 6), (2,), 2, 3, 2)  # convolution 4×5, pool 2×2: the last column is dropped
    rng = np.random.default_rng(0)
    w = model.init(rng)
    X = rng.standard_normal((3, 5, 6))
    D = Batch(X.reshape(3, 30), np.array([0, 1, 1]))
    X[:, :, 5] = 1e3
    E = D._replace(X=X.reshape(3, 30))
    assert model.loss(w, D) == model.loss(w, E)
    np.testing.assert_array_equal(model.grad(w, D), model.grad(w, E))


# Sizes and layout


def test_pixels_are_row_major_height_width_channel():
    """A 1×1 kernel that looks at channel 1 only, on an image with a single spot."""
    model = CNN((2, 4, 3), (1,), 1, 2, 2)
    w = np.zeros(model.d)
    kernel, _, W1, _, W2, _ = model.unpack(w)
    kernel[0, 0, 1, 0], W1[...], W2[...] = 1, np.eye(2), np.eye(2)
    X = np.zeros((2, 4, 3))
    X[1, 2, 1] = 5  # in the right half: the second pixel after the pool
    assert model.logits(w, X.reshape(1, 24)).tolist() == [[0, 5]]


def test_an_image_without_channels_has_one():
    one, other = CNN((8, 9), (2,), 3, 4, 3), CNN((8, 9, 1), (2,), 3, 4, 3)
    rng = np.random.default_rng(0)
    w = one.init(rng)
    D = Batch(rng.standard_normal((5, 72)), rng.integers(0, 3, 5))
    assert one.shapes == other.shapes
    np.testing.assert_array_equal(one.grad(w, D), other.grad(w, D))


def test_without_convolutions_it_is_an_mlp():
    model, mlp = CNN((3, 4, 2), (), hidden=5, classes=3), MLP(24, (5,), 3, "relu")
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((2, mlp.d))
    D = Batch(rng.standard_normal((7, 24)), rng.integers(0, 3, 7))
    assert model.shapes == mlp.shapes
    np.testing.assert_array_equal(model.grad(w, D), mlp.grad(w, D))
    np.testing.assert_array_equal(model.hvp(w, v, D), mlp.hvp(w, v, D))


@pytest.mark.parametrize("B", [1, cnn.CHUNK - 1, cnn.CHUNK, cnn.CHUNK + 1, 2 * cnn.CHUNK + 3])
def test_scoring_in_chunks(B):
    model = CNN((5, 5), (2,), 2, 3, 2)
    rng = np.random.default_rng(0)
    w, X = rng.standard_normal((3, model.d)), rng.standard_normal((3, B, 25))
    z = model.logits(w, X)
    assert z.shape == (3, B, 2)
    np.testing.assert_allclose(z, model.forward(w, X).z, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(model.predict(w, X), z.argmax(-1))


def test_the_smallest_image_that_is_not_refused():
    assert CNN((16, 16)).shapes[4] == (50, 800)


def test_lists_are_taken_for_tuples():
    model = CNN([16, 16], [2, 3])
    assert model == CNN((16, 16), (2, 3))
    assert hash(model) == hash(CNN((16, 16), (2, 3)))
