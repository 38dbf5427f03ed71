"""The checks must pass what is right, and above all fail what is wrong."""

import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse, special

from fedref import checks, proofs, spec, strategies
from fedref.algorithm import Server
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.draws.sources import NumPySource, draw_trace
from fedref.judge.adapter import BY_SAMPLES, RUNS, name_state, settings
from fedref.models import BinaryLogistic, Logistic
from fedref.models.batch import Batch
from fedref.proofs import Setting

A = np.array([[2.0, 0.5, 0.0], [0.5, 3.0, -1.0], [0.0, -1.0, 1.0]])
W = np.array([0.3, -1.2, 0.7])
V = np.array([1.0, 0.5, -2.0])


def f(w):
    return np.sum(np.exp(w)) + w @ A @ w / 2


def grad(w):
    return np.exp(w) + A @ w


def hvp(w, v):
    return np.exp(w) * v + A @ v


def linear(w):
    return V @ w


# Relative error


def test_relative_error():
    assert checks.relative_error([1.0, 2.0], [1.0, 2.0]) == 0
    assert checks.relative_error([1.0, 2.1], [1.0, 2.0]) == pytest.approx(0.05)
    assert checks.relative_error(3.0, 2.0) == 0.5
    assert checks.relative_error([0.25], [0.0]) == 0.25  # nothing to be relative to
    assert checks.relative_error([], []) == 0
    assert np.isnan(checks.relative_error([np.nan], [1.0]))  # and NaN <= tolerance is False
    with pytest.raises(ValueError, match=r"got \(3,\), expected \(1, 3\)"):
        checks.relative_error(np.ones(3), np.ones((1, 3)))


# The Taylor slope


@pytest.mark.parametrize(
    ("f", "g", "hv", "slope"),
    [
        (f, grad, None, 2),
        (f, grad, hvp, 3),
        (f, grad(W), hvp(W, V), 3),
        (f, 1.1 * grad(W), None, 1),
        (f, 1.1 * grad(W), hvp, 1),
        (f, grad, 1.1 * hvp(W, V), 2),
        (linear, V, None, np.inf),  # nothing remains
        (lambda w: w @ A @ w / 2, A @ W, A @ V, np.inf),
    ],
)
def test_taylor_slopes(f, g, hv, slope):
    assert checks.taylor_slope(f, g, W, V, hv) == pytest.approx(slope, abs=0.02)


def test_taylor_slope_where_terms_inside_f_are_far_larger_than_it():
    def f(w):
        return np.exp(w).sum() + 1e6 - 1e6

    g = np.exp(W)
    slopes = [checks.taylor_slope(f, *given) for given in ((g, W, V, g * V), (g, W, V, 0 * V))]
    assert slopes == [pytest.approx(3, abs=0.05), pytest.approx(2, abs=0.05)]
    assert checks.taylor_slope(f, 1.1 * g, W, V) == pytest.approx(1, abs=0.05)


def test_a_slope_above_the_order_passes():
    """At 0 the next terms of f vanish, too."""
    zero = np.zeros(3)
    report = checks.check_hvp(
        lambda w: (w**4).sum(), lambda w: 4 * w**3, lambda w, v: 12 * w**2 * v, zero
    )
    assert report.ok
    assert report.slope == pytest.approx(4, abs=0.05)


def test_taylor_slope_where_the_value_is_zero():
    """Rounding goes by the size of the terms, not by f(w) = 0."""
    zero = np.zeros(3)
    a, v = np.array([0.1, 0.2, 0.3]), np.array([0.7, -0.3, 0.9])
    assert checks.taylor_slope(lambda w: a @ w, a, zero, v) == np.inf
    assert checks.taylor_slope(lambda w: a @ w + w @ w, a, zero, v) == pytest.approx(2, abs=0.02)
    assert checks.taylor_slope(lambda w: a @ w, 1.1 * a, zero, v) == pytest.approx(1, abs=0.02)


# Reports


