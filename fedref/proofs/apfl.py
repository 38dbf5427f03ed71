"""APFL: decomposition, penalty, importance, and when it is renewed."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean as mean
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.algorithms import apfl, importance
from fedref.checks import Report, check_gradient, stack_equals_loop
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, with_block
from fedref.proofs.rounds import SMALL, STEPS, After, Paper, World, rounds_agree
from fedref.proofs.table import ONE, Compare, proof


def units_of(model: Model) -> Array:
    """The specification's unit of each parameter."""
    return spec.unit_of_parameter(view.shape for view in model.unpack(np.zeros(model.d)))


class Parts(NamedTuple):
    """A point of APFL: what `apfl.objective` takes."""

    w_s: Array
    a: Array
    w_k: Array
    more: dict[str, Any]


def apfl_parts(c: Case) -> Parts:
    a = c.rng.normal(size=apfl.sum_over_units(c.model, c.w).shape)
    more = {"F": c.vector() ** 2, "w_ref": c.vector(), "mu": 0.7}
    return Parts(c.vector(), a, c.vector(), more)


@proof("apfl eq.3", "compose = the specification, unit by unit")
def apfl_eq3(c: Case) -> Iterator[Report]:
    w_s, a, w_k, _ = apfl_parts(c)
    yield equal(apfl.compose(c.model, w_s, a, w_k), spec.compose(units_of(c.model), w_s, a, w_k))


