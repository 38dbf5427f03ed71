"""The CNN at ties of its pool, and its scores in chunks; its values: tests/proofs."""

import numpy as np
import pytest

from fedref.models import CNN, cnn
from fedref.models.batch import Batch


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


@pytest.mark.parametrize("B", [1, cnn.CHUNK - 1, cnn.CHUNK, cnn.CHUNK + 1, 2 * cnn.CHUNK + 3])
def test_scoring_in_chunks(B):
    model = CNN((5, 5), (2,), 2, 3, 2)
    rng = np.random.default_rng(0)
    w, X = rng.standard_normal((3, model.d)), rng.standard_normal((3, B, 25))
    z = model.logits(w, X)
    assert z.shape == (3, B, 2)
    np.testing.assert_allclose(z, model.forward(w, X).z, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(model.predict(w, X), z.argmax(-1))