@pytest.mark.parametrize("factor", [1, 1 + 1e-10, 0.99, 1.1, -1, 0, np.nan])
def test_reports(factor):
    """Near a stationary point the terms of a derivative cancel: there it is right to few digits."""
    report = checks.check_gradient(f, lambda w: factor * grad(w), W)
    assert (report.ok, report.order) == (factor == 1, 2)
    report = checks.check_hvp(f, grad, lambda w, v: factor * hvp(w, v), W)
    assert (report.verdict, report.order) == ("ok" if factor == 1 else "FAIL", 3)
    for away in (0.0, 1e-12, 1e-10) if factor == 1 else (1e-10,):
        h, g, Hv, w = nearly_stationary()
        w = w + away
        assert np.abs(g(w)).max() < 1e-7
        assert checks.relative_error(g(w), checks.complex_step_gradient(h, w)) > checks.BOUND
        found = checks.check_gradient(h, lambda w: factor * g(w), w).ok  # noqa: B023
        assert found == (abs(factor - 1) < 1e-9)
        assert checks.check_hvp(h, g, Hv, w).ok
    assert checks.check_gradient(linear, lambda w: V, W).slope == np.inf  # nothing remains: right


def test_stack_equals_loop():
    w = np.random.default_rng(0).standard_normal((5, 3))
    assert checks.stack_equals_loop(np.exp, w).error == 0
    assert checks.stack_equals_loop(lambda w, v: (w, (w * v).sum(-1)), w, w).verdict == "ok"
    assert checks.stack_equals_loop(lambda w: w - w.mean(0), w).verdict == "FAIL"
    assert checks.stack_equals_loop(lambda w: w.__isub__(w.mean()), w).verdict == "FAIL"
    with pytest.raises(ValueError, match="one length K"):
        checks.stack_equals_loop(np.add, w, w[:4])
    with pytest.raises(ValueError, match="one length K"):
        checks.stack_equals_loop(np.exp, 1.0)


