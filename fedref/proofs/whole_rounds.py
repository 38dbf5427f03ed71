"""Whole rounds of every algorithm = the specification's: one row a setting.

And the limits in which one algorithm is another, bit for bit.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import (
    apfl,
    apfl_deng,
    fedavg,
    fedcurv,
    feddyn,
    fedmaml,
    fedmeta,
    fednova,
    fedopt,
    fedprox,
    per_fedavg,
    pfedme,
    scaffold,
)
from fedref.checks import Report
from fedref.proofs.case import Case
from fedref.proofs.rounds import EPOCHS, SMALL, STEPS, compare_models, compare_rounds
from fedref.proofs.table import proof


class Rounds(NamedTuple):
    """A claim: rounds of this algorithm with these settings are those of the specification."""

    tag: str
    algorithm: AnyAlgorithm
    samplings: tuple[Any, ...] = (EPOCHS,)
    rounds: int = 4


BOTH = (EPOCHS, STEPS)
META: dict[str, Any] = {"alpha": 0.1, "beta": 0.2}
APFL: dict[str, Any] = {"lr": 0.2, "mu": 0.7, "lam": 0.6, "delta_mu": 5.0, "window": 2}
TABLE = [
    Rounds("apfl eq.1", fedavg.FedAvg(lr=0.3), BOTH),
    Rounds("apfl eq.1", fedavg.FedAvg(lr=0.3, weighting="uniform", drop=False)),
    Rounds("apfl eq.2", fedavg.FedAvgUpdate(lr=0.3, alpha=0.2, inner_steps=3)),
    Rounds("apfl eq.2", fedavg.FedAvgMeta(lr=0.3, alpha=0.2, inner_steps=2)),
    Rounds("apfl §4.1.1", fedavg.Centralised(lr=0.3)),
    Rounds("fedprox alg.2", fedprox.FedProx(lr=0.3, mu=0.7), BOTH),
    Rounds("fedprox alg.2", fedprox.FedProx(
        lr=0.3, mu=0.7, weighting="uniform", drop=True, measure_gamma=False)),
    Rounds("fedprox μ", fedprox.FedProx(lr=0.02, mu=0.15, adaptive_mu=True), rounds=8),
    Rounds("fedprox γ", fedprox.FedProx(lr=0.3, mu=0.7, until_gamma=0.6)),
    Rounds("per-fedavg alg.1", per_fedavg.PerFedAvg(**META), BOTH),
    Rounds("per-fedavg alg.1", per_fedavg.PerFedAvg(**META, weighting="samples", drop=False)),
    Rounds("per-fedavg §3.3", per_fedavg.PerFedAvgFO(**META)),
    Rounds("per-fedavg eq.7", per_fedavg.PerFedAvgHF(**META, delta=0.1)),
    *(Rounds("per-fedavg eq.6", per_fedavg.PerFedAvg(**META, inner_steps=n), rounds=3) for n in (2, 3)),
    Rounds("per-fedavg eq.6", per_fedavg.PerFedAvgFO(**META, inner_steps=2), rounds=3),
    Rounds("per-fedavg eq.6", per_fedavg.PerFedAvgHF(**META, inner_steps=2, delta=0.1), rounds=3),
    *(Rounds("fedmeta MAML", kind(**META, inner_steps=n))
      for n in (1, 2) for kind in (fedmeta.MAML, fedmeta.FOMAML)),
    *(Rounds("fedmeta Meta-SGD", fedmeta.MetaSGD(**META, inner_steps=n)) for n in (1, 2)),
    *(Rounds("fedmeta MAML", kind(**META, episodes="epochs")) for kind in (fedmeta.MAML, fedmeta.MetaSGD)),
    *(Rounds("fedmeta server", fedmeta.MAML(**META, server=name, weighting="samples"))
      for name in ("sgd", "adam")),
    Rounds("fedmeta server", fedmeta.MetaSGD(**META, server="adam")),
    *(Rounds("fedmaml §3.2", fedmaml.FedMAML(**META, inner_steps=n)) for n in (1, 2)),
    Rounds("fedmaml §4.3", fedmaml.FedMAML(**META, inner_steps=2, evaluate="theta1")),
    Rounds("fedcurv penalty", fedcurv.FedCurv(lr=0.2, lam=0.7), BOTH, 5),
    Rounds("fedcurv penalty", fedcurv.FedCurv(lr=0.2, lam=0.7, weighting="uniform", drop=False), rounds=5),
    Rounds("apfl alg.1", apfl.APFL(z=5, **APFL), rounds=8),
    Rounds("apfl alg.1", apfl.APFL(z=1, **APFL, weighting="uniform", drop=False), (STEPS,)),
    *(Rounds("apfl §4.1.3", apfl.APFL(**{**APFL, "z": z, "window": 100}), (STEPS,), 6) for z in (0, 1, 3)),
    *(Rounds("apfl alg.1 line 21", apfl.APFL(z=1, init=init, **APFL)) for init in ("paper", "continuous")),
    *(Rounds("apfl eq.5", apfl.APFL(z=2, importance=kind, **APFL)) for kind in ("fisher", "mas", "si")),
    *(Rounds("scaffold alg.1", scaffold.Scaffold(lr=0.3, server_lr=0.9, control=control), BOTH)
      for control in ("difference", "gradient")),
    *(Rounds("apfl-deng alg.1", apfl_deng.APFLDeng(lr=0.3, alpha=0.4, adaptive_alpha=adaptive), BOTH)
      for adaptive in (True, False)),
    Rounds("feddyn alg.1", feddyn.FedDyn(lr=0.3, alpha=0.4), BOTH),
    *(Rounds("fedopt alg.2", kind(lr=0.3)) for kind in (fedopt.FedAdagrad, fedopt.FedYogi, fedopt.FedAdam)),
    Rounds("fedopt fedavgm", fedopt.FedAvgM(lr=0.3, momentum=0.8)),
    Rounds("fednova alg.1", fednova.FedNova(lr=0.3), BOTH),
    Rounds("pfedme alg.1", pfedme.PFedMe(lr=0.1, lam=2.0, alpha=0.2, inner_steps=3, beta=0.8)),
]  # fmt: skip


def enter(row: Rounds) -> None:
    it: Any = row.algorithm
    set_fields = (
        (f.name, getattr(it, f.name)) for f in fields(it) if getattr(it, f.name) != f.default
    )
    settings = ", ".join(f"{name}={value!r}" for name, value in set_fields)
    claim = f"{row.rounds} rounds of {type(it).__name__}({settings}) = the specification"

    @proof(row.tag, claim, SMALL)
    def compare(c: Case) -> Iterator[Report]:
        for sampling in row.samplings:
            yield from compare_rounds(c, row.algorithm, sampling, row.rounds)


for _row in TABLE:
    enter(_row)


@proof("fedprox alg.2", "4 rounds of FedProx with μ = 0 = FedAvg, bit for bit", SMALL)
def no_proximal_term(c: Case) -> Iterator[Report]:
    one, other = fedprox.FedProx(lr=0.3, mu=0.0), fedavg.FedAvg(lr=0.3, drop=False)
    yield from compare_models(c, one, other)


@proof("apfl §4.1.2", "4 rounds of FedCurv with λ = 0 = FedAvg, bit for bit", SMALL)
def no_curvature(c: Case) -> Iterator[Report]:
    yield from compare_models(c, fedcurv.FedCurv(lr=0.3, lam=0.0), fedavg.FedAvg(lr=0.3))
