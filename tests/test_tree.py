"""Trees: nested tuples of arrays."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import same

from fedref import tree
from fedref.cost import floats


class Pair(NamedTuple):
    x: Any
    y: Any


A, B = np.arange(3.0), np.ones((2, 2))
TREE = Pair(A, (None, B, Pair(2.0, None)))


def test_map_keeps_the_shape_of_the_tree():
    assert same(tree.map(lambda x: x * 2, TREE), Pair(A * 2, (None, B * 2, Pair(4.0, None))))
    assert same(tree.map(lambda x, y: x - 3 * y, TREE, TREE), tree.map(lambda x: x - 3 * x, TREE))
    assert tree.map(np.negative, None) is None


def test_map_refuses_trees_of_other_shape():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tree.map(np.add, (A, A), (A, A, A))


def test_leaves_are_in_order_and_leave_none_out():
    x, y, z = tree.leaves(TREE)
    assert x is A
    assert y is B
    assert z == 2.0
    assert list(tree.leaves(None)) == []


def test_stack_puts_a_leading_axis_in_front():
    stacked = tree.stack([Pair(A, None), Pair(-A, None)])
    assert same(stacked, Pair(np.stack([A, -A]), None))


def test_floats_counts_inexact_numbers_alone():
    message = Pair(np.zeros((2, 3), np.float32), (1.5, 3, True, np.arange(9), None))
    assert floats(message) == 7
    assert floats(None) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_finite(bad):
    assert tree.finite(Pair(A, ("name", None, 1)))
    assert not tree.finite(Pair(A, (np.array([0.0, bad]), None)))
    assert not tree.finite((A, float(bad)))


def test_freeze_makes_every_array_read_only():
    value = Pair(np.zeros(2), (None, 1.0, np.zeros(3)))
    assert tree.freeze(value) is value
    for x in (value.x, value.y[2]):
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1.0