def nearly_stationary(steps: int = 6):
    """(f, gradient, HVP, w) of a small logistic regression, some Newton steps from the start."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)

    def f(w):
        return np.sum(np.log1p(np.exp(X @ w)) - y * (X @ w))

    def sigma(w):
        return 1 / (1 + np.exp(-(X @ w)))

    def g(w):
        return X.T @ (sigma(w) - y)

    def hvp(w, v):
        return X.T @ (sigma(w) * (1 - sigma(w)) * (X @ v))

    w = np.zeros(3)
    for _ in range(steps):
        w = w - np.linalg.solve(np.stack([hvp(w, e) for e in np.eye(3)]), g(w))
    return f, g, hvp, w


def test_a_gradient_that_is_0_by_symmetry_passes_and_its_terms_do_not():
    """At w = 0 the terms ±x/2 cancel to some 1e-17 on one side, and to 0 on the other."""
    x = np.array([0.1, 0.2, -0.3])

    def f(w):
        return np.sum(np.cosh(3 * x * w[0]) - 1) + np.sum(x * w[0])

    def g(w):
        return np.array([np.sum(3 * x * np.sinh(3 * x * w[0]))])

    assert np.sum(x) != 0
    assert checks.check_gradient(f, g, np.zeros(1)).error_ok
    assert not checks.check_gradient(f, lambda w: g(w) + x[:1], np.zeros(1)).ok


def test_atol_is_an_absolute_error_that_passes():
    f, g, _, w = nearly_stationary()
    off = lambda w: g(w) + 1e-9  # noqa: E731
    assert not checks.check_gradient(f, off, w).error_ok
    assert checks.check_gradient(f, off, w, atol=2e-9).error_ok
    assert not checks.check_gradient(f, off, w, atol=5e-10).error_ok


# ---- a check can fail ------------------------------------------------------------------------------


def fedavg(f, w, rounds):
    return spec.fedavg(f, w, rounds, 0.5)


class NaN(FedAvg):
    """FedAvg whose server is NaN, everywhere or in its first parameter alone."""

    everywhere: ClassVar[bool] = True

    def combine(self, model, server, uploads, cohort):
        w = super().combine(model, server, uploads, cohort).w.copy()
        w[slice(None) if self.everywhere else slice(1)] = np.nan
        return Server(w)


class OnePlace(NaN):
    everywhere = False


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (NaN, lambda w: w),
        (OnePlace, lambda w: w),
        (FedAvg, lambda w: w * np.nan),
        (FedAvg, lambda w: np.where(w == 0, w, np.nan)),
        (FedAvg, lambda w: w * 1e8),
        (FedAvg, lambda w: w * 1e-8),
    ],
)
def test_rounds_that_are_nan_or_far_away_fail_on_either_side(kind, change):
    report = checks.check_rounds(kind(lr=0.5), lambda *given: map(change, fedavg(*given)), draws=20)
    assert report.verdict == "FAIL"
    assert report.where.startswith("round 0, w: got")
    assert kind is FedAvg or "nan" in report.where


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (list, ""),
        (lambda states: iter(()), "round 0: the generator yields no state"),
        (lambda states: (None for _ in states), "round 0: the generator yields no state"),
        (lambda states: None, "the generator returns a NoneType"),
        (lambda states: next(states), "the generator returns a ndarray"),
        (lambda states: [*states, 0], "yields another state after the last round"),
        (lambda states: (w + 0j for w in states), "round 0, w: the generator yields [0.+0.j]"),
        (lambda states: ({"w": w} for w in states), "that keep something: the generator yields ['w']"),
        (lambda states: (w + CHANCE.random() for w in states), "the generator is random"),
    ],
)  # fmt: skip
def test_what_is_no_state_after_each_round_is_told(change, words):
    report = checks.check_rounds(FedAvg(lr=0.5), lambda *given: change(fedavg(*given)), draws=5)
    assert report.ok == (not words)
    assert words in report.where


CHANCE = np.random.default_rng(0)


@pytest.mark.parametrize(("N", "offsets"), [(1, "[0, 1]"), (2, "[0, 1, 2]"), (3, "[0, 1, 2, 3]")])
def test_a_failure_is_shrunk_to_the_fewest_clients_that_show_it(N, offsets):
    def mine(f, w, rounds):
        return (w + (f.N >= N) for w in fedavg(f, w, rounds))

    assert f"offsets=array({offsets})" in checks.check_rounds(FedAvg(lr=0.5), mine).where


@pytest.mark.parametrize("place", [slice(None), slice(1)])
def test_nan_in_a_derivative_fails(place):
    def with_nan(x):
        x = np.array(x, float)
        x[place] = np.nan
        return x

    def f(w):
        return np.sum(np.exp(w))

    w = np.array([0.3, -1.2])
    assert not checks.check_gradient(f, lambda w: with_nan(np.exp(w)), w).ok
    assert not checks.check_hvp(f, np.exp, lambda w, v: with_nan(np.exp(w) * v), w).ok
    assert not checks.stack_equals_loop(with_nan, np.ones((3, 2))).ok

    class Wrong(Logistic):
        def grad(self, w, D):
            g = super().grad(w, D)
            return g if np.iscomplexobj(w) or np.ndim(w) > 1 else with_nan(g)

    model = Wrong(2, 2)
    D = Batch(np.ones((2, 2)), np.array([0, 1]))
    p = strategies.Problem(model, model.init(np.random.default_rng(0)), np.ones(model.d), D)
    reports = checks.check_model(p)
    assert not reports["gradient"].ok
    assert not reports["padding"].ok


# ---- dual numbers ------------------------------------------------------------------------------------

M = np.random.default_rng(1).normal(size=(3, 4))


def in_place(w):
    """Views of one array are changed, as NumPy changes them."""
    z, s = w * w, w.sum()
    z += w
    z[1:] *= 2
    z.reshape(2, 2)[0] -= w[2:]
    z[0], z[[1, 1, 2]] = z[1] * z[2], 0.5
    u = np.zeros_like(z, shape=(3, 4))
    u[1], u[..., 2] = z, w[:3]
    np.copyto(u, z, where=w.real < 0)
    s *= z[3]
    return (u**3).sum() * s


#: By name: a loss in NumPy's functions, and, where that is not analytic, the same by analytic ones.
LOSSES = {
    "abs": lambda w: np.abs(w).sum() + abs(w[0]) ** 3,
    "maximum": lambda w: np.maximum(w, 0.1).sum() ** 2,
    "minimum": lambda w: np.minimum(0.3, w) @ w,
    "clip": lambda w: (np.clip(w, -0.5, 0.5) ** 2).sum(),
    "mean": lambda w: np.mean(w * w * w),
    "norm": lambda w: np.linalg.norm(w - 1) ** 3,
    "dot": lambda w: np.dot(M, w).dot(M @ w) ** 2,
    "einsum": lambda w: np.einsum("ij,j,i->", M, w, M @ w) ** 2,
    "sin cos": lambda w: (np.sin(w) * np.cos(w)).sum(),
    "expm1 log1p": lambda w: (np.expm1(w) * np.log1p(w * w)).sum(),
    "logaddexp": lambda w: np.logaddexp(w[0], w[1] * w[2]) + np.logaddexp(0, w).sum(),
    "power": lambda w: (2**w).sum() + (np.square(w) ** w).sum() + (w**-2).sum(),
    "max of rows": lambda w: w.reshape(2, 2).max(1).sum() ** 3 + w.min() ** 3,
    "amax amin": lambda w: np.amax(w * w) * np.amin(w),
    "cumsum outer": lambda w: (np.cumsum(w) ** 3).sum() + (np.outer(w, w) ** 2).sum(),
    "take squeeze": lambda w: (np.take(w, [0, 2]) * np.squeeze(w[None, :2])).sum() ** 2,
    "inner ravel": lambda w: np.inner(w, w) * (np.ravel(w.reshape(2, 2)) ** 3).sum(),
    "along axis": lambda w: (np.take_along_axis(w, w.real.argmax()[None], 0) ** 3).sum(),
    "windows": lambda w: (sliding_window_view(w, 2) ** 3).sum() * (np.expand_dims(w, 0) ** 2).sum(),
    "sign": lambda w: (np.sign(w) * w**3).sum() + np.where((w == 5) | (w != 5), w, 0).sum() ** 2,
    "positive": lambda w: (np.positive(w) ** 3).sum(),
    "moveaxis": lambda w: (np.moveaxis(w.reshape(1, 2, 2), 0, -1)[1, :, 0] ** 3).sum(),
    "in place": in_place,
    "var std": lambda w: np.var(w) * np.std(w.reshape(2, 2), 0).sum() + w.var(ddof=1) ** 2,
    "vdot": lambda w: np.vdot(w, w * w),
    "vecdot": lambda w: np.vecdot(w, w * w),
    "vecmat": lambda w: (np.vecmat(w, np.outer(w, w)) ** 2).sum(),
    "matvec": lambda w: (np.matvec(M, w) ** 3).sum(),
}
#: What NumPy computes of complex numbers by |w| or conjugates, or compares.
NOT_ANALYTIC = {
    "abs", "maximum", "minimum", "clip", "norm", "logaddexp", "max of rows", "amax amin", "sign", "var std",
    "vdot", "vecdot", "vecmat",
}  # fmt: skip


def test_each_rule_has_a_loss():
    used = set()

    class Spy(dict):
        def __getitem__(self, f):
            used.add(f)
            return super().__getitem__(f)

    class Watched(checks.DualNumber):
        rules = Spy(checks.DualNumber.rules)

    for f in LOSSES.values():
        spec.gradient(f, np.array([0.7, -1.1, 0.9, 1.6]), Watched)
    own = {f for f in checks.DualNumber.rules if f not in spec.RULES}
    assert own - used == {np.empty_like}  # as zeros_like


def test_no_import_changes_a_rule():
    """Each of the specification's rules has a proof; a loss of your own has more."""
    code = (
        "from fedref import spec\nfew = dict(spec.RULES)\nimport fedref.checks, fedref.strategies\n"
    )
    subprocess.run([sys.executable, "-c", f"{code}assert spec.RULES == few"], check=True)
    with pytest.raises(TypeError, match=r"no rule for np\.sin"):
        spec.gradient(lambda w: np.sin(w).sum(), W)


