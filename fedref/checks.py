"""Checks of derivatives, for fedref's functions and for your own.

The complex step: f(w + ihv) = f(w) + ih f′(w)v + O(h²), so Im f(w + ihv)/h is the directional
derivative. Nothing is subtracted, so h can be 1e-200 and there is no truncation error: the result
is exact up to rounding. f has to accept complex numbers and to be analytic: it takes no `abs`,
compares no complex values, and its value depends on no parameter's `.real`.

Check your own gradient:

>>> import numpy as np
>>> def f(w): return np.sum(np.exp(w) * w)
>>> def my_gradient(w): return np.exp(w) * (w + 1)
>>> w = np.array([0.3, -1.2, 0.7])
>>> report = check_gradient(f, my_gradient, w)
>>> report.verdict, report.error < 1e-15, round(report.slope, 1)
('ok', True, 2.0)
>>> check_gradient(f, lambda w: np.exp(w) * w, w).verdict
'FAIL'

Check your own Hessian-vector product, and that a function of stacked arrays equals a loop over them:

>>> def my_hvp(w, v): return np.exp(w) * (w + 2) * v
>>> check_hvp(f, my_gradient, my_hvp, w).verdict
'ok'
>>> stack_equals_loop(my_gradient, np.ones((5, 3))).verdict
'ok'

To write a check of your own, use `complex_step_gradient`, `complex_step_hvp`, `taylor_slope` and
`relative_error`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.models.numerics import Array, complex_step

BOUND = 1e-12  # the error allowed to a complex step; the measured error is about 1e-16
SLOPE_TOLERANCE = 0.1  # the error allowed to a Taylor slope
CANCELLATION_ULPS = 64  # rounding, in units in the last place, allowed where terms cancel


def relative_error(got: Any, expected: Any) -> float:
    """max|got − expected| / max|expected|; the absolute error where expected is all zero."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise ValueError(f"shapes differ: got {got.shape}, expected {expected.shape}")
    scale = np.max(np.abs(expected), initial=0.0)
    return float(np.max(np.abs(got - expected), initial=0.0) / (scale if scale > 0 else 1.0))


def error_with_cancellation(
    got: Any,
    derivative: Callable[[Array], Any],
    w: Array,
    v: Array,
    bound: float,
    atol: float | None,
) -> float:
    """max|got − expected| / max|expected| with expected = derivative(w), allowing for cancellation.

    Near a stationary point a derivative is a sum of terms that cancel. The rounding error of both
    sides is then proportional to the terms, not to their sum. We estimate the terms' size a step
    away, as the largest entry of derivative(w ± v/10). An absolute error of at most `atol` (default:
    64 ε times that size) counts as rounding, and is scaled such that `atol` itself gives `bound`.
    """
    got, expected = np.asarray(got), np.asarray(derivative(w))
    error = relative_error(got, expected)
    if error <= bound or not np.isfinite(error):
        return error
    if atol is None:
        near = [np.max(np.abs(derivative(w + t * one))) for one in v[:2] for t in (0.1, -0.1)]
        atol = CANCELLATION_ULPS * float(np.finfo(expected.dtype).eps) * float(np.max(near))
    largest = float(np.max(np.abs(got - expected)))
    return largest / (atol / bound) if largest <= atol else error


def complex_step_derivative(f: Callable[[Array], Any], w: Array, v: Array) -> Array:
    """d/dε f(w + εv) at ε = 0, in the shape of f(w)."""
    h = complex_step(w, v)
    return np.imag(f(w + 1j * h * v)) / h


def complex_step_gradient(f: Callable[[Array], Any], w: Array) -> Array:
    """∇f(w) of f : (..., d) → (...), by one complex step a coordinate: (..., d)."""
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
    """Return the slope of log remainder against log step: 2 if g is right, 3 if hv is too.

    f : (d,) → number; g : its gradient, a function or the vector at w; v : a direction (d,);
    hv : H(w)v, a function of (w, v) or the vector. A wrong g gives 1 (with hv: a wrong hv gives 2).
    If the remainder is zero up to rounding (f linear, or quadratic with hv), the slope is inf.
    The fit uses only steps whose remainder is well above rounding.
    """
    w, v = np.asarray(w), np.asarray(v)
    steps = np.logspace(-6, -1, 21)
    g = np.asarray(g(w) if callable(g) else g)
    hv = np.asarray(hv(w, v) if callable(hv) else 0 * v if hv is None else hv)
    remainders = taylor_remainders(f, g, w, v, steps, hv)
    # Rounding is proportional to the remainder's largest term, which need not be f(w).
    terms = abs(f(w)), steps * abs(np.sum(g * v)), steps**2 / 2 * abs(np.sum(hv * v))
    eps = float(np.finfo(np.result_type(w, np.float32)).eps)
    clear = np.isfinite(remainders) & (remainders > 1e3 * eps * sum(terms))
    if clear.sum() < 3:
        return float("inf")
    # The smallest clear steps: there the remainder's leading term dominates.
    t, r = np.log(steps[clear][:8]), np.log(remainders[clear][:8])
    return float(np.polyfit(t, r, 1)[0])


