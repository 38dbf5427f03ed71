# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""APFL: decomposition, penalty, importance, and when it is renewed."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean as mean
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithms import apfl, importance, plateau, units
from fedref.checks import Report, check_gradient, complex_step_gradient, stack_equals_loop
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, slow_grad, slow_gradients, with_block
from fedref.proofs.fedcurv import loop_fisher
from fedref.proofs.rounds import SMALL, STEPS, After, Paper, World, rounds_agree, shares
from fedref.proofs.table import ONE, Compare, proof


def loop_compose(model: Model, w_s: Array, a: Array, w_k: Array) -> Array:
    """w_S ⊙ m_k + w_k, number by number: weight and bias of a layer share its units' m."""
    w, at, first = [], 0, 0
    shapes = [view.shape for view in model.unpack(np.zeros(model.d))]
    for weight, bias in zip(shapes[::2], shapes[1::2]):
        units = bias[0]
        m = [1 / (1 + np.exp(-a[..., first + u])) for u in range(units)]
        for j in range(math.prod(weight) + units):  # the unit is the last axis: it runs fastest
            w.append(w_s[..., at] * m[j % units] + w_k[..., at])
            at += 1
        first += units
    return np.stack(w, -1)


class Parts(NamedTuple):
    """A point of APFL: what `apfl.objective` takes."""

    w_s: Array
    a: Array
    w_k: Array
    more: dict[str, Any]


def apfl_parts(c: Case) -> Parts:
    a = c.rng.normal(size=units.units(c.model).max() + 1)
    more = {"F": c.vector() ** 2, "w_ref": c.vector(), "mu": 0.7}
    return Parts(c.vector(), a, c.vector(), more)


@proof("apfl eq.3", "compose = plain loop over layers and units")
def apfl_eq3(c: Case) -> Iterator[Report]:
    w_s, a, w_k, _ = apfl_parts(c)
    yield equal(apfl.compose(c.model, w_s, a, w_k), loop_compose(c.model, w_s, a, w_k))


@proof("apfl eq.4", "objective − loss = (μ/2) Σ F_j (w_S,j − wᵗ_S,j)² by plain loop")
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


@proof("apfl eq.5", "λF + Σ p_k(∇L_k)² = plain loop over complex-step gradients")
def apfl_eq5(c: Case) -> Iterator[Report]:
    F, batches, p = c.vector() ** 2, (c.D, c.D1), np.array([0.4, 0.6])
    I = np.stack([importance.gradient_square(c.model, c.w, D) for D in batches])
    slow = [slow_grad(c.model, c.w, D) ** 2 for D in batches]
    yield equal(apfl.importance_update(F, I, p, lam=0.7), loop_sum([0.7, *p], [F, *slow]))


@proof("apfl eq.5", "option MAS = plain loop over |complex step of ‖z‖²|")
def apfl_mas(c: Case) -> Iterator[Report]:
    yield equal(importance.mas(c.model, c.w, c.D), loop_mas(c.model, c.w, c.D))


@proof("apfl eq.5", "synaptic_intelligence = max(ω, 0) / (Δ² + 0.1), number by number", ONE)
def apfl_si(c: Case) -> Iterator[Report]:
    path, moved = c.vectors(2)
    expected = [max(p, 0.0) / (m * m + 0.1) for p, m in zip(path.tolist(), moved.tolist())]
    yield equal(importance.synaptic_intelligence(path, moved), expected)


def loop_mas(model: Model, w: Array, D: Batch) -> Array:
    """The mean over samples of |∂‖z‖²/∂w| by complex step."""
    s = np.ones(len(D.y)) if D.s is None else D.s
    slopes = [
        complex_step_gradient(lambda w: np.sum(model.logits(w, x[None]) ** 2), w) for x in D.X
    ]
    return loop_sum(s / s.sum(), [np.abs(g) for g in slopes])


