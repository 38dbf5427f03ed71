"""Experiments are run, from the first round to the last, in a run directory or in memory alone.

A run directory: config.toml (every value: it reproduces the run), split.json (the exact split),
metrics.csv (a row per algorithm and round), clients.csv (a row per algorithm, evaluated round and
client), summary.md, curves.png, checkpoints/. All of it but config and split is made from the
checkpoints, so an interrupted run goes on to byte-identical files.
"""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fedref.datasets import manifest_of, write_manifest
from fedref.datasets.manifest import read as read_manifest
from fedref.errors import ConfigError, DataError, FedrefError
from fedref.experiments import checkpoint, config
from fedref.experiments.config import Experiment
from fedref.experiments.results import Run, clients_csv, markdown, metrics_csv, summary_rows
from fedref.experiments.unit import Record, Setting, Unit, check, rounds, setting, stamp, units
from fedref.experiments.workers import Calm, calmly
from fedref.federation import Federation
from fedref.files import sweep


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

    every : seconds between checkpoints (more where one takes long; 0: after every round). The
    tables are written after a unit, but not more than a twentieth of the time.
    """
    work = units(experiment)
    if not work:
        raise ConfigError("the experiment names no algorithm")
    calm = Calm(executor) if executor else None
    own = stamp(experiment)

    def run_units() -> list[Record]:
        records: list[Record] = []
        now: Setting | None = None
        due = 0.0
        for unit in work:
            if now is None or unit.point != work[unit.number - 1].point:
                now = setting(config.at_point(experiment, unit.point), data_dir, now)
            if directory is not None and not unit.number:
                same_split(directory, now.whole)
            record = run_unit(unit, now, own, directory, calm, workers, every, progress)
            records.append(record if directory is None else light(record))
            if directory is not None and (unit is work[-1] or time.monotonic() >= due):
                began = time.monotonic()
                write_tables(Run(experiment, work[: len(records)], records), directory)
                due = began + 21 * (time.monotonic() - began)
        return records

    return Run(experiment, work, calmly(run_units))


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
        return found
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


def light(record: Record) -> Record:
    """Without what the clients keep: with a thousand clients that is most of it, and on disk."""
    return record._replace(state=record.state._replace(clients={}))


def idle_rounds(record: Record) -> int:
    """Rounds in which every client was dropped or failed: the model did not move."""
    totals = [(row["grads"], row["dropped"] + row["failed"]) for row in record.rows]
    return sum(now[0] == before[0] and now[1] > before[1] for before, now in pairwise(totals))


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
        sweep(directory)
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


def same_split(directory: Path, federation: Federation) -> None:
    """Write split.json, or make sure that a resumed run has the split it began with."""
    path = directory / "split.json"
    manifest = manifest_of(federation)
    if not path.exists():
        with disk_errors(directory):
            write_manifest(manifest, path)
    elif read_manifest(path)["sha256"] != manifest["sha256"]:
        raise DataError(
            f"{path}: the data or the split has changed since this run began; "
            "expected the same, or another --out"
        )


def write_tables(run: Run, directory: Path) -> None:
    """metrics.csv, clients.csv and summary.md, each whole or not at all."""
    with disk_errors(directory):
        checkpoint.write_whole(directory / "metrics.csv", metrics_csv(run).encode())
        checkpoint.write_whole(directory / "clients.csv", map(str.encode, clients_csv(run)))
        summary = markdown(summary_rows(run)) + "\n"
        checkpoint.write_whole(directory / "summary.md", summary.encode())


def resumed(directory: Path) -> Experiment:
    """The experiment of a run directory, as its config.toml has it."""
    path = directory / "config.toml"
    if not path.is_file():
        raise FedrefError(f"{directory}: is no run directory, expected {path}")
    return config.from_table(config.read(path), str(path))


def saved(directory: Path, unit: Unit) -> Record | None:
    """How far a unit of a run directory has come; None if it has not begun."""
    with disk_errors(directory):
        record, _ = checkpoint.load_newest(directory / "checkpoints" / unit.file)
    return record


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
