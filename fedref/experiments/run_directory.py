"""A run directory: what is in it, who may write there, and how its results are read again.

config.toml (every value: it reproduces the run), environment.json (what else the last digits depend
on), split.json (the exact split), metrics.csv (a row per algorithm and round), clients.csv (a row
per algorithm, evaluated round and client), summary.md, curves.png, checkpoints/, and if it is asked
for parameters/ (states of chosen rounds) and log.txt. The tables are made from the checkpoints, so an
interrupted run goes on to byte-identical files.
"""

import errno
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import State
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import remove_partial_files, write_whole
from fedref.datasets import manifest_of, write_manifest
from fedref.datasets.manifest import read as read_manifest
from fedref.experiments import checkpoint, config
from fedref.experiments.experiment import Experiment
from fedref.experiments.results import Run, clients_csv, metrics_csv
from fedref.experiments.summary import markdown, summary_rows
from fedref.experiments.unit import Record, Unit, check_record, types_of
from fedref.experiments.workers import blas
from fedref.rounds.federation import Federation


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time in a run directory; the lock goes with the process, however it ends."""
    for folder in (directory / "checkpoints", directory / "parameters"):
        if folder.is_symlink():
            raise FedrefError(f"{folder}: is a link, expected a folder")
    if not (directory / "checkpoints").is_dir():
        raise FedrefError(
            f"{directory}: there is no folder checkpoints, so there is nothing to go on with; "
            f"`fedref run {directory}/config.toml` runs the experiment anew"
        )
    try:
        import fcntl
    except ImportError:  # not on this system: then nothing guards it
        yield
        return
    with disk_errors(directory):  # never through a link to a file elsewhere
        file = os.fdopen(
            os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b"
        )
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FedrefError(
                f"{directory}: another process is running this experiment; wait for it, or stop it"
            ) from None
        remove_partial_files(directory)
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
        refuse_taken(directory)
        path = directory / "config.toml"
        with disk_errors(directory):
            text = json.dumps(environment(), indent=1) + "\n"
            write_whole(directory / "environment.json", text.encode())
            write_whole(path, config.text(experiment).encode())
        yield directory


def refuse_taken(directory: Path) -> None:
    """A directory that holds a run already is not begun anew."""
    if (directory / "config.toml").exists():
        raise FedrefError(
            f"{directory} already holds a run: `fedref resume {directory}`, or another --out"
        )


def environment() -> dict[str, str]:
    """What the last digits of a run depend on besides config.toml."""
    built: Any = np.show_config(mode="dicts")
    library = built["Build Dependencies"]["blas"]
    kernels = {str(i.get("architecture")) for i in blas().info() if i.get("user_api") == "blas"}
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "blas": f"{library.get('name')} {library.get('version')}",
        "kernel": ", ".join(sorted(kernels)),
    }


def other_environment(directory: Path) -> str:
    """In what this process differs from the one that began the run, as a message; "" if in nothing."""
    try:
        then = json.loads((directory / "environment.json").read_bytes())
        then = {key: str(then[key]) for key in environment()}
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return "environment.json is gone or damaged: whether the last digits will match is unknown"
    differs = [f"{k} {then[k]}, now {now}" for k, now in environment().items() if then[k] != now]
    return f"begun with {'; '.join(differs)}: the last digits may differ" if differs else ""


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
        write_whole(directory / "metrics.csv", metrics_csv(run).encode())
        write_whole(directory / "clients.csv", map(str.encode, clients_csv(run)))
        summary = markdown(summary_rows(run)) + "\n"
        write_whole(directory / "summary.md", summary.encode())


def resumed(directory: Path) -> Experiment:
    """The experiment of a run directory, as its config.toml has it."""
    path = directory / "config.toml"
    if not path.is_file():
        raise FedrefError(f"{directory}: is no run directory, expected {path}")
    return config.from_table(config.read(path), str(path))


def recovered(
    directory: Path, unit: Unit, experiment: Experiment, own: str
) -> tuple[Record | None, list[str]]:
    """(how far a unit has come, warnings), to go on from; own : the stamp of its experiment."""
    path = directory / "checkpoints" / unit.file
    with disk_errors(directory):
        found, warnings = checkpoint.recover(path, types_of(experiment, unit))
    if found is None:
        return None, warnings
    if type(found) is Record and found.experiment not in ("", own):
        raise DataError(
            f"{path}: belongs to another config.toml; expected the one that the run began with, "
            "or another --out"
        )
    check_record(found, experiment, unit, str(path))
    return found, warnings


def saved(directory: Path, unit: Unit, experiment: Experiment) -> Record | None:
    """How far a unit of a run directory has come; None if it has not begun."""
    path = directory / "checkpoints" / unit.file
    with disk_errors(directory):
        record: Record | None = checkpoint.load_newest(path, types_of(experiment, unit))[0]
    if record is not None:
        check_record(record, experiment, unit, str(path))
    return record


def light(record: Record) -> Record:
    """Without what the clients keep: with a thousand clients that is most of it, and on disk."""
    return record._replace(state=record.state._replace(clients={}))


def idle_rounds(record: Record) -> int:
    """Rounds in which every client was dropped or failed: the model did not move."""
    totals = [(row["grads"], row["dropped"] + row["failed"]) for row in record.rows]
    return sum(now[0] == before[0] and now[1] > before[1] for before, now in pairwise(totals))


# ---- parameters of chosen rounds -----------------------------------------------------------------


def kept_file(directory: Path, unit: Unit, round: int | str) -> Path:
    """Where the state after a round is kept."""
    number = f"{round:06d}" if isinstance(round, int) else round
    name = f"{unit.file.removesuffix('.ckpt')}-round{number}.ckpt"
    return directory / "parameters" / name


def is_kept(experiment: Experiment, record: Record) -> bool:
    """Whether the state after this round is one of those that `keep_parameters` says."""
    every = experiment.keep_parameters
    return every is not None and (record.round % every == 0 or record.status != "running")


def keep_state(directory: Path, unit: Unit, experiment: Experiment, record: Record) -> None:
    """Keep the state after this round, if it is to be kept."""
    if is_kept(experiment, record):
        path = kept_file(directory, unit, record.round)
        with disk_errors(directory):
            path.parent.mkdir(exist_ok=True)
            write_whole(path, checkpoint.dumps(record.state))


def kept_rounds(directory: Path, unit: Unit) -> list[int]:
    """The rounds of a unit whose states are kept."""
    before, _, after = kept_file(directory, unit, "#").name.rpartition("#")
    pattern = re.escape(before) + r"(\d{6,})" + re.escape(after)
    folder = directory / "parameters"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)))


def kept_state(directory: Path, unit: Unit, experiment: Experiment, round: int) -> State:
    """The state of a unit after a round that is kept."""
    path = kept_file(directory, unit, round)
    with disk_errors(directory):
        found = checkpoint.loads(path.read_bytes(), str(path), types_of(experiment, unit))
    if type(found) is not State:
        raise DataError(f"{path}: is a {type(found).__name__}, expected the state of a run")
    return found
