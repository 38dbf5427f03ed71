"""Primitives against scipy.special in their tails, and the mask of a maximum. Derivatives: `fedref check`."""

import numpy as np
import pytest
from scipy import special

from fedref.models import numerics as nx

#: Both signs, both tails, and zero.
Z = np.array([-1e4, -800.0, -40.0, -3.0, -1e-9, 0.0, 1e-9, 0.5, 40.0, 800.0, 1e4])
ROWS = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [-30.0, 0.5, 0.25], [800, 800, -2]])
LABELS = np.array([1, 0, 2, 1])
LOSSES = -special.log_softmax(ROWS, -1)[np.arange(4), LABELS]


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (nx.exp_neg_abs(Z), np.exp(-np.abs(Z))),
        (nx.sigmoid(Z), special.expit(Z)),
        (nx.softplus(Z), -special.log_expit(-Z)),
        (nx.softmax(ROWS), special.softmax(ROWS, -1)),
        (nx.logsumexp(ROWS), special.logsumexp(ROWS, -1)),
        (nx.cross_entropy(ROWS, LABELS), LOSSES),
        (nx.cross_entropy(np.stack([ROWS, ROWS + 1]), LABELS), [LOSSES, LOSSES]),  # for two stacks
        (nx.one_hot(np.array([[2, 0]]), 3, "f4"), [[[0, 0, 1], [1, 0, 0]]]),
        (nx.one_hot(np.array([2.0, 255.0]), 257, "f4").nonzero()[1], [2, 255]),
        (nx.one_hot(np.array([2.0, 255.0]), 256, "f4").nonzero()[1], [2, 255]),
    ],
)
def test_values(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_parts_of_a_number_are_those_of_its_real_part_and_0_at_the_kink():
    z = np.array([2 + 5j, 3j, -1 + 5j])
    assert nx.positive_part(z).tolist() == [2 + 5j, 0, 0]
    assert nx.negative_part(z).tolist() == [0, 0, -1 + 5j]


def test_argmax_mask_is_the_first_by_the_real_part_and_never_pools_a_nan_away():
    for z, place in (([1 + 5j, 1 - 5j, 9j], 0), ([-0.0, 0.0, -0.0], 0), ([0.0, 1.0, 1.0], 1)):
        first = nx.argmax_mask(np.reshape(z, (3, 1, 1)))
        assert first.ravel().tolist() == [i == place for i in range(3)]
    z = np.array([1.0, np.nan, 2.0]).reshape(3, 1, 1)
    assert np.isnan((nx.argmax_mask(z) * z).sum(-3))
