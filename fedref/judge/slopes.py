"""Derivatives, entry by entry, of NumPy's functions that the specification does not need.

Dual numbers (`fedref.checks`) and tapes take their rules from here, for losses and penalties of your own.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def is_first(u: Any, v: Any) -> Any:
    return np.real(u) >= np.real(v)


def larger(u: Any, v: Any) -> Any:
    return np.where(is_first(u, v), u, v)


def smaller(u: Any, v: Any) -> Any:
    return np.where(is_first(v, u), u, v)


#: f (for complex numbers, where NumPy's is none or not analytic), then ∂y/∂u and ∂y/∂v of y = f(u, v).
ELEMENTWISE: dict[Any, Any] = {
    np.positive: (np.positive, lambda y, u: 1),
    np.square: (np.square, lambda y, u: 2 * u),
    np.sin: (np.sin, lambda y, u: np.cos(u)),
    np.cos: (np.cos, lambda y, u: -np.sin(u)),
    np.expm1: (np.expm1, lambda y, u: np.exp(u)),
    np.log1p: (np.log1p, lambda y, u: 1 / (1 + u)),
    np.absolute: (lambda u: u * np.sign(np.real(u)), lambda y, u: np.sign(np.real(u))),
    np.maximum: (larger, lambda y, u, v: is_first(u, v), lambda y, u, v: ~is_first(u, v)),
    np.minimum: (smaller, lambda y, u, v: is_first(v, u), lambda y, u, v: ~is_first(v, u)),
    np.logaddexp: (
        lambda u, v: larger(u, v) + np.log1p(np.exp(smaller(u, v) - larger(u, v))),
        lambda y, u, v: np.exp(u - y), lambda y, u, v: np.exp(v - y),
    ),
}  # fmt: skip


# ---- made of other rules -------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2) or (ord and axis is None and x.ndim > 1):
        raise TypeError(f"a gradient has no rule for np.linalg.norm with ord={ord}")
    square = (x * x).sum(axis, keepdims)
    zero = square.a == 0
    return np.sqrt(square + zero) * ~zero


def variance(x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    gap = x - np.mean(x, axis, keepdims=True)
    square = (gap * gap).sum(axis, keepdims)
    return square / (x.size // square.size - ddof)


#: f → what it is in terms of functions with rules. NumPy's `vdot` and `vecdot` conjugate: these are analytic.
COMPOSED: dict[Any, Callable[..., Any]] = {
    np.linalg.norm: norm,
    np.var: variance,
    np.std: lambda *x, **options: np.sqrt(variance(*x, **options)),
    np.vdot: lambda u, v: (np.reshape(u, -1) * np.reshape(v, -1)).sum(),
    np.vecdot: lambda u, v: (u * v).sum(-1),
    np.ravel: lambda x: np.reshape(x, -1),
    np.clip: lambda x, least, most: np.minimum(np.maximum(x, least), most),
}
