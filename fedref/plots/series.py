"""The metrics that can be drawn, and the series of one or several runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.experiments import metrics
from fedref.experiments.metrics import PERCENT as PERCENT
from fedref.experiments.metrics import Metric as Metric
from fedref.experiments.results import Run
from fedref.experiments.unit import Record, Unit
from fedref.models.numerics import Array
from fedref.plots.style import COLOURS, LINES, MARKERS, wrap_label

Runs = Run | Mapping[str, Run]


#: Larger values are drawn as this one, whose square is finite and which an axis can show.
LARGEST = 1e30
#: Columns with a unit, and names for sums of columns. Any other column is drawn as its name says.
METRICS: Mapping[str, Metric] = {**metrics.METRICS, **metrics.ALIASES}


class Look(NamedTuple):
    colour: str
    line: Any
    marker: str


class Series(NamedTuple):
    """One line or bar: all seeds of one algorithm at one point of a sweep, as a run of its own."""

    label: str
    algorithm: str
    variant: str  # the point of the sweep, and the run's name if several have the algorithm
    run: Run
    look: Look

    @property
    def seeds(self) -> int:
        return len(self.run.records)

    @property
    def name(self) -> str:
        """The label, with a note if a run has diverged, broken into lines."""
        label = f"{self.label} (diverged)" if self.run.diverged_units else self.label
        return wrap_label(label)


class Curve(NamedTuple):
    """A curve over R rounds t: positions x on the axis, mean and standard deviation over seeds."""

    t: Array
    x: Array
    mean: Array
    sd: Array


def all_series(runs: Runs, reference: Iterable[str] = ()) -> list[Series]:
    """Return the series of all runs; those of the same algorithm follow each other.

    reference : labels that must occur.
    """
    experiments = {"": runs} if isinstance(runs, Run) else runs
    groups: dict[tuple[str, str, str], list[tuple[Unit, Record]]] = {}
    for name, run in experiments.items():
        for unit, record in zip(run.units, run.records):
            groups.setdefault((unit.label, unit.variant, name), []).append((unit, record))
    algorithms = list(dict.fromkeys(algorithm for algorithm, _, _ in groups))
    keys = sorted(groups, key=lambda key: algorithms.index(key[0]))
    times = Counter((algorithm, point) for algorithm, point, _ in keys)
    variants = [
        ", ".join(filter(None, (point, name if times[algorithm, point] > 1 else "")))
        for algorithm, point, name in keys
    ]
    result = []
    for key, variant, look in zip(keys, variants, looks([key[0] for key in keys], variants)):
        label = f"{key[0]} ({variant})" if variant else key[0]
        units, records = map(list, zip(*groups[key]))
        series_run = Run(experiments[key[2]].experiment, units, records)
        result.append(Series(label, key[0], variant, series_run, look))
    for label in reference:
        if label not in (labels := [series.label for series in result]):
            raise ConfigError(unknown("label of a reference value", label, labels))
    return result


def looks(algorithms: Sequence[str], variants: Sequence[str]) -> list[Look]:
    """Return a look for each series; any two differ, even without colour.

    If all algorithms have the same variants, the marker shows the algorithm, the line the variant, and
    the colour the one with more values.
    """
    each, ways = list(dict.fromkeys(algorithms)), list(dict.fromkeys(variants))
    grid = len(algorithms) == len(each) * len(ways)
    grid = grid and 1 < len(each) <= len(MARKERS) and 1 < len(ways) <= len(LINES)
    numbers = [(i, i) for i in range(len(algorithms))]
    if grid:
        numbers = [(each.index(a), ways.index(v)) for a, v in zip(algorithms, variants)]
    return [
        Look(
            COLOURS[(v if grid and len(ways) > len(each) else a) % len(COLOURS)],
            LINES[v % len(LINES)],
            MARKERS[a % len(MARKERS)],
        )
        for a, v in numbers
    ]


def metric_of(name: str, drawn: Sequence[Series]) -> Metric:
    """Return the metric of a name; a ConfigError suggests the nearest one that these runs have."""
    rows = (row for series in drawn for record in series.run.records for row in record.rows)
    columns = {column for row in rows for column, value in row.items() if value == value}
    columns.discard("round")
    key = name.replace("-", "_")
    metric = METRICS.get(key, Metric(key.replace("_", " "), "", columns=(key,)))
    if columns.issuperset(metric.columns):
        return metric
    known = columns | {alias for alias, m in METRICS.items() if columns.issuperset(m.columns)}
    if key in METRICS:
        raise ConfigError(
            f"there are no values of {name} here: known are {', '.join(sorted(known))}"
        )
    raise ConfigError(unknown("metric", name, known | METRICS.keys()))


def values(series: Series, metric: Metric) -> tuple[Array, Array]:
    """Return (rounds (R,), values (seeds, R)) for the rounds in which every seed has a finite value."""
    rows = [row for record in series.run.records for row in record.rows]
    if not all(any(column in row for row in rows) for column in metric.columns):
        return np.zeros(0), np.zeros((series.seeds, 0))
    parts = [series.run.curve(series.algorithm, column) for column in metric.columns]
    t, total = parts[0][0], metric.scale * np.sum([part[1] for part in parts], 0)
    whole = np.isfinite(total).all(0)
    return t[whole], np.clip(total[:, whole], -LARGEST, LARGEST)


def curve(series: Series, metric: Metric, against: Metric | None) -> Curve:
    """Return the metric over rounds, or over another metric's mean in the same rounds."""
    t, y = values(series, metric)
    x = t
    if against is not None:
        other, xs = values(series, against)
        t, in_y, in_x = np.intersect1d(t, other, return_indices=True)
        x, y = xs[:, in_x].mean(0), y[:, in_y]
    return Curve(t, x, y.mean(0), y.std(0))


def renewals(series: Series) -> list[tuple[int, float]]:
    """Return (round after which F is renewed, share of the seeds that renew it) [apfl §4.1.3]."""
    rounds = Counter(
        row["round"]
        for record in series.run.records
        for row in record.rows
        if row.get("renewed") == 1
    )
    return [(t, times / series.seeds) for t, times in sorted(rounds.items())]


def spread_label(drawn: Iterable[Series]) -> str:
    """Return the legend's text for a band or an error bar; "" if there is one seed."""
    counts = {series.seeds for series in drawn}
    number = f"{counts.pop()} " if len(counts) == 1 else ""
    return "" if number == "1 " else f"±1 sd over {number}seeds"