def differences(f, w, v, h=1e-3):
    near, far = f(w + h * v) - f(w - h * v), f(w + 2 * h * v) - f(w - 2 * h * v)
    return (8 * near - far) / (12 * h)


@pytest.mark.parametrize("name", LOSSES)
def test_dual_numbers_differentiate_at_real_and_at_complex_points(name):
    f, w = LOSSES[name], np.array([0.7, -1.1, 0.9, 1.6])
    basis, v = np.eye(4), np.array([0.3, -0.2, 0.5, 0.1])
    g = checks.dual_gradient(f, w)
    np.testing.assert_allclose(g, [differences(f, w, e) for e in basis], rtol=1e-8, atol=1e-8)
    Hv = differences(partial(checks.dual_gradient, f), w, v)
    np.testing.assert_allclose(checks.dual_hvp(f, w, v), Hv, rtol=1e-8, atol=1e-8)
    along = differences(lambda w: checks.dual_gradient(f, w), w + 0j, 1j * v) / 1j  # analytic
    np.testing.assert_allclose(along, Hv, rtol=1e-7, atol=1e-7)
    if name not in NOT_ANALYTIC:
        np.testing.assert_allclose(g, checks.complex_step_gradient(f, w), rtol=1e-13)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (np.sort, "np.sort"), (np.prod, "np.prod"), (lambda w: np.linalg.norm(w, 1), "ord=1"),
        (lambda w: (w if w[0] else 1), "no float"), (lambda w: np.zeros(2).__iadd__(w), "z = z + x"),
    ],
)  # fmt: skip
def test_what_dual_numbers_do_not_know_is_an_error_that_says_so(f, words):
    with pytest.raises((TypeError, AttributeError, ValueError), match=re.escape(words)):
        checks.dual_gradient(f, np.array([0.7, -1.1]))


