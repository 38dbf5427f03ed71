"""What some of the known mistakes do to a short run on the digits: as it is, and with the wrong line."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from fedref.algorithms import ALGORITHMS
from fedref.conformance.edits import apply_edits
from fedref.conformance.mistakes import MISTAKES
from fedref.experiments.metrics import METRICS
from fedref.teach.pictures.runs import run_records
from fedref.teach.svg import Picture, line_style, panel

#: Rows of a mini-batch; a wrong line may know it too.
B = 40
Series = list[float]


class Run(NamedTuple):
    """A run that shows a mistake: the algorithm, a column of metrics.csv, and what is set."""

    algorithm: str
    column: str
    hyper: Mapping[str, Any]
    settings: Mapping[str, Any]


class Curves(NamedTuple):
    """The column, round by round, without the mistake and with it."""

    right: Series
    wrong: Series


UNEQUAL: dict[str, Any] = {"split": {"rule": "power-law", "users": 50}, "clients_per_round": 10}
ADAM = {"alpha": 0.5, "beta": 0.05, "server": "adam"}

RUNS: dict[str, Run] = {
    "penalty not squared": Run("fedprox", "train_loss", {"mu": 5.0}, {"steps": 20}),
    "first order: the inner step's graph was cut": Run(
        "fedmeta-maml", "test_loss", {"alpha": 2.0, "beta": 0.5}, {}
    ),
    "the server's Adam starts afresh every round": Run(
        "fedmeta-maml", "test_loss", ADAM, {"rounds": 40}
    ),
    "weights count batches": Run("fedavg", "train_loss", {}, UNEQUAL),
    "gradients add up from step to step": Run("fedavg", "train_loss", {"lr": 0.2}, {"steps": 20}),
    "adapted to the test batch": Run(
        "per-fedavg", "accuracy", {"alpha": 2.0, "beta": 0.1}, {"eval_train": False}
    ),
    "own term subtracted from a sum it is no part of": Run("fedcurv", "test_loss", {}, {}),
    "D, D′ and D″ are the same rows": Run(
        "per-fedavg", "test_loss", {"alpha": 0.5, "beta": 0.1}, {"batch_size": 4}
    ),
    "HF: divided by δ": Run("per-fedavg-hf", "test_loss", {"alpha": 4.0, "beta": 0.2}, {}),
    "FedMAML averages": Run("fedmaml", "test_loss", {"alpha": 0.5, "beta": 0.1}, {}),
}


def run_column(run: Run) -> Series:
    """Return the run's column, as the algorithm runs now."""
    settings = {"rounds": 15, "batch_size": B, **run.settings}
    with np.errstate(all="ignore"):
        record = run_records(ALGORITHMS[run.algorithm](**run.hyper), **settings)[-1]
    scale = METRICS[run.column].scale
    return [scale * float(row.get(run.column, np.nan)) for row in record.rows]


@cache
def run_both(name: str) -> Curves:
    """Return the same run as it is and with the mistake."""
    right = run_column(RUNS[name])
    with apply_edits(*MISTAKES[name].edits, rows=B):
        return Curves(right, run_column(RUNS[name]))


def harmless_mistakes() -> list[str]:
    """Return the mistakes whose final loss is not worse than the correct run's."""
    return [
        name
        for name, run in RUNS.items()
        if "loss" in run.column
        and len(run_both(name).wrong) == len(run_both(name).right)
        and run_both(name).wrong[-1] <= run_both(name).right[-1]
    ]


def picture_of(name: str) -> Picture:
    """Draw the run as it is, and with the mistake."""
    curves, title = run_both(name), METRICS[RUNS[name].column].title
    figure, axes = panel(3.9, 2.2, xlabel="round", ylabel=title if len(title) < 26 else "")
    if len(title) >= 26:
        axes.set_title(title, loc="left")
    for k, (label, values) in enumerate(curves._asdict().items()):
        axes.plot(values, label=label, markevery=3, **line_style(k))
    low, high = np.nanmin(curves.right), np.nanmax(curves.right)
    if max(np.nanmax(curves.wrong), high) > 8 * abs(high):  # the right run must still be seen
        axes.set_ylim(low - 0.1 * (high - low), high + 2 * (high - low))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="best")
    rounds, what = len(curves.right) - 1, title.partition(",")[0]
    said = f"After {rounds} rounds the {what} is {curves.right[-1]:.3g}, with the mistake "
    diverged = len(curves.wrong) <= rounds
    said += f"it diverges in round {len(curves.wrong)}." if diverged else f"{curves.wrong[-1]:.3g}."
    return Picture(figure, said, said)
