"""The results of a run: as arrays, as the tables metrics.csv and clients.csv, and in short."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.errors import ConfigError, unknown
from fedref.experiments.config import Experiment
from fedref.experiments.unit import Record, Row, Unit
from fedref.numerics import Array

#: The columns of metrics.csv after those that name the row. Counts are totals since round 0.
METRICS = (
    "accuracy", "accuracy_mean", "test_loss", "test_loss_mean", "train_loss", "train_loss_mean",
    "bytes_down", "bytes_up", "grads", "hvps", "flops", "stragglers", "dropped", "failed",
)  # fmt: skip

CLIENT_COLUMNS = ("n_test", "accuracy", "test_loss", "n_train", "train_loss")


class Cost(NamedTuple):
    """The totals of a run at one round."""

    round: int
    bytes: int  # down and up
    flops: int


class Run(NamedTuple):
    """The results of a run as arrays.

    metrics : column → (rows,); clients : column → (rows,); records : unit → Record.
    """

    experiment: Experiment
    units: list[Unit]
    records: list[Record]

    @property
    def metrics(self) -> dict[str, Array]:
        """metrics.csv as columns; NaN where a cell is empty."""
        columns, rows = metrics_table(self)
        return {
            name: np.array(
                [np.nan if row.get(name) is None else row[name] for row in rows]
                if name not in ("algorithm", "status")
                else [row[name] for row in rows]
            )
            for name in columns
        }

    @property
    def clients(self) -> dict[str, Array]:
        """clients.csv as columns."""
        columns = clients_columns(self)
        parts = list(client_blocks(self))
        return {
            name: np.concatenate([np.asarray(part[name]) for part in parts] or [np.zeros(0)])
            for name in columns
        }

    def records_of(self, label: str, **point: Any) -> list[Record]:
        """One algorithm at one point of the sweep: a record for each seed."""
        found = [
            record
            for unit, record in zip(self.units, self.records)
            if unit.label == label and all(unit.point.get(k) == v for k, v in point.items())
        ]
        if not found:
            raise ConfigError(f"this run has no algorithm {label!r}")
        return found

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


def metrics_table(run: Run) -> tuple[list[str], list[Row]]:
    """The columns and rows of metrics.csv."""
    rows = [
        {"algorithm": unit.label, **unit.columns, "seed": unit.seed, **row}
        for unit, record in zip(run.units, run.records)
        for row in record.rows
    ]
    first = ["algorithm", *run.units[0].columns, "seed", "round", *METRICS]
    more = sorted({name for row in rows for name in row} - set(first))
    return [*first, *more], rows


def clients_columns(run: Run) -> list[str]:
    return ["algorithm", *run.units[0].columns, "seed", "round", "client", *CLIENT_COLUMNS]


def client_blocks(run: Run) -> Iterator[dict[str, Any]]:
    """clients.csv, a block of N rows at a time: column → (N,)."""
    for unit, record in zip(run.units, run.records):
        for t, scores in zip(record.rounds, record.scores):
            N = len(scores.accuracy)
            named = {"algorithm": unit.label, **unit.columns, "seed": unit.seed, "round": t}
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


# ---- the table at the end ------------------------------------------------------------------------


class Summary(NamedTuple):
    """One line of the table: each a (mean, standard deviation) over seeds."""

    label: str
    average: tuple[float, float]
    maximum: tuple[float, float]
    final: tuple[float, float]
    plain_average: tuple[float, float]
    plain_maximum: tuple[float, float]
    plain_final: tuple[float, float]
    bytes_down: float
    bytes_up: float
    unseen: tuple[tuple[float, float], ...] = ()  # final, by samples and over clients


def summaries(run: Run) -> list[Summary]:
    """Average over all evaluated rounds (round 0 included), maximum and final accuracy."""
    groups: dict[str, list[Record]] = {}
    for unit, record in zip(run.units, run.records):
        point = ", ".join(f"{k}={v}" for k, v in unit.point.items())
        groups.setdefault(f"{unit.label} ({point})" if point else unit.label, []).append(record)

    table = []
    for label, records in groups.items():
        last = [record.rows[-1] for record in records]
        down, up = (
            float(np.mean([row[name] for row in last])) for name in ("bytes_down", "bytes_up")
        )
        weighted, unweighted = (over_seeds(records, name) for name in ("accuracy", "accuracy_mean"))
        label += " (diverged)" * any(record.status == "diverged" for record in records)
        unseen = ("unseen_accuracy", "unseen_accuracy_mean") if run.experiment.unseen else ()
        finals = tuple(over_seeds(records, name)[2] for name in unseen)
        table.append(Summary(label, *weighted, *unweighted, down, up, finals))
    return table


Spread = tuple[float, float]


def over_seeds(records: list[Record], metric: str) -> tuple[Spread, Spread, Spread]:
    """(mean, standard deviation) over seeds of a column's average over rounds, maximum and end."""
    series = [[row[metric] for row in r.rows if row.get(metric) is not None] for r in records]
    found = np.array([(np.mean(s), np.max(s), s[-1]) for s in series])
    average, maximum, final = zip(found.mean(0).tolist(), found.std(0).tolist())
    return average, maximum, final


def summary_rows(run: Run) -> list[list[str]]:
    """The table as text cells, header first. Accuracies in %, with ± over seeds if there are some;
    the final accuracy on unseen clients where it was measured."""
    several = len(run.experiment.seeds) > 1

    def percent(value: tuple[float, float]) -> str:
        mean, std = value
        return f"{100 * mean:.2f} ± {100 * std:.2f}" if several else f"{100 * mean:.2f}"

    header = [
        "algorithm", "average", "maximum", "final",
        "average (clients)", "maximum (clients)", "final (clients)",
        *(["unseen", "unseen (clients)"] if run.experiment.unseen else []), "MB down", "MB up",
    ]  # fmt: skip
    return [
        header,
        *(
            [
                s.label, *map(percent, s[1:7]), *map(percent, s.unseen),
                f"{s.bytes_down / 1e6:.2f}", f"{s.bytes_up / 1e6:.2f}",
            ]
            for s in summaries(run)
        ),
    ]  # fmt: skip


def markdown(rows: list[list[str]]) -> str:
    """An aligned Markdown table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: list[str]) -> str:
        name, *numbers = row
        cells = [name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(numbers, widths[1:]))]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(rows[0]), f"|{'|'.join(rule)}|", *map(line, rows[1:])])
