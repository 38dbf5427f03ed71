"""An experiment becomes numbers: units of work, each one algorithm from round 0 to T, and the run
directory that holds them.

A run directory: config.toml (every value: it reproduces the run), split.json (the exact split),
metrics.csv (a row per algorithm and round), clients.csv (a row per algorithm, evaluated round and
client), summary.md, curves.png, checkpoints/. All of it but config and split is made from the
checkpoints, so an interrupted run goes on to byte-identical files.
"""

import csv
import errno
import io
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from fedref import checkpoint, config, tree
from fedref.algorithms.fedprox import dissimilarity
from fedref.config import Experiment
from fedref.datasets import from_manifest, load, split, split_clients, write_manifest
from fedref.datasets.manifest import read as read_manifest
from fedref.datasets.sources import parse_name
from fedref.datasets.types import Federation, Part
from fedref.errors import ConfigError, DataError, FedrefError, unknown
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

    number: int
    label: str
    seed: int
    point: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """Where in the sweep it stands, as columns of its own in the tables; a list is its text."""
        plain = (bool, int, float, str)
        return {
            f"sweep.{key}": value if isinstance(value, plain) else str(value)
            for key, value in self.point.items()
        }

    @property
    def name(self) -> str:
        """What it is called in messages."""
        point = "".join(f", {key} {value}" for key, value in self.point.items())
        return f"{self.label} (seed {self.seed}{point})"

    @property
    def file(self) -> str:
        return f"{self.number:04d}-{self.label}-seed{self.seed}.ckpt"


class Record(NamedTuple):
    """How far a unit has come: everything that is needed to go on, and all its results."""

    status: str  # running, done or diverged
    round: int  # rounds done
    state: State
    rows: list[Row]
    rounds: list[int]  # the evaluated rounds
    scores: list[Scores]
    reason: str = ""
    experiment: str = ""  # whose `stamp` it has; "" in what an older fedref wrote


@dataclass(frozen=True)
class Setting:
    """What a unit needs besides its algorithm: made once for each point of the sweep."""

    experiment: Experiment
    whole: Federation  # as it was split
    federation: Federation  # whom we train and test on
    model: Model
    unseen: tuple[Federation, Array] | None  # everybody, and those that are tested unseen


def stamp(experiment: Experiment) -> str:
    """What tells an experiment from any other: the SHA-256 of all its values."""
    return sha256(config.text(experiment).encode()).hexdigest()


def units(experiment: Experiment) -> list[Unit]:
    """In the order in which they are run and written."""
    triples = [
        (label, seed, point)
        for point in config.sweep_points(experiment)
        for seed in experiment.seeds
        for label in experiment.algorithms
    ]
    return [Unit(i, *triple) for i, triple in enumerate(triples)]


# ---- from names to things ----------------------------------------------------------------------


def federation_of(experiment: Experiment, data_dir: str | Path | None = None) -> Federation:
    """The split data of an experiment."""
    table = config.split_table(experiment.split)
    rule = table.pop("rule")
    data = dict(experiment.data)
    if rule.endswith(".json"):  # it names its data; where they are a file, its folder is known here
        return from_manifest(rule, Path(data["name"]).parent if is_file(data["name"]) else data_dir)
    source = load(data.pop("name"), data_dir, **data)
    return split(rule, source, table.pop("seed"), **given(table))


