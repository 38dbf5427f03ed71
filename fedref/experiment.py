"""An experiment becomes numbers: units of work, each one algorithm from round 0 to T, and the run
directory that holds them.

A run directory: config.toml (every value: it reproduces the run), split.json (the exact split),
metrics.csv (a row per algorithm and round), clients.csv (a row per algorithm, evaluated round and
client), curves.png, summary.md, checkpoints/. All of it but the last is made from the checkpoints,
so an interrupted run goes on to byte-identical files.
"""

import csv
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from fedref import checkpoint, config, tree
from fedref.algorithms.fedprox import dissimilarity
from fedref.config import Experiment
from fedref.datasets import from_manifest, load, split, split_clients, write_manifest
from fedref.datasets.types import Federation, Part
from fedref.errors import ConfigError, DataError, FedrefError
from fedref.evaluation import Scores, evaluate, evaluate_unseen, plain, weighted
from fedref.federation import Algorithm, RoundLog, State, pool, run_round
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.sampling import Plan, Sampling, make_plan, stream

#: The columns of metrics.csv after those that name the row. Counts are totals since round 0.
METRICS = (
    "accuracy", "accuracy_mean", "test_loss", "test_loss_mean", "train_loss", "train_loss_mean",
    "bytes_down", "bytes_up", "grads", "hvps", "flops", "stragglers", "dropped", "failed",
)  # fmt: skip
TOTALS = ("bytes_down", "bytes_up", "grads", "hvps", "flops", "stragglers", "dropped", "failed")
CLIENT_COLUMNS = ("n_test", "accuracy", "test_loss", "n_train", "train_loss")

Row = dict[str, Any]


class Unit(NamedTuple):
    """One algorithm at one point of the sweep with one seed: the smallest thing that is resumed."""

    index: int
    label: str
    seed: int
    point: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """Where in the sweep it stands, as columns of its own in the tables."""
        return {f"sweep.{key}": value for key, value in self.point.items()}

    @property
    def file(self) -> str:
        return f"{self.index:04d}-{self.label}-seed{self.seed}.ckpt"


class Record(NamedTuple):
    """How far a unit has come: everything that is needed to go on, and all its results."""

    status: str  # running, done or diverged
    round: int  # rounds done
    state: State
    rows: list[Row]
    rounds: list[int]  # the evaluated rounds
    scores: list[Scores]
    reason: str = ""


@dataclass(frozen=True)
class Setting:
    """What a unit needs besides its algorithm: made once for each point of the sweep."""

    experiment: Experiment
    federation: Federation  # whom we train and test on
    model: Model
    unseen: tuple[Federation, Array] | None  # everybody, and those that are tested unseen


def units(experiment: Experiment) -> list[Unit]:
    """In the order in which they are run and written."""
    points = config.sweep_points({"sweep": experiment.sweep})
    triples = [
        (label, seed, point)
        for point in points
        for seed in experiment.seeds
        for label in experiment.algorithms
    ]
    return [Unit(i, *triple) for i, triple in enumerate(triples)]


# ---- from names to things ----------------------------------------------------------------------


def federation_of(experiment: Experiment, data_dir: str | Path | None = None) -> Federation:
    """The split data of an experiment."""
    table = config.split_table(experiment)
    if table["rule"].endswith(".json"):
        return from_manifest(table["rule"], data_dir)
    data = dict(experiment.data)
    source = load(data.pop("name"), data_dir, **data)
    rule, seed = table.pop("rule"), table.pop("seed")
    return split(rule, source, seed, **table)


def subset(federation: Federation, clients: Array) -> Federation:
    """Only some of the clients, renumbered in the order given."""

    def part(whole: Part) -> Part:
        rows = [whole.of(int(k)) for k in clients]
        offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
        return Part(np.concatenate(rows), offsets)

    names = federation.names
    return replace(
        federation,
        train=part(federation.train),
        test=part(federation.test),
        client_names=tuple(names[int(k)] for k in clients),
    )