@proof("apfl eq.4", "objective − loss = (μ/2) Σ F_j (w_S,j − wᵗ_S,j)² number by number")
def apfl_eq4(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    got = apfl.objective(c.model, w_s, a, w_k, c.D, **more)
    terms = (F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    penalty = 0.35 * math.fsum(terms)
    yield equal(got - c.model.loss(apfl.compose(c.model, w_s, a, w_k), c.D), penalty)
    stacks = c.vectors(7), c.rng.normal(size=(7, len(a))), c.vectors(7)
    yield stack_equals_loop(
        lambda w_s, a, w_k: apfl.objective(c.model, w_s, a, w_k, c.D, **more), *stacks
    )


@proof("apfl eq.5", "λF + Σ p_k(∇L_k)² = the same of complex-step gradients")
def apfl_eq5(c: Case) -> Iterator[Report]:
    F, p = c.vector() ** 2, np.array([0.4, 0.6])
    I = np.stack([importance.gradient_square(c.model, c.w, D) for D in (c.D, c.D1)])
    expected = spec.average([0.7, *p], [F, *(c.f.grad(c.w, D) ** 2 for D in c.real_rows[:2])])
    yield equal(apfl.importance_update(F, I, p, lam=0.7), expected)


@proof("apfl eq.5", "option MAS = the mean of |complex step of ‖z‖²|")
def apfl_mas(c: Case) -> Iterator[Report]:
    yield equal(importance.mas(c.model, c.w, c.D), spec.mas(c.f, c.w, c.real_rows[0]))


@proof("apfl eq.5", "synaptic_intelligence = max(ω, 0) / (Δ² + 0.1), number by number", ONE)
def apfl_si(c: Case) -> Iterator[Report]:
    path, moved = c.vectors(2)
    expected = [max(p, 0.0) / (m * m + 0.1) for p, m in zip(path.tolist(), moved.tolist())]
    yield equal(importance.synaptic_intelligence(path, moved), expected)


@proof("apfl eq.6", "objective = the specification's loss of its composite + penalty")
def apfl_eq6(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    penalty = math.fsum(F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    w = spec.compose(units_of(c.model), w_s, a, w_k)
    expected = c.f(w, c.real_rows[0]) + 0.35 * penalty
    yield equal(apfl.objective(c.model, w_s, a, w_k, c.D, **more), expected)


def eq6_of(model: Model, at: Sequence[Any], block: int, D: Batch, more: Any) -> Any:
    """(objective, gradient) of [apfl eq.6] as functions of w_S, a or w_k alone."""

    def objective(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        return apfl.objective(model, w_s, a, w_k, D, **more)

    def gradient(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        g = apfl.gradients(model, w_s, a, w_k, D)[block]
        return g if block else g + apfl.penalty_gradient(w_s, **more)

    return objective, gradient


def apfl_block(block: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        *at, more = apfl_parts(c)
        vs = c.rng.normal(size=(3, len(at[block])))
        objective, gradient = eq6_of(c.model, at, block, c.D, more)
        yield check_gradient(objective, gradient, at[block], vs)

    return compare


for _i, _of in enumerate(("w_S", "a", "w_k")):
    proof("apfl eq.6", f"gradients: ∂/∂{_of} = complex step of objective")(apfl_block(_i))


@proof("apfl alg.1 line 21", "start: paper = σ(1)w_S + w_S; continuous = w_S")
def apfl_start(c: Case) -> Iterator[Report]:
    sigma = 1 / (1 + math.exp(-1))
    for init, scale in (("paper", sigma + 1), ("continuous", 1.0)):
        algorithm = apfl.APFL(init=init)
        sent = algorithm.download(algorithm.initial(c.model, c.w)._replace(t=2))
        own = algorithm.start(c.model, sent, None).own
        assert own is not None
        yield equal(apfl.compose(c.model, c.w, own.a, own.w_k), scale * c.w)


def renewals(losses: Sequence[float], delta_mu: float, delta_sigma: float) -> Array:
    """Whether F is renewed after each loss, by the specification; a window of 5."""
    ends = range(1, len(losses) + 1)
    return np.array(
        [spec.completes_plateau(losses[:t], delta_mu, delta_sigma, 5) for t in ends], float
    )


def waves(c: Case) -> tuple[list[float], Array]:
    """(120 losses, whether F is renewed after each) where both thresholds, 0.9 and 0.13, decide."""
    for _ in range(100):
        losses = (1.5 + np.cos(np.arange(120) / 7) + 0.1 * c.rng.normal(size=120)).tolist()
        expected, *others = (
            renewals(losses, *deltas) for deltas in ((0.9, 0.13), (0.9, math.inf), (math.inf, 0.13))
        )
        if expected.any() and all((expected != other).any() for other in others):
            return losses, expected
    raise RuntimeError("a threshold decides nothing")  # pragma: no cover


def detector(c: Case) -> Iterator[Report]:
    losses, expected = waves(c)
    detector, got = apfl.PlateauDetector(0.9, 0.13, 5), []
    for loss in losses:
        detector, renew = detector.push(loss)
        got.append(renew)
    yield equal(got, expected, bound=0)


for _tag in ("apfl §3.3", "apfl alg.1 lines 9–16", "apfl alg.1 line 10", "apfl alg.1 line 14"):
    proof(_tag, "PlateauDetector: renewals = the specification's over 120 losses", ONE)(detector)


@proof("apfl alg.1 lines 9–16", "PlateauDetector: at a threshold is not past it, by hand", ONE)
def plateau_thresholds(c: Case) -> Iterator[Report]:
    """Five losses, δ_μ = 1, δ_σ = 0.5, as usual. All is exact in binary."""
    level = 5 * [(0.0, (False, False))]  # a mean of 0 is not above 0 + 0
    falls = [
        *4 * [(1.0, (False, False))],
        (1.0, (False, True)),  # a mean of 1: a peak
        (1.0, (False, True)),  # again: not below δ_μ
        *[(loss, (False, True)) for loss in (2.0, 2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.75, 0.5)],
        (0.0, (False, True)),  # a mean of 0.75, a deviation of 0.5: not below δ_σ
        (0.25, (True, False)),  # 0.5 and 0.35: a plateau
    ]
    for by_hand in (level, falls):
        detector = apfl.PlateauDetector()
        for loss, expected in by_hand:
            detector, renew = detector.push(loss)
            yield equal([renew, detector.peak], expected, bound=0)


@proof("apfl alg.1 lines 9–16", "APFL.observe_loss = the specification's over 120 losses", ONE)
def apfl_observe(c: Case) -> Iterator[Report]:
    losses, expected = waves(c)
    algorithm = apfl.APFL(delta_mu=0.9, delta_sigma=0.13, window=5, z=1000)
    server, got = algorithm.initial(c.model, c.w), []
    for loss in losses:
        server = algorithm.observe_loss(server._replace(renew=False), loss)
        got.append(float(server.renew))
    yield equal(got, expected, bound=0)


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
    """APFL with η = 0.2, μ = 0.7, λ = 0.6, δ_μ = 5, δ_σ = 0.5."""

    def rounds(world: World) -> Iterator[After]:
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
            yield After(
                {"w": w_s, "F": F, "t": t, "renew": renew},
                lambda k, D: personal(w_s, own, k),
                own,
                {"penalty": mean(penalties), "renewed": float(renew)},
            )

    return Paper(rounds, drop)


@proof("apfl alg.1", "8 rounds, F ≠ 0 before and after the start = the specification", SMALL)
def apfl_rounds(c: Case) -> Iterator[Report]:
    flags = list[bool]()

    def watched(world: World) -> Iterator[After]:
        for after in paper(5).rounds(world):
            flags.append(after.server["renew"])
            yield after

    yield from rounds_agree(c, apfl.APFL(z=5, **OPTIONS), Paper(watched), rounds=8)
    assert flags[:4] == [False, False, True, True], "a plateau is seen in round 2, z − 1 is 4"
    algorithm = apfl.APFL(z=1, weighting="uniform", drop=False, **OPTIONS)
    yield from rounds_agree(c, algorithm, paper(1, weights=spec.uniform_weights, drop=False), STEPS)


@proof(
    "apfl §4.1.3",
    "F is renewed in the rounds z − 1, z, z + 1 = the specification, z = 0, 1, 3",
    SMALL[:1],
)
def apfl_near_start(c: Case) -> Iterator[Report]:
    for z in (0, 1, 3):
        algorithm = apfl.APFL(**{**OPTIONS, "z": z, "window": 100})
        yield from rounds_agree(c, algorithm, paper(z, window=100), STEPS, rounds=6)


@proof("apfl alg.1 line 21", "4 rounds from either start = the specification", SMALL)
def apfl_start_rounds(c: Case) -> Iterator[Report]:
    for init in ("paper", "continuous"):
        yield from rounds_agree(c, apfl.APFL(z=1, init=init, **OPTIONS), paper(1, init))


@proof("apfl eq.5", "4 rounds with Fisher, MAS, SI = the specification", SMALL)
def apfl_importance_rounds(c: Case) -> Iterator[Report]:
    for kind in ("fisher", "mas", "si"):
        algorithm = apfl.APFL(z=2, importance=kind, **OPTIONS)
        yield from rounds_agree(c, algorithm, paper(2, importance=kind))
