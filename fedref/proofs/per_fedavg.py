"""Per-FedAvg: the exact meta-gradient, and its two approximations."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithm import weighted_mean
from fedref.algorithms import per_fedavg
from fedref.checks import Report, check_gradient, relative_error
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, measure_order
from fedref.proofs.rounds import (
    EPOCHS,
    SMALL,
    STEPS,
    ExpectedRound,
    Paper,
    TinyWorld,
    adapted_model,
    compare_rounds,
)
from fedref.proofs.table import ONE, SMOOTH, proof


@proof("per-fedavg eq.1", "mean of grad = complex step of the mean loss over users")
def per_fedavg_eq1(c: Case) -> Iterator[Report]:
    batches, p = (c.D, c.D1, c.D2), np.full(3, 1 / 3)
    yield check_gradient(
        lambda w: sum(c.model.loss(w, D) for D in batches) / 3,
        lambda w: weighted_mean(p, np.stack([c.model.grad(w, D) for D in batches])),
        c.w, c.vs,
    )  # fmt: skip


@proof("per-fedavg eq.2", "meta_objective = the specification's loss after its step")
def per_fedavg_eq2(c: Case) -> Iterator[Report]:
    D, *_ = c.real_rows
    expected = c.f(spec.adapt(c.f.grad, c.w, D, 0.1), D)
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
    D = spec.Batch(c.D.X, c.D.y)
    gs = [c.f.grad(c.w, D.rows([j])) for j in range(4)]
    yield equal(c.model.grad(c.w, c.D), spec.average(c.s / c.s.sum(), gs))


@proof("per-fedavg eq.5", "local_step = w − β∇F number by number", ONE)
def per_fedavg_eq5(c: Case) -> Iterator[Report]:
    got = per_fedavg.local_step(c.w, c.vs[0], beta=0.2)
    yield equal(got, [w_j - 0.2 * v_j for w_j, v_j in zip(c.w.tolist(), c.vs[0].tolist())])


@proof("per-fedavg eq.6", "meta_gradient(D, D′, D″) = the specification, by complex steps")
def per_fedavg_eq6(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient(c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    yield equal(got, spec.meta_gradient(c.f, c.w, *c.real_rows, 0.1))


@proof("per-fedavg eq.6", "ν = 3 inner steps = complex step of the chained objective")
def per_fedavg_steps(c: Case) -> Iterator[Report]:
    Ds = [c.D, c.D1, c.D2]

    def chained_loss(w: Array) -> Array:
        for D in Ds:
            w = w - 0.1 * c.model.grad(w, D)
        return np.asarray(c.model.loss(w, c.D1))

    def gradient(w: Array) -> Array:
        return per_fedavg.meta_gradient_steps(c.model, w, Ds, c.D1, Ds, alpha=0.1)

    yield check_gradient(chained_loss, gradient, c.w, c.vs)


@proof(
    ("per-fedavg eq.7", "per-fedavg eq.8"),
    "meta_gradient_hf = as printed, δ = 0.1 and the default; → eq.6 with slope 2 in δ",
    SMOOTH,
)
def per_fedavg_hf(c: Case) -> Iterator[Report]:
    hf = partial(per_fedavg.meta_gradient_hf, c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    printed = partial(spec.meta_gradient_hf, c.f, c.w, *c.real_rows, 0.1)
    exact = spec.meta_gradient(c.f, c.w, *c.real_rows, 0.1)
    slope = measure_order(lambda h: relative_error(hf(delta=h), exact), np.logspace(-3, -2, 5))
    yield Report(relative_error(hf(delta=0.1), printed(0.1)), slope, 2)
    yield equal(hf(), printed())


# Rounds


def paper(
    meta_gradient: Callable[..., Array] = spec.meta_gradient,
    weights: Any = spec.uniform_weights,
    drop: bool = True,
    roles: tuple[str, ...] = ("D", "D1", "D2"),
    steps: int = 1,
) -> Paper:
    """Return Per-FedAvg with α = 0.1, β = 0.2, tested after `steps` of size α."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        at = world.f, world.w, world.rounds(), 0.1, 0.2, meta_gradient, weights
        for w in spec.per_fedavg(*at):
            yield ExpectedRound({"w": w}, adapted_model(world, w, 0.1, steps))

    return Paper(rounds, drop, roles, adapts_on="D")


def first_order(f: spec.Risk, w: Array, D: spec.Batch, D1: spec.Batch, alpha: float) -> Array:
    return spec.meta_gradient_fo(f, w, D, D1, None, alpha)


def gradient_of_steps(inner: tuple[str, ...], hvp: Any = spec.Risk.hvp) -> Callable[..., Array]:
    """Return the meta-gradient after ν inner steps, for batches in the order of `PerFedAvg.roles`."""

    def gradient(f: spec.Risk, w: Array, D: Any, D1: Any, *rest: Any) -> Array:
        *batches, alpha = D, *rest
        n = len(inner)
        D2s = batches[1::n] if n > 1 else []
        return spec.meta_gradient_steps(f, w, batches[::n], D1, D2s, alpha, hvp)

    return gradient


@proof(
    "per-fedavg alg.1",
    "4 rounds of Per-FedAvg, three batches a step = the specification",
    SMALL,
)
def per_fedavg_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        algorithm = per_fedavg.PerFedAvg(alpha=0.1, beta=0.2)
        yield from compare_rounds(c, algorithm, paper(), sampling)
    algorithm = per_fedavg.PerFedAvg(alpha=0.1, beta=0.2, weighting="samples", drop=False)
    yield from compare_rounds(c, algorithm, paper(weights=spec.sample_weights, drop=False))


@proof("per-fedavg §3.3", "4 rounds of Per-FedAvg (FO) = the specification", SMALL)
def per_fedavg_fo_rounds(c: Case) -> Iterator[Report]:
    algorithm = per_fedavg.PerFedAvgFO(alpha=0.1, beta=0.2)
    yield from compare_rounds(c, algorithm, paper(first_order, roles=("D", "D1")))


@proof("per-fedavg eq.7", "4 rounds of Per-FedAvg (HF), δ = 0.1 = the specification", SMALL)
def per_fedavg_hf_rounds(c: Case) -> Iterator[Report]:
    algorithm = per_fedavg.PerFedAvgHF(alpha=0.1, beta=0.2, delta=0.1)
    yield from compare_rounds(c, algorithm, paper(partial(spec.meta_gradient_hf, delta=0.1)))


@proof(
    "per-fedavg eq.6",
    "rounds with ν = 2 and 3 inner steps, also FO and HF = the specification",
    SMALL,
)
def per_fedavg_rounds_of_steps(c: Case) -> Iterator[Report]:
    both = ("D", "D1", "D2", "D of step 2", "D2 of step 2", "D of step 3", "D2 of step 3")
    exact, fo = gradient_of_steps(("D", "D2")), gradient_of_steps(("D",))
    hf = gradient_of_steps(("D", "D2"), partial(spec.difference, delta=0.1))
    options: dict[str, Any] = {"alpha": 0.1, "beta": 0.2}
    for meta_gradient, cls, steps, roles in (
        (exact, per_fedavg.PerFedAvg, 2, both[:5]),
        (exact, per_fedavg.PerFedAvg, 3, both),
        (fo, per_fedavg.PerFedAvgFO, 2, ("D", "D1", "D of step 2")),
        (hf, partial(per_fedavg.PerFedAvgHF, delta=0.1), 2, both[:5]),
    ):
        expected = paper(meta_gradient, roles=roles, steps=steps)
        yield from compare_rounds(c, cls(inner_steps=steps, **options), expected, rounds=3)
