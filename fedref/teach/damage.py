"""What each known mistake does to a short run on the digits: the same run as it is, and with it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithms import ALGORITHMS, fedprox
from fedref.conformance.edits import apply_edits
from fedref.conformance.mistakes import MISTAKES
from fedref.datasets.sources import load
from fedref.experiments import config, unit
from fedref.experiments.loading import load_experiment
from fedref.experiments.metrics import METRICS
from fedref.rounds.federation import Source
from fedref.teach.pictures.runs import digits

ROUNDS = 15
#: Rows of a mini-batch; a wrong line may know it too.
B = 40
Series = list[float]


class Shown(NamedTuple):
    """What a picture of a mistake shows. values : from the algorithm, as it runs now."""

    values: Callable[[], Series]
    x: str
    y: str


def trained(
    label: str, column: str = "train_loss", hyper: Mapping[str, Any] | None = None, **settings: Any
) -> Shown:
    """A column of metrics.csv, round by round, of a run on the digits."""
    table = {
        "name": "mistake", "data": {"name": "digits"}, "model": {"name": "logistic"}, "batch_size": B,
        "algorithms": {"it": {"algorithm": label, **(hyper or {})}}, "rounds": ROUNDS, **settings,
    }  # fmt: skip

    def values() -> Series:
        found = load_experiment(config.from_table(table))
        it = ALGORITHMS[label](**(hyper or {}))
        with np.errstate(all="ignore"):
            record = list(unit.iterate_rounds(found, it, seed=0))[-1]
        scale = METRICS[column].scale
        return [scale * float(row.get(column, np.nan)) for row in record.rows]

    return Shown(values, "round", METRICS[column].title)


def objective_along(mu: float = 1.0, steps: int = 30) -> Shown:
    """h along one client's local steps."""

    def values() -> Series:
        found = digits()
        D = found.federation.batch(found.federation.train.of(0))
        w0 = w = np.zeros(found.model.d)
        out = []
        for _ in range(steps + 1):
            out.append(float(fedprox.objective(found.model, w, w0, D, mu=mu)))
            w = w - 0.3 * fedprox.prox_gradient(found.model, w, w0, D, mu=mu)
        return out

    return Shown(values, "local step", "logged objective")


def above_four() -> Source:
    """The digits with two labels: whether they are above four."""
    source = load("digits")
    return replace(source, y=(source.y > 4).astype(np.int64))


IID: dict[str, Any] = {"split": {"rule": "iid", "users": 20}}
UNEQUAL: dict[str, Any] = {"split": {"rule": "power-law", "users": 50}, "clients_per_round": 10}
PER_FEDAVG: dict[str, Any] = {"alpha": 0.5, "beta": 0.1}
STRONG: dict[str, Any] = {"alpha": 4.0, "beta": 0.2}
META: dict[str, Any] = {"alpha": 0.5, "beta": 0.5}

RUNS: dict[str, Shown] = {
    "penalty not squared": trained("fedprox", hyper={"mu": 5.0}, epochs=5),
    "the logged objective is the loss alone": objective_along(),
    "first order: the inner step's graph was cut": trained(
        "fedmeta-maml", "test_loss", {"alpha": 2.0, "beta": 0.5}
    ),
    "the α-gradient is the θ-gradient": trained("fedmeta-sgd", "test_loss", META),
    "the server's Adam starts afresh every round": trained(
        "fedmeta-maml", "test_loss", {"alpha": 0.5, "beta": 0.05, "server": "adam"}, rounds=40
    ),
    "FedMeta weighted by sample counts": trained("fedmeta-maml", "test_loss_mean", META, **UNEQUAL),
    "weights count batches": trained("fedavg", **UNEQUAL),
    "FedProx averaged uniformly": trained("fedprox", hyper={"mu": 0.1}, **UNEQUAL),
    "a stale gradient is applied again": trained(
        "per-fedavg", "test_loss", {"alpha": 4.0, "beta": 0.5}, rounds=20
    ),
    "gradients add up from step to step": trained("fedavg", hyper={"lr": 0.2}, steps=20),
    "clients with n ≤ B do not move but vote": trained("fedavg", epochs=2, **UNEQUAL),
    "the last, short batch is dropped": trained("fedavg", epochs=2, **UNEQUAL),
    "α is β": trained("per-fedavg", "test_loss", {"alpha": 2.0, "beta": 0.5}),
    "adapted to the test batch": trained(
        "per-fedavg", "accuracy", {"alpha": 2.0, "beta": 0.1}, eval_train=False
    ),
    "evaluation trains": trained("per-fedavg", "accuracy", PER_FEDAVG, eval_train=False),
    "mean of a squared gradient where squares are averaged": trained("fedcurv", "test_loss"),
    "the Fisher of the last batch": trained("fedcurv", "test_loss"),
    "own term subtracted from a sum it is no part of": trained("fedcurv", "test_loss"),
    "D, D′ and D″ are the same rows": trained("per-fedavg", "test_loss", PER_FEDAVG, batch_size=4),
    "straggler steps by another client's size": trained(
        "fedprox", hyper={"mu": 0.1}, epochs=5, stragglers=0.5, **UNEQUAL
    ),
    "the L2 term is not applied": trained(
        "fedavg", hyper={"lr": 0.2}, model={"name": "logistic", "l2": 0.1}
    ),
    "the SVM's loss is summed": trained(
        "fedavg", hyper={"lr": 0.2}, data={"name": above_four}, model={"name": "svm"}, **IID
    ),
    "HF: the sign of d is flipped": trained("per-fedavg-hf", "test_loss", STRONG),
    "HF: divided by δ": trained("per-fedavg-hf", "test_loss", STRONG),
    "HF: δ = 10⁻⁶ in single precision": trained("per-fedavg-hf", "test_loss", STRONG),
    "adaptive μ: the count is not reset": trained(
        "fedprox", "mu", {"mu": 1.0, "adaptive_mu": True}, rounds=30
    ),
    "the Hessian is taken on D, not on D″": trained(
        "per-fedavg", "test_loss", PER_FEDAVG, batch_size=4
    ),
    "FedMAML averages": trained("fedmaml", "test_loss", {"alpha": 0.5, "beta": 0.1}),
}


class Pair(NamedTuple):
    right: Series
    wrong: Series


@cache
def series(name: str) -> Pair:
    """Return the same run as it is and with the mistake."""
    right = RUNS[name].values()
    with apply_edits(*MISTAKES[name].edits, rows=B):
        return Pair(right, RUNS[name].values())
