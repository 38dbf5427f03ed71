"""The results of a run: rows of dictionaries, and what is made of them.

`Run.rows` has a row for each unit and round, or one for each unit, evaluated round and client. The CSV
files, the summary, the notebook's view and data frames are functions of them.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import pairwise
from math import inf, isfinite, nan
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedref.algorithm import State
from fedref.boundary.errors import ConfigError, DataError, unknown
from fedref.boundary.files import Content, write_atomically
from fedref.lab import plots
from fedref.lab.datasets import manifest_of
from fedref.lab.datasets.formats.arrays import fingerprint
from fedref.lab.datasets.sources import from_memory, is_in_memory
from fedref.lab.experiments import run_directory
from fedref.lab.experiments.config import Experiment, read_experiment, spell_key
from fedref.lab.experiments.names import importable_name
from fedref.lab.experiments.seal import changes_of
from fedref.lab.experiments.summary import Difference, Score, Summary, markdown, numbers_of
from fedref.lab.experiments.unit import LoadedExperiment, Record, Unit, plan_for, units
from fedref.lab.plots import tables
from fedref.models.numerics import Array
from fedref.rounds import metrics as facts
from fedref.rounds.federation import Federation
from fedref.sampling import Plan

#: How many units the repr of a run names.
SHOWN = 8
#: A training loss that ends this many times larger than it began is noted.
WORSE = 2.0
#: The columns by which a point is chosen, where algorithms are compared by the others.
VALIDATION = {"accuracy": "validation_accuracy", "test_loss": "validation_loss"}
CHOSEN_ON_TEST = "The best test value of many points is no result: it was chosen on the test rows."
#: Training is slow if features differ in size by more than this factor, or are larger than this.
RATIO, LARGE = 15.0, 10.0
#: How many clients' values are numbers of Python at a time.
CHUNK = 10_000
#: How many training rows the sizes of features are taken from.
ROWS = 500


class Run(NamedTuple):
    """The results of a run.

    experiment : the settings of the run.
    units : one for each label, point of the sweep and seed.
    records : what each unit has recorded, in the same order.
    directory : the run directory, if there is one.
    note : what the table does not show; "" if the run was loaded.
    """

    experiment: Experiment
    units: list[Unit]
    records: list[Record]
    directory: Path | None = None
    note: str = ""

    def __repr__(self) -> str:
        """Return one line: the experiment, the rounds that are done, and the newest accuracies."""
        pairs = list(zip(self.units, self.records))[:SHOWN]
        ends = [f"{unit.name} {describe_newest(record)}" for unit, record in pairs]
        more = f" and {len(self.units) - SHOWN} more" if len(self.units) > SHOWN else ""
        done = max(record.round for record in self.records)
        return f"<Run {self.experiment.name}, round {done}: {', '.join(ends)}{more}>"

    def __str__(self) -> str:
        """Return the text that `fedref run` prints: the table, and a note on what it does not show."""
        texts = heading(self), str(self.summary()), *self.notes, self.note, self.warning
        return "\n\n".join(filter(None, texts))

    @property
    def notes(self) -> list[str]:
        """Sentences on what ± does not hold, and on the choice of a point of the sweep."""
        texts = list[str]()
        points = Counter(label for label, _ in {(unit.label, unit.title) for unit in self.units})
        follows, seeds = self.experiment.split.get("seed"), self.experiment.seeds
        if len(seeds) > 1 and follows == "run":
            texts.append(f"Each seed has its own split; split.json is that of seed {seeds[0]}.")
        elif len(seeds) > 1:
            hint = ": with --set split.seed=run it follows the seed" if follows is not None else ""
            same = f"the split, which is the same in all seeds{hint}"
            texts.append(f"± holds start, cohorts and batches, not {same}.")
        texts += self.notes_on_losses
        if own := {unit.label: 1 for unit in self.units if unit.algorithm.generator}:
            why = "a generator does not say what it sends"
            texts.append(f"MB of {', '.join(own)} are those of w: {why}.")
        if max(points.values()) > 1:
            text, table = CHOSEN_ON_TEST, self.table()
            column = VALIDATION[Score.of(table).column]
            if column not in table:
                text += " With --set split.validation=0.1 each client has rows to choose by."
            elif any(self.status_of(unit.title) == "done" for unit in self.units):
                rows = self.best().summary([column, "final"])
                for row, (name, validation, test) in zip(rows, rows.cells()[1:]):
                    if points[row["algorithm"]] > 1:
                        text += f"\nChosen by validation ({validation}): {name}, with test {test}."
            texts.append(text)
        return texts

    @property
    def notes_on_losses(self) -> list[str]:
        """Sentences on training losses that ended far above their start."""
        texts = list[str]()
        for unit, record in zip(self.units, self.records):
            losses = [row["train_loss"] for row in record.rows if row.get("train_loss") is not None]
            if losses and losses[-1] > WORSE * losses[0]:
                texts.append(
                    f"{unit.name}: the training loss was {losses[0]:.4g} at the start, and is "
                    f"{losses[-1]:.4g} at the end: a smaller step size may help."
                )
        return texts

    @property
    def warning(self) -> str:
        """A sentence for a table in which some rows are not done, or have fewer seeds than others."""
        if {self.status_of(unit.title) for unit in self.units} <= {"done", "diverged"}:
            return ""
        return "Not all units are done: what a row shows is of the seeds and rounds that it has."

    # -- rows and tables

    def rows(self, file: str = "metrics", titles: bool = False) -> Iterator[tables.Row]:
        """Yield the rows of metrics.csv, or of clients.csv, which can be millions.

        file : "metrics" or "clients".
        titles : with the columns `title` and `diverged`, which pictures need.
        """
        for unit, record in zip(self.units, self.records):
            place = unit.columns
            if titles:
                place |= {"title": unit.title, "diverged": record.status == "diverged"}
            if file == "metrics":
                yield from (place | row for row in record.rows)
                continue
            for t, scores in zip(record.rounds, record.scores):
                for start in range(0, len(scores.n_test), CHUNK):  # lists of all clients are large
                    columns = (x[start : start + CHUNK].tolist() for x in scores)
                    for k, values in enumerate(zip(*columns), start):
                        yield place | {"round": t, "client": k, **dict(zip(scores._fields, values))}

    def columns(self, file: str = "metrics") -> list[str]:
        """Return the columns of metrics.csv or clients.csv; first those of the unit and the round.

        file : "metrics" or "clients".
        """
        swept = (name for unit in self.units for name in unit.columns if name.startswith("sweep."))
        always = facts.CLIENTS if file == "clients" else [*facts.MEANS, *facts.SUMS]
        rows = self.rows() if file == "metrics" else ()  # all clients have the same
        return tables.order_columns(rows, ["algorithm", *swept, "seed", "round", *always])

    @property
    def metrics(self) -> tables.Table:
        """The columns of metrics.csv by name, each (rows,); NaN where a cell is empty."""
        return tables.columns_of(self.rows(), self.columns())

    @property
    def clients(self) -> tables.Table:
        """The columns of clients.csv by name, each (rows,)."""
        return tables.columns_of(self.rows("clients"), self.columns("clients"))

    def table(self, file: str = "metrics") -> tables.Table:
        """Return metrics (or clients) for `fedref.lab.plots`: with the columns `title` and `diverged`.

        file : "metrics" or "clients".
        """
        return tables.columns_of(self.rows(file, titles=True), self.columns(file))

    def summary(
        self, columns: str | Sequence[str] | None = None, best: str | None = None, digits: int = 2
    ) -> Summary:
        """Return summary.csv as rows, one for each algorithm and point of the sweep.

        A column NAME has the mean over seeds, NAME_sd the standard deviation (n − 1), `seeds` their number.
        Printed, it is a table for a paper, with accuracies in %, also as `.to_latex()` and `.to_pandas()`.
        columns : the columns that are printed (None: those that a run prints).
        best : "bold" marks the best of each column.
        digits : digits behind the point, ≥ 0.

        Printing raises ConfigError for a column that is unknown.
        """
        table = self.table()
        score = Score.of(table)
        labels = (k for k in self.columns() if k == "algorithm" or k.startswith("sweep."))
        empty: tables.Row = dict.fromkeys(labels)
        units = {unit.title: unit for unit in reversed(self.units)}
        rows = []
        for title, seeds in tables.group_rows(table).items():
            each = [numbers_of(rows, score) for rows in seeds.values()]
            means, sds = tables.mean_and_sd(np.array([[*numbers.values()] for numbers in each]))
            place = {k: v for k, v in units[title].columns.items() if k != "seed"}
            row = {**empty, **place, "status": self.status_of(title), "seeds": len(seeds)}
            for name, mean, sd in zip(each[0], means.tolist(), sds.tolist()):
                row |= {name: mean} if name in Summary.sent else {name: mean, f"{name}_sd": sd}
            rows.append(row | {"title": title})
        return Summary(rows, score, columns, best, digits)

    def best(self, measure: str = "validation") -> "Run":
        """Return the results of each algorithm at its best point of the sweep alone, after the last round.

        measure : "validation", the rows that `split.validation` keeps for it, or any column of metrics.csv.
        What is reported of the point are test rows, on which it was not chosen.

        Raises ConfigError where the column is unknown or has no values, or no unit is done.

        >>> run.best().summary("final").to_latex()  # doctest: +SKIP
        """
        table = self.table()
        column = VALIDATION[Score.of(table).column] if measure == "validation" else measure
        if column not in table:
            if column not in facts.COLUMNS:
                known = {*table} - {*facts.PLACE, "title", "diverged"}
                raise ConfigError(unknown("column", measure, known))
            hint = ": --set split.validation=0.1 gives each client rows to choose by"
            hint = hint if measure.startswith("validation") else ""
            raise ConfigError(f"there are no values of {column}{hint}")
        sign, chosen = -1 if "loss" in column else 1, dict[str, tuple[float, str]]()
        for title, seeds in tables.group_rows(table).items():
            last = sign * np.mean([tables.extremes(rows, column)[2] for rows in seeds.values()])
            label = next(unit.label for unit in self.units if unit.title == title)
            if self.status_of(title) == "done" and last > chosen.get(label, (-inf,))[0]:
                chosen[label] = float(last), title
        titles = {title for _, title in chosen.values()}
        pairs = [(u, r) for u, r in zip(self.units, self.records) if u.title in titles]
        if not pairs:
            raise ConfigError(f"no unit is done with a {column}, expected one to choose")
        return self._replace(units=[u for u, _ in pairs], records=[r for _, r in pairs])

    def compare(
        self, a: str, b: str | None = None, *, run: "Run | None" = None, column: str = "final"
    ) -> Difference:
        """Return the paired difference of two algorithms: same seeds, so the same cohorts and batches.

        a : a label, or a title as "per-fedavg (alpha=0.1)".
        b : the same for the second (None: a's label).
        run : the run that holds `b` (None: this one).
        column : a column of summary.csv.

        Raises ConfigError where the runs have other data, a name stands for several points, or the column
        is unknown.
        """
        second = run or self
        if data_of(self.experiment) != data_of(second.experiment):
            raise ConfigError("the runs have different data or splits, expected the same in both")
        score = Score.of(self.table())
        numbers = self.series(a, column, score), second.series(b or a, column, score)
        scale = facts.SUMMARY[column.removesuffix("_clients")].scale or score.scale
        return Difference.between(*numbers, f"{a} − {b or a}, {column}", scale)

    def series(self, name: str, column: str, score: Score) -> dict[int, float]:
        """Return seed → the number in a column of summary.csv, of a label or a title.

        name : a label, or a title as "per-fedavg (alpha=0.1)".
        column : a column of summary.csv.
        score : what is averaged: as of `Score.of`.

        Raises ConfigError where the name stands for several points, or the column is unknown.
        """
        pairs = self.units_of(name)
        if len(titles := {unit.title for unit, _ in pairs}) > 1:
            some = ", ".join(sorted(titles))
            raise ConfigError(f"{name} has several points, expected one of {some}")
        numbers = {u.seed: numbers_of(tables.columns_of(r.rows), score) for u, r in pairs}
        for known in numbers.values():
            if column not in known:
                raise ConfigError(unknown("column", column, known))
        return {seed: known[column] for seed, known in numbers.items()}

    def status_of(self, title: str) -> str:
        """Return "done", "diverged" or how far all seeds are: "stopped (82 of 400)", "running (...)".

        title : a label, or with the point of a sweep "per-fedavg (alpha=0.1)"; ConfigError if unknown.
        """
        pairs = self.units_of(title)
        states = {record.status for _, record in pairs}
        missing = len(pairs) < len(self.experiment.seeds)
        if "diverged" in states or (states == {"done"} and not missing):
            return "diverged" if "diverged" in states else "done"
        least = 0 if missing else min(record.round for _, record in pairs)
        lives = self.directory is not None and run_directory.is_held(self.directory)
        return f"{'running' if lives else 'stopped'} ({least} of {pairs[0][0].experiment.rounds})"

    def to_pandas(self, table: str = "metrics") -> Any:
        """Return metrics.csv, clients.csv or summary.csv as a pandas DataFrame.

        table : "metrics", "clients" or "summary", else ConfigError.
        """
        from pandas import DataFrame

        if table not in ("metrics", "clients", "summary"):
            raise ConfigError(unknown("table", table, ("metrics", "clients", "summary")))
        return DataFrame(self.summary() if table == "summary" else getattr(self, table))

    # -- one algorithm

    def units_of(
        self, label: str | None = None, seed: int | None = None, **point: Any
    ) -> list[tuple[Unit, Record]]:
        """Return the units of an algorithm with a seed and these values of the sweep, with their records.

        label : the algorithm's label, or a title as "per-fedavg (alpha=0.1)" (None: all).
        seed : one of the run's seeds (None: all).
        point : values of the sweep, as alpha=0.1.

        Raises ConfigError where none is so.
        """
        wanted = {spell_key(key): value for key, value in point.items()}
        pairs = [
            (unit, record)
            for unit, record in zip(self.units, self.records)
            if label in (None, unit.label, unit.title) and seed in (None, unit.seed)
            if wanted.items() <= unit.point.items()
        ]
        if not pairs:
            asked = {"algorithm": label, "seed": seed, **point}.items()
            words = ", ".join(f"{key}={value}" for key, value in asked if value is not None)
            known = [unit.name for unit in self.units[:SHOWN]]
            raise ConfigError(f"no unit has {words}, expected one of {', '.join(known)}")
        return pairs

    def records_of(self, label: str, **point: Any) -> list[Record]:
        """Return the records of an algorithm at one point of the sweep, one for each seed.

        label : the algorithm's label.
        point : values of the sweep, as alpha=0.1.
        """
        return [record for _, record in self.units_of(label, **point)]

    def curve(self, label: str, metric: str = "accuracy", **point: Any) -> tuple[Array, Array]:
        """Return (rounds (R,), values (seeds, R)) of an algorithm; only rounds that were evaluated.

        label : the algorithm's label.
        metric : a column of metrics.csv; accuracies are between 0 and 1.
        point : values of the sweep, as alpha=0.1.

        Raises ConfigError where no unit is so, or no unit has the column.
        """
        known = {column for record in self.records for row in record.rows for column in row}
        if metric not in known:  # a column that only this algorithm leaves empty is no mistake
            raise ConfigError(unknown("metric", metric, known))
        records = self.records_of(label, **point)
        kept = [[row for row in r.rows if row.get(metric) is not None] for r in records]
        series = [{row["round"]: row[metric] for row in rows} for rows in kept]
        common = sorted(set.intersection(*map(set, series)))
        return np.array(common), np.array([[s[t] for t in common] for s in series])

    def plan(
        self, round: int, label: str | None = None, seed: int | None = None, **point: Any
    ) -> Plan:
        """Return the plan of a round: which clients took part, on which of their training rows.

        Round t leads from the state after t rounds to that after t + 1.
        round : the round's number, from 0 to T − 1, else ConfigError.
        label : the algorithm's label (None: the first).
        seed : one of the run's seeds (None: the first).
        point : values of the sweep, as alpha=0.1.
        """
        unit, record = self.units_of(label, seed, **point)[0]
        if not 0 <= round < unit.experiment.rounds:
            raise ConfigError(f"round is {round}, expected 0 to {unit.experiment.rounds - 1}")
        n = record.scores[0].n_train
        sizes = n.sum(keepdims=True) if unit.algorithm.pooled else n
        return plan_for(unit, sizes, round)

    def parameters(
        self, label: str, round: int | None = None, seed: int | None = None, **point: Any
    ) -> State:
        """Return the state after a round: `server`, and `clients`: client → its own state.

        label : the algorithm's label.
        round : one that `keep_parameters` has kept, else ConfigError (None: the newest).
        seed : one of the run's seeds (None: the first).
        point : values of the sweep, as alpha=0.1.
        """
        unit, record = self.units_of(label, seed, **point)[0]
        known, files = list[int](), None
        if self.directory is not None:
            files = run_directory.UnitFiles(self.directory, unit)
            known = [t for t in range(record.round + 1) if files.state(t).exists()]
        if round is None:  # of a run with files, the record has no states of clients
            whole = files.load() if files else None
            return (whole or record).state
        if files and round in known:
            return files.load_state(round)
        expected = f"those of the rounds {known}" if known else "a run with keep_parameters"
        raise ConfigError(f"the parameters of round {round} are not kept, expected {expected}")

    @property
    def diverged_units(self) -> list[tuple[Unit, str]]:
        return [(u, r.reason) for u, r in zip(self.units, self.records) if r.status == "diverged"]

    # -- files and views

    def write(self, directory: Path) -> None:
        """Write metrics.csv, clients.csv, summary.md and summary.csv, each whole or not at all.

        directory : the run directory, a `Path`.
        """
        rows = self.summary()
        summary = "\n\n".join([str(rows), *self.notes])
        for change in changes_of(directory):
            summary += f"\n\nCode changed during the run: {change}."
        files: dict[str, Content] = {
            "metrics.csv": partial(write_csv, self.rows(), self.columns()),
            "clients.csv": partial(write_csv, self.rows("clients"), self.columns("clients")),
            "summary.md": f"{summary}\n".encode(),
            "summary.csv": partial(write_csv, rows, list(rows[0])),
        }
        for name, content in files.items():
            write_atomically(directory / name, content)

    def draw(self, directory: Path) -> None:
        """Write curves.png.

        directory : the run directory, a `Path`.
        """
        picture = plots.curves(self.table())
        run_directory.require_run(directory)
        plots.save(picture, directory / "curves.png")

    def _repr_html_(self) -> str:
        """Return the table, its note and the curves as HTML, for a notebook."""

        table = ""
        for i, row in enumerate(self.summary().cells()):
            tag = "td" if i else "th"
            table += f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        below = "".join(f"<p>{escape(text)}</p>" for text in (*self.notes, self.note) if text)
        picture = plots.as_html(plots.curves(self.table()))
        return f"<p>{escape(heading(self))}</p><table>{table}</table>{below}{picture}"


def load_run(directory: str | Path, code: bool = True) -> Run:
    """Return the results in the files of a run's units, even of a run that is not finished.

    directory : the run directory.
    code : whether to import the user's own code, which plans and parameters need, and tables do not.
    What clients keep for themselves is in `load_run(DIR).parameters("apfl").clients[3].w_k`.

    Raises ConfigError where this is no run directory, DataError where no round is finished yet.
    """
    directory = Path(directory)
    experiment = read_experiment(directory, code)
    saved = ((u, run_directory.UnitFiles(directory, u).load(code)) for u in units(experiment))
    pairs = [(u, run_directory.drop_client_states(r)) for u, r in saved if r is not None]
    if not pairs:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(experiment, [u for u, _ in pairs], [r for _, r in pairs], directory)


def data_of(experiment: Experiment) -> list[dict[str, Any]]:
    """Return [data] and [split], equal for equal arrays and for functions of the same name."""
    name: Any = experiment.data["name"]
    if is_in_memory(name):
        made = from_memory(name, "data")
        if isinstance(made, Federation):
            name = manifest_of(made)["sha256"]
        else:
            name = fingerprint(made.X, made.y, made.client)
    elif callable(name):
        name = importable_name(name)
    return [{**experiment.data, "name": name}, dict(experiment.split)]


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


def heading(run: Run) -> str:
    """Return the line above the table, which says what its numbers are."""
    name, _, scale = Score.of(run.metrics)
    seeds = len(run.experiment.seeds)
    evaluated = {
        tuple(row["round"] for row in record.rows if row.get(name) is not None)
        for record in run.records
    }
    over = "evaluated rounds, not the same in all"
    if len(evaluated) == 1:
        (rounds,) = evaluated
        over = f"{len(rounds)} evaluated rounds from 0 (the start) to {rounds[-1]}"
    what = "Test accuracy in %" if scale == facts.PERCENT else "Test loss"
    spread = f"; ± sd, n − 1, over {seeds} seeds" if seeds > 1 else ""
    return f"{what}, over {over}; (clients): mean over clients{spread}"


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


def write_csv(rows: Iterable[tables.Row], columns: list[str], stream: IO[bytes]) -> None:
    """Write a table as CSV: a number as the shortest text that reads back the same.

    A text that a spreadsheet would take for a formula begins with a ' more; so does one with a '.
    """
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, columns))
    for row in rows:
        cells = [x.item() if isinstance(x := row.get(name), np.generic) else x for name in columns]
        writer.writerow(["" if x is None or x != x else no_formula(x) for x in cells])
    text.detach()


def no_formula(cell: Any) -> Any:
    """Return a cell that no spreadsheet computes; without its first ', it reads back the same.

    >>> no_formula("=1+1"), no_formula("'quoted"), no_formula(-1.0)
    ("'=1+1", "''quoted", -1.0)
    """
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r", r"\r")  # csv would not quote it, and readers end the row there
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "'", "\t")) else cell


def columns_help() -> str:
    """Explain the columns of the printed table and of both files, as Markdown 80 characters wide."""
    printed = {column.title: column for column in facts.SUMMARY.values()}
    printed["... (clients)"] = facts.Column("", facts.MEAN_OVER_CLIENTS)
    parts = {
        "the printed table": printed,
        "metrics.csv": {**facts.PLACE, **facts.MEANS, **facts.SUMS, **facts.OPTIONAL},
        "clients.csv": {**facts.PLACE, **facts.CLIENTS},
    }
    texts = [
        markdown([[title, "what it is"], *([f"`{k}`", c.meaning] for k, c in part.items())], left=2)
        for title, part in parts.items()
    ]
    return "\n\n".join([*texts, facts.NOTE])