def setting(experiment: Experiment, data_dir: str | Path | None = None) -> Setting:
    """Load, split and check: every mistake in data or options is met here, before any work."""
    federation = federation_of(experiment, data_dir)
    model = config.make_model(experiment.model, federation.source)
    federation = config.relabelled(federation, model)
    federation.check()
    unseen = None
    if experiment.unseen:
        seed = int(config.split_table(experiment).get("seed", 0))
        train, _, test = split_clients(federation.clients, seed)
        if not len(test):
            raise ConfigError(f"unseen needs 10 clients or more, there are {federation.clients}")
        unseen = (federation, test)
        federation = subset(federation, train)
    for label in experiment.algorithms:
        if config.algorithm(experiment, label).pooled:
            continue
        if experiment.clients_per_round > federation.clients:
            raise ConfigError(
                f"clients-per-round is {experiment.clients_per_round}, "
                f"but there are only {federation.clients} clients to train on"
            )
    return Setting(experiment, federation, model, unseen)


def check(experiment: Experiment, data_dir: str | Path | None = None) -> None:
    """Meet every mistake, at every point of the sweep, before there is a directory or any work."""
    for point in config.sweep_points({"sweep": experiment.sweep}):
        setting(config.at_point(experiment, point) if point else experiment, data_dir)


# ---- one unit ------------------------------------------------------------------------------------


def forward_products(model: Model) -> int:
    """Multiplications of one sample's forward pass: the model's own count, or its weights."""
    own = getattr(model, "products", None)
    if own is not None:
        return int(own)
    views = model.unpack(np.empty(model.d))
    return sum(view.size for view in views if view.ndim > 1)


def flops(model: Model, log: RoundLog) -> int:
    """Floating-point operations of a round's derivatives, matrix products only: a gradient is 3
    forward passes of 2 operations a product, an HVP 8."""
    products = 2 * forward_products(model)
    return products * (3 * log.grad_samples + 8 * log.hvp_samples)


def scores_row(scores: Scores) -> Row:
    n, m = scores.n_test, scores.n_train
    return {
        "accuracy": weighted(scores.accuracy, n),
        "accuracy_mean": plain(scores.accuracy, n),
        "test_loss": weighted(scores.test_loss, n),
        "test_loss_mean": plain(scores.test_loss, n),
        "train_loss": weighted(scores.train_loss, m),
        "train_loss_mean": plain(scores.train_loss, m),
    }


def plan_for(
    algorithm: Algorithm, experiment: Experiment, sizes: Array, round: int, seed: int
) -> Plan:
    """The round's plan; the centralised baseline has one client and one epoch."""
    drawn = experiment.plan
    if algorithm.pooled:
        drawn = Sampling(clients_per_round=1, epochs=1, batch_size=experiment.batch_size)
    return make_plan(drawn, sizes, round, seed, algorithm.roles)


