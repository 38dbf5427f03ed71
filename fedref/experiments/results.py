"""The results of a run: as arrays, and as the tables metrics.csv and clients.csv."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.metrics import CLIENTS, COLUMNS
from fedref.experiments.progress import measured
from fedref.experiments.unit import Record, Row, Unit, plan_for
from fedref.models.numerics import Array
from fedref.sampling import Plan

#: As many units does the repr of a run name.
SHOWN = 8


class Cost(NamedTuple):
    """The totals of a run at one round."""

    round: int
    bytes: int  # down and up
    flops: int


class Run(NamedTuple):
    """The results of a run as arrays.

    metrics : column → (rows,); clients : column → (rows,); records : unit → Record; directory :
    where they are written, if they are.
    """

    experiment: Experiment
    units: list[Unit]
    records: list[Record]
    directory: Path | None = None

    def __repr__(self) -> str:
        """A line: what was run, how far it is, and the newest accuracies."""
        made, several = self.experiment, len({(u.seed, *u.point.items()) for u in self.units}) > 1
        ends = [
            f"{unit.name if several else unit.label} {measured(record).rpartition(', ')[2]}"
            for unit, record in list(zip(self.units, self.records))[:SHOWN]
        ]
        more = f" and {len(self.units) - SHOWN} more" if len(self.units) > SHOWN else ""
        done = sum(record.round for record in self.records)
        rounds = "1 round" if done == 1 else f"{done} rounds"
        return f"<Run {made.name}, {rounds}: {', '.join(ends)}{more}>"

    @property
    def metrics(self) -> dict[str, Array]:
        """metrics.csv as columns; NaN where a cell is empty."""
        columns, rows = metrics_table(self)
        return {name: filled([row.get(name) for row in rows]) for name in columns}

    @property
    def clients(self) -> dict[str, Array]:
        """clients.csv as columns."""
        columns = clients_columns(self)
        parts = list(client_blocks(self))
        return {
            name: np.concatenate([filled(part[name]) for part in parts] or [np.zeros(0)])
            for name in columns
        }

    def to_pandas(self, table: str = "metrics") -> Any:
        """metrics.csv, or clients.csv (table="clients"), as a pandas DataFrame."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ConfigError(
                "to_pandas needs pandas, expected `pip install pandas`; without it `metrics` and "
                "`clients` hold the same columns as arrays"
            ) from None
        if table not in ("metrics", "clients"):
            raise ConfigError(unknown("table", table, ("metrics", "clients")))
        return DataFrame(self.metrics if table == "metrics" else self.clients)

    def plan(
        self, round: int, label: str | None = None, seed: int | None = None, **point: Any
    ) -> Plan:
        """Who took part in a round, on which of their training rows: round t leads from the state
        after t rounds to that after t + 1. label, seed : the first ones, unless given."""
        unit, record = self.unit_of(label, seed, **point)
        made = config.at_point(self.experiment, unit.point)
        if not 0 <= round < made.rounds:
            raise ConfigError(f"round is {round}, expected 0 to {made.rounds - 1}")
        algorithm = names.make_algorithm(unit.label, made.algorithms[unit.label])
        n = record.scores[0].n_train
        sizes = n.sum(keepdims=True) if algorithm.pooled else n
        return plan_for(algorithm, made, sizes, round, unit.seed)

    def units_of(self, label: str | None, **point: Any) -> list[tuple[Unit, Record]]:
        """One algorithm (None: all) at one point of the sweep: one for each seed."""
        found = [
            (unit, record)
            for unit, record in zip(self.units, self.records)
            if label in (None, unit.label) and all(unit.point.get(k) == v for k, v in point.items())
        ]
        if not found:
            raise ConfigError(f"this run has no algorithm {label!r}")
        return found

    def unit_of(self, label: str | None, seed: int | None, **point: Any) -> tuple[Unit, Record]:
        """One algorithm (None: the first) with one seed (None: its first)."""
        found = self.units_of(label, **point)
        for unit, record in found:
            if seed in (None, unit.seed):
                return unit, record
        seeds = list(dict.fromkeys(unit.seed for unit, _ in found))
        raise ConfigError(f"seed is {seed}, expected one of {seeds}")

    def records_of(self, label: str, **point: Any) -> list[Record]:
        """One algorithm at one point of the sweep: a record for each seed."""
        return [record for _, record in self.units_of(label, **point)]

    def cost_to(self, label: str, accuracy: float, **point: Any) -> list[Cost | None]:
        """What it took to reach a test accuracy (a fraction), for each seed; None if it never did."""
        costs: list[Cost | None] = []
        for record in self.records_of(label, **point):
            reached = (row for row in record.rows if (row.get("accuracy") or 0) >= accuracy)
            costs.append(
                next(
                    (
                        Cost(r["round"], r["bytes_down"] + r["bytes_up"], r["flops"])
                        for r in reached
                    ),
                    None,
                )
            )
        return costs

    def curve(self, label: str, metric: str = "accuracy", **point: Any) -> tuple[Array, Array]:
        """(rounds (R,), values (seeds, R)) of one algorithm, evaluated rounds only."""
        known = {column for record in self.records for row in record.rows for column in row}
        if metric not in known:  # one that this algorithm leaves empty is no mistake
            raise ConfigError(unknown("metric", metric, known))
        series = [
            {row["round"]: row[metric] for row in record.rows if row.get(metric) is not None}
            for record in self.records_of(label, **point)
        ]
        common = sorted(set.intersection(*(set(s) for s in series)))
        return np.array(common), np.array([[s[t] for t in common] for s in series])

    @property
    def diverged(self) -> list[tuple[Unit, str]]:
        return [(u, r.reason) for u, r in zip(self.units, self.records) if r.status == "diverged"]


