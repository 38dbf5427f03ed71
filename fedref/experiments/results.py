"""The results of a run: as arrays, as CSV files, as a table with notes, and in a notebook.

Long because it writes the same results in these four forms.
"""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import State
from fedref.boundary.errors import ConfigError, DataError, unknown
from fedref.boundary.files import write_atomically
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.metrics import CLIENTS, COLUMNS, bytes_as_text, markdown
from fedref.experiments.progress import describe_newest
from fedref.experiments.run_directory import (
    changes,
    disk_errors,
    drop_client_states,
    load_record,
    load_state,
    read_experiment,
    state_path,
)
from fedref.experiments.unit import LoadedExperiment, Record, Row, Unit, plan_for, units
from fedref.models.numerics import Array
from fedref.sampling import Plan

#: How many units the repr of a run names.
SHOWN = 8

#: The function that draws the curves. It is imported by its name, as `plots` imports this module.
CURVES = "fedref.plots:curves"


class Run(NamedTuple):
    """The results of a run.

    records : one for each unit, in the same order. directory : the run directory, if there is one.
    data : facts that the notes below the table need; None if the run was loaded from a directory.
    """

    experiment: Experiment
    units: list[Unit]
    records: list[Record]
    directory: Path | None = None
    data: "DataFacts | None" = None

    def __repr__(self) -> str:
        """Return one line: the experiment, the rounds that are done, and the newest accuracies."""
        several = len({(u.seed, *u.point.items()) for u in self.units}) > 1
        ends = [
            f"{unit.name if several else unit.label} {describe_newest(record).rpartition(', ')[2]}"
            for unit, record in list(zip(self.units, self.records))[:SHOWN]
        ]
        more = f" and {len(self.units) - SHOWN} more" if len(self.units) > SHOWN else ""
        done = max(record.round for record in self.records)
        rounds = "1 round" if done == 1 else f"{done} rounds"
        return f"<Run {self.experiment.name}, {rounds}: {', '.join(ends)}{more}>"

    def __str__(self) -> str:
        """Return the text that `fedref run` prints: the table, and notes on what it does not show."""
        return "\n\n".join([heading(self), markdown(summary_rows(self)), *notes(self)])

    @property
    def metrics(self) -> dict[str, Array]:
        """The columns of metrics.csv by name, each (rows,); NaN where a cell is empty."""
        columns, rows = metrics_table(self)
        return {name: column_array([row.get(name) for row in rows]) for name in columns}

    @property
    def clients(self) -> dict[str, Array]:
        """The columns of clients.csv by name, each (rows,)."""
        columns = clients_columns(self)
        parts = list(client_blocks(self))
        return {
            name: np.concatenate([column_array(part[name]) for part in parts] or [np.zeros(0)])
            for name in columns
        }

    def to_pandas(self, table: str = "metrics") -> Any:
        """Return metrics.csv, or clients.csv (table="clients"), as a pandas DataFrame."""
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
        """Return the plan of a round: which clients took part, on which of their training rows.

        Round t leads from the state after t rounds to that after t + 1. label, seed : by default the
        first ones.
        """
        unit, record = self.unit_of(label, seed, **point)
        experiment = config.at_point(self.experiment, unit.point)
        if not 0 <= round < experiment.rounds:
            raise ConfigError(f"round is {round}, expected 0 to {experiment.rounds - 1}")
        algorithm = names.make_algorithm(unit.label, experiment.algorithms[unit.label])
        n = record.scores[0].n_train
        sizes = n.sum(keepdims=True) if algorithm.pooled else n
        return plan_for(algorithm, experiment, sizes, round, unit.seed)

    def units_of(self, label: str | None, **point: Any) -> list[tuple[Unit, Record]]:
        """Return the units of an algorithm (None: all) that have these values of the sweep."""
        pairs = [
            (unit, record)
            for unit, record in zip(self.units, self.records)
            if label in (None, unit.label) and all(unit.point.get(k) == v for k, v in point.items())
        ]
        if not pairs:
            if label is not None and label not in (labels := {unit.label for unit in self.units}):
                raise ConfigError(unknown("algorithm of this run", label, labels))
            variants = dict.fromkeys(u.variant for u in self.units if label in (None, u.label))
            wanted = ", ".join(f"{key}={value}" for key, value in point.items())
            raise ConfigError(f"no unit has {wanted}, expected one of {'; '.join(variants)}")
        return pairs

    def unit_of(self, label: str | None, seed: int | None, **point: Any) -> tuple[Unit, Record]:
        """Return the unit of an algorithm (None: the first) with a seed (None: its first)."""
        pairs = self.units_of(label, **point)
        for unit, record in pairs:
            if seed in (None, unit.seed):
                return unit, record
        seeds = list(dict.fromkeys(unit.seed for unit, _ in pairs))
        raise ConfigError(f"seed is {seed}, expected one of {seeds}")

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

    @property
    def diverged_units(self) -> list[tuple[Unit, str]]:
        return [(u, r.reason) for u, r in zip(self.units, self.records) if r.status == "diverged"]

    def parameters(
        self, label: str, round: int | None = None, seed: int | None = None, **point: Any
    ) -> State:
        """Return the state after a round: `server`, and `clients`: client → its own state.

        round : one that `keep_parameters` has kept (None: the newest).
        """
        unit, record = self.unit_of(label, seed, **point)
        if round is None:
            return record.state
        expected = "a run with keep_parameters"
        if (folder := self.directory) is not None:
            known = [t for t in range(record.round + 1) if state_path(folder, unit, t).exists()]
            if round in known:
                return load_state(folder, unit, round)
            if known:
                expected = f"those of the rounds {known}"
        raise ConfigError(f"the parameters of round {round} are not kept, expected {expected}")

    def _repr_html_(self) -> str:
        """Return the table, its notes and the curves as HTML, for a notebook."""
        table = ""
        for i, row in enumerate(summary_rows(self)):
            tag = "td" if i else "th"
            table += f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        below = "".join(f"<p>{escape(note)}</p>" for note in notes(self))
        return f"<p>{escape(heading(self))}</p><table>{table}</table>{below}{html_curves(self)}"


