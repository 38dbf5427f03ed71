"""Identities that the papers' formulae satisfy beyond the cases: objectives, limits and edges.

A formula of the specification that somebody derived must equal the complex step of its objective. A
quantity that is defined as a limit must come to that limit.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.algorithm import Server
from fedref.algorithms import (
    apfl,
    apfl_deng,
    fedcurv,
    feddyn,
    fedmaml,
    fedmeta,
    fedprox,
    importance,
    per_fedavg,
    pfedme,
)
from fedref.checks import Report, relative_error, stack_equals_loop
from fedref.models import LinearSVM
from fedref.models.numerics import Array
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import ONE, SMOOTH, equation, proof

# ---- Per-FedAvg ----------------------------------------------------------------------------------


@proof(
    ("per-fedavg eq.2", "per-fedavg eq.3"),
    "meta_gradient(D = D′ = D″) = complex step of the loss after a step",
)
def meta_gradient(c: Setting) -> Iterator[Report]:
    D, *_ = c.real_rows
    objective = partial(per_fedavg.meta_objective, c.model, D=c.D, alpha=0.1)
    yield equal(objective(c.w), c.f(spec.adapt(c.f, c.w, D, 0.1), D))
    yield c.slope_of(objective, per_fedavg.meta_gradient(c.model, c.w, c.D, c.D, c.D, alpha=0.1))


@proof("per-fedavg eq.6", "ν = 3 inner steps = complex step of the chained objective")
def three_steps(c: Setting) -> Iterator[Report]:
    Ds = [c.D, c.D1, c.D2]

    def chained_loss(w: Array) -> Any:
        for D in Ds:
            w = w - 0.1 * c.model.grad(w, D)
        return c.model.loss(w, c.D1)

    got = per_fedavg.meta_gradient_steps(c.model, c.w, Ds, c.D1, Ds, alpha=0.1)
    yield c.slope_of(chained_loss, got)


@proof(
    ("fedmaml §3.2", "fedmeta MAML"),
    "the objectives of FedMAML and MAML = the specification's; ∇ of both after 2 steps",
)
def task(c: Setting) -> Iterator[Report]:
    D, D1, _ = c.real_rows
    star, at = spec.adapt(c.f, c.w, D, 0.1, 2), (c.D, c.D1)
    g, theta_star = fedmaml.meta_gradient(c.model, c.w, *at, alpha=0.1, steps=2)
    yield equal(theta_star, star)
    for objective in (fedmaml.meta_objective, fedmeta.maml_objective):

        def loss(w: Array, f: Any = objective) -> Any:
            return f(c.model, w, *at, alpha=0.1, steps=2)

        yield equal(loss(c.w), c.f(star, D1))
        yield c.slope_of(loss, g)


@proof(("per-fedavg eq.7", "per-fedavg eq.8"), "meta_gradient_hf → eq.6 as δ²", SMOOTH)
def hessian_free(c: Setting) -> Iterator[Report]:
    hf = partial(per_fedavg.meta_gradient_hf, c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    yield equal(hf(), spec.meta_gradient_hf(c.f, c.w, *c.real_rows, 0.1))
    exact = spec.meta_gradient(c.f, c.w, *c.real_rows, 0.1)
    coarse, fine = (relative_error(hf(delta=delta), exact) for delta in (1e-2, 2e-3))
    assert 24 < coarse / fine < 26, f"a fifth of δ leaves 1/{coarse / fine:.1f} of the error"


# ---- FedProx -------------------------------------------------------------------------------------


@proof("fedprox B", "where f or F_k is stationary: B = ∞, or 1 if all are", [LinearSVM(4)])
def stationary(c: Setting) -> Iterator[Report]:
    one, other = (c.D1._replace(y=np.full(3, label)) for label in (1, -1))
    got = fedprox.dissimilarity(c.model, np.zeros(5), [one, other])
    assert math.inf == got.B
    yield equal(got.variance, np.sum(c.f.grad(np.zeros(5), spec.Batch(*one[:2])) ** 2))
    w = np.array([0, 0, 0, 0, 2.0])  # all margins above 1
    yield equal(fedprox.dissimilarity(c.model, w, [one, one]), [1, 0], bound=0)


@proof(
    "fedprox μ",
    "μ − 0.1 after each five falls running, + 0.1 after a rise; an equal loss is neither",
    ONE,
)
def penalty_weight(c: Setting) -> Iterator[Report]:
    losses: list[float] = [*range(20, 8, -1), 9, 8, 8, 7, 6, 5, 4, 3, 9, 8, *range(7, -4, -1)]
    expected = [0.3] * 5 + [0.2] * 5 + [0.1] * 9 + [0.0] + [0.1] * 5 + [0.0] * 8
    for adapt in (spec.adapt_mu, fedprox.adapt_mu):
        mu, falls, before, mus = 0.3, 0, math.nan, list[float]()
        for loss in losses:
            mu, falls = adapt(mu, falls, before, loss)
            before = loss
            mus.append(mu)
        yield Report(float(np.max(np.abs(np.subtract(mus, expected)))))


@proof("fedprox γ", "where wᵗ is stationary: γ = 0 at wᵗ, ∞ elsewhere", [LinearSVM(4)])
def gamma_where_stationary(c: Setting) -> Iterator[Report]:
    far, w0 = c.D1._replace(y=np.ones(3, int)), np.array([0, 0, 0, 0, 9.0])
    with np.errstate(all="raise"):  # nothing is divided by 0 on the way
        yield equal(fedprox.inexactness(c.model, w0, w0, far, mu=0.7), 0, bound=0)
        assert fedprox.inexactness(c.model, w0 + c.vs[0], w0, far, mu=0.7) == math.inf


@proof("fedprox γ", "a client stops after the epoch that made it γ-inexact, at γ itself too", ONE)
def stops(c: Setting) -> Iterator[Report]:
    w0 = c.draw_vector()
    now, start = (spec.prox_gradient(c.f, w, w0, c.real_rows[0], 0.7) for w in (c.w, w0))
    gamma = float(fedprox.inexactness(c.model, c.w, w0, c.D, mu=0.7))
    yield equal(gamma, math.hypot(*now) / math.hypot(*start))
    for until, stops in ((0.99 * gamma, False), (gamma, True), (1.01 * gamma, True)):
        algorithm = fedprox.FedProx(until_gamma=until)
        assert algorithm.stop(c.model, fedprox.ProxSent(w0, 0.7), c.w, lambda: c.D) is stops


# ---- FedCurv and APFL ----------------------------------------------------------------------------


@proof("fedcurv Fisher", "fisher and MAS in blocks of 1 to 3 samples = at once; 0 without weight")
def blocks(c: Setting) -> Iterator[Report]:
    both: Any = ((importance.fisher, spec.fisher), (importance.mas, spec.mas))
    for estimate, printed in both:
        for D, drawn in zip((c.D, c.D1), c.real_rows):
            yield equal(estimate(c.model, c.w, D), printed(c.f, c.w, drawn))
        whole = estimate(c.model, c.w, c.D2)
        for rows in (1, 2, 3):
            with patch.object(importance, "BLOCK_NUMBERS", rows * c.model.d):
                yield equal(estimate(c.model, c.w, c.D2), whole)
        none = c.D1._replace(s=np.zeros(3))
        yield equal(estimate(c.model, c.w, none), np.zeros(c.model.d), bound=0)


def square(c: Setting) -> Any:
    return ((c.w - c.w0) ** 2).sum()


def composite(c: Setting) -> Array:
    return spec.compose(spec.unit_of_parameter(c.model.shapes), c.w, c.a, c.h)


equation("fedprox alg.2", "h and its ∇ = the loss + (μ/2)‖w − wᵗ‖², prox_gradient",
    lambda c: (fedprox.objective(c.model, c.w, c.w0, c.D, mu=0.7),
               fedprox.prox_gradient(c.model, c.w, c.w0, c.D, mu=0.7)),
    lambda c: (c.f(c.w, c.rows) + 0.35 * square(c), spec.prox_gradient(c.f, c.w, c.w0, c.rows, 0.7)),
)  # fmt: skip
equation("feddyn objective", "it and its ∇ = the loss − h·w + (α/2)‖w − wᵗ‖², and that of FedProx − h",
    lambda c: (feddyn.objective(c.model, c.w, c.w0, c.h, c.D, alpha=0.7),
               feddyn.gradient(c.model, c.w, c.w0, c.h, c.D, alpha=0.7)),
    lambda c: (c.f(c.w, c.rows) - c.h @ c.w + 0.35 * square(c),
               spec.prox_gradient(c.f, c.w, c.w0, c.rows, 0.7) - c.h),
)  # fmt: skip
equation("apfl eq.3", "compose = the specification's",
    lambda c: apfl.compose(c.model, c.w, c.a, c.h), composite,
)  # fmt: skip
equation("apfl eq.6", "objective = the loss of the composite + (μ/2) Σ F (w_S − wᵗ_S)²",
    lambda c: apfl.objective(c.model, c.w, c.a, c.h, c.D, F=c.F, w_ref=c.w0, mu=0.7),
    lambda c: c.f(composite(c), c.rows) + 0.35 * (c.F * (c.w - c.w0) ** 2).sum(),
)  # fmt: skip
equation("apfl eq.5", "gradient_square, SI of paths of either sign = the specification's estimates",
    lambda c: (*(importance.synaptic_intelligence(sign * c.w0, c.h) for sign in (1, -1)),
               importance.gradient_square(c.model, c.w, c.D)),
    lambda c: (*(spec.IMPORTANCE["si"](None, None, None, sign * c.w0, c.h) for sign in (1, -1)),
               spec.IMPORTANCE["gradient-square"](c.f, c.w, c.real_rows[0], None, None)),
)  # fmt: skip


@proof(("fedprox alg.2", "fedprox γ", "feddyn objective", "apfl eq.6"), "of a stack = one by one")
def stacks(c: Setting) -> Iterator[Report]:
    K = 7  # clients; no other axis has this length
    w, h, a = c.draw_vectors(K), c.draw_vectors(K), c.rng.normal(size=(K, len(c.a)))
    starts = (w0 for _ in range(10_000) if c.model.grad(w0 := c.draw_vector(), c.D).any())
    w0 = np.stack([*islice(starts, K)])  # where wᵗ is stationary, γ is ∞ on both sides
    for f, stacked in (
        (partial(fedprox.objective, c.model, D=c.D, mu=0.7), (w, w0)),
        (partial(fedprox.inexactness, c.model, D=c.D, mu=0.7), (w, w0)),
        (partial(feddyn.objective, c.model, D=c.D, alpha=0.7), (w, w0, h)),
        (partial(apfl.objective, c.model, D=c.D, F=c.F, w_ref=c.w0, mu=0.7), (w, a, h)),
    ):
        yield stack_equals_loop(f, *stacked)


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def penalty(c: Setting) -> Iterator[Report]:
    I, thetas, me = c.draw_vectors(3) ** 2, c.draw_vectors(3), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    u, v = I.sum(0), (I * thetas).sum(0)
    got = fedcurv.penalty_gradient(c.w, u, v, I[me], I[me] * thetas[me], lam=0.7)
    yield c.slope_of(lambda w: fedcurv.penalty(w, others, lam=0.7), got)


#: Losses at the thresholds δ_μ = 1 and δ_σ = 0.5, all exact in binary. LEVEL has no peak: its mean 0 is
#: not above 0 + 0. FALLS begins with a mean of 1, a peak that is not below δ_μ; later a window has a
#: deviation of exactly 0.5.
LEVEL = 6 * [0.0]
FALLS = [*6 * [1.0], *5 * [2.0], 1.5, 1.0, 0.75, 0.5, 0.0, 0.25]


@proof(
    ("apfl §3.3", "apfl alg.1 lines 9–16", "apfl alg.1 line 10", "apfl alg.1 line 14"),
    "PlateauDetector: renewals = the specification's over waves of loss, and at the thresholds",
    ONE,
)
def detector(c: Setting) -> Iterator[Report]:
    waves = (1.5 + np.cos(np.arange(120) / 7) + 0.1 * c.rng.normal(size=120)).tolist()
    for losses, deltas in ((waves, (0.9, 0.13)), (LEVEL, (1.0, 0.5)), (FALLS, (1.0, 0.5))):
        detector = apfl.PlateauDetector(*deltas, 5)
        for t, loss in enumerate(losses, 1):
            detector, renew = detector.push(loss)
            yield equal(renew, spec.completes_plateau(losses[:t], *deltas, 5), bound=0)
    assert renew, "FALLS ends on a plateau"


@proof("apfl-deng α", "one step: α stays in [0, 1], clipped at either end")
def mixing_weight(c: Setting) -> Iterator[Report]:
    w, v, D = c.w, c.w + c.vs[0], c.real_rows[0]
    g_v, g_a = spec.gradients(lambda v, a: c.f(a * v + (1 - a) * w, D), (v, np.array(0.3)))
    for lr in (0.3, 1e3, -1e3):
        algorithm = apfl_deng.APFLDeng()
        object.__setattr__(algorithm, "lr", lr)
        got = algorithm.step(c.model, Server(w), apfl_deng.Local(w, v, np.array(0.3)), c.D)
        yield equal(got.v, v - lr * g_v)
        # 0.3 and its step may cancel: the error beside 1, not beside what is left of them
        yield Report(float(abs(got.a - np.clip(0.3 - lr * g_a, 0, 1))))
    f = Linear(None, None, None)
    for size in (-100.0, -0.1, 0.1, 100.0):  # of the second step's gradient, in the first's
        client = spec.Client(0, D, [(g_v,), (size * g_v / (g_v @ g_v),)])
        _, personal = next(spec.apfl_deng(f, w, [[client]], 0.5, 0.3))
        yield Report(float(abs(personal[0][1] - np.clip(0.3 - 0.25 * 0.7 * size, 0, 1))))


class Linear(spec.Risk):
    """f(w; g) = g·w: its gradient on a "batch" is that batch."""

    def __call__(self, w: Any, D: Any) -> Any:
        return w @ D


# ---- FedDyn and pFedMe ---------------------------------------------------------------------------


@proof("feddyn alg.1", "where θ_k minimises the local objective, h_k⁺ = ∇L_k(θ_k)", ONE)
def minimum(c: Setting) -> Iterator[Report]:
    theta = c.w
    for _ in range(200):
        theta = theta - 0.3 * feddyn.gradient(c.model, theta, c.w, c.h, c.D, alpha=1.0)
    got = feddyn.renewed_gradient(c.h, theta, c.w, alpha=1.0)
    yield equal(got, c.f.grad(theta, c.real_rows[0]))


@proof("pfedme envelope", "λ(w − θ̂) = complex step of min_θ f(θ) + (λ/2)‖θ − w‖²", SMOOTH)
def envelope(c: Setting) -> Iterator[Report]:
    solve = partial(pfedme.personalise, c.model, D=c.D, lam=15.0, alpha=0.06, steps=60)
    yield c.slope_of(
        lambda w: pfedme.objective(c.model, solve(w), w, c.D, lam=15.0),
        pfedme.envelope_gradient(c.w, solve(c.w), lam=15.0),
    )
