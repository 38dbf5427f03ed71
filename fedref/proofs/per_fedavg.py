# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""Per-FedAvg: the exact meta-gradient, and its two approximations."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref.algorithm import weighted_mean
from fedref.algorithms import per_fedavg
from fedref.checks import Report, check_gradient, relative_error
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import (
    equal,
    loop_sum,
    order_in,
    slow_grad,
    slow_hvp,
    slow_steps,
)
from fedref.proofs.rounds import EPOCHS, SMALL, STEPS, After, Paper, World, rounds_agree, shares
from fedref.proofs.table import FAMILIES, ONE, SMOOTH, proof


@proof("per-fedavg eq.1", "mean of grad = complex step of the mean loss over users")
def per_fedavg_eq1(c: Case) -> Iterator[Report]:
    batches, p = (c.D, c.D1, c.D2), np.full(3, 1 / 3)
    yield check_gradient(
        lambda w: sum(c.model.loss(w, D) for D in batches) / 3,
        lambda w: weighted_mean(p, np.stack([c.model.grad(w, D) for D in batches])),
        c.w, c.vs,
    )  # fmt: skip


@proof("per-fedavg eq.2", "meta_objective = oracle loss after a complex-step step")
def per_fedavg_eq2(c: Case) -> Iterator[Report]:
    expected = oracle.loss(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D)
    yield equal(per_fedavg.meta_objective(c.model, c.w, c.D, alpha=0.1), expected)


@proof("per-fedavg eq.3", "meta_gradient(D = D′ = D″) = complex step of meta_objective")
def per_fedavg_eq3(c: Case) -> Iterator[Report]:
    yield check_gradient(
        lambda w: per_fedavg.meta_objective(c.model, w, c.D, alpha=0.1),
        lambda w: per_fedavg.meta_gradient(c.model, w, c.D, c.D, c.D, alpha=0.1),
        c.w, c.vs,
    )  # fmt: skip


@proof("per-fedavg eq.4", "grad(w, D) = mean of per-sample complex steps")
def per_fedavg_eq4(c: Case) -> Iterator[Report]:
    gs = [slow_grad(c.model, c.w, Batch(c.D.X[j : j + 1], c.D.y[j : j + 1])) for j in range(4)]
    yield equal(c.model.grad(c.w, c.D), loop_sum(c.s / c.s.sum(), gs))


@proof("per-fedavg eq.5", "local_step = w − β∇F number by number")
def per_fedavg_eq5(c: Case) -> Iterator[Report]:
    got = per_fedavg.local_step(c.w, c.vs[0], beta=0.2)
    yield equal(got, [w_j - 0.2 * v_j for w_j, v_j in zip(c.w.tolist(), c.vs[0].tolist())])


def slow_eq6(model: Model, w: Array, D: Batch, D1: Batch, D2: Batch, alpha: float) -> Array:
    """[per-fedavg eq.6] by complex steps alone."""
    u = slow_grad(model, slow_steps(model, w, D, alpha, 1), D1)
    return u - alpha * slow_hvp(model, w, u, D2)