def load_run(directory: str | Path, *, client_states: bool = True) -> Run:
    """Return the results in a run directory's checkpoints, even of a run that is not finished.

    client_states : also load the clients' own states (APFL's w_k and a), which for a thousand clients
    are most of a checkpoint: `load_run(DIR).parameters("apfl").clients[3].w_k`.
    """
    directory = Path(directory)
    experiment = read_experiment(directory)
    loaded = [(unit, load_record(directory, unit)) for unit in units(experiment)]
    pairs = [
        (unit, record if client_states else drop_client_states(record))
        for unit, record in loaded
        if record is not None
    ]
    if not pairs:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(experiment, [u for u, _ in pairs], [r for _, r in pairs], directory)


def idle_rounds(record: Record) -> int:
    """Count the rounds in which every client was dropped or failed: the model did not move."""
    totals = [(row["grads"], row["dropped"] + row["failed"]) for row in record.rows]
    return sum(now[0] == before[0] and now[1] > before[1] for before, now in pairwise(totals))


# ---- tables --------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """Return the shortest text that reads back as the same number; nothing for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    return "" if value is None or value != value else str(value)


def column_array(values: Any) -> Array:
    """Return a column's cells as an array; an empty one is NaN, or "" among strings."""
    if isinstance(values, np.ndarray):
        return values
    text = any(isinstance(value, str) for value in values)
    return np.array([("" if text else np.nan) if v is None else v for v in values])


def sweep_columns(run: Run) -> list[str]:
    """Return the names of the columns that hold the values of the sweep."""
    return list(dict.fromkeys(column for unit in run.units for column in unit.columns))


def metrics_table(run: Run) -> tuple[list[str], list[Row]]:
    """Return the columns and rows of metrics.csv."""
    rows = [
        {"algorithm": unit.label, **unit.columns, "seed": unit.seed, **row}
        for unit, record in zip(run.units, run.records)
        for row in record.rows
    ]
    first = ["algorithm", *sweep_columns(run), "seed", "round", *COLUMNS]
    more = sorted({name for row in rows for name in row} - set(first))
    return [*first, *more], rows


