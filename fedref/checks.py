"""Checks of derivatives, for fedref's functions and for your own.

Two ways to differentiate f without a formula, both exact up to rounding; each checks the other.

The complex step: f(w + ihv) = f(w) + ih f′(w)v + O(h²), so Im f(w + ihv)/h is the directional
derivative. Nothing is subtracted, so h can be 1e-200 and there is no truncation error. f has to accept
complex numbers and to be analytic: it takes no `abs`, compares no complex values, and its value depends
on no parameter's `.real`.

Dual numbers, f(w + ε) = f(w) + f′(w)ε with ε² = 0: `dual_gradient` takes one pass for all directions,
and `dual_hvp` takes its complex step, so that H(w)v comes from f alone. f may use abs, maximum, minimum,
clip, where, norm, var and whatever else has a rule, and may write z += x; anything else raises and says so.

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

`check_rounds` holds a whole algorithm to ten lines of yours; `check_model`, `check_invariance` and
`check_limit` assert what else must hold of what `fedref.strategies` draws. To write a check of your own,
use `complex_step_gradient`, `complex_step_hvp`, `taylor_slope` and `relative_error`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedref import spec
from fedref.boundary.errors import tell_error
from fedref.draws.sources import RandomSource, Trace, draw_model, draw_trace
from fedref.judge import evidence, verdicts
from fedref.judge.case import Case
from fedref.judge.compare import (
    ROUNDING,
    difference,
    is_clear,
    measure_condition,
    tolerance,
    type_name,
)
from fedref.judge.objective import Objective
from fedref.judge.slopes import COMPOSED, ELEMENTWISE
from fedref.judge.tape import gradients
from fedref.models import tree
from fedref.models.batch import Batch
from fedref.models.numerics import Array, complex_step

BOUND = 1e-12  # the error allowed to a complex step; the measured error is about 1e-16
SLOPE_TOLERANCE = 0.5  # how far a Taylor slope may fall short: a wrong derivative's is less by 1
WIDER = float(np.finfo(np.float32).eps / np.finfo(float).eps)  # bounds of float32 are as many times
CANCELLATION_ULPS = 64  # rounding, in units in the last place, allowed where terms cancel

Function = Callable[[Array], Any]  # of the point w
Gradient = Function | Array  # or its value at w
Product = Callable[[Array, Array], Any]  # of w and a direction v
Measure = Callable[[Function], float]  # the error against a derivative


def relative_error(x: Any, right: Any) -> float:
    """max|x − right| / max|right|; the absolute error where `right` is all zero.

    x : an array.
    right : what it should be, of the same shape, else ValueError.
    """
    if np.shape(x) != np.shape(right):
        raise ValueError(f"shapes differ: got {np.shape(x)}, expected {np.shape(right)}")
    return difference(x, right)


def error_with_cancellation(
    got: Any, derivative: Function, w: Array, bound: float, atol: float | None
) -> float:
    """max|got − expected| / max|expected| with expected = derivative(w), allowing for cancellation.

    Near a stationary point a derivative is a sum of terms that cancel. The rounding error of both
    sides is then proportional to the terms, not to their sum. We estimate the terms' size a step of
    length 0.1 away, by the derivative's slope at w. An absolute error of at most `atol` (default: 64 ε
    times that size, or ten times what `derivative` jumps between neighbouring points) counts as
    rounding, and is scaled such that `atol` itself gives `bound`.
    """
    got, expected = np.asarray(got), np.asarray(derivative(w)).astype(w.dtype)
    error = relative_error(got, expected)
    if error <= bound or not np.isfinite(error):
        return error
    if atol is None:
        eps = float(np.finfo(expected.dtype).eps)
        # thousands of ulps: each value has a rounding error of its own, and a steep f is still smooth
        step = eps**0.75 * max(1.0, float(np.max(np.abs(w))))
        near = _values_close_to(derivative, w, _directions(w)[0], step)
        # medians, as a kink at w is in one of the differences
        slope = np.median(np.max(np.abs(np.diff(near, axis=0)), axis=1)) / step
        size = float(np.max(np.abs(expected)) + 0.1 * slope)
        atol = max(CANCELLATION_ULPS * eps * size, 10 * float(np.median(_jumps(near))))
    largest = float(np.max(np.abs(got - expected)))
    return largest / (atol / bound) if largest <= atol else error


def complex_step_derivative(f: Function, w: Array, v: Array) -> Array:
    """d/dε f(w + εv) at ε = 0, in the shape of f(w).

    f : a function of complex w, (..., d) → any shape; one that drops the imaginary part gives 0.
    w : the point, (..., d).
    v : a direction, (..., d).
    """
    h = complex_step(w, v)
    return np.imag(f(w + 1j * h * v)) / h


def complex_step_gradient(f: Function, w: Array) -> Array:
    """∇f(w), by one complex step a coordinate: (..., d).

    f : a function of complex w, (..., d) → (...); one that drops the imaginary part gives 0.
    w : the point, (..., d).
    """
    w = np.asarray(w)
    columns = [complex_step_derivative(f, w, e) for e in np.eye(w.shape[-1], dtype=w.real.dtype)]
    return np.stack(columns, -1)


def complex_step_hvp(grad: Function, w: Array, v: Array) -> Array:
    """H(w)v = d/dε ∇f(w + εv), by one complex step through the gradient: (..., d).

    grad : the gradient of f at complex w, (..., d) → (..., d).
    w : the point, (..., d).
    v : a direction, (..., d).
    """
    return complex_step_derivative(grad, np.asarray(w), np.asarray(v))


def dual_gradient(f: Callable[[Any], Any], w: Array) -> Array:
    """Return ∇f(w) by dual numbers: (d,).

    Of two equal values `maximum`, `minimum`, `max` and `min` take the slope of the first; the slopes of
    `abs` and `norm` at 0 are 0. Memory: d times that of f.
    f : the function, (d,) → number, else ValueError; TypeError names what dual numbers have no rule for.
    w : the point, (d,), real or complex.

    >>> dual_gradient(lambda w: np.sum(np.abs(w) ** 3) + np.maximum(w[0], w[1]), np.array([1.0, -2.0]))
    array([  4., -12.])
    """
    w = np.array(w, None if np.iscomplexobj(w) else float)  # a copy: f may write into it
    return spec.gradient(f, w, DualNumber)


def dual_hvp(f: Callable[[Any], Any], w: Array, v: Array) -> Array:
    """Return H(w)v by a complex step through `dual_gradient`, with its errors: (d,).

    f : the function, (d,) → number.
    w : the point, (d,).
    v : a direction, (d,).

    >>> dual_hvp(lambda w: np.linalg.norm(w) ** 3, np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    array([20.4,  7.2])
    """
    return complex_step_hvp(partial(dual_gradient, f), w, v)


class DualNumber(spec.Dual):
    """The specification's dual numbers with rules for losses of your own; they may change in place."""

    mT = property(lambda x: np.moveaxis(x, -1, -2))

    def __init__(self, a: Any, slope: Any, seed: Any) -> None:
        fixed = slope is not None and not slope.flags.writeable
        base: Any = super()
        base.__init__(a, slope.copy() if fixed else slope, seed)

    def __array_ufunc__(self, f: Any, method: str, *xs: Any, out: Any = (), **options: Any) -> Any:
        base: Any = super()
        y = base.__array_ufunc__(f, method, *xs, **options)
        for z in out:
            if not isinstance(z, spec.Dual):
                raise TypeError("an array of numbers takes no dual ones: write np.zeros_like(w, shape=...) "
                                "for np.zeros(...), and z = z + x for z += x")  # fmt: skip
            if isinstance(z.a, np.ndarray):  # a single number is none, and `z += x` makes a new one
                z[...] = y
                return z
        return y

    def __setitem__(self, i: Any, x: Any) -> None:
        index = i if isinstance(i, tuple) else (i,)
        if isinstance(x, spec.Dual) and x.seed is not self.seed:
            raise TypeError("dual numbers of one gradient are put among those of another")
        if not np.can_cast(np.asarray(spec.value(x)).dtype, self.a.dtype, "same_kind"):
            raise TypeError("complex numbers are put into an array of real ones")
        self.a[i] = spec.value(x)
        rest = (slice(None),) if any(one is Ellipsis for one in index) else ()
        self.b[(*index, *rest)] = x.b if isinstance(x, spec.Dual) else 0


def linear_rule(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the dual numbers' rule of an f that is linear in each array: its slope is Σ f(..., b, ...)."""

    def rule(*xs: Any, **options: Any) -> Any:
        us = [spec.value(x) for x in xs]

        def slope(j: int, x: Any) -> Array:
            bs = np.moveaxis(x.b, -1, 0)
            return np.stack([f(*us[:j], b, *us[j + 1 :], **options) for b in bs], -1)

        y = f(*us, **options)
        if isinstance(y, np.ndarray) and y.base is not None:
            y.flags.writeable = False  # the slopes are no view of x's: a change would miss them
        return spec.dual(y, xs, slope)

    return rule


def _extreme(sign: int, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    best = np.expand_dims((sign * x.a.real).argmax(axis), axis)
    x = np.take_along_axis(x, best, axis)
    return x if keepdims else x.sum(axis)


def _choose(where: Any, *xs: Any) -> Any:
    def slope(j: int, x: Any) -> Array:  # what is not chosen may be NaN
        return np.where(np.asarray(where, bool)[..., None] == (not j), x.b, 0)

    return spec.dual(np.where(where, *map(spec.value, xs)), xs, slope)


def _move_axis(x: Any, source: int, target: int) -> Any:
    axes = [*range(x.ndim)]
    axes.insert(target % x.ndim, axes.pop(source))
    return np.transpose(x, axes)


def _like(make: Callable[..., Array], x: Any, shape: Any = None) -> Any:
    """Return dual numbers that are 0, or not set yet, to write into."""
    a = make(x.a, shape=shape)
    return x.like(a, np.zeros((*a.shape, x.b.shape[-1]), x.b.dtype))


def _copy_to(y: Any, x: Any, where: Any = True) -> None:
    y[...] = np.where(where, x, y)


# Rules that the specification does not need, for losses of your own; ELEMENTWISE and COMPOSED have more.
LINEAR: tuple[Any, ...] = (
    np.dot, np.einsum, np.inner, np.mean, np.outer, np.take, np.take_along_axis, np.cumsum, np.squeeze,
    np.expand_dims, sliding_window_view, np.matvec,
)  # fmt: skip
DualNumber.rules = (
    spec.RULES
    | {f: spec.elementwise_rule(values, slopes) for f, (values, *slopes) in ELEMENTWISE.items()}
    | COMPOSED
    | {f: linear_rule(f) for f in LINEAR}
    | {f: partial(spec.compare, f) for f in (np.sign, np.equal, np.not_equal)}
    | {np.max: partial(_extreme, 1), np.amax: partial(_extreme, 1), np.min: partial(_extreme, -1)}
    | {
        np.amin: partial(_extreme, -1),
        np.moveaxis: _move_axis,
        np.copyto: _copy_to,
        np.where: _choose,
    }
    | {np.vecmat: lambda u, A: np.einsum("...n,...nm->...m", u, A)}  # NumPy's conjugates
    | {f: partial(_like, f) for f in (np.zeros_like, np.empty_like)}
)


def taylor_remainders(
    f: Function, g: Gradient, w: Array, v: Array, steps: Array, hv: Product | Array | None = None
) -> Array:
    """|f(w + tv) − f(w) − t g·v [− t²/2 v·Hv]| for every t in steps."""
    g_w = np.asarray(g(w) if callable(g) else g)
    first = np.sum(g_w * v)
    second = 0.0 if hv is None else np.sum(np.asarray(hv(w, v) if callable(hv) else hv) * v)
    f_w = f(w)
    gaps = [abs(f(w + t * v) - f_w - t * first - t * t / 2 * second) for t in steps]
    return np.array(gaps, np.result_type(w, np.float32))


def taylor_slope(
    f: Function, g: Gradient, w: Array, v: Array, hv: Product | Array | None = None
) -> float:
    """Return the slope of log remainder against log step: 2 if g is right, 3 if hv is too.

    f : the function, (d,) → number.
    g : its gradient, a function or the vector at w, (d,).
    w : the point, (d,).
    v : a direction, (d,).
    hv : H(w)v, a function of (w, v) or the vector, (d,) (None: only g is examined).
    A wrong g gives 1 (with hv: a wrong hv gives 2).
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
    jump = np.max(_jumps(_values_close_to(f, w, v, eps**0.5)))
    rounding = np.maximum(1e3 * eps * sum(terms), 100 * jump)
    clear = np.isfinite(remainders) & (remainders > rounding)
    if clear.sum() < 3:
        return float("inf")
    # The smallest clear steps: there the remainder's leading term dominates.
    t, r = np.log(steps[clear][:8]), np.log(remainders[clear][:8])
    return float(np.polyfit(t, r, 1)[0])


def _values_close_to(f: Function, w: Array, v: Array, step: float) -> Array:
    """Return f at w and at eight neighbouring points along v: (9, size)."""
    return np.array([f(w + step * i * v) for i in range(9)]).reshape(9, -1)


def _jumps(near: Array) -> Array:
    """Return how much f jumps between neighbouring points, at six places. That is its rounding error, where
    terms inside of f are larger than f and cancel: third differences leave nothing of f itself."""
    return np.max(np.abs(np.diff(near, 3, axis=0)), axis=1) / 4


class Report(NamedTuple):
    """The result of a check: the relative error, and the Taylor slope where one was measured.

    order : the slope that is expected, 2 for a gradient and 3 for a Hessian-vector product.
    A larger one passes too, where the next term of f vanishes; inf: the remainder is zero up to rounding.
    where : what differs most, or of rounds first, and both values; why, where that can be said.
    """

    error: float
    slope: float | None = None
    order: int | None = None
    bound: float = BOUND
    where: str = ""

    @property
    def error_ok(self) -> bool:
        return self.error <= self.bound  # nan is not

    @property
    def slope_ok(self) -> bool:
        if self.slope is None or self.order is None:
            return True
        return self.slope >= self.order - SLOPE_TOLERANCE  # nan is not

    @property
    def ok(self) -> bool:
        return self.error_ok and self.slope_ok

    @property
    def verdict(self) -> str:
        return "ok" if self.ok else "FAIL"


def _directions(w: Array) -> Array:
    """Return five random directions, always the same: (5, d)."""
    return np.random.default_rng(0).normal(size=(5, *w.shape)).astype(np.result_type(w, np.float32))


def _add_slope(report: Report, slope: Callable[[Array], float], v: Array, order: int) -> Report:
    """Add the median slope over directions: along a single one the leading term may vanish, or be the next
    one's opposite."""
    with np.errstate(all="ignore"):
        median = float(np.median([slope(one) for one in (v if len(v) > 1 else [*v, *-v])]))
    report = report._replace(slope=median, order=order)
    if report.error_ok and not report.slope_ok:
        why = "f has a kink or a jump within w ± v/10" + (", or grad is wrong" if order > 2 else "")
        report = report._replace(where=f"the Taylor slope is {median:.2f}, expected {order}: {why}")
    return report


def _of_vectors(f: Callable[..., Any], name: str, shape: tuple[int, ...]) -> Callable[..., Any]:
    """Return f as a function of vectors, of which it gets copies in this shape; its values, perhaps torch's
    tensors or JAX's arrays, become NumPy's numbers or vectors."""
    size = () if name == "f" else shape

    def of_vectors(*given: Any) -> Any:
        xs = (x.reshape(shape) for x in given)
        y = _as_array(f(*(x.copy() if isinstance(x, np.ndarray) else x for x in xs)))
        if y.dtype.kind not in "biufc":
            raise TypeError(f"{name} returns values of type {y.dtype}, expected numbers")
        if y.shape != size:
            a_number = "a number" if name == "f" else f"{size}"
            raise ValueError(f"{name} returns an array of shape {y.shape}, expected {a_number}")
        return y if name == "f" else y.reshape(-1)

    return of_vectors


def _as_array(y: Any) -> Any:
    """Return y as NumPy's, with NaN for what is masked; dual numbers stay."""
    if isinstance(y, np.ma.MaskedArray):
        return y.filled(np.nan)
    return y if isinstance(y, spec.Dual) else np.asarray(y.detach() if hasattr(y, "detach") else y)


def _point(x: Any, name: str = "w") -> Array:
    """Return x as an array of floats; a tensor of another library is refused, as f is called with NumPy's."""
    if hasattr(x, "__array__") and not isinstance(x, np.ndarray | np.generic):
        kind = f"{type(x).__module__.split('.')[0]}.{type(x).__name__}"
        raise TypeError(
            f"{name} is a {kind}, expected a NumPy array: give np.asarray({name}), and let your functions "
            "make the tensors, as in lambda w: float(loss(torch.tensor(w)))"
        )
    x = _as_array(x)
    if x.dtype.kind not in "biuf" or not x.size:
        raise TypeError(f"{name} has {x.size} numbers of type {x.dtype}, expected some real ones")
    return x if x.dtype == np.float32 else x.astype(float)


def _precision(f: Function, w: Array, v: Array) -> Any:
    """Return float32 where w has it or every value of f close to w is such a number, else w's dtype."""
    with np.errstate(all="ignore"):
        values = np.array([f(w + one / 128) for one in v]).real
        known = np.isfinite(values).all() and np.unique(values).size > 1
        narrow = known and (values == values.astype(np.float32)).all()
    return np.dtype(np.float32) if narrow else w.dtype


#: The error allowed to differences, by precision.
ROUGH = {"float32": 1e-2, "float64": 1e-6}
DROPS = "f drops the imaginary part of w, as abs, norm and var do"


def _differentiate_roughly(f: Function, w: Array, v: Array) -> Array:
    """Return d/dε f(w + εv) at ε = 0 by differences of fourth order, where nothing better is at hand."""
    h = float(np.finfo(w.dtype).eps) ** 0.2 / max(1e-3, float(np.max(np.abs(v), initial=0.0)))
    near, far = (np.subtract(f(w + t * v), f(w - t * v)) for t in (h, 2 * h))
    return np.asarray((8 * near - far) / (12 * h))


def _weigh(
    w: Array, got: Array, ways: tuple[Function, ...], measure: Measure, bound: float, confirms: Function
) -> Report:  # fmt: skip
    """Report the error of `got` by the strongest evidence: dual numbers, else a complex step that
    differences confirm, else these alone.

    ways : the derivative by complex steps, by dual numbers, by differences. confirms(derivative) : whether a
    second word makes the complex step's enough, without dual numbers.
    """

    def report(by: Function, bound: float, where: str = "") -> Report:
        error = measure(by)
        if not error <= bound:
            right = by(w)
            i = np.argmax(np.abs(got - right))
            where = f"entry {i}: got {got[i]}, expected {right[i]}{where and '; '}{where}"
        return Report(error, bound=bound, where=where)

    step, dual, rough = ways
    loose = ROUGH.get(w.dtype.name, ROUGH["float64"])
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            at_w = np.asarray(step(w))
            if confirms(at_w) and (by_step := report(step, bound)).ok:
                return by_step
        except Exception:  # whatever another library raises at numbers that it does not know
            at_w = np.full(1, np.nan)
        stepped = bool(np.isfinite(at_w).all())
        try:
            drops = stepped and _error(at_w, dual(w)) > loose
            return report(dual, bound, DROPS if drops else "")
        except Exception as error:
            reason = f"{error or type(error).__name__}".splitlines()[0].split(";")[0][:120]
        if _error(at_w, rough(w)) <= loose:
            return report(step, bound)
    drops_and = f"{DROPS}, and " if stepped else ""
    where = f"{drops_and}dual numbers do not pass it ({reason}): judged by differences, right to {loose:.0e}"
    return report(rough, loose, where)


def _weigh_gradient(f: Function, w: Array, got: Array, measure: Measure, bound: float) -> Report:
    def rough(w: Array) -> Array:
        return np.stack([_differentiate_roughly(f, w, e) for e in np.eye(w.size, dtype=w.dtype)])

    def confirms(g: Array) -> bool:
        """A complex step that f drops is 0, which a wrong gradient may be, too."""
        v, *_ = _directions(w)
        gap = abs(_differentiate_roughly(f, w, v) - g @ v)
        return bool(gap < ROUGH.get(w.dtype.name, ROUGH["float64"]) * (abs(g) @ abs(v)))

    ways = partial(complex_step_gradient, f), partial(dual_gradient, f), rough
    return _weigh(w, got, ways, measure, bound, confirms)


def _weigh_hvp(
    f: Function, grad: Function, w: Array, v: Array, got: Array, measure: Measure, bound: float
) -> Report:
    """A gradient may be right at real w alone: a complex step through it is not enough."""
    by_step, rough = (partial(by, grad, v=v) for by in (complex_step_hvp, _differentiate_roughly))
    ways = by_step, partial(dual_hvp, f, v=v), rough
    return _weigh(w, got, ways, measure, bound, lambda _: False)


def check_gradient(
    f: Function,
    grad: Function,
    w: Array,
    v: Array | None = None,
    *,
    bound: float = BOUND,
    atol: float | None = None,
) -> Report:
    """Check that `grad` is the gradient of `f` at w, by complex step and Taylor slope 2.

    f : the function, (d,) → number, the same each time, else ValueError. It gets copies of w.
    grad : what should be its gradient, (d,) → (d,), else ValueError.
    w : the point, (d,) or any other shape, of real numbers. Keep w and w ± v/10 away from kinks.
    v : one direction (d,) of the Taylor test, or several (n, d), whose median slope is taken
    (default: five random ones), else ValueError.
    bound : the largest relative error that passes; in float32 as many times larger as its ε is.
    atol : an absolute error that passes (default: what rounding leaves where terms cancel, see
    `error_with_cancellation`).
    Where the complex step disagrees, as that of abs does, dual numbers decide; where f is no function of
    NumPy's either, differences do, to 1e-6, and `where` says so. Where f computes in float32, so does the
    check.

    >>> f, g = lambda w: np.sum(np.abs(w) ** 2), lambda w: 2 * w      # abs drops the complex step
    >>> report = check_gradient(f, g, np.array([0.3, -1.2]))
    >>> report.verdict, report.where
    ('ok', 'f drops the imaginary part of w, as abs, norm and var do')
    >>> check_gradient(lambda w: np.sum(w * w), lambda w: w, np.array([0.3, -1.2])).verdict
    'FAIL'
    """
    (f, grad), w, v, bound = _prepare({"f": f, "grad": grad}, w, v, bound)
    g = grad(w)
    measure = partial(error_with_cancellation, g, w=w, bound=bound, atol=atol)
    report = _weigh_gradient(f, w, g, measure, bound)
    return _add_slope(report, lambda v: taylor_slope(f, g, w, v), v, 2)


def _prepare(functions: Mapping[str, Any], w: Any, v: Any, bound: float) -> tuple[Any, ...]:
    """Return functions of vectors, w (d,) and directions (n, d) in the precision of f, and its bound."""
    w = _point(w)
    v = _directions(w) if v is None else _point(v, "v")
    if v.shape[v.ndim > w.ndim :] != w.shape:
        raise ValueError(f"v has shape {v.shape}, expected that of w, {w.shape}, or several of it")
    f, *_ = given = [_of_vectors(f, name, w.shape) for name, f in functions.items()]
    w, v = w.reshape(-1), v.reshape(-1, w.size)
    if _error(once := f(w), again := f(w)) > ROUGH["float32"]:
        raise ValueError(f"f is random, expected the same number again: {once} at w, then {again}")
    dtype = _precision(f, w, v)
    return given, w.astype(dtype), v.astype(dtype), bound * (WIDER if dtype == np.float32 else 1)


def check_hvp(
    f: Function,
    grad: Function,
    hvp: Product,
    w: Array,
    v: Array | None = None,
    *,
    bound: float = BOUND,
    atol: float | None = None,
) -> Report:
    """Check that hvp(w, v) = ∇²f(w)·v, by `dual_hvp` of f, and by slope 3 (check `grad` first).

    f : the function, (d,) → number.
    grad : its gradient, (d,) → (d,).
    hvp : what should be its Hessian-vector product, a function of (w, v), → (d,), else ValueError.
    w : the point, (d,).
    v : one direction (d,), or several (n, d) (default: five random ones).
    bound : the largest relative error that passes, as in `check_gradient`.
    atol : an absolute error that passes, as in `check_gradient`.
    Where f does what dual numbers have no rule for, the complex step of `grad` decides if differences
    confirm it, else these, to 1e-6; `where` says so.

    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> f, g, hvp = lambda w: w @ A @ w / 2, lambda w: A @ w, lambda w, v: A @ v
    >>> check_hvp(f, g, hvp, np.ones(2)).slope                          # f is a quadratic
    inf
    >>> check_hvp(f, g, lambda w, v: A.diagonal() * v, np.ones(2)).verdict
    'FAIL'
    """
    (f, grad, hvp), w, v, bound = _prepare({"f": f, "grad": grad, "hvp": hvp}, w, v, bound)
    measure = partial(error_with_cancellation, w=w, bound=bound, atol=atol)
    products = ((one, hvp(w, one)) for one in v)
    reports = [_weigh_hvp(f, grad, w, one, Hv, partial(measure, Hv), bound) for one, Hv in products]
    bad = [report for report in reports if not report.error_ok]  # NaN too
    worst = bad[0] if bad else max(reports, key=lambda report: report.error / report.bound)
    return _add_slope(worst, lambda v: taylor_slope(f, grad, w, v, hvp), v, 3)


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
    parts = (tree.map(lambda x, k=k: np.copy(x[k]), stacked) for k in (slice(None), *range(K)))
    outputs = [f(*part) for part in parts]
    at_once, *each = (tree.map(_as_array, output) for output in outputs)
    leaves = list(tree.leaves(at_once))
    errors = [relative_error(*pair) for pair in zip(leaves, tree.leaves(tree.stack(each)))]
    narrow = any(x.dtype == np.float32 for x in leaves)
    return Report(float(np.max(errors, initial=0.0)), bound=bound * (WIDER if narrow else 1))


# ---- properties of what `fedref.strategies` draws ------------------------------------------------


def check_model(p: Any, bound: float = BOUND) -> dict[str, Report]:
    """Check a model's derivatives in a drawn problem: {property: its report}.

    p : a `strategies.Problem`: a model, w (d,), v (d,) and a batch D.
    bound : the largest relative error that passes.

    "gradient": ∇f is the complex step of the loss. "hvp": Hv is `dual_hvp` of the loss. Where the loss takes
    no such numbers, other evidence decides as in `check_gradient` and `check_hvp`, and Taylor slopes along
    five directions: of a network of torch's, which takes real w alone.
    "symmetric": u·Hv = v·Hu. "stack": three points at once are a loop over them. "rows": their order does
    not matter. "padding": nor do rows of weight 0, whatever they hold.
    """
    model, w, v, D = p
    s = np.ones(len(D.y)) if D.s is None else D.s
    f, grad = partial(model.loss, D=D), partial(model.grad, D=D)

    def derivatives(w: Array, v: Array, D: Batch = D) -> tuple[Array, ...]:
        return model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)

    _, g, Hv = at_w = derivatives(w, v)
    u = w + v[::-1]
    Hu, half = model.hvp(w, u, D), model.hvp(w / 2, v, D)

    def report(error: float) -> Report:
        return Report(float(error), bound=bound)

    def with_batch(D: Batch) -> Report:
        return report(np.max([_error(*pair) for pair in zip(derivatives(w, v, D), at_w)]))

    if getattr(model, "takes_complex", True):
        derived = {
            "gradient": _weigh_gradient(f, w, g, lambda by: _error(g, by(w)), bound),
            "hvp": _weigh_hvp(f, grad, w, v, Hv, lambda by: _error(Hv, by(w)), bound),
        }
    else:
        ways = np.concatenate([v[None], _directions(w)[1:]])
        derived = {
            "gradient": check_gradient(f, grad, w, ways, bound=bound),
            "hvp": check_hvp(f, grad, partial(model.hvp, D=D), w, ways, bound=bound),
        }
    return derived | {
        # where a loss is saturated, the terms of Hv cancel: half way to 0 it shows their size
        "symmetric": report(
            abs(u @ Hv - v @ Hu)
            / max(abs(u) @ abs(Hv) + abs(v) @ abs(Hu), abs(u) @ abs(half), ROUNDING)
        ),
        "stack": stack_equals_loop(derivatives, np.stack([w, 2 * w, -w]), np.stack([v, u, -v])),
        "rows": with_batch(Batch(D.X[::-1], D.y[::-1], s[::-1])),
        "padding": with_batch(_pad(model, D, s)),
    }


def _pad(model: Any, D: Batch, s: Array) -> Batch:
    """Return D with as many rows of weight 0 of other numbers and labels: their mean is another."""
    if model.inputs == "codes":
        X = (D.X + 1) % (model.vocabulary + 1)
    else:
        X = np.roll(D.X, 1, -1) + 1 if D.X.dtype.kind == "f" else np.roll(D.X, 1)
    y = D.y + 1.0
    if model.labels:
        y = np.roll(model.labels, -1)[np.searchsorted(model.labels, D.y)]
    X, y = (np.concatenate(pair) for pair in ((D.X, X), (D.y, y.astype(D.y.dtype))))
    return Batch(X, y, np.append(s, 0 * s))


_error = partial(difference, least=ROUNDING)


#: f, the first w, and the rounds, each a list of `spec.Client` → the state after each.
Generator = Callable[[Any, Array, Iterator[Any]], Iterator[Any]]


def check_rounds(
    algorithm: Any,
    generator: Generator,
    trace: Trace | None = None,
    *,
    draws: int = 100,
    bound: float = BOUND,
    f: Any = None,
) -> Report:
    """Check that `run_round`, clients one by one and stacked, computes what `generator` yields.

    algorithm : an `Algorithm`, with its settings, else TypeError.
    generator : generator(f, w, rounds), in the manner of `fedref.spec`: a loop over rounds, over each
    round's clients, over client.steps, whose items are tuples of batches. It yields after each round
    one of three forms: w; a tuple of the server's arrays in their order, all or the first ones; such a tuple
    with a dictionary {k: what client k keeps} at any place.
    trace : the rounds, a `strategies.Trace` with the batches that the algorithm takes, else ValueError. By
    default `draws` of them are drawn, and the report is of the smallest that fails: `where` says what
    differs, and shows all inputs (this needs Hypothesis).
    draws : how many traces are drawn, at most.
    bound : the largest relative error that passes.
    f : stands in the place of the model's own objective. An objective may be differentiated by
    `spec.gradient`, has f.grad and f.hvp, and f.train_loss(...), the training loss of which an algorithm
    that watches it is told after each round (`Objective`).
    A client is a `spec.Client`: k, n (its rows), data, steps, steps_per_epoch, draws, straggler. The
    server's weights are `spec.sample_weights` or `spec.uniform_weights`, as the algorithm's `weighting`
    says; both count a client as often as it was drawn. Drawn are 1 to 3 rounds of some of N = 1 to 3 clients,
    each of 1 to 6 rows, some drawn twice or straggling, batches with a short last one, and models of every
    family. A loop that needs N reads f.N, which a failing case shrinks with all else.
    Draws in which the generator comes to a kink do not count; if none counts, the report fails.

    >>> from fedref import spec
    >>> from fedref.algorithms.fedavg import FedAvg
    >>> def mine(f, w, rounds):
    ...     for clients in rounds:
    ...         ws = []
    ...         for client in clients:
    ...             w_k = w
    ...             for (D,) in client.steps:
    ...                 w_k = w_k - 0.5 * f.grad(w_k, D)
    ...             ws.append(w_k)
    ...         w = spec.average(spec.sample_weights(clients), ws)
    ...         yield w
    >>> check_rounds(FedAvg(lr=0.5), mine, draws=20).verdict
    'ok'
    >>> check_rounds(FedAvg(lr=0.25), mine, draws=20).verdict
    'FAIL'
    """

    if isinstance(algorithm, type) or not hasattr(algorithm, "roles"):
        raise TypeError(f"algorithm is {algorithm!r}, expected an Algorithm such as FedAvg(lr=0.5)")

    def objective(trace: Trace) -> Any:
        told = (loss for loss, clients in zip(trace.losses, trace.rounds()) if clients)
        return f or Objective(trace.model, len(trace.offsets) - 1, lambda *_: next(told))

    grade = partial(_grade_rounds, algorithm, generator, objective, bound)
    if trace is not None:
        if (got := trace.algorithm.roles) != algorithm.roles:
            raise ValueError(f"a step of trace has batches {got}, expected {algorithm.roles}")
        return grade(trace._replace(algorithm=algorithm))[0]
    from fedref.draws.shrinking import drawn, smallest  # they need Hypothesis

    counted = list[Report]()

    def fails(trace: Trace) -> bool:
        report, counts = grade(trace) if any(trace.rounds()) else (None, False)
        counted.extend([report] if report and counts else [])
        return counts and report is not None and not report.ok

    def draw(source: RandomSource) -> Trace:
        return draw_trace(source, algorithm, draw_model(source))

    failing = smallest(drawn(draw), fails, draws)
    if failing is None and counted:
        return max(counted, key=lambda report: report.error)
    if failing is None:
        reason = "nothing was compared: what the generator yields is NaN, diverges or jumps in each"
        return Report(float("nan"), bound=bound, where=f"{reason} of {draws} draws")
    report, counts = grade(failing)
    if report.ok or not counts:
        report = Report(float("inf"), bound=bound, where=verdicts.TWICE)
    return report._replace(where=f"{report.where}\nin {failing}")


class WrongStates(Exception):
    """What a generator yields is no state after each round."""


def _grade_rounds(
    algorithm: Any, generator: Generator, f: Any, bound: float, trace: Trace
) -> tuple[Report, bool]:
    """Return the report on a trace, and whether it counts.

    It does not where states are all 0, rounding alone, or at a kink. Where it decides, the bound is that of
    a right answer whose condition is as measured.
    """
    stacks = (False,) if algorithm.stops_early else (False, True)
    runs = {stack: list(_rounds_of(trace, stack)) for stack in stacks}
    names = [list(tree.flatten(state.server)) for state in runs[False]]

    def name_states(states: Iterator[Any], rounds: Iterable[Any]) -> dict[str, Array]:
        """Copy each state before the next is computed: a generator may yield the same dictionary again."""
        named = dict[str, Array]()
        for t, takes_part in enumerate(rounds):
            state = next(states, None) if takes_part else ()
            if state is None:
                raise WrongStates(
                    f"round {t}: the generator yields no state, expected one after each"
                )
            for name, x in _name_parts(state, names[t]):
                if np.asarray(x).dtype.kind not in "biuf":
                    what = f"the generator yields {x}, expected real numbers"
                    raise WrongStates(f"round {t}, {name}: {what}")
                named[f"round {t}, {name}"] = np.array(x, float)
        if next(states, None) is not None:
            raise WrongStates("the generator yields another state after the last round")
        return named

    def expect(moved: Any) -> dict[str, Array]:
        rounds = list(trace._replace(**moved).rounds())
        theirs = generator(f(trace), moved.get("w", trace.w), filter(None, rounds))
        if not isinstance(theirs, Iterable) or isinstance(theirs, np.ndarray):
            raise WrongStates(
                f"the generator returns {type_name(theirs)}, expected it to yield states"
            )
        # a loop may divide 0 by 0 for what is not compared
        with np.errstate(all="ignore"), gradients():
            return name_states(iter(theirs), rounds)

    @cache
    def condition() -> float:
        inputs = {n: x for n in ("w", "X") if (x := getattr(trace, n)).dtype.kind == "f"}
        return measure_condition(expect, inputs, want)

    try:
        want = expect({})
    except WrongStates as error:
        return Report(float("inf"), bound=bound, where=str(error)), True
    case, errors, bounds = _case_of(trace, want, bound), [0.0], [bound]
    for stack, run in runs.items():
        states = iter([(*tree.leaves(s.server), s.clients) for s in run])
        got = name_states(states, [True] * len(run))
        result, clear = verdicts.grade(verdicts.Answer(got), case), is_clear(*got.values())
        if result.status == verdicts.FAILED and is_clear(*want.values()):
            if any(map(np.any, map(np.subtract, expect({}).values(), want.values()))):
                reason = "the generator is random: it yields other numbers when it is called again"
                return Report(float("inf"), bound=bound, where=reason), True
            graded = verdicts.grade_again(case, result, "float64", condition())
            clear, result = graded is not None, graded.result if graded else result
            bounds += [graded.case.tolerance["float64"]] if graded else []
        if result.status == verdicts.FAILED:
            return _report_on(result, case, got, stack), clear
        errors += [difference(got[name], x) for name, x in want.items()]
    return Report(max(errors), bound=max(bounds)), any(map(np.any, want.values()))


def _case_of(trace: Trace, want: dict[str, Array], bound: float) -> Case:
    """Return the case whose outputs are a generator's states."""
    m, allowed = trace.model, tolerance(1.0) | {"float64": bound}
    model = {"d": m.d, "shapes": getattr(m, "shapes", ()), "l2": getattr(m, "l2", 0.0)}
    hyper = vars(trace.algorithm)
    return Case("", "", "", "round", "", model, hyper, {}, want, (*want,), allowed)


def _report_on(result: verdicts.Result, case: Case, got: Mapping[str, Any], stack: bool) -> Report:
    """Report the first part of a state that is not what the generator yields, with evidence."""
    name, want = result.output, case.outputs[result.output]
    where = f"{name}: got {got.get(name)}, expected {want}{' (stacked)' if stack else ''}"
    if seen := evidence.describe(result, case, "float64").evidence:
        where += f"; {seen.replace('what is right', 'what is expected')}"
    error = difference(got.get(name, np.nan), want)
    return Report(error, bound=case.tolerance["float64"], where=where)


def _rounds_of(trace: Trace, stack: bool) -> Iterator[Any]:
    """Yield the states of a trace's rounds; a write into what is read-only is told with its line."""
    try:
        yield from trace.run(stack)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ValueError(tell_error(error)) from error


def _name_parts(state: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, array) of a state as a generator yields it. names : the server's."""
    names = iter(names)
    for part in state if isinstance(state, tuple) else (state,):
        if not isinstance(part, dict):
            yield next(names, "a part that the server's state does not have"), part
            continue
        yield "clients that keep something", sorted(part)
        for k, kept in part.items():
            for i, x in enumerate(tree.leaves(kept)):
                yield f"what client {k} keeps{f' ({i})' if i else ''}", x


def check_invariance(trace: Trace, bound: float = BOUND) -> dict[str, Report]:
    """Check what may not change the rounds of a `strategies.Trace`: {property: its report}.

    trace : drawn rounds, a `strategies.Trace`.
    bound : the largest relative error that passes.

    "stack" and "threads": clients at once, or some of them on each of two threads, to the bit.
    "rows": the order of rows in a batch. "padding": more of it.
    "clients": their numbers, and so the order in which they are added.
    """
    states, alone = list(trace.run(False)), trace.algorithm.stops_early
    wider = (0, 0), (0, 0), (1, 2)
    changed = {
        "rows": _with_rows(trace, lambda rows: rows[..., ::-1]),
        "padding": _with_rows(trace, lambda rows: np.pad(rows, wider, constant_values=-1)),
        "clients": _renumber(trace),
    }
    runs = {name: other.run(False) for name, other in changed.items()}
    runs |= {"stack": trace.run(not alone), "threads": trace.run(not alone, threads=2)}
    last, reports = len(trace.offsets) - 2, dict[str, Report]()
    for name, run in runs.items():
        turned = name == "clients"
        pairs = [
            ((ours.server, *ours.clients.values()),
             (theirs.server, *(theirs.clients[last - k if turned else k] for k in ours.clients)))
            for ours, theirs in zip(states, run, strict=True)
        ]  # fmt: skip
        error = _error_of_states(trace.w, pairs)
        reports[name] = Report(error, bound=bound if name in changed else 0)
    return reports


def _error_of_states(w: Array, pairs: Iterable[tuple[Any, Any]]) -> float:
    """Return the largest error of the states after each round: rounding goes by the largest so far."""
    errors, scale = [0.0], float(np.max(np.abs(w)))
    for ours, theirs in pairs:
        leaves = list(zip(tree.leaves(ours), tree.leaves(theirs), strict=True))
        scale = float(np.max([scale, *(np.max(np.abs(x), initial=0.0) for x, _ in leaves)]))
        errors += [_error(y, x, scale) for x, y in leaves]
    return float(np.max(errors))


def _with_rows(trace: Trace, change: Callable[[Array], Array]) -> Trace:
    plans = [p._replace(rows={r: change(x) for r, x in p.rows.items()}) for p in trace.plans]
    return trace._replace(plans=tuple(plans))


def _renumber(trace: Trace) -> Trace:
    """Return the trace with its last client first."""
    N = len(trace.offsets) - 1
    rows = [np.arange(*trace.offsets[k : k + 2]) for k in reversed(range(N))]
    order, plans = np.concatenate(rows), list[Any]()
    for p in trace.plans:
        arrays = {n: x for n, x in p._asdict().items() if isinstance(x, np.ndarray)}
        turned: dict[str, Any] = {n: x[::-1] for n, x in arrays.items()}
        turned["clients"] = N - 1 - turned["clients"]
        plans.append(p._replace(**turned, rows={role: x[::-1] for role, x in p.rows.items()}))
    offsets = np.cumsum([0, *map(len, rows)])
    return trace._replace(X=trace.X[order], y=trace.y[order], offsets=offsets, plans=tuple(plans))


def check_limit(a: Any, b: Any, trace: Trace, bound: float = BOUND) -> Report:
    """Check that two algorithms, such as FedProx with μ = 0 and FedAvg, end each round with the same w.

    a : an `Algorithm`.
    b : the one that it should equal.
    trace : a `strategies.Trace`, whose own algorithm only says which batches a step takes.
    bound : the largest relative error that passes.
    """
    runs = [trace._replace(algorithm=algorithm).run(False) for algorithm in (a, b)]
    first = (tuple(next(tree.leaves(state.server)) for state in both) for both in zip(*runs))
    return Report(_error_of_states(trace.w, first), bound=bound)
