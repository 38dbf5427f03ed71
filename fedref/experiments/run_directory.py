"""A run directory: its files, its lock, and how it is read.

config.toml (every value: it reproduces the run), environment.json (what else the last digits depend
on), split.json (the exact split), metrics.csv (a row per algorithm and round), clients.csv (a row
per algorithm, evaluated round and client), summary.md, curves.png, checkpoints/, and on request
parameters/ (states of chosen rounds) and log.txt. The tables are made from the checkpoints, so an
interrupted run goes on to byte-identical files.
"""

import errno
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import State
from fedref.boundary import checkpoint
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import (
    make_folder,
    open_regular_only,
    read_bytes,
    sync_folder,
    write_atomically,
)
from fedref.datasets.sources import is_in_memory
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.unit import UNIT, Record, Unit
from fedref.rounds.threads import blas


@contextmanager
def lock_run_directory(directory: Path) -> Iterator[None]:
    """Lock a run directory against other processes. The lock ends with the process in any case."""
    if not (directory / "checkpoints").is_dir():
        raise FedrefError(
            f"{directory}: there is no folder checkpoints, so there is nothing to go on with; "
            f"`fedref run {directory}/config.toml` runs the experiment anew"
        )
    with disk_errors(directory):
        file = open(directory / MARKER, "ab", opener=open_regular_only)  # noqa: SIM115 (closed below)
    with file:
        with disk_errors(directory):
            sync_folder(directory)
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # this system has no such locks
            pass
        except OSError:
            raise FedrefError(
                f"{directory}: another process is running this experiment; wait for it, or stop it"
            ) from None
        for folder in ("", "checkpoints", "parameters"):  # what killed processes left here
            for partial in (directory / folder).glob(".fedref-*.new"):
                partial.unlink(missing_ok=True)
        yield


#: What a run writes to its directory. The lock says that fedref made it: it is written first.
MARKER = ".lock"
WRITTEN = (
    "config.toml", "environment.json", "split.json", "metrics.csv", "clients.csv", "summary.md",
    "curves.png", "parameters", "log.txt",
)  # fmt: skip

#: Errors of writing that mean that the disk is full.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError, such as that of a full disk, into an error that says how to go on."""
    try:
        yield
    except (OSError, DataError) as raised:
        error = raised if isinstance(raised, OSError) else raised.__cause__
        if not isinstance(error, OSError):
            raise
        where = error.filename or directory
        message = f"{where}: cannot be read or written ({error.strerror or error})"
        if (directory / "config.toml").exists():
            first = "make room, then" if error.errno in FULL else "when it can be, go on with"
            message += f"; what was saved before is whole: {first} `fedref resume {directory}`"
        raise FedrefError(message) from error


@contextmanager
def create_run_directory(experiment: Experiment, out: Path | None) -> Iterator[Path]:
    """Make and lock a run directory with a config.toml; refuse one that already holds a run."""
    require_importable_names(experiment)
    with disk_errors(out or Path("runs")):
        directory = new_directory(experiment.name) if out is None else out
        refuse_foreign(directory)
        make_folder(directory / "checkpoints")
    with lock_run_directory(directory):
        refuse_taken(directory)
        with disk_errors(directory):
            (directory / "split.json").unlink(missing_ok=True)  # of a start that saved nothing
            write_environment(directory, environment())
            write_atomically(directory / "config.toml", config.toml_text(experiment).encode())
        yield directory


def refuse_taken(directory: Path) -> None:
    """Refuse to begin a run in a directory that holds the saved work of one."""
    saved = any(any((directory / name).glob("*.ckpt*")) for name in ("checkpoints", "parameters"))
    if (directory / "config.toml").exists() and saved:
        raise FedrefError(
            f"{directory} already holds a run: `fedref resume {directory}`, or another --out"
        )


def refuse_foreign(directory: Path) -> None:
    """Refuse to begin a run where it would write over files that fedref did not write."""
    foreign = [name for name in WRITTEN if os.path.lexists(directory / name)]
    if foreign and not (directory / MARKER).exists():
        raise FedrefError(
            f"{directory}: holds {foreign[0]}, which fedref did not write; expected another --out"
        )


