"""Trees, nested tuples of arrays: the states and messages of the algorithms.

A tree is an array, a number, None, or a (named) tuple of trees.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Tree = Any


def map(f: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply f to every leaf (and to the leaves at the same place of the others); None stays None."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        parts = [map(f, *leaf) for leaf in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return f(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """Yield every leaf that is not None, in order."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)
    elif tree is not None:
        yield tree


def flatten(tree: Tree, name: str = "") -> dict[str, Any]:
    """Return the leaves that are not None by the names of their fields; a bare leaf is "w".

    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     theta: Any
    ...     rest: Any
    >>> flatten(Pair(1, (None, 2.5)))
    {'theta': 1, 'rest.1': 2.5}
    """
    if tree is None:
        return {}
    if not isinstance(tree, tuple):
        return {name or "w": tree}
    flat: dict[str, Any] = {}
    for field, part in zip(getattr(tree, "_fields", range(len(tree))), tree):
        flat |= flatten(part, f"{name}.{field}" if name else str(field))
    return flat


def unflatten(template: Tree, flat: Mapping[str, Any]) -> Tree:
    """Return a tree of the template's tuples with these leaves, None where a name is missing.

    Raises ValueError if `flat` holds a name that the template has no place for.
    """
    unused = dict(flat)

    def build(part: Tree, name: str) -> Tree:
        if not isinstance(part, tuple):
            return unused.pop(name or "w", None)
        fields = getattr(part, "_fields", range(len(part)))
        parts = [
            build(x, f"{name}.{field}" if name else str(field)) for field, x in zip(fields, part)
        ]
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)

    tree = build(template, "")
    if unused:
        expected = ", ".join(flatten(template))
        raise ValueError(f"holds {', '.join(sorted(unused))}, expected {expected}")
    return tree


def copy_views(tree: Tree) -> Tree:
    """Return the tree with views replaced by copies: a view keeps the whole array in memory."""
    return map(lambda x: x if getattr(x, "base", None) is None else x.copy(), tree)


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack K trees of one shape into one tree whose leaves have a leading axis K.

    Leaves that are the rows of one array, in order, are not copied: that array is the stack, read-only.
    """

    def leaf(*xs: Any) -> Any:
        array = getattr(xs[0], "base", None)
        return read_only(array) if are_rows(xs, array) else np.stack(xs)

    return map(leaf, *trees)


def are_rows(xs: Sequence[Any], array: Any) -> bool:
    """Return whether xs are the rows of `whole`: all of them, in order."""
    if not isinstance(array, np.ndarray) or array.ndim < 2 or len(array) != len(xs):
        return False
    return all(
        isinstance(x, np.ndarray) and x.__array_interface__ == row.__array_interface__
        for x, row in zip(xs, array)
    )


def read_only(x: Any) -> Any:
    """Return a view of an array that nothing can be written through."""
    x = x.view()
    x.setflags(write=False)
    return x


def finite(tree: Tree) -> bool:
    """Return whether every number in the tree is finite."""
    return all(bool(np.all(np.isfinite(x))) for x in leaves(tree) if not isinstance(x, str))


def freeze(tree: Tree) -> Tree:
    """Make the tree's arrays read-only, so that an algorithm that writes into them fails; return it."""
    for x in leaves(tree):
        if isinstance(x, np.ndarray):
            x.setflags(write=False)
    return tree
