"""Nested tuples of arrays: what algorithms keep, send and hand from step to step.

A tree is an array, a number, None, or a (named) tuple of trees.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Tree = Any


def map(f: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """f on every leaf (and on the leaves at the same place of the others); None stays None."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        parts = (map(f, *leaf) for leaf in zip(tree, *others, strict=True))
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return f(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """Every leaf that is not None, in order."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)
    elif tree is not None:
        yield tree


def stack(trees: Sequence[Tree]) -> Tree:
    """K trees of one shape → one tree whose leaves have a leading axis K."""
    return map(lambda *xs: np.stack(xs), *trees)


def finite(tree: Tree) -> bool:
    """Whether every number in it is finite."""
    return all(bool(np.all(np.isfinite(x))) for x in leaves(tree) if not isinstance(x, str))


def freeze(tree: Tree) -> Tree:
    """The same tree with its arrays made read-only: an algorithm that writes into them fails."""
    for x in leaves(tree):
        if isinstance(x, np.ndarray):
            x.setflags(write=False)
    return tree
