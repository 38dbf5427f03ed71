"""Parts of runs, for reports: under other names, at a point of a sweep, before adaptation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedref.algorithm import Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.boundary.errors import ConfigError
from fedref.experiments import names
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment, Record, Unit
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Scores, evaluate, sample_mean


def renamed(run: Run, names: Mapping[str, str]) -> Run:
    """The same with other labels, for pictures; what `names` leaves out is left out."""
    kept = [(u, r) for u, r in zip(run.units, run.records) if u.label in names]
    units = [unit._replace(label=names[unit.label]) for unit, _ in kept]
    return Run(run.experiment, units, [record for _, record in kept])


def unadapted(
    run: Run,
    label: str,
    data: LoadedExperiment,
    mean: Callable[[Array, Array], float] = sample_mean,
) -> list[float]:
    """Final accuracy of the parameters that the server sends, as they are: a seed each, in %.

    mean : over clients, of (accuracy, samples): `sample_mean` or `client_mean`.
    """
    return [100 * mean(s.accuracy, s.n_test) for s in unadapted_scores(run, label, data)]


def unadapted_scores(run: Run, label: str, data: LoadedExperiment) -> list[Scores]:
    """Final test scores of the parameters that the server sends, as they are: a seed each."""
    algorithm, untouched = names.make_algorithm(label, run.experiment.algorithms[label]), FedAvg()
    made = []
    for unit, record in zip(run.units, run.records):
        if unit.label == label:
            sent = algorithm.download(record.state.server)
            state = State(Server(algorithm.personal(data.model, sent, None, None)), {})
            scores = evaluate(
                untouched, data.model, state, data.federation, run.experiment.plan,
                round=record.round, seed=unit.seed, train=False,
            )  # fmt: skip
            made.append(scores)
    return made


def second_half(y: Array) -> Array:
    """The later half of the evaluations: (seeds, T) → (seeds, R)."""
    return y[:, y.shape[1] // 2 :]


def late_changes(y: Array) -> Array:
    """The changes from one evaluation to the next in the second half: (seeds, T) → (seeds, R)."""
    return np.diff(second_half(y), axis=1)


def totals(run: Run, label: str, *columns: str) -> Array:
    """Columns of metrics.csv after the last round, added up: (seeds,)."""
    rows = [record.rows[-1] for record in run.records_of(label)]
    return np.array([sum(row[column] for column in columns) for row in rows], float)


def how_often(runs: Iterable[Run]) -> str:
    """How often these are evaluated, in words."""
    every = sorted({run.experiment.eval_every for run in runs})
    return "every round" if every == [1] else f"every {' or '.join(map(str, every))} rounds"


def at(run: Run, **point: Any) -> Run:
    """The part of a run at these values of its sweep (dashes as underscores), as a run of its own."""
    wanted = {key.replace("_", "-"): value for key, value in point.items()}
    units, found = [], []
    for unit, record in zip(run.units, run.records):
        own = {key.replace("_", "-"): value for key, value in unit.point.items()}
        if all(own.get(key) == value for key, value in wanted.items()):
            rest = {key: value for key, value in own.items() if key not in wanted}
            units.append(unit._replace(point=rest))
            found.append(record)
    if not units:
        raise ConfigError(f"this run has nothing at {point}")
    return Run(run.experiment, units, found)


def best_point(run: Run, label: str, metric: str) -> Mapping[str, Any]:
    """The point of its sweep with the largest final value, mean over seeds; what diverged is last."""
    found: dict[str, list[float]] = {}
    points = {}
    for unit, record in zip(run.units, run.records):
        if unit.label == label:
            value = record.rows[-1][metric] if record.status == "done" else -np.inf
            found.setdefault(repr(unit.point), []).append(float(value))
            points[repr(unit.point)] = unit.point
    return points[max(found, key=lambda key: float(np.mean(found[key])))]


def at_best(run: Run, labels: Sequence[str], metric: str) -> Run:
    """Each of these algorithms at its `best_point`, as a run without a sweep."""
    units: list[Unit] = []
    records: list[Record] = []
    for label in labels:
        point = best_point(run, label, metric)
        for unit, record in zip(run.units, run.records):
            if unit.label == label and unit.point == point:
                units.append(unit._replace(point={}))
                records.append(record)
    return Run(run.experiment, units, records)
