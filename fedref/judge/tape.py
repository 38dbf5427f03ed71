"""A tape: `spec.gradient` of an expression in a run's f, at any number d of parameters.

Dual numbers take all d directions at once, which for d = 68 000 is a matrix of 37 GB. A tape notes what the
function does with numbers, and goes back from the result: one pass, whatever d is. A model is not taken
apart: its loss, gradient, H v and scores are single notes (`objective`). The passes back are noted on the
tape of a gradient around this one, so that ∇ through ∇f works (MAML). `fedref check` compares tapes with
dual numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from fedref import spec
from fedref.judge.slopes import COMPOSED, ELEMENTWISE

NUMBERS = count()


class Node(spec.Dual):
    """A number on the tape of one gradient. a : its value, an array, or a Node of a gradient around it.

    tape : the number of the variable that the gradient is in. parents : (x, pull) for each number that it
    was made from; pull(g) is g · ∂a/∂x.
    """

    def __init__(self, a: Any, tape: int, parents: Any = ()) -> None:
        self.a, self.tape, self.parents, self.number = a, tape, parents, next(NUMBERS)

    real = property(lambda x: x)

    def __getitem__(self, i: Any) -> Any:
        return record(lambda x: x[i], self, pull=lambda g, y, x: scatter(g, i, np.shape(x)))

    __setitem__ = spec.Dual.refuse


def record(f: Callable[..., Any], *xs: Any, pull: Any) -> Any:
    """Return f(*xs), noted on the innermost tape that an x is on.

    pull : pull(g, y, *xs) = g · ∂y/∂x, or one such function for each x.
    """
    tape = max(x.tape for x in xs if isinstance(x, Node))
    noted = [isinstance(x, Node) and x.tape == tape for x in xs]
    us = [x.a if own else x for x, own in zip(xs, noted)]
    pulls, y = [pull] if callable(pull) else pull, f(*us)

    def back(j: int) -> Callable[[Any], Any]:
        return lambda g: pulls[j](g, y, *us)

    return Node(y, tape, [(x, back(j)) for j, x in enumerate(xs) if noted[j]])


def gradient(f: Callable[[Any], Any], x: Any) -> Any:
    """Return ∇f(x) of a number f(x), in x's shape."""
    variable = Node(x, next(NUMBERS))
    y = f(variable)
    if np.shape(y):
        raise ValueError(f"a gradient is that of a number: f(x) has shape {np.shape(y)}")
    left = {y.number: (y, 1.0)} if isinstance(y, Node) and y.tape == variable.tape else {}
    while left:
        node, g = left.pop(max(left))  # all numbers that were made from it are behind
        if node is variable:
            return g
        for parent, pull in node.parents:
            before = left.get(parent.number, (parent, 0))[1]
            left[parent.number] = parent, before + pull(g)
    return np.zeros(np.shape(x))


Node.gradient = staticmethod(gradient)


@contextmanager
def gradients() -> Iterator[None]:
    """Let `spec.gradient` take tapes."""
    token = spec.REVERSE.set(gradient)
    try:
        yield
    finally:
        spec.REVERSE.reset(token)


# ---- rules: f, and the pull of each argument -----------------------------------------------------


def fit(g: Any, shape: tuple[int, ...]) -> Any:
    """Return g summed over the axes along which an array of this shape was broadcast."""
    if np.shape(g) == shape:
        return g
    more = np.ndim(g) - len(shape)
    stretched = (i + more for i, n in enumerate(shape) if n == 1)
    return np.reshape(np.sum(g, (*range(more), *stretched)), shape)