def clients_columns(run: Run) -> list[str]:
    return ["algorithm", *sweep_columns(run), "seed", "round", "client", *CLIENTS]


def client_blocks(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows of clients.csv in blocks of the N clients: column → (N,)."""
    for unit, record in zip(run.units, run.records):
        for t, scores in zip(record.rounds, record.scores):
            N = len(scores.accuracy)
            point = dict.fromkeys(sweep_columns(run)) | unit.columns
            named = {"algorithm": unit.label, **point, "seed": unit.seed, "round": t}
            block: dict[str, Any] = {name: [value] * N for name, value in named.items()}
            yield {**block, "client": np.arange(N), **scores._asdict()}


def metrics_csv(run: Run) -> str:
    columns, rows = metrics_table(run)
    return csv_text([columns, *([cell(row.get(name)) for name in columns] for row in rows)])


def clients_csv(run: Run) -> Iterator[str]:
    """Yield clients.csv in parts: a thousand clients and many rounds make hundreds of megabytes."""
    columns = clients_columns(run)
    yield csv_text([columns])
    for block in client_blocks(run):
        values = (np.asarray(block[name]).tolist() for name in columns)
        yield csv_text([cell(value) for value in row] for row in zip(*values))


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def write_tables(run: Run, directory: Path) -> None:
    """Write metrics.csv, clients.csv and summary.md, each atomically."""
    with disk_errors(directory):
        write_atomically(directory / "metrics.csv", metrics_csv(run).encode())
        write_atomically(directory / "clients.csv", map(str.encode, clients_csv(run)))
        summary = markdown(summary_rows(run)) + "\n"
        summary += "".join(
            f"\nCode changed during the run: {text}.\n" for text in changes(directory)
        )
        write_atomically(directory / "summary.md", summary.encode())


# ---- the table at the end ------------------------------------------------------------------------

Spread = tuple[float, float]


class Score(NamedTuple):
    """The column that the table summarises, its title, and the name of its best value."""

    metric: str
    title: str
    best: str


ACCURACY = Score("accuracy", "Test accuracy in %", "maximum")
LOSS = Score("test_loss", "Test loss", "minimum")


def score_of(run: Run) -> Score:
    """Return the accuracy, or the test loss where no model has labels."""
    rows = (row for record in run.records for row in record.rows)
    accuracies = (row.get("accuracy") for row in rows)
    return ACCURACY if any(a is not None and a == a for a in accuracies) else LOSS


class Summary(NamedTuple):
    """One line of the table: values as (mean, standard deviation) over seeds.

    "plain" values are means over clients. For a loss, the fields called maximum hold the minimum.
    """

    label: str
    average: Spread
    maximum: Spread
    final: Spread
    plain_average: Spread
    plain_maximum: Spread
    plain_final: Spread
    bytes_down: float
    bytes_up: float
    unseen: tuple[Spread, ...] = ()  # final, by samples and over clients
    test_loss: Spread = (np.nan, np.nan)  # final


def summaries(run: Run) -> list[Summary]:
    """Return the lines of the table; averages are over all evaluated rounds, round 0 included."""
    score = score_of(run)
    measured = run.experiment.unseen and score is ACCURACY
    unseen = ("unseen_accuracy", "unseen_accuracy_mean") if measured else ()
    table = []
    for label, records in records_by_label(run).items():
        last = [record.rows[-1] for record in records]
        down, up = (
            float(np.mean([row[name] for row in last])) for name in ("bytes_down", "bytes_up")
        )
        table.append(
            Summary(
                label + " (diverged)" * any(record.status == "diverged" for record in records),
                *over_seeds(records, score.metric, score.best),
                *over_seeds(records, f"{score.metric}_mean", score.best),
                down,
                up,
                tuple(over_seeds(records, name)[2] for name in unseen),
                over_seeds(records, "test_loss")[2],
            )
        )
    return table


def records_by_label(run: Run) -> dict[str, list[Record]]:
    """Return the records of every algorithm and point of the sweep, one for each seed."""
    groups: dict[str, list[Record]] = {}
    for unit, record in zip(run.units, run.records):
        groups.setdefault(unit.title, []).append(record)
    return groups


def over_seeds(
    records: list[Record], metric: str, best: str = "maximum"
) -> tuple[Spread, Spread, Spread]:
    """Return a column's average over rounds, its best and its last value, as spreads over seeds."""
    extreme = np.max if best == "maximum" else np.min
    series = [series_of(record, metric) for record in records]
    values = np.array([(np.mean(s), extreme(s), s[-1]) for s in series])
    with np.errstate(invalid="ignore"):  # a test loss may be infinite
        average, maximum, final = zip(values.mean(0).tolist(), values.std(0).tolist())
    return average, maximum, final


def series_of(record: Record, metric: str) -> list[float]:
    """Return a column's values in the rounds where it was evaluated."""
    return [row[metric] for row in record.rows if row.get(metric) is not None]


def summary_rows(run: Run) -> list[list[str]]:
    """Return the table as text cells, header first: accuracies in %, with ± if there are more seeds.

    The final accuracy on unseen clients has columns if it was measured. The final test loss has one
    if it is worse than guessing, which accuracies do not show.
    """
    several, score = len(run.experiment.seeds) > 1, score_of(run)
    form = (lambda x: f"{100 * x:.2f}") if score is ACCURACY else four_digits
    lines = summaries(run)
    with_loss = score is ACCURACY and any(
        is_worse_than_guessing(run, s.test_loss[0]) for s in lines
    )

    def number(value: Spread, form: Callable[[float], str] = form) -> str:
        mean, std = map(form, value)
        return f"{mean} ± {std}" if several else mean

    unit, sent = bytes_as_text([size for s in lines for size in (s.bytes_down, s.bytes_up)])
    header = [
        "algorithm", "average", score.best, "final",
        "average (clients)", f"{score.best} (clients)", "final (clients)",
        *(["unseen", "unseen (clients)"] if lines[0].unseen else []),
        *(["test loss"] if with_loss else []), f"{unit} down", f"{unit} up",
    ]  # fmt: skip
    return [
        header,
        *(
            [
                s.label, *map(number, s[1:7]), *map(number, s.unseen),
                *([number(s.test_loss, four_digits)] if with_loss else []),
                *sent[2 * i : 2 * i + 2],
            ]
            for i, s in enumerate(lines)
        ),
    ]  # fmt: skip


def four_digits(x: float) -> str:
    return f"{x:#.4g}"


def heading(run: Run) -> str:
    """Return the line above the table, which says what its numbers are."""
    score = score_of(run)
    evaluated = {
        tuple(row["round"] for row in record.rows if row.get(score.metric) is not None)
        for record in run.records
    }
    if len(evaluated) == 1:
        (rounds,) = evaluated
        over = f"{len(rounds)} evaluated rounds from 0 (the start) to {rounds[-1]}"
    else:
        over = "evaluated rounds, not the same in all"
    return f"{score.title}, over {over}; (clients): mean over clients"


# ---- notes below the table -----------------------------------------------------------------------


class DataFacts(NamedTuple):
    """Facts about the data and the model that the notes need.

    guess : the loss of a model with all parameters 0, log(classes) for softmax; NaN if unknown.
    scales : root mean square of the smallest and of the largest feature; (1, 1) if the features are
    standardised already, or cannot be.
    """

    guess: float
    scales: tuple[float, float]


#: How many training rows the facts are taken from.
ROWS = 500


def facts_of(loaded: LoadedExperiment) -> DataFacts:
    """Measure the facts on some training rows of all clients."""
    federation, model = loaded.federation, loaded.model
    rows = federation.train.rows
    batch = federation.batch(rows[:: max(1, len(rows) // ROWS)])
    guess, scales = np.nan, (1.0, 1.0)
    if model.labels:
        with suppress(Exception):  # a model of the user's own may not take zeros
            guess = float(model.loss(np.zeros(model.d), batch))
    if (
        federation.parameters.get("scaling") in ("none", "unit")
        and not federation.source.vocabulary
    ):
        rms = np.sqrt(np.mean(np.square(batch.X), 0))
        if rms.any():
            # all pixels have one unit; small ones are just black in most images
            least = rms.max() if federation.source.image else rms[rms > 0].min()
            scales = float(least), float(rms.max())
    return DataFacts(guess, scales)


def notes(run: Run) -> list[str]:
    """Return the notes below the table: a line for each problem, with the option that may help."""
    lines = (
        note_on_steps(run), note_on_guessing(run), note_on_scales(run), note_on_falling_losses(run)
    )  # fmt: skip
    return [f"Note: {line}" for line in lines if line]


def note_on_steps(run: Run) -> str:
    """Name the step sizes if they differ between algorithms."""
    steps = {}
    for label, table in run.experiment.algorithms.items():
        name = "lr" if "lr" in table else "beta"
        if name in table and not any(key.endswith(name) for key in run.experiment.sweep):
            steps[label] = f"{name} = {table[name]:g}"
    if len({text.partition(" = ")[2] for text in steps.values()}) < 2:
        return ""
    sizes = ", ".join(f"{label} {text}" for label, text in steps.items())
    return f"step sizes differ ({sizes}), which may change the ranking."


def is_worse_than_guessing(run: Run, loss: float) -> bool:
    """Return whether a test loss is clearly above that of guessing."""
    return run.data is not None and loss > 1.1 * run.data.guess


def note_on_guessing(run: Run) -> str:
    """Name the algorithms whose final test loss is worse than guessing."""
    if score_of(run) is not ACCURACY:
        return ""
    worse = [s for s in summaries(run) if is_worse_than_guessing(run, s.test_loss[0])]
    if not worse or run.data is None:
        return ""
    losses = ", ".join(f"{s.label} {s.test_loss[0]:.4g}" for s in worse)
    return (
        f"the final test loss is above that of guessing, {run.data.guess:.3g} ({losses}), whatever "
        "the accuracy: smaller steps may help (--lr, --alpha, --beta)."
    )


#: Training is slow if features differ in size by more than this factor, or are larger than this.
RATIO, LARGE = 15.0, 10.0


def note_on_scales(run: Run) -> str:
    """Recommend to standardise features that are far from 1 or from each other."""
    if run.data is None:
        return ""
    least, largest = run.data.scales
    if largest <= LARGE and largest <= RATIO * least:
        return ""
    sizes = f"{least:.2g} to {largest:.2g}" if least < largest else f"{largest:.2g}"
    return f"features have a root mean square of {sizes}: --set split.scaling=standardise may help."


#: A loss still falls if the last tenth of the rounds brings more than this part of its whole fall
#: (0.1 would be the mean pace). Fewer evaluations than this do not show it.
FALL, EVALUATIONS = 0.035, 10


def note_on_falling_losses(run: Run) -> str:
    """Name the algorithms whose loss still falls fast in the last tenth of the rounds."""
    falling = []
    for label, records in records_by_label(run).items():
        for record in records:
            losses = np.array(series_of(record, "train_loss"))
            if np.isnan(losses).any():  # it was not evaluated
                losses = np.array(series_of(record, "test_loss"))
            k = len(losses) // 10
            if len(losses) < EVALUATIONS or record.status != "done":
                continue
            last, before = losses[-k:].mean(), losses[-2 * k : -k].mean()
            if before - last > FALL * (losses[0] - last) > 0:
                falling.append(label)
                break
    if not falling:
        return ""
    return f"the loss of {', '.join(falling)} still falls at the end: more --rounds may help."


# ---- in a notebook -------------------------------------------------------------------------------


def html_curves(run: Run) -> str:
    """Return the curves as an HTML image that holds its own bytes."""
    with TemporaryDirectory(prefix="fedref-") as folder:
        path = Path(folder, "curves.png")
        names.import_name(CURVES)(run, path)
        data = base64.b64encode(path.read_bytes()).decode()
    return f'<img width="720" alt="curves" src="data:image/png;base64,{data}">'
