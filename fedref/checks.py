"""Checks of derivatives, for fedref's functions and for your own.

The complex step: f(w + ihv) = f(w) + ih f′(w)v + O(h²), so Im f(w + ihv)/h is the directional
derivative. Nothing is subtracted, so h can be 1e-30 and there is no truncation error: the result
is right to rounding. It asks of f only that it also takes complex numbers and is analytic (no
`abs`, no comparison of complex values, no `.real` of a parameter in the value).

Check your own gradient:

>>> import numpy as np
>>> def f(w): return np.sum(np.exp(w) * w)
>>> def my_gradient(w): return np.exp(w) * (w + 1)
>>> w = np.array([0.3, -1.2, 0.7])
>>> error = relative_error(my_gradient(w), complex_step_gradient(f, w))
>>> bool(error < 1e-15)
True
>>> round(taylor_slope(f, my_gradient, w, np.ones(3)), 1)
2.0
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedref.numerics import Array

H = 1e-30  # the complex step: any h whose square is lost in rounding will do


def relative_error(got: Any, expected: Any) -> float:
    """max|got − expected| / max|expected| (the absolute error where expected is all zero)."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise ValueError(f"shapes differ: got {got.shape}, expected {expected.shape}")
    scale = np.max(np.abs(expected), initial=0.0)
    return float(np.max(np.abs(got - expected), initial=0.0) / (scale if scale > 0 else 1.0))


def complex_step_derivative(f: Callable[[Array], Any], w: Array, v: Array) -> Array:
    """d/dε f(w + εv) at ε = 0: the shape of f(w)."""
    return np.asarray(np.imag(f(w + 1j * H * v)) / H)


def complex_step_gradient(f: Callable[[Array], Any], w: Array) -> Array:
    """∇f(w) of f : (..., d) → (...), one complex step a coordinate of the last axis: (..., d)."""
    w = np.asarray(w)
    columns = [complex_step_derivative(f, w, e) for e in np.eye(w.shape[-1], dtype=w.real.dtype)]
    return np.stack(columns, -1)


def complex_step_hvp(grad: Callable[[Array], Any], w: Array, v: Array) -> Array:
    """H(w)v = d/dε ∇f(w + εv), by one complex step through the gradient: (..., d)."""
    return complex_step_derivative(grad, np.asarray(w), np.asarray(v))


def taylor_remainders(
    f: Callable[[Array], Any],
    g: Callable[[Array], Any] | Array,
    w: Array,
    v: Array,
    steps: Array,
    hv: Callable[[Array, Array], Any] | Array | None = None,
) -> Array:
    """|f(w + tv) − f(w) − t g·v [− t²/2 v·Hv]| for every t in steps."""
    g_w = np.asarray(g(w) if callable(g) else g)
    first = np.sum(g_w * v)
    second = 0.0 if hv is None else np.sum(np.asarray(hv(w, v) if callable(hv) else hv) * v)
    f_w = f(w)
    return np.array([abs(f(w + t * v) - f_w - t * first - t * t / 2 * second) for t in steps])


def taylor_slope(
    f: Callable[[Array], Any],
    g: Callable[[Array], Any] | Array,
    w: Array,
    v: Array,
    hv: Callable[[Array, Array], Any] | Array | None = None,
) -> float:
    """The slope of log remainder against log step: 2 if g is the gradient of f, 3 with a right hv.

    f : (d,) → number; g : its gradient, a function or the vector at w; v : a direction (d,);
    hv : H(w)v, a function of (w, v) or the vector. A wrong g gives 1 (with hv: a wrong hv gives 2).
    Where the remainder is zero to rounding (f linear, or quadratic with hv), the slope is inf.
    The slope is fitted over the steps at which the remainder stands well clear of rounding.
    """
    w, v = np.asarray(w), np.asarray(v)
    steps = np.logspace(-6, -1, 21)
    remainders = taylor_remainders(f, g, w, v, steps, hv)
    eps = np.finfo(np.result_type(w, np.float32)).eps
    floor = 1e3 * float(eps) * max(abs(complex(f(w))), 1e-300)
    clear = np.isfinite(remainders) & (remainders > floor)
    if clear.sum() < 3:
        return float("inf")
    # The smallest clear steps: there the leading term of the remainder rules.
    t, r = np.log(steps[clear][:8]), np.log(remainders[clear][:8])
    return float(np.polyfit(t, r, 1)[0])