# ---- tables --------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """The shortest text that reads back as the same number; nothing for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    return "" if value is None or value != value else str(value)


def filled(values: Any) -> Array:
    """An array of a column's cells; an empty one is NaN, or "" among strings."""
    if isinstance(values, np.ndarray):
        return values
    text = any(isinstance(value, str) for value in values)
    return np.array([("" if text else np.nan) if v is None else v for v in values])


def swept(run: Run) -> list[str]:
    """The columns that say where in the sweep a row stands."""
    return list(dict.fromkeys(column for unit in run.units for column in unit.columns))


def metrics_table(run: Run) -> tuple[list[str], list[Row]]:
    """The columns and rows of metrics.csv."""
    rows = [
        {"algorithm": unit.label, **unit.columns, "seed": unit.seed, **row}
        for unit, record in zip(run.units, run.records)
        for row in record.rows
    ]
    first = ["algorithm", *swept(run), "seed", "round", *COLUMNS]
    more = sorted({name for row in rows for name in row} - set(first))
    return [*first, *more], rows


def clients_columns(run: Run) -> list[str]:
    return ["algorithm", *swept(run), "seed", "round", "client", *CLIENTS]


def client_blocks(run: Run) -> Iterator[dict[str, Any]]:
    """clients.csv, a block of N rows at a time: column → (N,)."""
    for unit, record in zip(run.units, run.records):
        for t, scores in zip(record.rounds, record.scores):
            N = len(scores.accuracy)
            point = dict.fromkeys(swept(run)) | unit.columns
            named = {"algorithm": unit.label, **point, "seed": unit.seed, "round": t}
            block: dict[str, Any] = {name: [value] * N for name, value in named.items()}
            yield {**block, "client": np.arange(N), **scores._asdict()}


def metrics_csv(run: Run) -> str:
    columns, rows = metrics_table(run)
    return csv_text([columns, *([cell(row.get(name)) for name in columns] for row in rows)])


def clients_csv(run: Run) -> Iterator[str]:
    """In parts: with a thousand clients and many rounds it is hundreds of megabytes."""
    columns = clients_columns(run)
    yield csv_text([columns])
    for block in client_blocks(run):
        values = (np.asarray(block[name]).tolist() for name in columns)
        yield csv_text([cell(value) for value in row] for row in zip(*values))


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
