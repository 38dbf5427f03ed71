# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""FedAvg and the centralised baseline, with the tags of APFL, which states them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref.algorithm import Server
from fedref.algorithms import centralised, fedavg
from fedref.checks import Report
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, slow_grad, slow_steps
from fedref.proofs.rounds import EPOCHS, SMALL, STEPS, After, Paper, World, rounds_agree, shares
from fedref.proofs.table import proof


@proof("apfl eq.2", "local_step, adapt = steps along the complex step of f_k")
def apfl_eq2(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        expected = slow_steps(c.model, c.w, c.D, 0.3, steps)
        yield equal(fedavg.adapt(c.model, c.w, c.D, alpha=0.3, steps=steps), expected)
    once = slow_steps(c.model, c.w, c.D, 0.3, 1)
    yield equal(fedavg.adapt(c.model, c.w, c.D, alpha=0.3), once)
    yield equal(fedavg.local_step(c.model, c.w, c.D, lr=0.3), once)


@proof("apfl §4.1.1", "Centralised step on pooled rows = step along Σ p_k ∇f_k")
def apfl_centralised(c: Case) -> Iterator[Report]:
    pooled = Batch(*(np.concatenate(pair) for pair in zip(c.D1[:2], c.D2[:2])))
    got = centralised.Centralised(lr=0.3).step(c.model, Server(c.w), c.w, pooled)
    g = loop_sum([3 / 8, 5 / 8], [slow_grad(c.model, c.w, D) for D in (c.D1, c.D2)])
    yield equal(got, c.w - 0.3 * g)


# Rounds


def by_loops(
    weighting: str = "samples", alpha: float = 0.0, adapt_steps: int = 0, **says: Any
) -> Paper:
    """Each client w_k ← w_k − η∇f_k(w_k; D), then w ← Σ p_k w_k; tested after steps of size α."""

    def loops(world: World) -> Iterator[After]:
        w = world.w
        for cohort in world.cohorts():
            ws = []
            for one in cohort:
                w_k = w
                for [D] in one.steps:
                    w_k = w_k - 0.3 * slow_grad(world.model, w_k, D)  # η = 0.3
                ws.append(w_k)
            w = loop_sum(shares(cohort, weighting), ws)

            def personal(k: int | None, D: Batch | None) -> Array:
                return w if D is None else slow_steps(world.model, w, D, alpha, adapt_steps)

            yield After({"w": w}, personal)

    return Paper(loops, **says)


@proof("apfl eq.1", "4 rounds of FedAvg by samples and uniform = plain loops", SMALL)
def fedavg_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        yield from rounds_agree(c, fedavg.FedAvg(lr=0.3), by_loops(), sampling)
    uniform = fedavg.FedAvg(lr=0.3, weighting="uniform", drop=False)
    yield from rounds_agree(c, uniform, by_loops("uniform", drop=False))


@proof("apfl eq.2", "4 rounds of FedAvg with update, FedAvg(Meta) = plain loops", SMALL)
def fedavg_adapted_rounds(c: Case) -> Iterator[Report]:
    update = fedavg.FedAvgUpdate(lr=0.3, alpha=0.2, inner_steps=3)
    yield from rounds_agree(c, update, by_loops(alpha=0.2, adapt_steps=3, adapts_on="D"))
    meta = fedavg.FedAvgMeta(lr=0.3, alpha=0.2, inner_steps=2)
    yield from rounds_agree(c, meta, by_loops(alpha=0.2, adapt_steps=2, adapts_on="S"))


@proof("apfl §4.1.1", "4 rounds of Centralised = plain SGD, an epoch of all rows a round", SMALL)
def centralised_rounds(c: Case) -> Iterator[Report]:
    yield from rounds_agree(c, centralised.Centralised(lr=0.3), by_loops(pooled=True))
