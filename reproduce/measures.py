"""Measures that reports read off runs: the quantities of claims, and parts of runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedref.algorithm import Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.boundary.errors import ConfigError
from fedref.experiments import names
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment, Record, Unit
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Scores, evaluate, evaluate_unseen, sample_mean

# ---- quantities: (seeds,) of one method ----------------------------------------------------------


def final(run: Run, label: str, metric: str = "accuracy") -> Array:
    """Return the last value, in % for accuracies."""
    return (100 if "accuracy" in metric else 1) * run.curve(label, metric)[1][:, -1]


def average(run: Run, label: str) -> Array:
    """Return the test accuracy in %, mean over all evaluated rounds."""
    return 100 * run.curve(label)[1].mean(1)


def maximum(run: Run, label: str) -> Array:
    """Return the largest test accuracy in %."""
    return 100 * run.curve(label)[1].max(1)


def change(run: Run, label: str) -> Array:
    """Return the mean change of accuracy between evaluations in the second half, in points."""
    return np.abs(late_changes(100 * run.curve(label)[1])).mean(1)


def total(run: Run, label: str, *columns: str) -> Array:
    """Return columns of metrics.csv after the last round, added up."""
    rows = [record.rows[-1] for record in run.records_of(label)]
    return np.array([sum(row[column] for column in columns) for row in rows], float)


def bytes_sent(run: Run, label: str) -> Array:
    """Return what travels in the whole training, down and up."""
    return total(run, label, "bytes_down", "bytes_up")


#: The quantities of claims that are measured alike wherever there is a run: (place, method) → (seeds,).
QUANTITIES: Mapping[str, Callable[[Any, str], Array]] = {
    "final": lambda place, label: final(place.run, label),
    "average": lambda place, label: average(place.run, label),
    "maximum": lambda place, label: maximum(place.run, label),
    "training loss": lambda place, label: final(place.run, label, "train_loss"),
    "change": lambda place, label: change(place.run, label),
    "bytes": lambda place, label: bytes_sent(place.run, label),
    "operations": lambda place, label: total(place.run, label, "flops"),
}


# ---- the same without adaptation -----------------------------------------------------------------


def unadapted_accuracy(
    run: Run,
    label: str,
    data: LoadedExperiment,
    mean: Callable[[Array, Array], float] = sample_mean,
    unseen: bool = False,
) -> Array:
    """Return the final accuracy of the parameters that the server sends, as they are, in %.

    mean : over clients, of (accuracy, samples): `sample_mean` or `client_mean`. unseen : of those
    that never trained.
    """
    scores = unadapted_scores(run, label, data, unseen)
    return np.array([100 * mean(s.accuracy, s.n_test) for s in scores])


def unadapted_scores(
    run: Run, label: str, data: LoadedExperiment, unseen: bool = False
) -> list[Scores]:
    """Return the final test scores of the parameters that the server sends, as they are: a seed each."""
    made, untouched, scores = run.experiment, FedAvg(), []
    algorithm = names.make_algorithm(label, made.algorithms[label])
    for unit, record in run.units_of(label):
        sent = algorithm.download(record.state.server)
        state = State(Server(algorithm.personalised_params(data.model, sent, None, None)), {})
        if unseen:
            assert data.unseen is not None
            found = evaluate_unseen(
                untouched, data.model, state, *data.unseen,
                support=made.unseen, seed=unit.seed, dtype=np.dtype(made.dtype),
            )  # fmt: skip
        else:
            found = evaluate(
                untouched, data.model, state, data.federation, made.plan,
                round=record.round, seed=unit.seed, train=False,
            )  # fmt: skip
        scores.append(found)
    return scores


# ---- parts of curves -----------------------------------------------------------------------------


def second_half(y: Array) -> Array:
    """Return the later half of the evaluations: (seeds, T) → (seeds, R)."""
    return y[:, y.shape[1] // 2 :]


def late_changes(y: Array) -> Array:
    """Return the changes between evaluations in the second half: (seeds, T) → (seeds, R)."""
    return np.diff(second_half(y), axis=1)


def count_tested(run: Run) -> dict[str, Any]:
    """Return how many rows and clients are tested on, as a `Place` has them."""
    n = run.records[0].scores[-1].n_test
    return {"rows": int(n.sum()), "clients": int((n > 0).sum())}


def how_often(runs: Iterable[Run]) -> str:
    """Return how often these are evaluated, in words."""
    every = sorted({run.experiment.eval_every for run in runs})
    return "every round" if every == [1] else f"every {' or '.join(map(str, every))} rounds"


def seldom(run: Run) -> str:
    """Return why nothing can be judged that needs every round; "" if each was evaluated."""
    return f"evaluated {how_often([run])} only" if run.experiment.eval_every > 1 else ""


# ---- parts of runs -------------------------------------------------------------------------------


def part_of(run: Run, kept: Callable[[Unit], Unit | None]) -> Run:
    """Return the run of those units for which `kept` returns one, changed as it says."""
    found = [(kept(unit), record) for unit, record in zip(run.units, run.records)]
    both = [(unit, record) for unit, record in found if unit is not None]
    return Run(run.experiment, [unit for unit, _ in both], [record for _, record in both])


def rename_methods(run: Run, names: Mapping[str, str]) -> Run:
    """Return the same with other labels, for pictures; what `names` leaves out is left out."""
    return part_of(run, lambda u: u._replace(label=names[u.label]) if u.label in names else None)


def at_point(run: Run, **point: Any) -> Run:
    """Return the part of a run at these values of its sweep (dashes as underscores)."""
    wanted = {key.replace("_", "-"): value for key, value in point.items()}

    def keep_unit(unit: Unit) -> Unit | None:
        own = {key.replace("_", "-"): value for key, value in unit.point.items()}
        if any(own.get(key) != value for key, value in wanted.items()):
            return None
        return unit._replace(point={k: v for k, v in own.items() if k not in wanted})

    found = part_of(run, keep_unit)
    if not found.units:
        raise ConfigError(f"this run has nothing at {point}")
    return found


def merge_runs(runs: Sequence[Run]) -> Run:
    """Return runs that differ in their algorithms, and in what they sweep, as one run."""
    made = [run.experiment for run in runs]
    algorithms = {label: table for one in made for label, table in one.algorithms.items()}
    sweep = {key: values for one in made for key, values in one.sweep.items()}
    units = [unit for run in runs for unit in run.units]
    records = [record for run in runs for record in run.records]
    return Run(replace(made[0], algorithms=algorithms, sweep=sweep), units, records)


# ---- the choice of rates -------------------------------------------------------------------------

#: The rates that are chosen from a grid, and how the papers write them.
SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}


def best_point(run: Run, label: str, metric: str) -> Mapping[str, Any]:
    """Return the point of the sweep with the largest final value, mean over seeds.

    What diverged comes last.
    """
    found: dict[str, list[float]] = {}
    points = {}
    for unit, record in run.units_of(label):
        value = record.rows[-1][metric] if record.status == "done" else -np.inf
        found.setdefault(repr(unit.point), []).append(float(value))
        points[repr(unit.point)] = unit.point
    return points[max(found, key=lambda key: float(np.mean(found[key])))]


def at_best(run: Run, labels: Sequence[str], metric: str) -> Run:
    """Return each of these algorithms at its `best_point`, as a run without a sweep."""
    best = {label: best_point(run, label, metric) for label in labels}
    found: list[tuple[Unit, Record]] = [
        (unit._replace(point={}), record)
        for label, point in best.items()
        for unit, record in run.units_of(label)
        if unit.point == point
    ]
    return Run(run.experiment, [unit for unit, _ in found], [record for _, record in found])


def describe_choice(run: Run, label: str, metric: str) -> str:
    """Return the rates at an algorithm's `best_point`, each marked where it ends its grid."""
    grid, point = run.experiment.sweep, best_point(run, label, metric)
    return ", ".join(f"{SYMBOLS[k]} = {x:g}{edge(x, grid[k])}" for k, x in point.items())


def edge(value: float, grid: Sequence[float]) -> str:
    """Say whether a value is at an end of the grid that it was chosen from."""
    if len(grid) == 1:
        return " (only)"
    return " (edge)" if value in (min(grid), max(grid)) else ""
