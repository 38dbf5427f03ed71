"""Trees: nested tuples of arrays."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import same

from fedref.models import tree


class Pair(NamedTuple):
    x: Any
    y: Any


A, B = np.arange(3.0), np.ones((2, 2))
TREE = Pair(A, (None, B, Pair(2.0, None)))


def test_map_leaves_and_stack_keep_the_shape_of_the_tree():
    assert same(tree.map(lambda x: x * 2, TREE), Pair(A * 2, (None, B * 2, Pair(4.0, None))))
    assert same(tree.map(lambda x, y: x - 3 * y, TREE, TREE), tree.map(lambda x: x - 3 * x, TREE))
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tree.map(np.add, (A, A), (A, A, A))
    x, y, z = tree.leaves(TREE)
    assert (x is A, y is B, z) == (True, True, 2.0)
    assert same(tree.stack([Pair(A, None), Pair(-A, None)]), Pair(np.stack([A, -A]), None))


def test_rows_of_one_array_are_stacked_without_a_copy_and_cannot_be_written_to():
    x = np.arange(12.0).reshape(3, 4).copy()
    whole = tree.stack([(row, 1.5) for row in x])[0]
    assert np.shares_memory(whole, x)
    assert not whole.flags.writeable
    assert x.flags.writeable
    copied = ([x[1], x[0], x[2]], x[:2], [x[0], x[0], x[0]], x[:, :2], x.T[:3], [x[0], x[1], +x[2]])
    for rows in copied:
        stacked = tree.stack([*rows])
        assert not np.shares_memory(stacked, x)
        np.testing.assert_array_equal(stacked, np.array([*rows]))


def test_views_alone_are_copied():
    whole, number = np.arange(6.0), 3
    view, same, none, it = tree.copy_views((whole[:2], whole, None, number))
    assert view.base is None
    assert view.tolist() == [0.0, 1.0]
    assert (same is whole, none, it is number) == (True, None, True)


def test_one_number_that_is_not_finite_is_noticed():
    assert tree.finite(Pair(A, ("name", None, 1)))
    for bad in (np.nan, np.inf, -np.inf):
        assert not tree.finite(Pair(A, (np.array([0.0, bad]), None)))
        assert not tree.finite((A, float(bad)))