def test_a_kink_has_a_slope_of_one_side():
    for f, slope in (
        (np.linalg.norm, [0, 0]),
        (lambda w: np.abs(w).sum(), [0, 0]),
        (np.max, [1, 0]),
        (lambda w: np.maximum(0, w).sum(), [0, 0]),
    ):
        assert checks.dual_gradient(f, np.zeros(2)).tolist() == slope


class RightAtRealNumbersAlone(Logistic):
    """Its complex step is 0 where its gradient is not linear, and its H v agrees with that."""

    def grad(self, w, D):
        return super().grad(w.real, D) + self.l2 * (w - w.real)

    def hvp(self, w, v, D):
        return self.l2 * v


class TakesDualNumbers(RightAtRealNumbersAlone):
    def loss(self, w, D):
        if w.ndim > 1:
            return super().loss(w, D)
        z = spec.linear(w, D.X, self.classes)
        return np.sum(spec.cross_entropy(z, D.y)) / len(D.y) + self.l2 / 2 * (w @ w)


class Own(Logistic):
    """Its loss takes no dual numbers, and its gradient is right at complex w."""


def test_a_hessian_that_agrees_with_a_gradient_that_is_wrong_at_complex_w_fails():
    w, v = np.random.default_rng(0).normal(size=(2, 6))
    D = Batch(np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([0, 1]))

    def reports(kind):
        return checks.check_model(strategies.Problem(kind(2, 2, l2=0.1), w, v, D))

    for wrong in (RightAtRealNumbersAlone, TakesDualNumbers):
        assert reports(wrong)["gradient"].ok
        assert reports(wrong)["hvp"].error > 0.1
    for right in (Logistic, Own):
        assert all(report.ok for report in reports(right).values())


def test_a_step_that_writes_into_what_it_is_given_is_told_with_its_line():
    class Writes(FedAvg):
        def step(self, model, sent, local, D):
            local -= self.lr * model.grad(local, D)
            return local

    def mine(f, w, rounds):
        for _ in rounds:
            yield w

    words = r"test_checks\.py, line \d+: .*write w = w - x for w -= x"
    with pytest.raises(ValueError, match=words):
        checks.check_rounds(Writes(), mine, draws=5)


def test_what_can_be_seen_in_rounds_that_differ_is_told():
    def half(f, w, rounds):
        yield from (after / 2 for after in spec.fedavg(f, w, rounds, 0.5))

    source, it = NumPySource(np.random.default_rng(0)), FedAvg(lr=0.5)
    trace = draw_trace(source, it, Logistic(2, 3), rounds=1)
    assert checks.check_rounds(it, half, trace).where.endswith("; 2 × what is expected")
    assert checks.check_rounds(it, fedavg, trace).ok
    assert not checks.check_rounds(FedAvg(lr=0.25), fedavg, trace).ok  # whatever made the trace
    with pytest.raises(TypeError, match=r"algorithm is <class '.*FedAvg'>, expected an Algorithm"):
        checks.check_rounds(FedAvg, fedavg)
    words = "a step of trace has batches ('D',), expected ('D', 'D1', 'D2')"
    with pytest.raises(ValueError, match=re.escape(words)):
        checks.check_rounds(ALGORITHMS["per-fedavg"](), fedavg, trace)