def rounds(
    setting: Setting,
    algorithm: Algorithm,
    seed: int,
    record: Record | None = None,
    executor: Executor | None = None,
    workers: int = 1,
) -> Iterator[Record]:
    """One unit, from where `record` stands: yields the record after every round.

    Stops early when the state or the loss is no longer finite: status "diverged", with the last
    finite state.
    """
    experiment, federation, model, unseen = (
        setting.experiment, setting.federation, setting.model, setting.unseen
    )  # fmt: skip
    dtype = np.dtype(experiment.dtype)
    trained = pool(federation, stream(seed, "pool")) if algorithm.pooled else federation
    products = dict.fromkeys(TOTALS, 0)

    def measure(state: State, t: int) -> tuple[Scores | None, Row, float]:
        """Scores if round t is evaluated, its row, and the loss that the algorithm asks for."""
        due = t % experiment.eval_every == 0 or t == experiment.rounds
        watches = algorithm.watches_loss
        scores = None
        if due or watches:
            scores = evaluate(
                algorithm, model, state, federation, experiment.plan,
                round=t, seed=seed, dtype=dtype, train=experiment.eval_train or watches,
            )  # fmt: skip
        row = scores_row(scores) if scores is not None else {}
        loss = row.get("train_loss", 0.0)
        if not due:
            return None, {}, loss
        if experiment.dissimilarity:
            w = algorithm.personal(model, algorithm.download(state.server), None, None)
            everyone = [
                federation.batch(federation.train.of(k), dtype) for k in range(federation.clients)
            ]
            row["B"], row["variance"] = dissimilarity(model, w, everyone)
        if unseen:
            new = evaluate_unseen(
                algorithm, model, state, *unseen,
                support=experiment.unseen, seed=seed, dtype=dtype,
            )  # fmt: skip
            row["unseen_accuracy"] = weighted(new.accuracy, new.n_test)
            row["unseen_accuracy_mean"] = plain(new.accuracy, new.n_test)
        return scores, row, loss

    if record is None:
        w = model.init(stream(seed, "init")).astype(dtype)
        state = State(algorithm.initial(model, w), {})
        scores, row, _ = measure(state, 0)
        row = {"round": 0, **row, **products, **algorithm.log(state.server)}
        record = Record("running", 0, state, [row], [0], [scores] if scores else [])
        yield record
    for t in range(record.round, experiment.rounds):
        plan = plan_for(algorithm, experiment, trained.train.sizes, t, seed)
        state, log = run_round(
            algorithm, model, record.state, plan, trained, dtype=dtype,
            executor=executor, workers=workers, on_failure=experiment.on_failure,
        )  # fmt: skip
        if not tree.finite(state.server):
            yield record._replace(status="diverged", reason=f"round {t + 1}: parameters not finite")
            return
        scores, row, loss = measure(state, t + 1)
        losses = [loss, *(row[k] for k in ("train_loss", "test_loss") if k in row)]
        if any(np.isinf(losses)) or (algorithm.watches_loss and np.isnan(loss)):
            yield record._replace(status="diverged", reason=f"round {t + 1}: loss not finite")
            return
        if algorithm.watches_loss:
            state = state._replace(server=algorithm.observe(state.server, loss))
        size = dtype.itemsize
        new = {
            "bytes_down": 0 if algorithm.pooled else log.floats_down * size,
            "bytes_up": 0 if algorithm.pooled else log.floats_up * size,
            "grads": log.grads, "hvps": log.hvps, "flops": flops(model, log),
            "stragglers": log.stragglers, "dropped": log.dropped, "failed": log.failed,
        }  # fmt: skip
        totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
        row = {"round": t + 1, **row, **totals, **log.measured, **algorithm.log(state.server)}
        record = Record(
            "done" if t + 1 == experiment.rounds else "running",
            t + 1,
            state,
            [*record.rows, row],
            [*record.rounds, t + 1] if scores else record.rounds,
            [*record.scores, scores] if scores else record.scores,
        )
        yield record
    if record.status == "running":
        yield record._replace(status="done")


# ---- a whole run ---------------------------------------------------------------------------------


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

    def curve(self, label: str, metric: str = "accuracy", **point: Any) -> tuple[Array, Array]:
        """(rounds (R,), values (seeds, R)) of one algorithm, evaluated rounds only."""
        chosen = [
            record
            for unit, record in zip(self.units, self.records)
            if unit.label == label and all(unit.point.get(k) == v for k, v in point.items())
        ]
        if not chosen:
            raise ConfigError(f"this run has no algorithm {label!r}")
        series = [
            {row["round"]: row[metric] for row in record.rows if row.get(metric) is not None}
            for record in chosen
        ]
        common = sorted(set.intersection(*(set(s) for s in series)))
        return np.array(common), np.array([[s[t] for t in common] for s in series])

    @property
    def diverged(self) -> list[tuple[Unit, str]]:
        return [(u, r.reason) for u, r in zip(self.units, self.records) if r.status == "diverged"]


