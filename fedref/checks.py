"""Checks of derivatives, for fedref's functions and for your own.

Two ways to differentiate f without a formula, both exact up to rounding; each checks the other.

The complex step: f(w + ihv) = f(w) + ih f′(w)v + O(h²), so Im f(w + ihv)/h is the directional
derivative. Nothing is subtracted, so h can be 1e-200 and there is no truncation error. f has to accept
complex numbers and to be analytic: it takes no `abs`, compares no complex values, and its value depends
on no parameter's `.real`.

Dual numbers, f(w + ε) = f(w) + f′(w)ε with ε² = 0: `dual_gradient` takes one pass for all directions,
and `dual_hvp` takes its complex step, so that H(w)v comes from f alone. f may use abs, maximum, minimum,
clip, where, norm and whatever else `fedref.spec.RULES` holds; anything else raises and says so.

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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref import spec, tree
from fedref.boundary.errors import tell_error
from fedref.conformance import naming, suite
from fedref.judge.answer import batch, risk_of
from fedref.judge.case import Case
from fedref.judge.compare import ROUNDING, difference, is_clear, measure_condition, tolerance
from fedref.models import MODELS
from fedref.models.batch import Batch
from fedref.models.numerics import Array, complex_step

BOUND = 1e-12  # the error allowed to a complex step; the measured error is about 1e-16
SLOPE_TOLERANCE = 0.1  # the error allowed to a Taylor slope
CANCELLATION_ULPS = 64  # rounding, in units in the last place, allowed where terms cancel


def relative_error(got: Any, expected: Any) -> float:
    """max|got − expected| / max|expected|; the absolute error where expected is all zero."""
    if np.shape(got) != np.shape(expected):
        raise ValueError(f"shapes differ: got {np.shape(got)}, expected {np.shape(expected)}")
    return difference(got, expected)


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
        nearby = [np.max(np.abs(derivative(w + t * one))) for one in v[:2] for t in (0.1, -0.1)]
        atol = CANCELLATION_ULPS * float(np.finfo(expected.dtype).eps) * float(np.max(nearby))
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


def dual_gradient(f: Callable[[Any], Any], w: Array) -> Array:
    """Return ∇f(w) of f : (d,) → number by dual numbers: (d,). w may be complex.

    Of two equal values `maximum`, `minimum`, `max` and `min` take the slope of the first; the slopes of
    `abs` and `norm` at 0 are 0. Memory: d times that of f.

    >>> dual_gradient(lambda w: np.sum(np.abs(w) ** 3) + np.maximum(w[0], w[1]), np.array([1.0, -2.0]))
    array([  4., -12.])
    """
    w = np.asarray(w)
    return spec.gradient(f, w if w.dtype.kind == "c" else w.astype(float))


def dual_hvp(f: Callable[[Any], Any], w: Array, v: Array) -> Array:
    """Return H(w)v of f : (d,) → number: (d,), by a complex step through `dual_gradient`.

    >>> dual_hvp(lambda w: np.linalg.norm(w) ** 3, np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    array([20.4,  7.2])
    """
    return complex_step_hvp(partial(dual_gradient, f), w, v)


def linear_rule(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the dual numbers' rule of an f that is linear in each array: its slope is Σ f(..., b, ...)."""

    def rule(*xs: Any, **options: Any) -> Any:
        us = [spec.value(x) for x in xs]

        def slope(j: int, x: Any) -> Array:
            bs = np.moveaxis(x.b, -1, 0)
            return np.stack([f(*us[:j], b, *us[j + 1 :], **options) for b in bs], -1)

        return spec.dual(f(*us, **options), xs, slope)

    return rule


def _is_first(u: Any, v: Any) -> Any:
    return np.real(u) >= np.real(v)


def _larger(u: Any, v: Any) -> Any:
    return np.where(_is_first(u, v), u, v)


def _smaller(u: Any, v: Any) -> Any:
    return np.where(_is_first(v, u), u, v)


def _extreme(sign: int, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    best = np.expand_dims((sign * x.a.real).argmax(axis), axis)
    x = np.take_along_axis(x, best, axis)
    return x if keepdims else x.sum(axis)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2) or (ord and axis is None and x.ndim > 1):
        raise TypeError(spec.no_rule(f"np.linalg.norm with ord={ord}"))
    square = (x * x).sum(axis, keepdims)
    zero = square.a == 0
    return np.sqrt(square + zero) * ~zero


# Rules that the specification does not need, for losses of your own. Elementwise: f (for complex numbers,
# where NumPy's is none or not analytic), then ∂y/∂u and ∂y/∂v of y = f(u, v).
ELEMENTWISE: dict[Any, Any] = {
    np.positive: (np.positive, lambda y, u: 1),
    np.square: (np.square, lambda y, u: 2 * u),
    np.sin: (np.sin, lambda y, u: np.cos(u)),
    np.cos: (np.cos, lambda y, u: -np.sin(u)),
    np.expm1: (np.expm1, lambda y, u: np.exp(u)),
    np.log1p: (np.log1p, lambda y, u: 1 / (1 + u)),
    np.absolute: (lambda u: u * np.sign(np.real(u)), lambda y, u: np.sign(np.real(u))),
    np.maximum: (_larger, lambda y, u, v: _is_first(u, v), lambda y, u, v: ~_is_first(u, v)),
    np.minimum: (_smaller, lambda y, u, v: _is_first(v, u), lambda y, u, v: ~_is_first(v, u)),
    np.logaddexp: (
        lambda u, v: _larger(u, v) + np.log1p(np.exp(_smaller(u, v) - _larger(u, v))),
        lambda y, u, v: np.exp(u - y), lambda y, u, v: np.exp(v - y),
    ),
}  # fmt: skip
LINEAR: tuple[Any, ...] = (
    np.dot, np.einsum, np.inner, np.mean, np.outer, np.ravel, np.take, np.take_along_axis,
    np.cumsum, np.squeeze, np.expand_dims,
    *(getattr(np, name) for name in ("matvec", "vecmat", "vecdot") if hasattr(np, name)),  # NumPy ≥ 2.2
)  # fmt: skip
spec.RULES.update(
    {f: spec.elementwise_rule(values, slopes) for f, (values, *slopes) in ELEMENTWISE.items()}
    | {f: linear_rule(f) for f in LINEAR}
    | {f: partial(spec.compare, f) for f in (np.sign, np.equal, np.not_equal)}
    | {np.max: partial(_extreme, 1), np.amax: partial(_extreme, 1), np.min: partial(_extreme, -1)}
    | {np.amin: partial(_extreme, -1), np.linalg.norm: _norm}
    | {np.clip: lambda x, least, most: np.minimum(np.maximum(x, least), most)}
)


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
    where : of rounds, what differs first, and both values.
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
    """Check that hvp(w, v) = ∇²f(w)·v, by `dual_hvp` of f, and by slope 3 (check `grad` first).

    v, bound, atol : as in `check_gradient`. Raises TypeError, and says what to write instead, where f
    does what dual numbers have no rule for.

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
        error_with_cancellation(hvp(w, one), partial(dual_hvp, f, v=one), w, vs, bound, atol)
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


# ---- properties of what `fedref.strategies` draws ------------------------------------------------


def check_model(p: Any, bound: float = BOUND) -> dict[str, Report]:
    """Check a model's derivatives in a `strategies.Problem` (model, w, v, D): {property: its report}.

    gradient : ∇f is the complex step of the loss. hvp : Hv is `dual_hvp` of the loss. Where the loss takes
    no dual numbers, it is the complex step of ∇f, and a central difference of it, which is right to 1e-6:
    a gradient may be right at real w alone. A network of torch's takes real w alone: Taylor slopes 2 and 3.
    symmetric : u·Hv = v·Hu. stack : three points at once are a loop over them. rows : their order does
    not matter. padding : nor do rows of weight 0.
    """
    model, w, v, D = p
    s = np.ones(len(D.y)) if D.s is None else D.s
    X, y = (np.concatenate([x, np.repeat(x[:1], len(x), 0)]) for x in (D.X, D.y))
    padded = Batch(X, y, np.append(s, 0 * s))
    f = partial(model.loss, D=D)

    def derivatives(w: Array, v: Array, D: Batch = D) -> tuple[Array, ...]:
        return model.loss(w, D), model.grad(w, D), model.hvp(w, v, D)

    _, g, Hv = at_w = derivatives(w, v)
    u = w + v[::-1]
    Hu = model.hvp(w, u, D)

    def report(error: float) -> Report:
        return Report(float(error), bound=bound)

    def against(derivative: Callable[[Array], Array], got: Array) -> Report:
        return report(_error(got, derivative(w)))

    def with_batch(D: Batch) -> Report:
        return report(np.max([_error(*pair) for pair in zip(derivatives(w, v, D), at_w)]))

    if getattr(model, "takes_complex", True):
        derived = {"gradient": against(partial(complex_step_gradient, f), g),
                   "hvp": report(_hvp_error(model, w, v, D, Hv, bound))}  # fmt: skip
    else:
        derived = {"gradient": Report(0.0, taylor_slope(f, g, w, v), 2, bound),
                   "hvp": Report(0.0, taylor_slope(f, g, w, v, Hv), 3, bound)}  # fmt: skip
    return derived | {
        "symmetric": report(
            abs(u @ Hv - v @ Hu) / max(abs(u) @ abs(Hv) + abs(v) @ abs(Hu), ROUNDING)
        ),
        "stack": stack_equals_loop(derivatives, np.stack([w, 2 * w, -w]), np.stack([v, u, -v])),
        "rows": with_batch(Batch(D.X[::-1], D.y[::-1], s[::-1])),
        "padding": with_batch(padded),
    }


def _hvp_error(model: Any, w: Array, v: Array, D: Batch, Hv: Array, bound: float) -> float:
    """The error of Hv. The loss of fedref's own models is the specification's, which takes dual numbers."""
    known = type(model) in MODELS.values()
    loss, rows = (risk_of(model), batch(D._asdict())) if known else (model.loss, D)
    grad = partial(model.grad, D=D)
    try:
        return _error(Hv, dual_hvp(lambda w: loss(w, rows), w, v))
    except TypeError:
        h = 1e-5
        rough = _error(Hv, (grad(w + h * v) - grad(w - h * v)) / (2 * h))
        error = _error(Hv, complex_step_hvp(grad, w, v))
        return error if error > bound or rough <= 1e-6 else rough


_error = partial(difference, least=ROUNDING)


@dataclass(frozen=True)
class Objective:
    """f(w, D) of a model with f.grad(w, D), f.hvp(w, v, D), f.predict(w, X), as in `fedref.spec`."""

    model: Any

    def __call__(self, w: Array, D: Any) -> Any:
        return self.model.loss(w, Batch(*D))

    def grad(self, w: Array, D: Any) -> Array:
        return self.model.grad(w, Batch(*D))

    def hvp(self, w: Array, v: Array, D: Any) -> Array:
        return self.model.hvp(w, v, Batch(*D))

    def predict(self, w: Array, X: Array) -> Array:
        return self.model.predict(w, X)


#: f, the first w, and the rounds, each a list of `spec.Client` → the state after each.
Generator = Callable[[Any, Array, Iterator[Any]], Iterator[Any]]


def check_rounds(
    algorithm: Any, generator: Generator, trace: Any = None, *, draws: int = 100,
    bound: float = BOUND, f: Any = None,
) -> Report:  # fmt: skip
    """Check that `run_round`, clients one by one and stacked, computes what `generator` yields.

    generator : generator(f, w, rounds), in the manner of `fedref.spec`: a loop over rounds, over each
    round's clients, over client.steps, whose items are tuples of batches. It yields after each round w,
    or a tuple: the arrays of the server's state in their order (the first ones will do), and at any place
    a dictionary {k: what client k keeps}.
    A client is a `spec.Client`: k, n (its rows), data, steps, steps_per_epoch, draws, straggler. The
    server's weights are `spec.sample_weights` or `spec.uniform_weights`, as the algorithm's `weighting`
    says; both count a client as often as it was drawn. Drawn are 1 to 3 rounds of 1 to 3 clients of 1 to
    6 rows, some drawn twice or straggling, batches with a short last one, and models of every family.
    trace : the rounds, a `strategies.Trace`. By default `draws` of them are drawn, and the report is of
    the smallest that fails: `where` says what differs, and shows all inputs (this needs Hypothesis).
    Draws in which the generator comes to a kink do not count; if none counts, the report fails.
    f : the objective; default: the model's own, `Objective`.

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
    objective = Objective if f is None else lambda _: f
    grade = partial(_grade_rounds, algorithm, generator, objective, bound)
    if trace is not None:
        return grade(trace)[0]
    from fedref import strategies

    counted = list[Report]()

    def fails(trace: Any) -> bool:
        report, counts = grade(trace) if any(trace.rounds()) else (None, False)
        counted.extend([report] if report and counts else [])
        return counts and report is not None and not report.ok

    smallest = strategies.smallest(strategies.traces(algorithm, kinks=True), fails, draws)
    if smallest is None and counted:
        return max(counted, key=lambda report: report.error)
    if smallest is None:
        reason = "nothing was compared: what the generator yields is NaN, diverges or jumps in each"
        return Report(float("nan"), bound=bound, where=f"{reason} of {draws} draws")
    report, counts = grade(smallest)
    if report.ok or not counts:
        report = Report(float("inf"), bound=bound, where=suite.TWICE)
    return report._replace(where=f"{report.where}\nin {smallest}")


def _grade_rounds(
    algorithm: Any, generator: Generator, f: Any, bound: float, trace: Any
) -> tuple[Report, bool]:
    """Return the report on a trace, and whether it counts.

    It does not where states are all 0, rounding alone, or at a kink. Where it decides, the bound is that of
    a right answer whose condition is as measured.
    """
    stacks = (False,) if algorithm.stops_early else (False, True)
    runs = {stack: list(_rounds_of(trace, stack)) for stack in stacks}
    names = [list(tree.flatten(state.server)) for state in runs[False]]

    def name_states(states: Iterable[Any]) -> dict[str, Array]:
        pairs = ((t, pair) for t, x in enumerate(states) for pair in _name_parts(x, names[t]))
        return {f"round {t}, {name}": np.asarray(x, float) for t, (name, x) in pairs}

    def expect(moved: Any) -> dict[str, Array]:
        rounds = list(trace._replace(**moved).rounds())
        theirs = generator(f(trace.model), moved.get("w", trace.w), filter(None, rounds))
        return name_states([next(theirs) if clients else None for clients in rounds])

    @cache
    def condition() -> float:
        inputs = {n: x for n in ("w", "X") if (x := getattr(trace, n)).dtype.kind == "f"}
        return measure_condition(expect, inputs, want)

    try:
        want = expect({})
    except StopIteration:
        reason = "the generator yields too few states, expected one after each round"
        return Report(float("inf"), bound=bound, where=reason), True
    case, errors, bounds = _case_of(trace, want, bound), [0.0], [bound]
    for stack, run in runs.items():
        got = name_states([(*tree.leaves(s.server), s.clients) for s in run])
        result, clear = suite.grade(suite.Answer(got), case), is_clear(*got.values())
        if result.status == suite.FAILED and is_clear(*want.values()):
            graded = suite.grade_again(case, result, "float64", condition())
            clear, result = graded is not None, graded.result if graded else result
            bounds += [graded.case.tolerance["float64"]] if graded else []
        if result.status == suite.FAILED:
            return _report_on(result, case, got, stack), clear
        errors += [difference(got[name], x) for name, x in want.items()]
    return Report(max(errors), bound=max(bounds)), any(map(np.any, want.values()))


def _case_of(trace: Any, want: dict[str, Array], bound: float) -> Case:
    """Return the case whose outputs are a generator's states."""
    m, allowed = trace.model, tolerance(1.0) | {"float64": bound}
    model = {"d": m.d, "shapes": getattr(m, "shapes", ()), "l2": getattr(m, "l2", 0.0)}
    hyper = vars(trace.algorithm)
    return Case("", "", "", "round", "", model, hyper, {}, want, (*want,), allowed)


def _report_on(result: suite.Result, case: Case, got: Mapping[str, Any], stack: bool) -> Report:
    """Report the first part of a state that is not what the generator yields, with evidence."""
    name, want = result.output, case.outputs[result.output]
    where = f"{name}: got {got.get(name)}, expected {want}{' (stacked)' * stack}"
    if evidence := naming.describe(result, case, "float64").evidence:
        where += f"; {evidence.replace('what is right', 'what is expected')}"
    error = difference(got.get(name, np.nan), want)
    return Report(error, bound=case.tolerance["float64"], where=where)


def _rounds_of(trace: Any, stack: bool) -> Iterator[Any]:
    """Yield the states of a trace's rounds; a write into what is read-only is told with its line."""
    try:
        yield from trace.run(stack)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ValueError(tell_error(error)) from error


def _name_parts(state: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, array) of a state as a generator yields it; None is nothing. names : the server's."""
    names, parts = iter(names), state if isinstance(state, tuple) else (state,)
    for part in () if state is None else parts:
        if not isinstance(part, dict):
            yield next(names, "a part that the server's state does not have"), part
            continue
        yield "clients that keep something", sorted(part)
        for k, kept in part.items():
            for i, x in enumerate(tree.leaves(kept)):
                yield f"what client {k} keeps{f' ({i})' * bool(i)}", x


def check_invariance(trace: Any, bound: float = BOUND) -> dict[str, Report]:
    """Check what may not change the rounds of a `strategies.Trace`: {property: its report}.

    stack, threads : clients at once, or some of them on each of two threads, to the bit.
    rows : the order of rows in a batch. padding : more of it.
    clients : their numbers, and so the order in which they are added.
    """
    states, alone = list(trace.run(False)), trace.algorithm.stops_early
    changed = {
        "rows": _with_rows(trace, lambda rows: rows[..., ::-1]),
        "padding": _with_rows(
            trace, lambda rows: np.pad(rows, [(0, 0), (0, 0), (1, 2)], constant_values=-1)
        ),
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


def _with_rows(trace: Any, change: Callable[[Array], Array]) -> Any:
    plans = [p._replace(rows={r: change(x) for r, x in p.rows.items()}) for p in trace.plans]
    return trace._replace(plans=tuple(plans))


def _renumber(trace: Any) -> Any:
    """Return the trace with its last client first."""
    N = len(trace.offsets) - 1
    rows = [np.arange(*trace.offsets[k : k + 2]) for k in reversed(range(N))]
    order, plans = np.concatenate(rows), list[Any]()
    for p in trace.plans:
        turned = {n: x[::-1] for n, x in p._asdict().items() if isinstance(x, np.ndarray)}
        turned["clients"] = N - 1 - turned["clients"]
        plans.append(p._replace(**turned, rows={role: x[::-1] for role, x in p.rows.items()}))
    offsets = np.cumsum([0, *map(len, rows)])
    return trace._replace(X=trace.X[order], y=trace.y[order], offsets=offsets, plans=tuple(plans))


def check_limit(one: Any, other: Any, trace: Any, bound: float = BOUND) -> Report:
    """Check that two algorithms, such as FedProx with μ = 0 and FedAvg, end each round with the same w.

    trace : a `strategies.Trace`, whose own algorithm only says which batches a step takes.
    """
    runs = [trace._replace(algorithm=algorithm).run(False) for algorithm in (one, other)]
    first = (tuple(next(tree.leaves(state.server)) for state in both) for both in zip(*runs))
    return Report(_error_of_states(trace.w, first), bound=bound)