class Report(NamedTuple):
    """The result of a check: the relative error, and the Taylor slope where one was measured.

    order : the slope that is expected, 2 for a gradient and 3 for a Hessian-vector product.
    A slope of inf passes too: the remainder is zero up to rounding, see `taylor_slope`.
    """

    error: float
    slope: float | None = None
    order: int | None = None
    bound: float = BOUND

    @property
    def error_ok(self) -> bool:
        return self.error <= self.bound  # nan is not

    @property
    def slope_ok(self) -> bool:
        if self.slope is None or self.order is None or self.slope == float("inf"):
            return True
        return abs(self.slope - self.order) <= SLOPE_TOLERANCE

    @property
    def ok(self) -> bool:
        return self.error_ok and self.slope_ok

    @property
    def verdict(self) -> str:
        return "ok" if self.ok else "FAIL"


def _directions(w: Array) -> Array:
    """Return five random directions, always the same: (5, d)."""
    return np.random.default_rng(0).normal(size=(5, *w.shape)).astype(np.result_type(w, np.float32))


def _median_slope(slope: Callable[[Array], float], v: Array) -> float:
    """Return the median slope over directions: along a single one the leading term may vanish."""
    return float(np.median([slope(one) for one in np.atleast_2d(v)]))


def check_gradient(
    f: Callable[[Array], Any],
    grad: Callable[[Array], Any],
    w: Array,
    v: Array | None = None,
    *,
    bound: float = BOUND,
    atol: float | None = None,
) -> Report:
    """Check that `grad` is the gradient of `f` : (d,) → number at w, by complex step and Taylor slope 2.

    v : one direction (d,) of the Taylor test, or several (n, d), whose median slope is taken
    (default: five random ones). Keep w and w ± v/10 away from kinks. atol : an absolute error
    that passes (default: what rounding leaves where terms cancel, see `error_with_cancellation`). If the
    slope is right and the error is not, f probably fails on complex numbers:

    >>> f, g = lambda w: np.sum(np.abs(w) ** 2), lambda w: 2 * w      # abs drops the complex step
    >>> report = check_gradient(f, g, np.array([0.3, -1.2]))
    >>> report.verdict, round(report.slope, 1)
    ('FAIL', 2.0)
    >>> check_gradient(lambda w: np.sum(w * w), g, np.array([0.3, -1.2])).verdict
    'ok'
    """
    w = np.asarray(w)
    v = _directions(w) if v is None else np.asarray(v)
    expected = partial(complex_step_gradient, f)
    error = error_with_cancellation(grad(w), expected, w, np.atleast_2d(v), bound, atol)
    slope = _median_slope(lambda v: taylor_slope(f, grad, w, v), v)
    return Report(error, slope, 2, bound)


def check_hvp(
    f: Callable[[Array], Any],
    grad: Callable[[Array], Any],
    hvp: Callable[[Array, Array], Any],
    w: Array,
    v: Array | None = None,
    *,
    bound: float = BOUND,
    atol: float | None = None,
) -> Report:
    """Check that hvp(w, v) = ∇²f(w)·v, by complex step of `grad` (check that first) and by slope 3.

    v, bound, atol : as in `check_gradient`.

    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> f, g, hvp = lambda w: w @ A @ w / 2, lambda w: A @ w, lambda w, v: A @ v
    >>> check_hvp(f, g, hvp, np.ones(2)).slope                          # f is a quadratic
    inf
    >>> check_hvp(f, g, lambda w, v: A.diagonal() * v, np.ones(2)).verdict
    'FAIL'
    """
    w = np.asarray(w)
    v = _directions(w) if v is None else np.asarray(v)
    vs = np.atleast_2d(v)
    errors = [
        error_with_cancellation(
            hvp(w, one), partial(complex_step_hvp, grad, v=one), w, vs, bound, atol
        )
        for one in vs
    ]
    error = np.max(errors)  # np.max, unlike max, keeps nan
    slope = _median_slope(lambda v: taylor_slope(f, grad, w, v, hvp), v)
    return Report(float(error), slope, 3, bound)


def stack_equals_loop(f: Callable[..., Any], *stacked: Any, bound: float = BOUND) -> Report:
    """Check that f of stacked arrays (leading axis K) equals a loop that calls f on each of the K.

    Arguments and result are arrays, or (named) tuples of them such as a `Batch`. Bind what all K
    share into f itself. Choose K coprime to the other axes, so that no mix-up can fit by chance.

    >>> centred = lambda x: x - x.mean()                # wrong: averages over all K
    >>> stack_equals_loop(centred, np.eye(3)[:, :2]).verdict
    'FAIL'
    >>> stack_equals_loop(lambda x: x - x.mean(-1, keepdims=True), np.eye(3)[:, :2]).verdict
    'ok'
    """
    sizes = {np.shape(x)[:1] for x in tree.leaves(stacked)}
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError(f"leading axes {sorted(sizes)}: expected one length K for all arguments")
    ((K,),) = sizes
    loop = tree.stack([f(*tree.map(lambda x, k=k: x[k], stacked)) for k in range(K)])
    errors = [relative_error(*pair) for pair in zip(tree.leaves(f(*stacked)), tree.leaves(loop))]
    return Report(float(np.max(errors, initial=0.0)), bound=bound)
