"""FedAvg and the centralised baseline, with the tags of APFL, which states them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithm import Server
from fedref.algorithms import fedavg
from fedref.checks import Report
from fedref.models.batch import Batch
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import EPOCHS, SMALL, STEPS, After, Paper, World, adapted, rounds_agree
from fedref.proofs.table import proof


@proof("apfl eq.2", "local_step, adapt = steps along the complex step of f_k")
def apfl_eq2(c: Case) -> Iterator[Report]:
    D, *_ = c.real_rows
    for steps in (1, 3):
        got = fedavg.adapt(c.model, c.w, c.D, alpha=0.3, steps=steps)
        yield equal(got, spec.adapt(c.f.grad, c.w, D, 0.3, steps))
    once = spec.adapt(c.f.grad, c.w, D, 0.3)
    yield equal(fedavg.adapt(c.model, c.w, c.D, alpha=0.3), once)
    yield equal(fedavg.local_step(c.model, c.w, c.D, lr=0.3), once)


@proof("apfl §4.1.1", "Centralised step on pooled rows = step along Σ p_k ∇f_k")
def apfl_centralised(c: Case) -> Iterator[Report]:
    pooled = Batch(*(np.concatenate(pair) for pair in zip(c.D1[:2], c.D2[:2])))
    got = fedavg.Centralised(lr=0.3).step(c.model, Server(c.w), c.w, pooled)
    g = spec.average([3 / 8, 5 / 8], [c.f.grad(c.w, D) for D in c.real_rows[1:]])
    yield equal(got, c.w - 0.3 * g)


# Rounds


def paper(
    weights: Any = spec.sample_weights, alpha: float = 0.0, steps: int = 0, **says: Any
) -> Paper:
    """FedAvg with η = 0.3, tested after steps of size α."""

    def rounds(world: World) -> Iterator[After]:
        for w in spec.fedavg(world.f, world.w, world.rounds(), 0.3, weights):
            yield After({"w": w}, adapted(world, w, alpha, steps))

    return Paper(rounds, **says)


@proof("apfl eq.1", "4 rounds of FedAvg by samples and uniform = the specification", SMALL)
def fedavg_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        yield from rounds_agree(c, fedavg.FedAvg(lr=0.3), paper(), sampling)
    uniform = fedavg.FedAvg(lr=0.3, weighting="uniform", drop=False)
    yield from rounds_agree(c, uniform, paper(spec.uniform_weights, drop=False))


@proof("apfl eq.2", "4 rounds of FedAvg with update, FedAvg(Meta) = the specification", SMALL)
def fedavg_adapted_rounds(c: Case) -> Iterator[Report]:
    update = fedavg.FedAvgUpdate(lr=0.3, alpha=0.2, inner_steps=3)
    yield from rounds_agree(c, update, paper(alpha=0.2, steps=3, adapts_on="D"))
    meta = fedavg.FedAvgMeta(lr=0.3, alpha=0.2, inner_steps=2)
    yield from rounds_agree(c, meta, paper(alpha=0.2, steps=2, adapts_on="S"))


@proof("apfl §4.1.1", "4 rounds of Centralised = FedAvg of one client with all rows", SMALL)
def centralised_rounds(c: Case) -> Iterator[Report]:
    yield from rounds_agree(c, fedavg.Centralised(lr=0.3), paper(pooled=True))
