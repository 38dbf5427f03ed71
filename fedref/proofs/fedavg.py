"""FedAvg and the centralised baseline, under the equation numbers of APFL's paper, which states both."""

from collections.abc import Iterator
from typing import Any

from fedref import spec
from fedref.algorithms import fedavg
from fedref.checks import Report
from fedref.proofs.case import Case
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
from fedref.proofs.table import proof


def paper(
    weights: Any = spec.sample_weights, alpha: float = 0.0, steps: int = 0, **settings: Any
) -> Paper:
    """Return FedAvg with η = 0.3, tested after steps of size α. settings : other fields of `Paper`."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        for w in spec.fedavg(world.f, world.w, world.rounds(), 0.3, weights):
            yield ExpectedRound({"w": w}, adapted_model(world, w, alpha, steps))

    return Paper(rounds, **settings)


@proof(
    "apfl eq.1", "4 rounds of FedAvg, weighted by samples or uniformly = the specification", SMALL
)
def fedavg_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        yield from compare_rounds(c, fedavg.FedAvg(lr=0.3), paper(), sampling)
    uniform = fedavg.FedAvg(lr=0.3, weighting="uniform", drop=False)
    yield from compare_rounds(c, uniform, paper(spec.uniform_weights, drop=False))


@proof(
    "apfl eq.2", "4 rounds of FedAvg with update, and of FedAvg(Meta) = the specification", SMALL
)
def fedavg_adapted_rounds(c: Case) -> Iterator[Report]:
    update = fedavg.FedAvgUpdate(lr=0.3, alpha=0.2, inner_steps=3)
    yield from compare_rounds(c, update, paper(alpha=0.2, steps=3, adapts_on="D"))
    meta = fedavg.FedAvgMeta(lr=0.3, alpha=0.2, inner_steps=2)
    yield from compare_rounds(c, meta, paper(alpha=0.2, steps=2, adapts_on="S"))


@proof("apfl §4.1.1", "4 rounds of Centralised = FedAvg of one client with all rows", SMALL)
def centralised_rounds(c: Case) -> Iterator[Report]:
    yield from compare_rounds(c, fedavg.Centralised(lr=0.3), paper(pooled=True))
