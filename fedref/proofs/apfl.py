"""The equations of APFL: decomposition, penalty, importance, and when it is renewed."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import apfl
from fedref.checks import Report, stack_equals_loop
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.proofs.case import Case, equal, replace_block
from fedref.proofs.table import ONE, proof


def units_of(model: Model) -> Array:
    """Return the specification's unit of each parameter."""
    return spec.unit_of_parameter(view.shape for view in model.unpack(np.zeros(model.d)))


def draw_point(c: Case) -> tuple[list[Any], dict[str, Any]]:
    """Return random w_S, a and w_k, and F, the reference and μ of the penalty."""
    a = c.rng.normal(size=apfl.sum_over_units(c.model, c.w).shape)
    more = {"F": c.draw_vector() ** 2, "w_ref": c.draw_vector(), "mu": 0.7}
    return [c.draw_vector(), a, c.draw_vector()], more


@proof(
    ("apfl eq.3", "apfl eq.4", "apfl eq.6"),
    "compose, objective = the specification's composite, its loss + (μ/2) Σ F_j (w_S,j − wᵗ_S,j)²",
)
def objective(c: Case) -> Iterator[Report]:
    (w_s, a, w_k), more = draw_point(c)
    w = spec.compose(units_of(c.model), w_s, a, w_k)
    yield equal(apfl.compose(c.model, w_s, a, w_k), w)
    penalty = more["F"] @ (w_s - more["w_ref"]) ** 2
    got = apfl.objective(c.model, w_s, a, w_k, c.D, **more)
    yield equal(got, c.f(w, c.real_rows[0]) + 0.35 * penalty)
    stacks = c.draw_vectors(7), c.rng.normal(size=(7, len(a))), c.draw_vectors(7)
    yield stack_equals_loop(
        lambda w_s, a, w_k: apfl.objective(c.model, w_s, a, w_k, c.D, **more), *stacks
    )


@proof("apfl eq.6", "gradients: ∂/∂w_S, ∂/∂a, ∂/∂w_k = complex steps of objective")
def gradients(c: Case) -> Iterator[Report]:
    at, more = draw_point(c)
    w_s, a, w_k = at
    g_s, g_a, g_k = apfl.gradients(c.model, w_s, a, w_k, c.D)
    for block, g in enumerate((g_s + apfl.penalty_gradient(w_s, **more), g_a, g_k)):
        put = partial(replace_block, at, block)

        def objective(x: Array) -> Any:
            w_s, a, w_k = put(x)
            return apfl.objective(c.model, w_s, a, w_k, c.D, **more)

        yield c.slope_of(objective, g, at[block])


def find_renewals(losses: Sequence[float], delta_mu: float, delta_sigma: float) -> Array:
    """Return for each loss whether the specification, with a window of 5, renews F after it."""
    ends = range(1, len(losses) + 1)
    return np.array(
        [spec.completes_plateau(losses[:t], delta_mu, delta_sigma, 5) for t in ends], float
    )


def draw_waves(c: Case) -> list[float]:
    """Return 120 losses in which each of the two thresholds, 0.9 and 0.13, changes a renewal."""
    for _ in range(100):
        losses = (1.5 + np.cos(np.arange(120) / 7) + 0.1 * c.rng.normal(size=120)).tolist()
        expected, *others = (
            find_renewals(losses, *deltas)
            for deltas in ((0.9, 0.13), (0.9, math.inf), (math.inf, 0.13))
        )
        if expected.any() and all((expected != other).any() for other in others):
            return losses
    raise RuntimeError("a threshold decides nothing")  # pragma: no cover


#: Losses at the thresholds δ_μ = 1 and δ_σ = 0.5, all exact in binary. LEVEL has no peak: its mean 0 is
#: not above 0 + 0. FALLS begins with a mean of 1, a peak that is not below δ_μ; later a window has a
#: deviation of exactly 0.5.
LEVEL = 6 * [0.0]
FALLS = [*6 * [1.0], *5 * [2.0], 1.5, 1.0, 0.75, 0.5, 0.0, 0.25]


@proof(
    ("apfl §3.3", "apfl alg.1 lines 9–16", "apfl alg.1 line 10", "apfl alg.1 line 14"),
    "PlateauDetector: renewals = the specification's over 120 losses, and at the thresholds",
    ONE,
)
def detector(c: Case) -> Iterator[Report]:
    usual = apfl.PlateauDetector()  # δ_μ = 1, δ_σ = 0.5, a window of 5
    for losses, detector, deltas in (
        (draw_waves(c), apfl.PlateauDetector(0.9, 0.13, 5), (0.9, 0.13)),
        (LEVEL, usual, (1.0, 0.5)),
        (FALLS, usual, (1.0, 0.5)),
    ):
        got = []
        for loss in losses:
            detector, renew = detector.push(loss)
            got.append(renew)
        yield equal(got, find_renewals(losses, *deltas), bound=0)
    assert got[-1], "FALLS ends on a plateau"
