"""Runs with known numbers to be measured and drawn, and what is read back from their pictures."""

import itertools

import numpy as np

from fedref.algorithm import State
from fedref.lab.experiments import config
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.unit import Record, Unit
from fedref.lab.plots.figures import clients
from fedref.rounds.evaluation import Scores

Pair = tuple[Unit, Record]
ACCURACY = {0: [0.1, 0.5, 0.4, 0.8], 1: [0.3, 0.5, 0.6, 1.0]}  # by seed, over rounds 0 to 3
LOSSES = {"train_loss": [4.0, 2.0, 1.0, 0.5], "test_loss": [5.0, 3.0, 2.0, 1.0]}
BYTES = {"bytes_down": [0, 3e6, 6e6, 9e6], "bytes_up": [0, 1e6, 2e6, 3e6]}


def pair(label, columns, seed=0, **more):
    """A unit with these columns of metrics.csv, a value a round from 0 on; None: not evaluated."""
    rounds = range(len(next(iter(columns.values()))))
    known = [{c: y[t] for c, y in columns.items() if y[t] is not None} for t in rounds]
    rows = [{"round": t, **row} for t, row in zip(rounds, known)]
    n = np.array([0, 10, 10, 20])
    scores = Scores(n, np.full(4, np.nan), np.full(4, np.nan), n + 1, np.full(4, np.nan))
    scores = scores._replace(**more.get("scores", {}))
    status = "diverged" if more.get("diverged") else "done"
    record = Record(status, len(rows) - 1, State(None, {}), rows, [len(rows) - 1], [scores])
    set_to = {"algorithms": {label: "fedavg"}, "seeds": [seed], "rounds": 4, "clients_per_round": 1}
    return Unit(0, config.experiment_of(set_to.items()), more.get("point", {}), ""), record


def run_of(*pairs, **values):
    units = [unit._replace(number=i) for i, (unit, _) in enumerate(pairs)]
    labels = {unit.label: "fedavg" for unit in units}
    seeds = sorted({unit.seed for unit in units})
    made = config.experiment_of([("algorithms", labels), ("seeds", seeds), *values.items()])
    return Run(made, units, [record for _, record in pairs])


def made(algorithms=("fedavg", "apfl"), seeds=(0, 1), points=({},), ended="", **columns):
    """A run with known numbers; `columns` replace or add values over rounds 0, 1, 2, 3.

    ended : the label of an algorithm that diverges in round 1.
    """
    pairs = []
    for label, point, seed in itertools.product(algorithms, points, seeds):
        same = {"accuracy": ACCURACY[seed], "accuracy_mean": ACCURACY[seed], **LOSSES, **BYTES}
        own = {c: y[: 2 if label == ended else 4] for c, y in (same | columns).items()}
        half = np.array([0.0, 0.5, 1.0, 0.9 + 0.1 * seed])
        scores = dict.fromkeys(("accuracy", "test_loss", "train_loss"), half)
        more = {"point": point, "scores": scores, "diverged": label == ended}
        pairs.append(pair(label, own, seed, **more))
    return run_of(*pairs)


def draw(picture, run, *args, **options):
    """Return the figure of a run's table as it is laid out."""
    figure = picture(run.table("clients" if picture is clients else "metrics"), *args, **options)
    figure.draw_without_rendering()
    return figure


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes):
    """The curves: lines of more than one point that are not level lines."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2]


def stars(axes):
    return [
        (float(s.get_xdata()[0]), float(s.get_ydata()[0]), s.get_markerfacecolor() != "white")
        for s in axes.lines
        if s.get_marker() == "*"
    ]
