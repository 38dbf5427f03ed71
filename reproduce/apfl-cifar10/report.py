"""APFL's Figures 1 (d) and 2 (d): CIFAR-10 with the CNN, apart from the others as it takes hours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedref import plots
from fedref.experiments.results import Run
from fedref.reproduction import Number, find, markdown, renamed, spread, write_numbers

TITLE = "APFL: CIFAR-10"
PAPER = (
    "APFL, §4.2, Figures 1 (d), 2 (d) and 3 (a): CIFAR-10 in grey, 100 clients with 5 classes each, "
    "CNN, 10 clients a round, E = 5, B = 10, η = 0.01, 100 rounds. Here: float32, one seed, evaluated "
    "every 5 rounds, so that *average* is over the evaluated rounds."
)
QUICK = {  # a few rows and a small network: all of CIFAR-10 is a minute's evaluation
    "rounds": 2,
    "eval-every": 1,
    "clients-per-round": 2,
    "model.channels": [2, 3],
    "model.hidden": 8,
    "split.rule": "per-fedavg",
    "split.users": 10,
    "split.a": 10,
    "split.a-test": 4,
}

FIGURE_1, FIGURE_2, FIGURE_3 = (find(f"apfl-figure-{i}").module for i in (1, 2, 3))
METHODS = FIGURE_1.METHODS
ROUNDS = 100


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    every = {stem: ended(run) for stem, run in runs.items()}
    run = every["cifar10"]
    plots.curves(renamed(run, METHODS), out / "curves.png", title=FIGURE_1.NAMES["cifar10"])
    rounds, found = run.experiment.rounds, {"cifar10": run}
    without = [METHODS[m] for m in METHODS if m not in FIGURE_1.ran(run)]
    return "\n\n".join(
        [
            *([f"{rounds} of the paper's {ROUNDS} rounds were run."] if rounds != ROUNDS else []),
            *([f"Not run to the end: {', '.join(without)}."] if without else []),
            FIGURE_1.report(found, out, data_dir),
            "![CIFAR-10, grey: training loss and test accuracy per round](curves.png)",
            "Nothing was measured between two evaluations: the lines only join them, and a star there (the "
            "importance is renewed in that round) stands on such a line.",
            *FIGURE_2.tables(found),
            epochs(every, out),
        ]
    )


def epochs(runs: Mapping[str, Run], out: Path) -> str:
    """Figure 3 (a), for those E that were run."""
    by_E = sorted(runs.values(), key=lambda run: run.experiment.epochs or 0)
    each = {f"E = {run.experiment.epochs}": FIGURE_1.Place("cifar10", run) for run in by_E}
    numbers = [
        Number((E, METHODS[m]), FIGURE_1.averages(place.run, m))
        for E, place in each.items()
        for m in FIGURE_1.ran(place.run, FIGURE_3.METHODS)
    ]
    write_numbers(out / "epochs.csv", ("setting", "method"), numbers)
    rows = [["setting", "method", "average"], *([*n.what, spread(n.ours)] for n in numbers)]
    needs = (*FIGURE_1.BOTH, "fedprox")
    verdicts = [
        FIGURE_1.verdict(
            FIGURE_1.Said(f"APFL has the highest accuracy at {E}", needs, highest), place
        )
        for E, place in each.items()
    ]
    return "\n\n".join(
        [
            "Figure 3 (a) has E of 1, 5, 10 and 20 on CIFAR-10 for APFL, FedAvg and FedProx. Here: "
            f"{' and '.join(each)}; more would be hours. Average test accuracy in %:",
            markdown(rows, left=2),
            "\n".join(verdicts),
        ]
    )


def highest(place: Any) -> dict[str, Any]:
    average = {m: FIGURE_1.averages(place.run, m) for m in FIGURE_1.ran(place.run)}
    better = np.maximum(average["fedavg"], average["fedprox"])
    unit = "points above the better of FedAvg and FedProx"
    return place.own(lambda m: average[m] - better) | {"above": 0, "unit": unit}


def ended(run: Run) -> Run:
    """Without the methods that are still under way."""
    kept = [(unit, r) for unit, r in zip(run.units, run.records) if r.status != "running"]
    return Run(run.experiment, [unit for unit, _ in kept], [record for _, record in kept])