def cell(value: Any) -> str:
    """The shortest text that reads back as the same number; nothing for NaN."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    return repr(value.item()) if isinstance(value, np.generic) else str(value)


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


def csv_bytes(columns: list[str], rows: Iterator[list[str]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue().encode()


def write_tables(run: Run, directory: Path) -> None:
    """metrics.csv and clients.csv, whole or not at all."""
    columns, rows = metrics_table(run)
    lines = ([cell(row.get(name)) for name in columns] for row in rows)
    checkpoint.write_whole(directory / "metrics.csv", csv_bytes(columns, lines))
    columns = clients_columns(run)
    lines = (
        [cell(value) for value in values]
        for block in client_blocks(run)
        for values in zip(*(block[name] for name in columns))
    )
    checkpoint.write_whole(directory / "clients.csv", csv_bytes(columns, lines))


# ---- the run directory ---------------------------------------------------------------------------


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time in a run directory; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system: then nothing guards it
        yield
        return
    with open(directory / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FedrefError(
                f"{directory}: another process is running this experiment; wait for it, or stop it"
            ) from None
        yield


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """A full or read-only disk becomes one line; the last checkpoint stays whole."""
    try:
        yield
    except OSError as error:
        raise FedrefError(
            f"{directory}: cannot write ({error.strerror or error}); what was saved is whole: "
            f"make room, then `fedref resume {directory}`"
        ) from error


def new_directory(experiment: Experiment, out: Path | None) -> Path:
    """Make the run directory; refuse one that already holds a run."""
    if out is None:
        base = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{experiment.name}"
        tries = (base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000)))
        out = next(path for path in tries if not path.exists())
    if (out / "config.toml").exists():
        raise FedrefError(f"{out} already holds a run: `fedref resume {out}`, or another --out")
    with disk_errors(out):
        (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    return out


class Progress(NamedTuple):
    """What is told about a run as it goes: called after every round."""

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Callable[[str], None] = lambda text: None


def execute(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    every: float = 10.0,
    progress: Progress = Progress(),
) -> Run:
    """Run every unit, going on from the checkpoints that are there.

    every : seconds between checkpoints (more where one takes long; 0: after every round).
    """
    work = units(experiment)
    if not work:
        raise ConfigError("the experiment names no algorithm")
    settings: dict[str, Setting] = {}
    records: list[Record] = []
    # One BLAS thread: small products gain nothing from two, and sums come out the same everywhere.
    with threadpool_limits(1), np.errstate(all="ignore"):
        for unit in work:
            key = json.dumps(unit.point, default=str)
            if key not in settings:
                at = config.at_point(experiment, unit.point) if unit.point else experiment
                settings = {key: setting(at, data_dir)}  # only one in memory
                if directory is not None and not unit.index:
                    same_split(directory, settings[key].federation)
            algorithm = config.algorithm(settings[key].experiment, unit.label)
            records.append(
                run_unit(
                    unit, settings[key], algorithm, directory, executor, workers, every, progress
                )
            )
            if directory is not None:
                with disk_errors(directory):
                    write_tables(Run(experiment, work[: len(records)], records), directory)
    return Run(experiment, work, records)


def same_split(directory: Path, federation: Federation) -> None:
    """Write split.json, or make sure that a resumed run has the split it began with."""
    path = directory / "split.json"
    manifest = federation.manifest()
    if not path.exists():
        with disk_errors(directory):
            write_manifest(manifest, path)
    elif json.loads(path.read_bytes()).get("sha256") != manifest.get("sha256"):
        raise DataError(f"{path}: the data or the split has changed since this run began")


def run_unit(
    unit: Unit,
    setting: Setting,
    algorithm: Algorithm,
    directory: Path | None,
    executor: Executor | None,
    workers: int,
    every: float,
    progress: Progress,
) -> Record:
    """One unit to its end, with checkpoints."""
    path = directory / "checkpoints" / unit.file if directory is not None else None
    record: Record | None = None
    if path is not None:
        record, warning = checkpoint.load_newest(path)
        if warning:
            progress.message(warning)
    if record is not None and record.status != "running":
        progress.round(unit, record)
        return record
    due = time.monotonic() + every
    for new in rounds(setting, algorithm, unit.seed, record, executor, workers):
        record = new
        now = time.monotonic()
        if path is not None and (record.status != "running" or now >= due):
            with disk_errors(path.parent.parent):
                checkpoint.save(path, record)
                if record.status != "running":
                    checkpoint.old(path).unlink(missing_ok=True)
            took = time.monotonic() - now
            due = time.monotonic() + max(every, 20 * took if every else 0)
        progress.round(unit, record)
    assert record is not None
    return record


def load_run(directory: str | Path) -> Run:
    """The results of a run directory, from its checkpoints, as they stand."""
    directory = Path(directory)
    experiment = config.from_table(
        config.read(directory / "config.toml"), f"{directory}/config.toml"
    )
    work, records = [], []
    for unit in units(experiment):
        record, _ = checkpoint.load_newest(directory / "checkpoints" / unit.file)
        if record is not None:
            work.append(unit)
            records.append(record)
    if not records:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(experiment, work, records)


def run(
    what: Experiment | str | Path | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress = Progress(),
    **settings: Any,
) -> Run:
    """`fedref run` from Python: the same numbers, as arrays.

    what : an experiment, a TOML file or document, or None for the built-in one on the digits;
    settings : values on top, as with --set (`rounds=20`, `mu=0.1`); out : a run directory to write
    (None: nothing is written); executor : any `concurrent.futures.Executor`, for `workers` parts
    of every cohort; without one, `workers` > 1 is refused.

    >>> result = run({"algorithms": {"fedavg": {"lr": 0.1}}, "data": {"name": "digits"}}, rounds=2)
    >>> t, accuracy = result.curve("fedavg", "accuracy")
    >>> t, accuracy.shape
    (array([0, 1, 2]), (1, 3))
    """
    if executor is None and workers > 1:
        raise ConfigError(f"workers is {workers}, expected an executor to run them on")
    if isinstance(what, Experiment):
        table = config.resolved(what)
    elif isinstance(what, Mapping):
        table = dict(what)
    else:
        table = config.read(Path(what)) if what is not None else config.built_in()
    table = config.completed(table)
    for key, value in settings.items():
        table = config.with_setting(table, key, value)
    experiment = config.from_table(table)
    directory = None
    if out is not None:
        check(experiment, data_dir)
        directory = new_directory(experiment, Path(out))
        with disk_errors(directory):
            write_config(experiment, directory)
    return execute(
        experiment,
        directory,
        data_dir=data_dir,
        executor=executor,
        workers=workers,
        progress=progress,
    )


def write_config(experiment: Experiment, directory: Path) -> None:
    """config.toml with every value, those that were found from the data included."""
    checkpoint.write_whole(directory / "config.toml", config.text(experiment).encode())


# ---- the table at the end -----------------------------------------------------------------------


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


def summaries(run: Run) -> list[Summary]:
    """Average over all evaluated rounds (round 0 included), maximum and final accuracy."""
    groups: dict[str, list[Record]] = {}
    for unit, record in zip(run.units, run.records):
        point = ", ".join(f"{k}={v}" for k, v in unit.point.items())
        groups.setdefault(f"{unit.label} ({point})" if point else unit.label, []).append(record)

    def over_seeds(values: list[float]) -> tuple[float, float]:
        return float(np.mean(values)), float(np.std(values))

    table = []
    for label, records in groups.items():
        both = []
        for metric in ("accuracy", "accuracy_mean"):
            series = [
                [row[metric] for row in record.rows if row.get(metric) is not None]
                for record in records
            ]
            both += [over_seeds([float(f(s)) for s in series]) for f in (np.mean, np.max)]
            both.append(over_seeds([s[-1] for s in series]))
        down, up = (
            float(np.mean([r.rows[-1][name] for r in records]))
            for name in ("bytes_down", "bytes_up")
        )
        table.append(Summary(label, *both, down, up))
    return table


def summary_rows(run: Run) -> list[list[str]]:
    """The table as text cells, header first. Accuracies in %, with ± over seeds if there are some."""
    several = len(run.experiment.seeds) > 1

    def percent(value: tuple[float, float]) -> str:
        mean, std = value
        return f"{100 * mean:.2f} ± {100 * std:.2f}" if several else f"{100 * mean:.2f}"

    header = [
        "algorithm", "average", "maximum", "final",
        "average (clients)", "maximum (clients)", "final (clients)", "MB down", "MB up",
    ]  # fmt: skip
    return [
        header,
        *(
            [s.label, *map(percent, s[1:7]), f"{s.bytes_down / 1e6:.2f}", f"{s.bytes_up / 1e6:.2f}"]
            for s in summaries(run)
        ),
    ]


def markdown(rows: list[list[str]]) -> str:
    """An aligned Markdown table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) + " |"
        for row in rows
    ]  # fmt: skip
    rule = (
        "|"
        + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths))
        + "|"
    )
    return "\n".join([lines[0], rule, *lines[1:]])