def given(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that are to be found from the data."""
    return {key: value for key, value in table.items() if value is not None}


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


def setting(
    experiment: Experiment, data_dir: str | Path | None = None, before: Setting | None = None
) -> Setting:
    """Load, split and check: every mistake in data or options is met here, before any work.

    before : another point of the same sweep; where it has the same data, they are not loaded anew.
    """
    same = before and (before.experiment.data, before.experiment.split) == (
        experiment.data,
        experiment.split,
    )
    whole = before.whole if before and same else federation_of(experiment, data_dir)
    model = config.make_model(experiment.model, whole.source)
    federation = config.relabelled(whole, model)
    federation.check()
    unseen = None
    if experiment.unseen:
        train, _, test = split_clients(federation.clients, federation.seed)
        if not len(test):
            raise ConfigError(
                f"unseen needs 10 clients or more, to test one in ten, and has {federation.clients}"
            )
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
    return Setting(experiment, whole, federation, model, unseen)


def check(experiment: Experiment, data_dir: str | Path | None = None) -> Experiment:
    """Meet every mistake, at every point of the sweep, before there is a directory or any work.

    Returns the experiment as config.toml will hold it: with the values found from its data.
    """
    found = None
    for point in config.sweep_points(experiment):
        found = setting(config.at_point(experiment, point), data_dir, found)
    assert found is not None
    return config.from_table(tomllib.loads(config.text(settled(experiment, found.whole))))


def settled(experiment: Experiment, federation: Federation) -> Experiment:
    """With the split's values that were found from the data, unless a sweep changes them; and files
    by their absolute paths, so that a run can be resumed from another folder."""
    data, table = dict(experiment.data), dict(experiment.split)
    manifest = table["rule"].endswith(".json")
    if manifest and not is_file(data["name"]):
        data = {"name": federation.source.name}
    elif not manifest and not any(key.startswith(("data.", "split.")) for key in experiment.sweep):
        table |= federation.parameters
    data["name"], table["rule"] = absolute(data["name"]), absolute(table["rule"])
    return replace(experiment, data=data, split=table)


def is_file(name: str) -> bool:
    """Whether data are a file or folder, not a named data set."""
    return parse_name(name) is None and Path(name).exists()


def absolute(name: str) -> str:
    """A file's absolute path; any other name as it is."""
    return str(Path(name).resolve()) if is_file(name) else name


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


class Measured(NamedTuple):
    """What an evaluation found."""

    scores: Scores | None = None  # None: this round is not evaluated
    row: Mapping[str, Any] = MappingProxyType({})
    loss: float = float("nan")  # the training loss, where the algorithm asks for it
    problem: str = ""


def measure(setting: Setting, algorithm: Algorithm, state: State, t: int, seed: int) -> Measured:
    """Evaluate after t rounds, if that is due or the algorithm asks for the training loss."""
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    due = t % experiment.eval_every == 0 or t == experiment.rounds
    if not due and not algorithm.watches_loss:
        return Measured()
    train = experiment.eval_train or algorithm.watches_loss
    scores = evaluate(
        algorithm, model, state, federation, experiment.plan,
        round=t, seed=seed, dtype=dtype, train=train,
    )  # fmt: skip
    row, problem = scores_row(scores), problem_in_losses(scores, train)
    if not due:
        return Measured(loss=row["train_loss"], problem=problem)
    if experiment.dissimilarity and not problem:
        w = algorithm.personal(model, algorithm.download(state.server), None, None)
        everyone = [
            federation.batch(federation.train.of(k), dtype) for k in range(federation.clients)
        ]
        row["B"], row["variance"] = dissimilarity(model, w, everyone)
    if setting.unseen:
        new = evaluate_unseen(
            algorithm, model, state, *setting.unseen,
            support=experiment.unseen, seed=seed, dtype=dtype,
        )  # fmt: skip
        row["unseen_accuracy"] = weighted(new.accuracy, new.n_test)
        row["unseen_accuracy_mean"] = plain(new.accuracy, new.n_test)
    return Measured(scores, row, row["train_loss"], problem)


def problem_in_losses(scores: Scores, train: bool) -> str:
    """Whose loss is no finite number, if anybody's."""
    bad = ~np.isfinite(scores.test_loss) & (scores.n_test > 0)
    if train:
        bad |= ~np.isfinite(scores.train_loss)
    return f"the loss of client {bad.argmax()} is not finite" if bad.any() else ""


def problem_in_parameters(state: State, plan: Plan) -> str:
    """Whose parameters are no finite numbers after a round, if anybody's."""
    if not tree.finite(state.server):
        return "the server's parameters are not finite"
    for k in plan.clients.tolist():
        if not tree.finite(state.clients.get(k)):
            return f"the parameters of client {k} are not finite"
    return ""


def rounds(
    setting: Setting,
    algorithm: Algorithm,
    seed: int,
    record: Record | None = None,
    executor: Executor | None = None,
    workers: int = 1,
) -> Iterator[Record]:
    """One unit, from where `record` stands: yields the record after every round.

    Stops early when parameters or an evaluated loss are no longer finite: status "diverged", with
    the last finite state.
    """
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    trained = pool(federation, stream(seed, "pool")) if algorithm.pooled else federation

    if record is None:
        w = model.init(stream(seed, "init")).astype(dtype)
        state = State(algorithm.initial(model, w), {})
        scores, row, _, problem = measure(setting, algorithm, state, 0, seed)
        assert scores is not None
        row = {"round": 0, **row, **dict.fromkeys(TOTALS, 0), **algorithm.log(state.server)}
        status = "diverged" if problem else "running" if experiment.rounds else "done"
        reason = f"round 0: {problem}" if problem else ""
        record = Record(status, 0, state, [row], [0], [scores], reason)
        yield record
        if problem:
            return
    for t in range(record.round, experiment.rounds):
        plan = plan_for(algorithm, experiment, trained.train.sizes, t, seed)
        state, log = run_round(
            algorithm, model, record.state, plan, trained, dtype=dtype,
            executor=executor, workers=workers, on_failure=experiment.on_failure,
        )  # fmt: skip
        found = Measured(problem=problem_in_parameters(state, plan))
        if not found.problem:
            found = measure(setting, algorithm, state, t + 1, seed)
        if found.problem:
            yield record._replace(status="diverged", reason=f"round {t + 1}: {found.problem}")
            return
        if algorithm.watches_loss:
            state = state._replace(server=algorithm.observe(state.server, found.loss))
        size = (
            0 if algorithm.pooled else dtype.itemsize
        )  # what the centralised learner has is there
        new = {
            "bytes_down": log.floats_down * size, "bytes_up": log.floats_up * size,
            "grads": log.grads, "hvps": log.hvps, "flops": flops(model, log),
            "stragglers": log.stragglers, "dropped": log.dropped, "failed": log.failed,
        }  # fmt: skip
        totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
        row = {
            "round": t + 1, **found.row, **totals, **log.measured, **algorithm.log(state.server)
        }  # fmt: skip
        evaluated = found.scores is not None
        record = Record(
            "done" if t + 1 == experiment.rounds else "running",
            t + 1,
            state,
            [*record.rows, row],
            [*record.rounds, t + 1] if evaluated else record.rounds,
            [*record.scores, found.scores] if found.scores is not None else record.scores,
        )
        yield record
    if record.status == "running":
        yield record._replace(status="done")


# ---- a whole run ---------------------------------------------------------------------------------


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
    """metrics.csv, clients.csv and summary.md, each whole or not at all."""
    columns, rows = metrics_table(run)
    lines = ([cell(row.get(name)) for name in columns] for row in rows)
    metrics = csv_bytes(columns, lines)
    columns = clients_columns(run)
    lines = (
        [cell(value) for value in values]
        for block in client_blocks(run)
        for values in zip(*(block[name] for name in columns))
    )
    clients = csv_bytes(columns, lines)
    summary = markdown(summary_rows(run)) + "\n"
    with disk_errors(directory):
        checkpoint.write_whole(directory / "metrics.csv", metrics)
        checkpoint.write_whole(directory / "clients.csv", clients)
        checkpoint.write_whole(directory / "summary.md", summary.encode())


# ---- the run directory ---------------------------------------------------------------------------


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time in a run directory; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system: then nothing guards it
        yield
        return
    with disk_errors(directory):
        (directory / ".lock").touch()
    with open(directory / ".lock", "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FedrefError(
                f"{directory}: another process is running this experiment; wait for it, or stop it"
            ) from None
        yield


#: Write errors that go away when there is room again.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """A full or read-only disk becomes one line; what was saved before stays whole."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        message = f"{where}: cannot be read or written ({error.strerror or error})"
        if (directory / "config.toml").exists():
            first = "make room, then" if error.errno in FULL else "when it can be, go on with"
            message += f"; what was saved before is whole: {first} `fedref resume {directory}`"
        raise FedrefError(message) from error


@contextmanager
def begun(experiment: Experiment, out: Path | None) -> Iterator[Path]:
    """A new run directory with its config.toml, locked; one that already holds a run is refused."""
    with disk_errors(out or Path("runs")):
        directory = new_directory(experiment.name) if out is None else out
        (directory / "checkpoints").mkdir(parents=True, exist_ok=True)
    with locked(directory):
        path = directory / "config.toml"
        if path.exists():
            raise FedrefError(
                f"{directory} already holds a run: `fedref resume {directory}`, or another --out"
            )
        with disk_errors(directory):
            checkpoint.write_whole(path, config.text(experiment).encode())
        yield directory


def new_directory(name: str) -> Path:
    """runs/TIME-NAME, or with a number behind it if another process was faster."""
    base = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    for i in range(1, 1000):
        path = base if i == 1 else base.with_name(f"{base.name}-{i}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise FedrefError(f"{base} and {i} more are taken, expected fewer runs in one second")


def resumed(directory: Path) -> Experiment:
    """The experiment of a run directory, as its config.toml has it."""
    path = directory / "config.toml"
    if not path.is_file():
        raise FedrefError(f"{directory}: is no run directory, expected {path}")
    return config.from_table(config.read(path), str(path))


# ---- workers -------------------------------------------------------------------------------------


@cache
def blas() -> ThreadpoolController:
    return ThreadpoolController()


def calmly(work: Callable[..., Any], *arguments: Any) -> Any:
    """With one BLAS thread (small products gain nothing from two, and sums come out the same
    everywhere) and without a warning of every overflow (divergence is reported once)."""
    with blas().limit(limits=1), np.errstate(all="ignore"):
        return work(*arguments)


class Calm(Executor):
    """An executor whose workers work as this process does."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        try:
            return self.inner.submit(calmly, work, *arguments, **more)
        except BrokenExecutor as error:  # a worker died before all had their work
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken


# ---- from the first round to the last ------------------------------------------------------------


class Progress(NamedTuple):
    """What is told about a run as it goes: called after every round."""

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Callable[[str], None] = lambda text: None


SILENT = Progress()


def execute(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    every: float = 10.0,
    progress: Progress = SILENT,
) -> Run:
    """Run every unit, going on from the checkpoints that are there.

    every : seconds between checkpoints (more where one takes long; 0: after every round).
    """
    work = units(experiment)
    if not work:
        raise ConfigError("the experiment names no algorithm")
    calm = Calm(executor) if executor else None
    own = stamp(experiment)

    def run_units() -> list[Record]:
        records: list[Record] = []
        now: Setting | None = None
        for unit in work:
            if now is None or unit.point != work[unit.number - 1].point:
                now = setting(config.at_point(experiment, unit.point), data_dir, now)
            if directory is not None and not unit.number:
                same_split(directory, now.whole)
            record = run_unit(unit, now, own, directory, calm, workers, every, progress)
            records.append(record if directory is None else light(record))
            if directory is not None:
                write_tables(Run(experiment, work[: len(records)], records), directory)
        return records

    return Run(experiment, work, calmly(run_units))


def same_split(directory: Path, federation: Federation) -> None:
    """Write split.json, or make sure that a resumed run has the split it began with."""
    path = directory / "split.json"
    manifest = federation.manifest()
    if not path.exists():
        with disk_errors(directory):
            write_manifest(manifest, path)
    elif read_manifest(path)["sha256"] != manifest["sha256"]:
        raise DataError(
            f"{path}: the data or the split has changed since this run began; "
            "expected the same, or another --out"
        )


def run_unit(
    unit: Unit,
    setting: Setting,
    own: str,
    directory: Path | None,
    executor: Executor | None,
    workers: int,
    every: float,
    progress: Progress,
) -> Record:
    """One unit to its end, with checkpoints; own : the stamp of its experiment."""
    algorithm = config.algorithm(setting.experiment, unit.label)
    if directory is None:
        for record in rounds(setting, algorithm, unit.seed, None, executor, workers):
            progress.round(unit, record)
        return record

    path = directory / "checkpoints" / unit.file
    with disk_errors(directory):
        found, warnings = checkpoint.recover(path)
    for warning in warnings:
        progress.message(warning)
    if found is not None and found.experiment not in ("", own):
        raise DataError(
            f"{path}: belongs to another config.toml; expected the one that the run began with, "
            "or another --out"
        )
    if found is not None and found.status != "running":
        checkpoint.old(path).unlink(missing_ok=True)  # as at the end of any other run
        progress.round(unit, found)
        return found  # type: ignore[no-any-return]
    due = time.monotonic() + every
    for record in rounds(setting, algorithm, unit.seed, found, executor, workers):
        now = time.monotonic()
        if record.status != "running" or now >= due:
            with disk_errors(directory):
                checkpoint.save(path, record._replace(experiment=own))
                if record.status != "running":
                    checkpoint.old(path).unlink(missing_ok=True)
            took = time.monotonic() - now
            due = time.monotonic() + max(every, 20 * took if every else 0)
        progress.round(unit, record)
    return record


def saved(directory: Path, unit: Unit) -> Record | None:
    """How far a unit of a run directory has come; None if it has not begun."""
    with disk_errors(directory):
        record, _ = checkpoint.load_newest(directory / "checkpoints" / unit.file)
    return record  # type: ignore[no-any-return]


def light(record: Record) -> Record:
    """Without what the clients keep: with a thousand clients that is most of it, and on disk."""
    return record._replace(state=record.state._replace(clients={}))


def idle_rounds(record: Record) -> int:
    """Rounds in which every client was dropped or failed: the model did not move."""
    totals = [(row["grads"], row["dropped"] + row["failed"]) for row in record.rows]
    return sum(now[0] == before[0] and now[1] > before[1] for before, now in pairwise(totals))


def load_run(directory: str | Path) -> Run:
    """The results of a run directory, from its checkpoints, as they stand."""
    directory = Path(directory)
    experiment = resumed(directory)
    work, records = [], []
    for unit in units(experiment):
        record = saved(directory, unit)
        if record is not None:
            work.append(unit)
            records.append(light(record))
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
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """`fedref run` from Python: the same numbers, as arrays.

    what : an experiment, a TOML file or document, or None for the built-in one on the digits;
    settings : values on top, as with --set (`rounds=20`, `mu=0.1`); out : a run directory to write
    (None: nothing is written; the picture is left to `fedref plot`); executor : any
    `concurrent.futures.Executor`, for `workers` parts
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
    with config.naming(str(what) if isinstance(what, str | Path) else ""):
        experiment = config.from_table(config.with_settings(table, settings.items()))
    how: dict[str, Any] = {
        "data_dir": data_dir, "executor": executor, "workers": workers, "progress": progress
    }  # fmt: skip
    if out is None:
        return execute(experiment, **how)
    experiment = check(experiment, data_dir)
    with begun(experiment, Path(out)) as directory:
        return execute(experiment, directory, **how)


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