def require_importable_names(experiment: Experiment) -> None:
    """Refuse objects that config.toml cannot name, because the run could not be resumed."""
    if is_in_memory(experiment.data["name"]):
        raise ConfigError(
            "data given as arrays have no name for config.toml, so the run could not be resumed; "
            "expected a file or a MODULE:FUNCTION that returns them, or no `out`"
        )
    things = [experiment.model["name"], experiment.data["name"]]
    things += [table["algorithm"] for table in experiment.algorithms.values()]
    for thing in things:
        name = names.importable_name(thing)
        if isinstance(thing, str):
            continue
        if name.startswith("__main__:") or "<locals>" in name or "<lambda>" in name:
            raise ConfigError(
                f"{name} cannot be imported again, so the run could not be resumed; expected it at "
                "the top of a module, or no `out`"
            )


def new_directory(name: str) -> Path:
    """Make the folder runs/TIME-NAME; append a number if it exists."""
    base = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    make_folder(base.parent)  # not below: a link to nowhere "exists" under every name
    for i in count(1):
        path = base if i == 1 else base.with_name(f"{base.name}-{i}")
        with suppress(FileExistsError):
            path.mkdir()
            break
    return path


# ---- what the numbers depend on ------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return everything besides config.toml that the last digits of a run depend on."""
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


def write_environment(directory: Path, values: Mapping[str, Any]) -> None:
    with disk_errors(directory):
        text = json.dumps(values, indent=1) + "\n"
        write_atomically(directory / "environment.json", text.encode())


def changes(directory: Path) -> list[str]:
    """Return what code a run went on with that it did not begin with, from environment.json."""
    try:
        path = directory / "environment.json"
        return [str(text) for text in json.loads(read_bytes(path, "JSON"))["changed"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []


def read_experiment(directory: Path) -> Experiment:
    """Return the experiment in a run directory's config.toml."""
    path = directory / "config.toml"
    if not path.is_file():
        raise FedrefError(
            f"{directory}: is not a run directory, expected {path}; if a run ended before it wrote "
            "that file, the same `fedref run` again starts it"
        )
    return config.from_table(config.read(path), str(path))


# ---- what a unit has saved -----------------------------------------------------------------------


def checkpoint_path(directory: Path, unit: Unit) -> Path:
    return directory / "checkpoints" / unit.file


def load_record(directory: Path, unit: Unit) -> Record | None:
    """Return the record in a unit's newest checkpoint; None if the unit has not begun."""
    path = checkpoint_path(directory, unit)
    with disk_errors(directory):
        record: Record | None = checkpoint.load_newest(path)[0]
    if record is not None and record.sealed.get(UNIT) != unit.name:
        raise DataError(f"{path}: holds {record.sealed.get(UNIT)}, expected {unit.name}")
    return record


def drop_client_states(record: Record) -> Record:
    """Return the record without client states, which are large and stay on disk."""
    return record._replace(state=record.state._replace(clients={}))


# ---- parameters of chosen rounds -----------------------------------------------------------------


def state_path(directory: Path, unit: Unit, round: int) -> Path:
    """Return the path of the state after a round."""
    return directory / "parameters" / f"{unit.file.removesuffix('.ckpt')}-round{round:06d}.ckpt"


def save_state(directory: Path, unit: Unit, experiment: Experiment, record: Record) -> None:
    """Write the state after this round to parameters/, if `keep_parameters` asks for it."""
    every = experiment.keep_parameters
    if every is not None and (record.round % every == 0 or record.status != "running"):
        path = state_path(directory, unit, record.round)
        with disk_errors(directory):
            make_folder(path.parent)
            write_atomically(path, checkpoint.dumps(record.state))


def missing_state(
    directory: Path, unit: Unit, experiment: Experiment, record: Record
) -> Path | None:
    """Return the first state that `keep_parameters` promises before the record's round and is gone."""
    every = experiment.keep_parameters
    paths = (
        state_path(directory, unit, t) for t in range(0, record.round, every or record.round + 1)
    )
    return next((path for path in paths if every and not path.is_file()), None)


def load_state(directory: Path, unit: Unit, round: int) -> State:
    """Return a unit's state after a round, from parameters/."""
    path = state_path(directory, unit, round)
    with disk_errors(directory):
        state: State = checkpoint.loads(path.read_bytes(), str(path))
    return state