def scatter(g: Any, i: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of this shape, with g added at the index i."""
    if isinstance(g, Node):
        return record(lambda g: scatter(g, i, shape), g, pull=lambda h, y, g: h[i])
    out = np.zeros(shape, np.result_type(g))
    np.add.at(out, i, g)
    return out


def elementwise(f: Callable[..., Any], slopes: Any) -> Callable[..., Any]:
    def pull(j: int) -> Callable[..., Any]:
        return lambda g, y, *us: fit(g * slopes[j](y, *us), np.shape(us[j]))

    return lambda *xs: record(f, *xs, pull=[pull(j) for j in range(len(slopes))])


def compare(f: Callable[..., Any], *xs: Any) -> Any:
    while any(isinstance(x, Node) for x in xs):
        xs = tuple(x.a if isinstance(x, Node) else x for x in xs)
    return f(*xs)


def product(u: Any, v: Any) -> Any:
    if max(np.ndim(u), np.ndim(v)) > 2:
        raise TypeError("a gradient has no rule for @ with more than a matrix")
    rows, inner = np.shape(u)[0] if np.ndim(u) > 1 else 1, np.shape(v)[0]

    def matrix(x: Any, n: int) -> Any:
        return np.reshape(x, (n, -1))

    return record(np.matmul, u, v, pull=[
        lambda g, y, u, v: np.reshape(matrix(g, rows) @ matrix(v, inner).T, np.shape(u)),
        lambda g, y, u, v: np.reshape(matrix(u, rows).T @ matrix(g, rows), np.shape(v)),
    ])  # fmt: skip


def add_up(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    axes = range(x.ndim) if axis is None else [i % x.ndim for i in np.atleast_1d(axis)]
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))

    def pull(g: Any, y: Any, x: Any) -> Any:
        return np.reshape(g, kept) * np.ones(np.shape(x), np.result_type(compare(np.asarray, x)))

    return record(lambda x: np.sum(x, tuple(axes), keepdims=keepdims), x, pull=pull)


def reshape(x: Any, *shape: Any) -> Any:
    to = shape if len(shape) > 1 else shape[0]
    return record(lambda x: np.reshape(x, to), x, pull=lambda g, y, x: np.reshape(g, np.shape(x)))


def transpose(x: Any, *axes: Any) -> Any:
    order = np.reshape(axes, -1).astype(int) if axes else np.arange(x.ndim)[::-1]
    return record(
        lambda x: np.transpose(x, order), x, pull=lambda g, y, x: np.transpose(g, np.argsort(order))
    )


def split(x: Any, at: Any, axis: int = 0) -> list[Any]:
    places = np.split(np.arange(x.shape[axis]), at)
    return [x[(slice(None),) * (axis % x.ndim) + (place,)] for place in places]


def join(f: Any, xs: Any, axis: int = 0) -> Any:
    """Return np.stack or np.concatenate of xs."""
    ends = [0, *np.cumsum([np.shape(x)[axis] for x in xs])] if f is np.concatenate else []

    def pull(j: int) -> Callable[..., Any]:
        place = slice(*ends[j : j + 2]) if ends else j
        return lambda g, y, *us: g[(slice(None),) * (axis % np.ndim(y)) + (place,)]

    return record(lambda *us: f(us, axis), *xs, pull=[pull(j) for j in range(len(xs))])


COMPARED = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.sign)
RULES: dict[Any, Callable[..., Any]] = {
    **{f: partial(compare, f) for f in COMPARED},
    **{f: elementwise(f, slopes) for f, slopes in spec.SLOPES.items()},
    **{f: elementwise(values, slopes) for f, (values, *slopes) in ELEMENTWISE.items()},
    **COMPOSED,
    np.matmul: product, np.dot: product, np.sum: add_up, np.reshape: reshape, np.transpose: transpose,
    np.split: split, np.stack: partial(join, np.stack), np.concatenate: partial(join, np.concatenate),
    np.mean: lambda x, axis=None, keepdims=False: np.sum(x, axis, keepdims=keepdims)
    * (np.size(np.sum(compare(np.asarray, x), axis)) / x.size),
    np.argmax: lambda x, axis=None: compare(partial(np.argmax, axis=axis), x),
    np.shape: lambda x: x.shape, np.ndim: lambda x: x.ndim, np.size: lambda x: x.size,
    np.zeros_like: lambda x: 0 * compare(np.asarray, x), np.real: lambda x: x,
}  # fmt: skip
Node.rules = RULES