def test_an_array_that_shares_memory_changes_with_its_slopes_or_not_at_all():
    def f(w):
        z = w * w
        v = np.squeeze(z[None])
        v *= 2
        return z.sum()

    with pytest.raises(ValueError, match="read-only"):
        checks.dual_gradient(f, W)
    w = W.copy()
    assert checks.dual_gradient(lambda w: w.__imul__(w).sum(), w) == pytest.approx(2 * W)
    assert w.tolist() == W.tolist()


@pytest.mark.parametrize("name", proofs.MODELS)
def test_dual_numbers_pass_the_loss_of_every_model(name):
    c = Setting(proofs.MODELS[name], np.random.default_rng(0))
    for D in (c.D, c.D1):
        f = partial(c.model.loss, D=D)
        for at in (c.w, c.w + 0.1j * c.vs[0]):
            assert checks.relative_error(checks.dual_gradient(f, at), c.model.grad(at, D)) < 1e-12
        Hv = checks.dual_hvp(f, c.w, c.vs[0])
        assert checks.relative_error(Hv, c.model.hvp(c.w, c.vs[0], D)) < 1e-12


# ---- by the strongest evidence -----------------------------------------------------------------------


def narrow(w):
    return np.asarray(w).astype(np.complex64 if np.iscomplexobj(w) else np.float32)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def writes(w):
    w -= 1
    return np.sum(w**2)


def softplus(w):
    with np.errstate(all="ignore"):  # of what is not chosen
        return np.where(w > 0, 2e3 * w, np.log1p(np.exp(2e3 * w)) + w**2).sum()


