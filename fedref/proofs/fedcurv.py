# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""FedCurv."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref.algorithms import fedavg, fedcurv, importance
from fedref.checks import Report, check_gradient, stack_equals_loop
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, slow_grad, slow_gradient
from fedref.proofs.rounds import (
    EPOCHS,
    SMALL,
    STEPS,
    After,
    Paper,
    World,
    rounds_agree,
    shares,
    states,
)
from fedref.proofs.table import ONE, proof


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def fedcurv_penalty(c: Case) -> Iterator[Report]:
    I, thetas = c.vectors(3) ** 2, c.vectors(3)
    u, v, me = I.sum(0), (I * thetas).sum(0), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    yield check_gradient(
        lambda w: fedcurv.penalty(w, others, lam=0.7),
        lambda w: fedcurv.penalty_gradient(w, u, v, I[me], I[me] * thetas[me], lam=0.7),
        c.w, c.vs,
    )  # fmt: skip
    j_sum = loop_sum([0.7, 0.7], [I_j * (c.w - theta_j) ** 2 for I_j, theta_j in others])
    yield equal(fedcurv.penalty(c.w, others, lam=0.7), math.fsum(j_sum))
    yield stack_equals_loop(lambda w: fedcurv.penalty(w, others, lam=0.7), c.vectors(7))


def loop_fisher(model: Model, w: Array, D: Batch) -> Array:
    """The mean over samples of squared complex-step gradients."""
    s = [1.0] * len(D.y) if D.s is None else D.s
    gs = [slow_grad(model, w, Batch(D.X[j : j + 1], D.y[j : j + 1])) for j in range(len(D.y))]
    return loop_sum(np.asarray(s) / sum(s), [g**2 for g in gs])


@proof("fedcurv Fisher", "fisher = plain loop over samples, complex-step gradients squared")
def fedcurv_fisher(c: Case) -> Iterator[Report]:
    for D in (c.D, c.D1):
        yield equal(importance.fisher(c.model, c.w, D), loop_fisher(c.model, c.w, D))


@proof(
    "fedcurv Fisher", "fisher and MAS in blocks of 1, 2 and 3 samples = at once; 0 without weight"
)
def blocks(c: Case) -> Iterator[Report]:
    from unittest.mock import patch  # takes a while, and every command imports the proofs

    for estimate in (importance.fisher, importance.mas):
        whole = estimate(c.model, c.w, c.D2)
        for rows in (1, 2, 3):
            with patch.object(importance, "CHUNK", rows * c.model.d):
                yield equal(estimate(c.model, c.w, c.D2), whole)
        none = c.D1._replace(s=np.zeros(3))
        yield equal(estimate(c.model, c.w, none), np.zeros(c.model.d), bound=0)


# Rounds


def by_loops(lam: float, weighting: str = "samples", drop: bool = True) -> Paper:
    """Each client s descends f_s(θ) + λ Σ_{j ≠ s} Σ I_j (θ − θ̂_j)², over the clients j of the round
    before; then θ ← Σ p_s θ̂_s. I_s is the Fisher diagonal at θ̂_s on all of its data."""

    def loops(world: World) -> Iterator[After]:
        model, w = world.model, world.w
        last = dict[int, tuple[Array, Array]]()  # of the round before: client → (I_j, θ̂_j)
        kept = dict[int, list[Any]]()
        for t, cohort in enumerate(world.cohorts()):
            now = dict[int, tuple[Array, Array]]()
            for one in cohort:
                others = [pair for j, pair in last.items() if j != one.client]
                theta = w
                for [D] in one.steps:

                    def objective(x: Array) -> Any:
                        pull = sum((I * (x - theta_j) ** 2).sum(-1) for I, theta_j in others)
                        return model.loss(x, D) + lam * pull

                    theta = theta - 0.2 * slow_gradient(objective, theta)
                I = loop_fisher(model, theta, one.data)
                now[one.client] = I, theta
                kept[one.client] = [I, I * theta, t]
            last = now
            w = loop_sum(shares(cohort, weighting), [theta for _, theta in now.values()])
            u = sum(I for I, _ in now.values())
            v = sum(I * theta for I, theta in now.values())
            yield After({"w": w, "u": u, "v": v, "t": t + 1}, lambda k, D: w, dict(kept))

    return Paper(loops, drop)


@proof("fedcurv penalty", "5 rounds of FedCurv, clients absent from the last = plain loops", SMALL)
def fedcurv_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        algorithm = fedcurv.FedCurv(lr=0.2, lam=0.7)
        yield from rounds_agree(c, algorithm, by_loops(0.7), sampling, rounds=5)
    algorithm = fedcurv.FedCurv(lr=0.2, lam=0.7, weighting="uniform", drop=False)
    yield from rounds_agree(c, algorithm, by_loops(0.7, "uniform", drop=False), rounds=5)


@proof("apfl §4.1.2", "4 rounds of FedCurv with λ = 0 = FedAvg, bit for bit", SMALL)
def baselines_rounds(c: Case) -> Iterator[Report]:
    one, other = fedcurv.FedCurv(lr=0.3, lam=0.0), fedavg.FedAvg(lr=0.3)
    world = World(c, by_loops(0.0), EPOCHS, 4)
    for got, expected in zip(states(world, one), states(world, other), strict=True):
        yield equal(got.server.w, expected.server.w, bound=0)
