"""The results of a run: rows of dictionaries, and what is made of them.

`Run.rows` has a row for each unit and round, or one for each unit, evaluated round and client. The CSV
files, the summary, the notebook's view and data frames are functions of them.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from functools import partial
from html import escape
from itertools import pairwise
from math import isfinite, nan
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedref.algorithm import State
from fedref.boundary.errors import ConfigError, DataError, printable, unknown
from fedref.boundary.files import Content, write_atomically
from fedref.lab import plots
from fedref.lab.experiments import run_directory
from fedref.lab.experiments.config import Experiment, read_experiment
from fedref.lab.experiments.unit import LoadedExperiment, Record, Unit, plan_for, units
from fedref.lab.plots.tables import Row, Table, columns_of, group_rows, order_columns, spreads
from fedref.models.numerics import Array
from fedref.rounds.metrics import CLIENTS, MEANS, NOTE, OPTIONAL, PERCENT, PLACE, PRINTED, SUMS
from fedref.sampling import Plan

#: How many units the repr of a run names.
SHOWN = 8
#: Training is slow if features differ in size by more than this factor, or are larger than this.
RATIO, LARGE = 15.0, 10.0
#: How many training rows the sizes of features are taken from.
ROWS = 500
#: How a mean is printed, by the scale of its column: accuracies in %, losses with four digits.
FORMS = {PERCENT: ".2f", 1: "#.4g"}


class Run(NamedTuple):
    """The results of a run.

    records : one for each unit, in the same order. directory : the run directory, if there is one.
    note : what the table does not show; "" if the run was loaded.
    """

    experiment: Experiment
    units: list[Unit]
    records: list[Record]
    directory: Path | None = None
    note: str = ""

    def __repr__(self) -> str:
        """Return one line: the experiment, the rounds that are done, and the newest accuracies."""
        ends = [
            f"{unit.name} {describe_newest(record)}"
            for unit, record in list(zip(self.units, self.records))[:SHOWN]
        ]
        more = f" and {len(self.units) - SHOWN} more" if len(self.units) > SHOWN else ""
        done = max(record.round for record in self.records)
        return f"<Run {self.experiment.name}, round {done}: {', '.join(ends)}{more}>"

    def __str__(self) -> str:
        """Return the text that `fedref run` prints: the table, and a note on what it does not show."""
        texts = heading(self), markdown(printed_table(self)), self.note, self.warning
        return "\n\n".join(filter(None, texts))

    @property
    def warning(self) -> str:
        """A sentence for a table in which some rows are not done, or have fewer seeds than others."""
        if {self.status_of(unit.title) for unit in self.units} <= {"done", "diverged"}:
            return ""
        return "Not all units are done: what a row shows is of the seeds and rounds that it has."

    # -- rows and tables

    def rows(self, of: str = "metrics", titled: bool = False) -> Iterator[Row]:
        """Yield the rows of metrics.csv, or of clients.csv, which can be millions.

        titled : with the columns `title` and `diverged`, which pictures need.
        """
        for unit, record in zip(self.units, self.records):
            place = unit.columns
            if titled:
                place |= {"title": unit.title, "diverged": record.status == "diverged"}
            for row in record.rows if of == "metrics" else client_rows(record):
                yield place | row

    def columns(self, of: str = "metrics") -> list[str]:
        """Return the columns of metrics.csv or clients.csv; first those of the unit and the round."""
        swept = (name for unit in self.units for name in unit.columns if name.startswith("sweep."))
        always = CLIENTS if of == "clients" else [*MEANS, *SUMS]
        rows = self.rows() if of == "metrics" else ()  # all clients have the same
        return order_columns(rows, ["algorithm", *swept, "seed", "round", *always])

    @property
    def metrics(self) -> Table:
        """The columns of metrics.csv by name, each (rows,); NaN where a cell is empty."""
        return columns_of(self.rows(), self.columns())

    @property
    def clients(self) -> Table:
        """The columns of clients.csv by name, each (rows,)."""
        return columns_of(self.rows("clients"), self.columns("clients"))

    def table(self, of: str = "metrics") -> Table:
        """Return metrics (or clients) for `fedref.lab.plots`: with the columns `title` and `diverged`."""
        return columns_of(self.rows(of, titled=True), self.columns(of))

    def summary(self) -> list[Row]:
        """Return summary.csv as rows, one for each algorithm and point of the sweep.

        NAME : the mean over seeds. NAME_sd : its standard deviation. seeds : their number.
        """
        table = self.table()
        name, best, scale = score_of(table)
        unseen = [f"unseen_accuracy{end}" for end in ("", "_mean") if scale == PERCENT]
        empty: Row = {k: None for k in self.columns() if k == "algorithm" or k.startswith("sweep.")}
        units = {unit.title: unit for unit in reversed(self.units)}
        rows = []
        for title, seeds in group_rows(table).items():
            numbers: dict[str, Array] = {}  # name → (mean, sd)
            for end, column in (("", name), ("_clients", f"{name}_mean")):
                values = spreads(seeds, column, best).T
                numbers |= {f"{k}{end}": v for k, v in zip(("average", best, "final"), values)}
            for end, column in zip(("", "_clients"), unseen):
                if column in table:
                    numbers[f"unseen{end}"] = spreads(seeds, column)[:, 2]
            numbers["test_loss"] = spreads(seeds, "test_loss")[:, 2]
            place = {k: v for k, v in units[title].columns.items() if k != "seed"}
            status = self.status_of(title)
            cells = {
                k + end: float(x) for k, v in numbers.items() for end, x in zip(("", "_sd"), v)
            }
            sent = {
                k: float(np.mean([t[k][-1] for t in seeds.values()]))
                for k in ("bytes_down", "bytes_up")
            }
            if len(seeds) == 1:  # a single number has no deviation
                cells |= {k: nan for k in cells if k.endswith("_sd")}
            counts = {"status": status, "seeds": len(seeds)}
            rows.append({**empty, **place, **counts, **cells, **sent, "title": title})
        return rows

    def status_of(self, title: str) -> str:
        """Return "done", "diverged" or how far all seeds are: "stopped (82 of 400)"."""
        found = [(u.experiment, r) for u, r in zip(self.units, self.records) if u.title == title]
        states = {record.status for _, record in found}
        missing = len(found) < len(self.experiment.seeds)
        if "diverged" in states or (states == {"done"} and not missing):
            return "diverged" if "diverged" in states else "done"
        least = 0 if missing else min(record.round for _, record in found)
        return f"stopped ({least} of {found[0][0].rounds})"

    def to_pandas(self, table: str = "metrics") -> Any:
        """Return metrics.csv, clients.csv or summary.csv (`table`) as a pandas DataFrame."""
        from pandas import DataFrame

        if table not in ("metrics", "clients", "summary"):
            raise ConfigError(unknown("table", table, ("metrics", "clients", "summary")))
        return DataFrame(self.summary() if table == "summary" else getattr(self, table))

    # -- one algorithm

    def units_of(
        self, label: str | None = None, seed: int | None = None, **point: Any
    ) -> list[tuple[Unit, Record]]:
        """Return the units of an algorithm (None: all) with a seed and these values of the sweep."""
        pairs = [
            (unit, record)
            for unit, record in zip(self.units, self.records)
            if label in (None, unit.label) and seed in (None, unit.seed)
            if all(unit.point.get(k) == v for k, v in point.items())
        ]
        if not pairs:
            wanted = {"algorithm": label, "seed": seed} | point
            words = ", ".join(f"{k}={v}" for k, v in wanted.items() if v is not None)
            known = [unit.name for unit in self.units[:SHOWN]]
            raise ConfigError(f"no unit has {words}, expected one of {', '.join(known)}")
        return pairs

    def records_of(self, label: str, **point: Any) -> list[Record]:
        """Return the records of an algorithm at one point of the sweep, one for each seed."""
        return [record for _, record in self.units_of(label, **point)]

    def curve(self, label: str, metric: str = "accuracy", **point: Any) -> tuple[Array, Array]:
        """Return (rounds (R,), values (seeds, R)) of an algorithm; only rounds that were evaluated."""
        known = {column for record in self.records for row in record.rows for column in row}
        if metric not in known:  # a column that only this algorithm leaves empty is no mistake
            raise ConfigError(unknown("metric", metric, known))
        series = [
            {row["round"]: row[metric] for row in record.rows if row.get(metric) is not None}
            for record in self.records_of(label, **point)
        ]
        common = sorted(set.intersection(*(set(s) for s in series)))
        return np.array(common), np.array([[s[t] for t in common] for s in series])

    def plan(
        self, round: int, label: str | None = None, seed: int | None = None, **point: Any
    ) -> Plan:
        """Return the plan of a round: which clients took part, on which of their training rows.

        Round t leads from the state after t rounds to that after t + 1. label, seed : by default the
        first ones.
        """
        unit, record = self.units_of(label, seed, **point)[0]
        if not 0 <= round < unit.experiment.rounds:
            raise ConfigError(f"round is {round}, expected 0 to {unit.experiment.rounds - 1}")
        n = record.scores[0].n_train
        sizes = n.sum(keepdims=True) if unit.algorithm.pooled else n
        return plan_for(unit.algorithm, unit.experiment, sizes, round, unit.seed)

    def parameters(
        self, label: str, round: int | None = None, seed: int | None = None, **point: Any
    ) -> State:
        """Return the state after a round: `server`, and `clients`: client → its own state.

        round : one that `keep_parameters` has kept (None: the newest).
        """
        unit, record = self.units_of(label, seed, **point)[0]
        expected, folder = "a run with keep_parameters", self.directory
        if round is None:  # of a run with files, the record has no states of clients
            whole = record if folder is None else run_directory.load_record(folder, unit)
            return (whole or record).state
        if folder is not None:
            paths = {t: run_directory.state_path(folder, unit, t) for t in range(record.round + 1)}
            known = [t for t, path in paths.items() if path.exists()]
            if round in known:
                state: State = run_directory.read_tree(paths[round])
                return state
            if known:
                expected = f"those of the rounds {known}"
        raise ConfigError(f"the parameters of round {round} are not kept, expected {expected}")

    @property
    def diverged_units(self) -> list[tuple[Unit, str]]:
        return [(u, r.reason) for u, r in zip(self.units, self.records) if r.status == "diverged"]

    # -- files and views

    def write(self, directory: Path) -> None:
        """Write metrics.csv, clients.csv, summary.md and summary.csv, each whole or not at all."""
        rows, summary = self.summary(), markdown(printed_table(self))
        for change in run_directory.changes_of(directory):
            summary += f"\n\nCode changed during the run: {change}."
        tables: dict[str, Content] = {
            f"{of}.csv": partial(write_csv, self.rows(of), self.columns(of))
            for of in ("metrics", "clients")
        }
        tables["summary.md"] = f"{summary}\n".encode()
        tables["summary.csv"] = partial(write_csv, rows, list(rows[0]))
        for name, content in tables.items():
            write_atomically(directory / name, content)

    def _repr_html_(self) -> str:
        """Return the table, its note and the curves as HTML, for a notebook."""

        table = ""
        for i, row in enumerate(printed_table(self)):
            tag = "td" if i else "th"
            table += f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        below = f"<p>{escape(self.note)}</p>" * bool(self.note)
        picture = plots.as_html(plots.curves(self.table()))
        return f"<p>{escape(heading(self))}</p><table>{table}</table>{below}{picture}"


def load_run(directory: str | Path) -> Run:
    """Return the results in the files of a run's units, even of a run that is not finished.

    What clients keep for themselves is in `load_run(DIR).parameters("apfl").clients[3].w_k`.
    """
    directory = Path(directory)
    experiment = read_experiment(directory)
    found = ((unit, run_directory.load_record(directory, unit)) for unit in units(experiment))
    pairs = [(u, run_directory.drop_client_states(r)) for u, r in found if r is not None]
    if not pairs:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(experiment, [u for u, _ in pairs], [r for _, r in pairs], directory)


def client_rows(record: Record) -> Iterator[Row]:
    """Yield a row for each evaluated round and client."""
    for t, scores in zip(record.rounds, record.scores):
        for k, values in enumerate(zip(*(x.tolist() for x in scores))):
            yield {"round": t, "client": k, **dict(zip(scores._fields, values))}


def describe_newest(record: Record) -> str:
    """Return the newest accuracy of a record as text; of real targets, which have none, the loss."""
    row = next((r for r in reversed(record.rows) if r.get("accuracy") is not None), {})
    if isfinite(row.get("accuracy", nan)):
        return f"accuracy {100 * row['accuracy']:.2f} %"
    return f"test loss {row.get('test_loss', nan):.4g}"


def idle_rounds(record: Record) -> int:
    """Count the rounds in which every client was dropped or failed: the model did not move."""
    totals = [(row["grads"], row["dropped"] + row["failed"]) for row in record.rows]
    return sum(now[0] == before[0] and now[1] > before[1] for before, now in pairwise(totals))


# ---- the table at the end ------------------------------------------------------------------------


def score_of(table: Table) -> tuple[str, str, int]:
    """Return (column, its best value, scale) by which algorithms are compared: real targets have a loss."""
    labels = np.isfinite(table["accuracy"]).any()
    return ("accuracy", "maximum", PERCENT) if labels else ("test_loss", "minimum", 1)


def printed_table(run: Run) -> list[list[str]]:
    """Return the table as text cells, header first: accuracies in %, with ± if there are more seeds.

    The final accuracy on unseen clients has columns if it was measured.
    """
    rows = run.summary()
    _, best, scale = score_of(run.metrics)
    ends = ("", "_sd") if len(run.experiment.seeds) > 1 else ("",)
    names = [
        *((name, end) for end in ("", "_clients") for name in ("average", best, "final")),
        *(("unseen", end) for end in ("", "_clients") if "unseen" in rows[0]),
    ]
    sent = [[row["bytes_down"], row["bytes_up"]] for row in rows]
    unit, size = ("kB", 1e3) if any(0 < b < 5e3 for pair in sent for b in pair) else ("MB", 1e6)
    table = [
        [
            row["title"] + f" ({row['status']})" * (row["status"] != "done"),
            *(
                " ± ".join(
                    f"{scale * row[a + b + end]:{FORMS[scale]}}"
                    for end in ends[: 1 if row["seeds"] == 1 else 2]
                )
                for a, b in names
            ),
            *(f"{b / size:.2f}" for b in pair),
        ]
        for row, pair in zip(rows, sent)
    ]
    titles = [name + " (clients)" * bool(end) for name, end in names]
    return [["algorithm", *titles, f"{unit} down", f"{unit} up"], *table]


def heading(run: Run) -> str:
    """Return the line above the table, which says what its numbers are."""
    name, _, scale = score_of(run.metrics)
    evaluated = {
        tuple(row["round"] for row in record.rows if row.get(name) is not None)
        for record in run.records
    }
    over = "evaluated rounds, not the same in all"
    if len(evaluated) == 1:
        (rounds,) = evaluated
        over = f"{len(rounds)} evaluated rounds from 0 (the start) to {rounds[-1]}"
    what = "Test accuracy in %" if scale == PERCENT else "Test loss"
    return f"{what}, over {over}; (clients): mean over clients"


def note_on_scales(loaded: LoadedExperiment) -> str:
    """Return a note if features are large or differ much in size, on some training rows; else ""."""
    federation = loaded.federation
    rows = federation.train.rows
    X = federation.batch(rows[:: max(1, len(rows) // ROWS)]).X
    raw = federation.parameters.get("scaling") in ("none", "unit")
    rms = np.sqrt(np.mean(np.square(X), 0))
    if not raw or federation.source.vocabulary or not rms.any():
        return ""
    # all pixels have one unit; small ones are just black in most images
    least, largest = rms.max() if federation.source.image else rms[rms > 0].min(), rms.max()
    if largest <= LARGE and largest <= RATIO * least:
        return ""
    sizes = f"{least:.2g} to {largest:.2g}" if least < largest else f"{largest:.2g}"
    return f"Note: features have a root mean square of {sizes}: --set split.scaling=standardise may help."


# ---- rows as text --------------------------------------------------------------------------------


def write_csv(rows: Iterable[Row], columns: list[str], stream: IO[bytes]) -> None:
    """Write a table as CSV: a number as the shortest text that reads back the same."""
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = [x.item() if isinstance(x := row.get(name), np.generic) else x for name in columns]
        writer.writerow(["" if x is None or x != x else x for x in cells])
    text.detach()


def markdown(rows: list[list[str]], left: int = 1) -> str:
    """Return an aligned Markdown table; its first `left` columns are names or text.

    Characters with a meaning in Markdown or HTML are escaped.
    """
    special = str.maketrans({"|": r"\|", "<": "&lt;"})
    rows = [[printable(cell).translate(special) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rule = ["-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    lines = [
        " | ".join(f"{c:{'<>'[i >= left]}{w}}" for i, (c, w) in enumerate(zip(row, widths)))
        for row in rows
    ]
    head, *body = (f"| {line} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rule)}|", *body])


def columns_help() -> str:
    """Explain the columns of the printed table and of both files, as Markdown 80 characters wide."""
    tables = {
        "the printed table": PRINTED,
        "metrics.csv": {k: c.meaning for k, c in {**PLACE, **MEANS, **SUMS, **OPTIONAL}.items()},
        "clients.csv": {k: c.meaning for k, c in {**PLACE, **CLIENTS}.items()},
    }
    texts = [
        markdown([[title, "what it is"], *([f"`{k}`", text] for k, text in table.items())], left=2)
        for title, table in tables.items()
    ]
    return "\n\n".join([*texts, NOTE])