S = np.random.default_rng(0).normal(size=(6, 3))
#: f, its gradient, its H v, and what `where` says.
RIGHT = {
    "norm": (lambda w: np.linalg.norm(w) ** 2 / 2, lambda w: w, lambda w, v: v, "imaginary"),
    "var": (np.var, lambda w: 2 * (w - w.mean()) / 3, lambda w, v: 2 * (v - v.mean()) / 3, "imaginary"),
    "Huber": (
        lambda w: np.where(np.abs(w) < 1, w * w / 2, np.abs(w) - 0.5).sum(),
        lambda w: np.clip(w, -1, 1), lambda w, v: v * (np.abs(w) < 1), "imaginary",
    ),
    "softplus": (
        lambda w: (np.maximum(S @ w, 0) + np.log1p(np.exp(-np.abs(S @ w)))).sum(),
        lambda w: S.T @ sigmoid(S @ w), lambda w, v: S.T @ (sigmoid(S @ w) * sigmoid(-S @ w) * (S @ v)),
        "imaginary",
    ),
    "sort of |w|": (
        lambda w: (np.sort(np.abs(w)) ** 2).sum(), lambda w: 2 * w, lambda w, v: 2 * v,
        "no rule for np.sort): judged by differences",
    ),
    "float64 alone": (
        lambda w: float(np.exp(np.array([float(x) for x in w])).sum()), lambda w: np.exp(w.real),
        lambda w, v: np.exp(w) * v, "judged by differences",
    ),
    "float32": (lambda w: np.exp(narrow(w)).sum(), lambda w: np.exp(narrow(w)),
                lambda w, v: np.exp(w) * v, ""),
    "longdouble": (lambda w: np.exp(w).sum(dtype=np.result_type(w, np.longdouble)), np.exp,
                   lambda w, v: np.exp(w) * v, ""),
    "writes into w": (writes, lambda w: w.__isub__(1).__imul__(2), lambda w, v: v.__imul__(2), ""),
    "NaN is not chosen": (
        softplus, lambda w: np.where(w > 0, 2e3, 2 * w), lambda w, v: np.where(w > 0, 0, 2) * v, "",
    ),
    "sparse": (
        lambda w: ((sparse.csr_array(S) @ w) ** 2).sum() / 2, lambda w: S.T @ (S @ w),
        lambda w, v: S.T @ (S @ v), "",
    ),
    "special": (special.logsumexp, special.softmax, lambda w, v: (p := special.softmax(w)) * (v - p @ v), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives_pass_and_wrong_ones_fail_whatever_f_is_written_in(name):
    f, grad, hvp, words = RIGHT[name]
    w = W * np.array([1.0, 1.5, 0.9])  # |w| has both sides of Huber's 1
    report = checks.check_gradient(f, grad, w)
    assert report.ok, report
    assert words in report.where
    assert bool(report.where) == bool(words)
    report = checks.check_hvp(f, grad, hvp, w)
    assert report.ok, report
    for off in (lambda y: 1.01 * y, lambda y: y + np.array([0, 0, 0.02]), lambda y: 0 * y):
        assert not checks.check_gradient(f, lambda w: off(grad(w)), w).error_ok  # noqa: B023
        assert not checks.check_hvp(f, grad, lambda w, v: off(hvp(w, v)), w).error_ok  # noqa: B023


@pytest.mark.parametrize(
    "w",
    [np.float16(W), W.astype(np.longdouble), np.array(0.3), 0.3, W[:, None], np.outer(W, V), [1, -2],
     1e-8 * W, 1e-4 * W, 1e200 * W],
)  # fmt: skip
def test_points_of_any_shape_scale_and_precision(w):
    """Neither a step that overflows nor a complex step that is rounded to 0 is an answer."""
    scale = np.max(np.abs(w))

    def g(w):
        return np.exp(w / scale) / scale

    def f(w):
        return np.exp(w / scale).sum()

    assert checks.check_gradient(f, g, w).ok
    assert not checks.check_gradient(f, lambda w: g(w) * (1 + 1e-5), w).error_ok


def test_a_kink_and_a_steep_f_excuse_no_error():
    def f(w):
        return np.maximum(w, 0).sum() + np.sin(1e5 * w).sum() / 1e5

    def grad(w):
        return (w >= 0) + np.cos(1e5 * w)

    for w in (W, np.array([0, *V])):
        assert checks.check_gradient(f, grad, w).error_ok
        assert not checks.check_gradient(f, lambda w: grad(w) * (1 + 1e-9), w).error_ok


@pytest.mark.parametrize(
    ("model", "w", "v", "X", "y"),
    [
        # both labels' biases move by as much: H v is 0
        (Logistic(1, 2), [0, 0, 0, -0.5], [-2, 1.5, -1, -1], [[0.0]], [0]),
        # the remainder's terms of orders 3 and 4 cancel
        (BinaryLogistic(3, 0.5), [1, 0, 0, -2], [1, 0, 0, 1], [[2.0, -1, 2], [0, 0, 0.25]], [1, 0]),
        # 1 − p has three digits less than p
        (Logistic(1, 2), [2, -2, -2, -2], None, [[-2.0], [-2]], [0, 0]),
    ],
)
def test_right_products_pass_in_every_direction(model, w, v, X, y):
    D, w = Batch(np.array(X), np.array(y)), np.array(w, float)
    f, grad = partial(model.loss, D=D), partial(model.grad, D=D)
    assert checks.check_hvp(f, grad, lambda w, v: model.hvp(w, v, D), w, v).ok
    assert not checks.check_hvp(f, grad, lambda w, v: model.hvp(w, v, D) + 1e-9, w, v).ok


def square(w):
    return np.sum(w**2)


NEXT = iter(range(10))
#: What is given to check_gradient, and a part of the error.
NO_FUNCTIONS = [
    (np.square, np.copy, W, None, "f returns an array of shape (3,), expected a number"),
    (lambda w: None, np.copy, W, None, "f returns values of type object, expected numbers"),
    (lambda w: square(w) + next(NEXT), np.copy, W, None, "f is random"),
    (square, lambda w: w[:, None], W, None, "grad returns an array of shape (3, 1), expected (3,)"),
    (square, np.copy, W + 1j, None, "w has 3 numbers of type complex128, expected some real ones"),
    (square, np.copy, None, None, "w has 1 numbers of type object"),
    (square, np.copy, W, V[:2], "v has shape (2,), expected that of w, (3,)"),
]


@pytest.mark.parametrize(("f", "grad", "w", "v", "words"), NO_FUNCTIONS)
def test_what_is_no_function_of_a_point_is_told(f, grad, w, v, words):
    for check in (
        checks.check_gradient,
        lambda f, g, *at: checks.check_hvp(f, g, lambda w, v: v, *at),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(words)):
            check(f, grad, w, v)


def test_a_failure_says_where_and_why():
    def worst(y):
        return 2 * y + np.array([0, 0.5, -1])

    assert checks.check_gradient(square, worst, V).where == "entry 2: got -5.0, expected -4.0"
    report = checks.check_gradient(square, lambda w: np.ma.masked_equal(2 * w, 1), V)
    assert report.where == "entry 1: got nan, expected 1.0"
    report = checks.check_gradient(lambda w: np.abs(w).sum(), np.sign, 0 * W)
    assert report.where.startswith("the Taylor slope is 1.00, expected 2: f has a kink")
    report = checks.check_hvp(square, lambda w: w, lambda w, v: 2 * v, W)
    assert report.where.endswith("or grad is wrong")


def test_functions_of_tensors():
    torch = pytest.importorskip("torch")

    def loss(w):
        return torch.exp(torch.as_tensor(w)).sum()

    def grad(w):
        x = torch.tensor(w, requires_grad=True)
        return torch.exp(x)  # with its graph

    w = W.astype(np.float64)
    assert checks.check_gradient(loss, grad, w).ok
    assert checks.check_gradient(lambda w: loss(w).item(), grad, w).ok
    assert checks.check_gradient(
        lambda w: loss(np.float32(w.real)), lambda w: grad(w).float(), w
    ).ok
    assert checks.check_hvp(loss, grad, lambda w, v: grad(w) * torch.as_tensor(v), w).ok
    assert not checks.check_hvp(loss, grad, lambda w, v: grad(w), w).ok
    assert checks.stack_equals_loop(grad, np.ones((5, 3), np.float32)).ok
    assert not checks.stack_equals_loop(lambda w: grad(w) / len(w), np.ones((5, 3))).ok
    for check in (
        partial(checks.check_gradient, loss, grad),
        partial(checks.check_hvp, loss, grad, grad),
    ):
        with pytest.raises(TypeError, match=r"w is a torch\.Tensor, expected a NumPy array"):
            check(torch.ones(3))


class Centres(Logistic):
    """It scores rows beside the mean of all rows of the batch, as BatchNorm does."""

    def logits(self, w, X):
        return super().logits(w, X - X.mean(-2, keepdims=True))


def test_a_model_that_mixes_rows_fails_the_padding():
    found = strategies.smallest(
        strategies.problems(Centres(2, 2), kinks=True),
        lambda p: checks.check_model(p)["padding"].ok and np.any(Centres(2, 2).unpack(p.w)[0]), 50,
    )  # fmt: skip
    assert found is None or not np.any(np.diff(Centres(2, 2).unpack(found.w)[0], axis=1))


# ---- the specification's own loops ---------------------------------------------------------------------


def loop_of(it, name):
    """Return the specification's generator, with the server's state alone."""
    names, run = RUNS[name]

    def loop(f, w, rounds):
        h = SimpleNamespace(**vars(it), shapes=f.model.shapes)
        h = settings(name, h, f.N, None)
        h.train_loss = f.train_loss
        for values in run(f, w, rounds, h):
            yield tuple(name_state(names, values)["server"].values())[: FIELDS.get(name)]

    return loop


#: How many fields of a server's state are compared, where the loop has others, or in another order.
FIELDS = {"apfl": 2, "fedmeta-maml": 1, "fedmeta-fomaml": 1, "fedmeta-sgd": 2, "fedmaml": 1}


@pytest.mark.parametrize(
    ("name", "options"),
    [*((n, {}) for n in RUNS if n not in ("fedavg-update", "fedavg-meta", "centralised")),
     *((n, {"bias_correction": True}) for n in ("fedadam", "fedyogi"))],
)  # fmt: skip
def test_every_loop_of_the_specification_passes(name, options):
    options |= {"weighting": "samples"} if name in BY_SAMPLES else {}
    it = ALGORITHMS[name](**options)
    assert checks.check_rounds(it, loop_of(it, name), draws=12).where == ""