@proof("apfl eq.6", "objective = oracle loss of the looped composite + penalty")
def apfl_eq6(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    penalty = math.fsum(F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    expected = oracle.loss(c.model, loop_compose(c.model, w_s, a, w_k), c.D) + 0.35 * penalty
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


def plateau_by_loop(
    losses: list[float], length: int, delta_mu: float, delta_sigma: float
) -> list[Any]:
    """[apfl alg.1 lines 9–16] as a plain loop: (renew, peak) after every loss."""
    out, mean_old, std_old, peak = [], 0.0, 0.0, False
    for t in range(1, len(losses) + 1):
        renew = False
        if t >= length:
            window = losses[t - length : t]
            mean = sum(window) / length
            std = math.sqrt(sum((x - mean) ** 2 for x in window) / length)
            renew = peak and mean < delta_mu and std < delta_sigma
            if renew:
                mean_old, std_old, peak = mean, std, False
            elif mean > mean_old + std_old:
                peak = True
        out.append((renew, peak))
    return out


def waves(c: Case) -> tuple[list[float], Array]:
    """(120 losses, (renew, peak) after each) in which both thresholds, 0.9 and 0.13, decide."""
    for _ in range(100):
        losses = (1.5 + np.cos(np.arange(120) / 7) + 0.1 * c.rng.normal(size=120)).tolist()
        expected, *others = (
            np.array(plateau_by_loop(losses, 5, *deltas), float)
            for deltas in ((0.9, 0.13), (0.9, math.inf), (math.inf, 0.13))
        )
        if expected[:, 0].any() and all((expected != other).any() for other in others):
            return losses, expected
    raise RuntimeError("a threshold decides nothing")  # pragma: no cover


def detector_against_loop(columns: slice) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        losses, expected = waves(c)
        detector, got = plateau.PlateauDetector(0.9, 0.13, 5), []
        for loss in losses:
            detector, renew = detector.push(loss)
            got.append((renew, detector.peak))
        yield equal(np.array(got, float)[:, columns], expected[:, columns], bound=0)

    return compare


for _tag, _claim, _columns in (
    ("apfl §3.3", "PlateauDetector = plain loop over 120 losses", slice(0, 2)),
    ("apfl alg.1 lines 9–16", "PlateauDetector: renewals and peaks = plain loop", slice(0, 2)),
    ("apfl alg.1 line 10", "PlateauDetector: renewals = plain loop", slice(0, 1)),
    ("apfl alg.1 line 14", "PlateauDetector: peaks = plain loop", slice(1, 2)),
):
    proof(_tag, _claim, ONE)(detector_against_loop(_columns))


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
        detector = plateau.PlateauDetector()
        for loss, expected in by_hand:
            detector, renew = detector.push(loss)
            yield equal([renew, detector.peak], expected, bound=0)


@proof("apfl alg.1 lines 9–16", "APFL.observe = plain loop over 120 losses", ONE)
def apfl_observe(c: Case) -> Iterator[Report]:
    losses, expected = waves(c)
    algorithm = apfl.APFL(delta_mu=0.9, delta_sigma=0.13, window=5, z=1000)
    server, got = algorithm.initial(c.model, c.w), []
    for loss in losses:
        server = algorithm.observe(server._replace(renew=False), loss)
        got.append(float(server.renew))
    yield equal(got, expected[:, 0], bound=0)


# Rounds

OPTIONS: dict[str, Any] = {"lr": 0.2, "mu": 0.7, "lam": 0.6, "delta_mu": 5.0, "window": 2}


def by_loops(
    z: int,
    init: str = "paper",
    importance: str = "gradient-square",
    weighting: str = "samples",
    window: int = 2,
    drop: bool = True,
) -> Paper:
    """η = 0.2, μ = 0.7, λ = 0.6, δ_μ = 5, δ_σ = 0.5; t counts from 0.

    Each client descends [apfl eq.6]: L_k(w) + (μ/2) Σ F (w_S − wᵗ_S)² with w = w_S before round z,
    and w = w_S ⊙ σ(a) + w_k from then on. In a round of renewal it also sends I_k of wᵗ_S, and
    F ← λF + Σ p_k I_k: that is in the rounds z − 1, z, z + 1, and after a peak and a plateau.
    """

    def loops(world: World) -> Iterator[After]:
        model, w, F = world.model, world.w, np.zeros(())
        own, losses, flagged = dict[int, list[Array]](), list[float](), False
        units = sum(view.shape[0] for view in model.unpack(w)[1::2])
        for t, cohort in enumerate(world.cohorts()):
            renew = flagged or abs(t - z) <= 1
            ends, importances, penalties = [], [], []
            for one in cohort:
                if t >= z and one.client not in own:
                    share = 1 if init == "paper" else 1 - 1 / (1 + math.exp(-1))
                    own[one.client] = [np.ones(units), share * w]
                at, path = [w, *own.get(one.client, [])], np.zeros(model.d)
                for [D] in one.steps:

                    def risk(w_s: Array, *more: Array) -> Any:
                        return model.loss(loop_compose(model, w_s, *more) if more else w_s, D)

                    def eq6(w_s: Array, *more: Array) -> Any:
                        return risk(w_s, *more) + 0.35 * (F * (w_s - w) ** 2).sum(-1)

                    g = slow_gradients(risk, at)[0]
                    after = [x - 0.2 * h for x, h in zip(at, slow_gradients(eq6, at))]
                    path = path - g * (after[0] - at[0])
                    at = after
                ends.append(at[0])
                if t >= z:
                    own[one.client] = at[1:]
                penalties.append(0.35 * np.sum(F * (at[0] - w) ** 2))
                if renew:
                    importances.append(
                        slow_importance(importance, model, w, one.data, path, at[0] - w)
                    )
            p = shares(cohort, weighting)
            w = loop_sum(p, ends)
            if renew:
                F = 0.6 * F + loop_sum(p, importances)

            def personal(k: int | None, D: Batch | None) -> Array:
                return loop_compose(model, w, *own[k]) if k in own else w

            losses.append(world.train_loss(lambda k: personal(k, None)))
            flagged = plateau_by_loop(losses, window, 5, 0.5)[-1][0]
            next_renews = flagged or abs(t + 1 - z) <= 1
            yield After(
                {"w": w, "F": F, "t": t + 1, "renew": next_renews}, personal, dict(own),
                {"penalty": mean(penalties), "renewed": float(next_renews)},
            )  # fmt: skip

    return Paper(loops, drop)


def slow_importance(
    kind: str, model: Model, w: Array, D: Batch, path: Array, moved: Array
) -> Array:
    """I_k of each kind, number by number."""
    if kind == "gradient-square":
        return slow_grad(model, w, D) ** 2
    if kind == "fisher":
        return loop_fisher(model, w, D)
    if kind == "mas":
        return loop_mas(model, w, D)
    return np.array([max(p, 0) / (m * m + 0.1) for p, m in zip(path, moved)])


@proof("apfl alg.1", "8 rounds, F ≠ 0 before and after the start = plain loops of eq.6", SMALL)
def apfl_rounds(c: Case) -> Iterator[Report]:
    flags = list[bool]()

    def watched(world: World) -> Iterator[After]:
        for after in by_loops(5).loops(world):
            flags.append(after.server["renew"])
            yield after

    yield from rounds_agree(c, apfl.APFL(z=5, **OPTIONS), Paper(watched), rounds=8)
    assert flags[:4] == [False, False, True, True], "a plateau is seen in round 2, z − 1 is 4"
    algorithm = apfl.APFL(z=1, weighting="uniform", drop=False, **OPTIONS)
    yield from rounds_agree(c, algorithm, by_loops(1, weighting="uniform", drop=False), STEPS)


@proof(
    "apfl §4.1.3",
    "F is renewed in the rounds z − 1, z, z + 1 = plain loops, z = 0, 1, 3",
    SMALL[:1],
)
def apfl_near_start(c: Case) -> Iterator[Report]:
    for z in (0, 1, 3):
        algorithm = apfl.APFL(**{**OPTIONS, "z": z, "window": 100})
        yield from rounds_agree(c, algorithm, by_loops(z, window=100), STEPS, rounds=6)


@proof("apfl alg.1 line 21", "4 rounds from either start = plain loops", SMALL)
def apfl_start_rounds(c: Case) -> Iterator[Report]:
    for init in ("paper", "continuous"):
        yield from rounds_agree(c, apfl.APFL(z=1, init=init, **OPTIONS), by_loops(1, init))


@proof("apfl eq.5", "4 rounds with Fisher, MAS, SI = plain loops", SMALL)
def apfl_importance_rounds(c: Case) -> Iterator[Report]:
    for kind in ("fisher", "mas", "si"):
        algorithm = apfl.APFL(z=2, importance=kind, **OPTIONS)
        yield from rounds_agree(c, algorithm, by_loops(2, importance=kind))
