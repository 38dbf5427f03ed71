"""Runs with known numbers to be drawn, and what is read back from their pictures."""

import numpy as np

from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.unit import Record, Unit
from fedref.rounds.evaluation import Scores

ACCURACY = {0: [0.1, 0.5, 0.4, 0.8], 1: [0.3, 0.5, 0.6, 1.0]}  # by seed, over rounds 0 to 3


def made(algorithms=("fedavg", "apfl"), seeds=(0, 1), points=({},), **columns) -> Run:
    """A run with known numbers; `columns` replace or add values over rounds 0, 1, 2, 3."""
    units, records = [], []
    for label in algorithms:
        for point in points:
            for seed in seeds:
                own = {
                    "accuracy": ACCURACY[seed],
                    "accuracy_mean": ACCURACY[seed],
                    "train_loss": [4.0, 2.0, 1.0, 0.5],
                    "test_loss": [5.0, 3.0, 2.0, 1.0],
                    "bytes_down": [0, 3e6, 6e6, 9e6],
                    "bytes_up": [0, 1e6, 2e6, 3e6],
                    **columns,
                }
                rows = [
                    {"round": t, **{name: values[t] for name, values in own.items()}}
                    for t in range(4)
                ]
                half = np.array([0.0, 0.5, 1.0, 0.9 + 0.1 * seed])
                scores = Scores(*[np.ones(4), half, half, np.ones(4), half])
                one = Experiment(
                    epochs=1, seeds=(seed,), algorithms={label: ALGORITHMS.get(label, FedAvg)()}
                )
                units.append(Unit(len(units), one, point, ""))
                records.append(Record("done", 3, State(None, {}), rows, [3], [scores]))
    return Run(Experiment(epochs=1, seeds=seeds), units, records)


def diverged(run: Run, label: str) -> Run:
    """The run in which one algorithm ends after round 1."""
    short = [
        record._replace(status="diverged", round=1, rows=record.rows[:2])
        if unit.label == label
        else record
        for unit, record in zip(run.units, run.records)
    ]
    return run._replace(records=short)


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes) -> list:
    """The curves: lines of more than one point that are not level lines."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2]


def stars(axes) -> list[tuple[float, float, bool]]:
    return [
        (float(s.get_xdata()[0]), float(s.get_ydata()[0]), s.get_markerfacecolor() != "white")
        for s in axes.lines
        if s.get_marker() == "*"
    ]