@proof("per-fedavg eq.6", "meta_gradient(D, D′, D″) = the same by complex steps alone")
def per_fedavg_eq6(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient(c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    yield equal(got, slow_eq6(c.model, c.w, c.D, c.D1, c.D2, 0.1))


@proof("per-fedavg eq.6", "ν = 3 inner steps = complex step of the chained objective")
def per_fedavg_steps(c: Case) -> Iterator[Report]:
    Ds = [c.D, c.D1, c.D2]

    def chained(w: Array) -> Array:
        for D in Ds:
            w = w - 0.1 * c.model.grad(w, D)
        return np.asarray(c.model.loss(w, c.D1))

    def gradient(w: Array) -> Array:
        return per_fedavg.meta_gradient_steps(c.model, w, Ds, c.D1, Ds, alpha=0.1)

    yield check_gradient(chained, gradient, c.w, c.vs)


@proof("per-fedavg §3.3", "meta_gradient_fo = complex step of the loss after the step")
def per_fedavg_fo(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=0.1)
    yield equal(got, slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D1))


@proof("per-fedavg eq.7", "meta_gradient_hf = as printed; → eq.6 with slope 2 in δ", SMOOTH)
def per_fedavg_eq7(c: Case) -> Iterator[Report]:
    def hf(delta: float) -> Array:
        return per_fedavg.meta_gradient_hf(
            c.model, c.w, c.D, c.D1, c.D2, alpha=0.1, delta=delta
        )  # fmt: skip

    u = slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D1)
    plus, minus = (slow_grad(c.model, c.w + s * 0.1 * u, c.D2) for s in (1, -1))
    exact = slow_eq6(c.model, c.w, c.D, c.D1, c.D2, 0.1)
    slope = order_in(lambda h: relative_error(hf(h), exact), np.logspace(-3, -2, 5))
    yield Report(relative_error(hf(0.1), u - 0.1 * (plus - minus) / 0.2), slope, 2)


@proof("per-fedavg eq.7", "meta_gradient_hf: δ = 10⁻³ where nothing is said", ONE)
def per_fedavg_usual_delta(c: Case) -> Iterator[Report]:
    at = c.model, c.w, c.D, c.D1, c.D2
    got = per_fedavg.meta_gradient_hf(*at, alpha=0.1)
    yield equal(got, per_fedavg.meta_gradient_hf(*at, alpha=0.1, delta=1e-3), bound=0)


@proof("per-fedavg eq.8", "d = Hu exactly where f is quadratic", FAMILIES[-1:])
def per_fedavg_eq8(c: Case) -> Iterator[Report]:
    u = per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=1.0)
    wrong = c.D2._replace(y=-c.model.predict(c.w, c.D2.X))  # all margins above 1: one quadratic
    hf = per_fedavg.meta_gradient_hf(c.model, c.w, c.D, c.D1, wrong, alpha=1.0, delta=0.01)
    yield equal(u - hf, slow_hvp(c.model, c.w, u, wrong))


@proof("per-fedavg eq.8", "d = difference of complex steps; → Hu with slope 2 in δ", SMOOTH)
def per_fedavg_eq8_slope(c: Case) -> Iterator[Report]:
    batches, u = (c.D, c.D1, c.D2), per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=1.0)

    def d(delta: float) -> Array:
        return u - per_fedavg.meta_gradient_hf(c.model, c.w, *batches, alpha=1.0, delta=delta)

    plus, minus = (slow_grad(c.model, c.w + s * 0.1 * u, c.D2) for s in (1, -1))
    exact = slow_hvp(c.model, c.w, u, c.D2)
    slope = order_in(lambda h: relative_error(d(h), exact), np.logspace(-3, -2, 5))
    yield Report(relative_error(d(0.1), (plus - minus) / 0.2), slope, 2)


# Rounds

Gradient = Callable[..., Array]


def fo_by_steps(model: Model, w: Array, D: Batch, D1: Batch, alpha: float) -> Array:
    """[per-fedavg §3.3] by complex steps: the gradient on D′ after a step on D."""
    return slow_grad(model, slow_steps(model, w, D, alpha, 1), D1)


def difference(model: Model, w: Array, u: Array, D2: Batch) -> Array:
    """[per-fedavg eq.8] by complex steps, δ = 0.1."""
    plus, minus = (slow_grad(model, w + s * 0.1 * u, D2) for s in (1, -1))
    return np.asarray((plus - minus) / 0.2)


def hf_by_steps(model: Model, w: Array, D: Batch, D1: Batch, D2: Batch, alpha: float) -> Array:
    """[per-fedavg eq.7] by complex steps, δ = 0.1."""
    u = fo_by_steps(model, w, D, D1, alpha)
    return u - alpha * difference(model, w, u, D2)


