"""APFL: decomposition, penalty, importance, and when it is renewed."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean as mean
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.algorithms import apfl
from fedref.checks import Report, check_gradient, stack_equals_loop
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, replace_block
from fedref.proofs.rounds import SMALL, STEPS, ExpectedRound, Paper, TinyWorld, compare_rounds
from fedref.proofs.table import ONE, Compare, proof


def units_of(model: Model) -> Array:
    """Return the specification's unit of each parameter."""
    return spec.unit_of_parameter(view.shape for view in model.unpack(np.zeros(model.d)))


class Point(NamedTuple):
    """A point of APFL: the arguments of `apfl.objective`."""

    w_s: Array
    a: Array
    w_k: Array
    more: dict[str, Any]


def draw_point(c: Case) -> Point:
    """Return a random point, with F, the reference and μ of the penalty."""
    a = c.rng.normal(size=apfl.sum_over_units(c.model, c.w).shape)
    more = {"F": c.draw_vector() ** 2, "w_ref": c.draw_vector(), "mu": 0.7}
    return Point(c.draw_vector(), a, c.draw_vector(), more)


@proof(
    ("apfl eq.3", "apfl eq.4", "apfl eq.6"),
    "compose, objective = the specification's composite, its loss + (μ/2) Σ F_j (w_S,j − wᵗ_S,j)²",
)
def apfl_objective(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = draw_point(c)
    w = spec.compose(units_of(c.model), w_s, a, w_k)
    yield equal(apfl.compose(c.model, w_s, a, w_k), w)
    penalty = math.fsum(F * (x - ref) ** 2 for F, x, ref in zip(more["F"], w_s, more["w_ref"]))
    got = apfl.objective(c.model, w_s, a, w_k, c.D, **more)
    yield equal(got, c.f(w, c.real_rows[0]) + 0.35 * penalty)
    stacks = c.draw_vectors(7), c.rng.normal(size=(7, len(a))), c.draw_vectors(7)
    yield stack_equals_loop(
        lambda w_s, a, w_k: apfl.objective(c.model, w_s, a, w_k, c.D, **more), *stacks
    )


def block_gradient(block: int) -> Compare:
    """Return the proof of ∂/∂w_S, ∂/∂a or ∂/∂w_k, with the other two held constant."""

    def compare(c: Case) -> Iterator[Report]:
        *at, more = draw_point(c)

        def objective(x: Array) -> Array:
            w_s, a, w_k = replace_block(at, block, x)
            return apfl.objective(c.model, w_s, a, w_k, c.D, **more)

        def gradient(x: Array) -> Array:
            w_s, a, w_k = replace_block(at, block, x)
            g = apfl.gradients(c.model, w_s, a, w_k, c.D)[block]
            return g if block else g + apfl.penalty_gradient(w_s, **more)

        vs = c.rng.normal(size=(3, len(at[block])))
        yield check_gradient(objective, gradient, at[block], vs)

    return compare


for _i, _of in enumerate(("w_S", "a", "w_k")):
    proof("apfl eq.6", f"gradients: ∂/∂{_of} = complex step of objective")(block_gradient(_i))


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


# Rounds

OPTIONS: dict[str, Any] = {"lr": 0.2, "mu": 0.7, "lam": 0.6, "delta_mu": 5.0, "window": 2}


def paper(
    z: int,
    init: str = "paper",
    importance: str = "gradient-square",
    weights: Any = spec.sample_weights,
    window: int = 2,
    drop: bool = True,
) -> Paper:
    """Return APFL with η = 0.2, μ = 0.7, λ = 0.6, δ_μ = 5, δ_σ = 0.5."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        unit = units_of(world.model)

        def personal(w_s: Array, own: Any, k: int | None) -> Array:
            return spec.compose(unit, w_s, *own[k]) if k in own else w_s

        def train_loss(w_s: Array, own: Any) -> float:
            return world.train_loss(lambda k: personal(w_s, own, k))

        states = spec.apfl(
            world.f, world.w, world.rounds(), unit, 0.2, 0.7, 0.6, z, train_loss, 5.0, 0.5, window,
            importance, init == "continuous", weights,
        )  # fmt: skip
        for t, (w_s, F, own, renew, penalties) in enumerate(states, 1):
            yield ExpectedRound(
                {"w": w_s, "F": F, "t": t, "renew": renew},
                lambda k, D: personal(w_s, own, k),
                own,
                {"penalty": mean(penalties), "renewed": float(renew)},
            )

    return Paper(rounds, drop)


@proof("apfl alg.1", "8 rounds, F ≠ 0 before and after the start = the specification", SMALL)
def apfl_rounds(c: Case) -> Iterator[Report]:
    flags = list[bool]()

    def with_flags(world: TinyWorld) -> Iterator[ExpectedRound]:
        for expected in paper(5).rounds(world):
            flags.append(expected.server["renew"])
            yield expected

    yield from compare_rounds(c, apfl.APFL(z=5, **OPTIONS), Paper(with_flags), rounds=8)
    assert flags[:4] == [False, False, True, True], "a plateau is seen in round 2, z − 1 is 4"
    algorithm = apfl.APFL(z=1, weighting="uniform", drop=False, **OPTIONS)
    yield from compare_rounds(
        c, algorithm, paper(1, weights=spec.uniform_weights, drop=False), STEPS
    )


@proof(
    "apfl §4.1.3",
    "F is renewed in the rounds z − 1, z, z + 1 = the specification, z = 0, 1, 3",
    SMALL[:1],
)
def apfl_near_start(c: Case) -> Iterator[Report]:
    for z in (0, 1, 3):
        algorithm = apfl.APFL(**{**OPTIONS, "z": z, "window": 100})
        yield from compare_rounds(c, algorithm, paper(z, window=100), STEPS, rounds=6)


@proof("apfl alg.1 line 21", "4 rounds from either start = the specification", SMALL)
def apfl_start_rounds(c: Case) -> Iterator[Report]:
    for init in ("paper", "continuous"):
        yield from compare_rounds(c, apfl.APFL(z=1, init=init, **OPTIONS), paper(1, init))


@proof("apfl eq.5", "4 rounds with Fisher, MAS, SI = the specification", SMALL)
def apfl_importance_rounds(c: Case) -> Iterator[Report]:
    for kind in ("fisher", "mas", "si"):
        algorithm = apfl.APFL(z=2, importance=kind, **OPTIONS)
        yield from compare_rounds(c, algorithm, paper(2, importance=kind))