def of_several_steps(kind: str) -> Gradient:
    """∇F_i after ν inner steps, each on batches of its own: the exact one, "fo" or "hf"."""

    def gradient(model: Model, w: Array, D: Batch, D1: Batch, *further: Any) -> Array:
        *rest, alpha = D, *further
        Ds, D2s = (rest, []) if kind == "fo" else (rest[::2], rest[1::2])
        ws = [w]
        for D_j in Ds:
            ws.append(slow_steps(model, ws[-1], D_j, alpha, 1))
        u = slow_grad(model, ws.pop(), D1)
        while D2s:
            at = model, ws.pop(), u, D2s.pop()
            u = u - alpha * (difference(*at) if kind == "hf" else slow_hvp(*at))
        return u

    return gradient


def by_loops(
    gradient: Gradient,
    weighting: str = "uniform",
    drop: bool = True,
    roles: tuple[str, ...] = ("D", "D1", "D2"),
    steps: int = 1,
) -> Paper:
    """Each user w_i ← w_i − β∇F_i(w_i), α = 0.1, β = 0.2, then w ← the mean of the users drawn; at
    test time steps of size α."""

    def loops(world: World) -> Iterator[After]:
        w = world.w
        for cohort in world.cohorts():
            ws = []
            for one in cohort:
                w_i = w
                for batches in one.steps:
                    w_i = w_i - 0.2 * gradient(world.model, w_i, *batches, 0.1)
                ws.append(w_i)
            w = loop_sum(shares(cohort, weighting), ws)

            def personal(k: int | None, D: Batch | None) -> Array:
                return w if D is None else slow_steps(world.model, w, D, 0.1, steps)

            yield After({"w": w}, personal)

    return Paper(loops, drop, roles, adapts_on="D")


@proof("per-fedavg alg.1", "4 rounds of Per-FedAvg, three batches a step = plain loops", SMALL)
def per_fedavg_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        algorithm = per_fedavg.PerFedAvg(alpha=0.1, beta=0.2)
        yield from rounds_agree(c, algorithm, by_loops(slow_eq6), sampling)
    algorithm = per_fedavg.PerFedAvg(alpha=0.1, beta=0.2, weighting="samples", drop=False)
    yield from rounds_agree(c, algorithm, by_loops(slow_eq6, "samples", drop=False))


@proof("per-fedavg §3.3", "4 rounds of Per-FedAvg (FO) = plain loops", SMALL)
def per_fedavg_fo_rounds(c: Case) -> Iterator[Report]:
    yield from rounds_agree(
        c, per_fedavg.PerFedAvgFO(alpha=0.1, beta=0.2), by_loops(fo_by_steps, roles=("D", "D1"))
    )


@proof("per-fedavg eq.7", "4 rounds of Per-FedAvg (HF), δ = 0.1 = plain loops", SMALL)
def per_fedavg_hf_rounds(c: Case) -> Iterator[Report]:
    algorithm = per_fedavg.PerFedAvgHF(alpha=0.1, beta=0.2, delta=0.1)
    yield from rounds_agree(c, algorithm, by_loops(hf_by_steps))


@proof(
    "per-fedavg eq.6", "rounds with ν = 2 and 3 inner steps, also FO and HF = plain loops", SMALL
)
def per_fedavg_rounds_of_steps(c: Case) -> Iterator[Report]:
    both = ("D", "D1", "D2", "D of step 2", "D2 of step 2", "D of step 3", "D2 of step 3")
    options: dict[str, Any] = {"alpha": 0.1, "beta": 0.2}
    for kind, cls, steps, roles in (
        ("exact", per_fedavg.PerFedAvg, 2, both[:5]),
        ("exact", per_fedavg.PerFedAvg, 3, both),
        ("fo", per_fedavg.PerFedAvgFO, 2, ("D", "D1", "D of step 2")),
        ("hf", partial(per_fedavg.PerFedAvgHF, delta=0.1), 2, both[:5]),
    ):
        paper = by_loops(of_several_steps(kind), roles=roles, steps=steps)
        yield from rounds_agree(c, cls(inner_steps=steps, **options), paper, rounds=3)
