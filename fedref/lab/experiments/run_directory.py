"""A run directory: its files, and how they are written and read.

config.toml (every value: it reproduces the run), environment.json (what else the last digits depend
on), checkpoints/ (a file for each unit: the only way from a unit to its results), on request parameters/
(states of chosen rounds); and at the end split.json (the exact split), metrics.csv (a row per algorithm
and round), clients.csv (a row per algorithm, evaluated round and client), summary.md, summary.csv,
curves.png.
"""

import errno
import json
import os
import platform
import shlex
import time
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import fedref
from fedref.algorithm import State
from fedref.boundary import checkpoint
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import (
    make_folder,
    open_regular,
    read_bytes,
    sync_folder,
    write_atomically,
)
from fedref.lab.datasets.sources import is_in_memory
from fedref.lab.experiments import config, names
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.unit import LoadedExperiment, Record, Say, Unit
from fedref.rounds.threads import blas

#: What a run writes to its directory. The mark says that fedref made it: it is written first.
MARK = ".fedref-run"
WRITTEN = (
    "config.toml", "environment.json", "split.json", "metrics.csv", "clients.csv", "summary.md",
    "summary.csv", "curves.png", "parameters",
)  # fmt: skip
#: Errors of writing that mean that the disk is full.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(directory: Path, resumable: bool = False) -> Iterator[None]:
    """Turn an OSError, such as that of a full disk, into an error that names the file.

    resumable : the directory holds a run, so say how to go on; an interrupt says it, too.
    """
    here, path = Path.cwd(), directory.absolute()  # user code may change the working directory
    name = path.relative_to(here) if here in path.parents else directory
    again = f"fedref resume {shlex.quote(str(name))}"
    try:
        yield
    except KeyboardInterrupt as stop:
        if resumable and len(stop.args) < 2:
            stop.args = (*(stop.args or ("interrupted",)), f"resume with: {again}")
        raise
    except BrokenPipeError:
        raise
    except (OSError, DataError) as raised:
        error = raised if isinstance(raised, OSError) else raised.__cause__
        if not isinstance(error, OSError):
            raise
        if error is not raised and path not in Path(str(error.filename or "")).absolute().parents:
            raise  # of data, and it says more
        where = error.filename or ("standard output" if resumable else directory)
        message = f"{where}: cannot be read or written ({error.strerror or error})"
        if resumable and (path / "config.toml").exists():
            first = "make room, then" if error.errno in FULL else "when it can be, go on with"
            message += f"; what was saved before is whole: {first} `{again}`"
        raise FedrefError(message) from error


# ---- beginning -----------------------------------------------------------------------------------


@contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Own a run directory, which is made if it is not there; refuse one that another run owns.

    The system's lock on the folder ends with the process, in whatever way that ends.
    """
    made, path = not directory.exists(), directory.absolute()
    with disk_errors(directory):
        make_folder(directory)
    if os.name != "posix":  # which locks no folder
        yield
        return
    folder = os.open(directory, os.O_RDONLY)
    try:
        for _ in range(5):  # who looks whether a run writes here holds it for a moment
            if locked := lock_folder(folder):
                break
            time.sleep(0.1)
        if not locked:
            raise FedrefError(
                f"{directory}: {owner_of(folder)} writes here; wait for it, or use another --out"
            )
        yield
    finally:
        unlock_folder(folder)
        os.close(folder)
        if made:
            with suppress(OSError):  # it holds something
                path.rmdir()


def unlock_folder(folder: int) -> None:
    """Unlock a folder that is locked here, for the processes, too, that inherited it open."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(folder, fcntl.LOCK_UN)


def lock_folder(folder: int, shared: bool = False) -> bool:
    """Lock an open folder, shared with other readers or not; return False if it is locked."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(folder, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def is_held(directory: Path) -> bool:
    """Return whether a run writes to this directory now."""
    try:
        folder = os.open(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock_folder(folder, shared=True)
    finally:
        os.close(folder)


def owner_of(folder: int) -> str:
    """Return who holds the lock on an open folder: "process 123, running since 12:30:59,"."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and int(words[5].split(":")[2]) == os.fstat(folder).st_ino:
                began = time.localtime(os.stat(f"/proc/{words[4]}").st_ctime)
                return f"process {words[4]}, running since {time.strftime('%H:%M:%S', began)},"
    return "another run"


def begin_run(experiment: Experiment, out: Path, say: Say = lambda text: None) -> None:
    """Write config.toml and environment.json; refuse a folder that holds another run's work."""
    algorithms = map(type, experiment.algorithms.values())
    names.require_importable(experiment.model["name"], experiment.data["name"], *algorithms)
    begun = is_begun(experiment, out)
    if begun and (differs := compare_environment(out)):
        say(f"{out}: {differs}")
    with disk_errors(out, resumable=True):
        make_folder(out / "checkpoints")
        (out / MARK).touch()
        sync_folder(out)
        if not begun:
            write_environment(out)
            write_atomically(out / "config.toml", config.toml_text(experiment).encode())


def is_begun(experiment: Experiment, out: Path) -> bool:
    """Return whether a folder holds this run; refuse another's work, and files that no run has written."""
    foreign = [name for name in WRITTEN if os.path.lexists(out / name)]
    if foreign and not (out / MARK).exists():
        raise FedrefError(
            f"{out}: holds {foreign[0]}, which fedref did not write; expected another --out"
        )
    path, text = out / "config.toml", config.toml_text(experiment)
    begun = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    saved = any(any((out / name).glob("*.ckpt")) for name in ("checkpoints", "parameters"))
    if begun not in ("", text) and saved:
        others = [line for line in text.splitlines() if line not in begun.splitlines()]
        raise FedrefError(
            f"{out} already holds a run: `fedref resume {out}`, or another --out "
            f"(that run has not {', '.join(others[:1]) or 'the same values'})"
        )
    return begun == text


def new_directory(name: str) -> Path:
    """Make the folder runs/TIME-NAME; append a number if it exists."""
    base = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    with disk_errors(base.parent):
        make_folder(base.parent)  # not below: a link to nowhere "exists" under every name
        for i in count(1):
            path = base if i == 1 else base.with_name(f"{base.name}-{i}")
            with suppress(FileExistsError):
                path.mkdir()
                break
    return path


def remove_partial_files(directory: Path) -> None:
    """Remove what killed processes have left here."""
    for folder in ("", "checkpoints", "parameters"):
        for partial in (directory / folder).glob(".fedref-*.new"):
            partial.unlink(missing_ok=True)


# ---- what the numbers were computed from ---------------------------------------------------------


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


def write_environment(directory: Path, **more: Any) -> None:
    text = json.dumps({**environment(), **more}, indent=1) + "\n"
    write_atomically(directory / "environment.json", text.encode())


def compare_environment(directory: Path) -> str:
    """Return how this process differs from the one that began the run, as text; "" if it does not.

    An environment.json that is gone or damaged is written anew.
    """
    path = directory / "environment.json"
    try:
        read = json.loads(read_bytes(path, "the file as the run left it"))
        then = {key: str(read[key]) for key in environment()}
    except (FedrefError, OSError, ValueError, TypeError, LookupError, RecursionError):
        write_environment(directory)
        return f"{path.name} was gone or damaged: whether the last digits will match is unknown"
    here = environment()
    # a library that is not loaded yet, SciPy's, shows no kernel
    kernels = [set(side["kernel"].split(", ")) for side in (then, here)]
    if kernels[0] <= kernels[1] or kernels[1] <= kernels[0]:
        here["kernel"] = then["kernel"]
    differs = [f"{k} {then[k]}, now {now}" for k, now in here.items() if then[k] != now]
    return f"begun with {'; '.join(differs)}: the last digits may differ" if differs else ""


UNIT, CONFIG, DATA = "unit", "config.toml", "the data or the split"


def seal_of(unit: Unit, loaded: LoadedExperiment, split_hash: str) -> dict[str, str]:
    """Return everything that a unit's numbers are computed from, by name."""
    data = unit.experiment.data["name"]
    function = None if is_in_memory(data) else names.find_function(data)
    return {
        UNIT: unit.name,
        CONFIG: unit.file,
        DATA: split_hash,
        **numeric_rooms(),
        **names.own_code((type(unit.algorithm), type(loaded.model), function)),
    }


@cache
def numeric_rooms() -> dict[str, str]:
    """Return name → the SHA-256 of fedref's modules that numbers depend on, without words."""
    top = Path(fedref.__file__).parent
    hashes = dict[str, str]()
    for room in ("models", "algorithms", "rounds", "algorithm.py", "sampling.py", "tree.py"):
        files = sorted((top / room).glob("*.py")) or [top / room]
        code = [[file.name, *code_of(file)] for file in files]
        hashes[f"fedref.{room.removesuffix('.py')}"] = sha256(repr(code).encode()).hexdigest()
    return hashes


def code_of(path: Path) -> Iterator[str]:
    """Yield the tokens of a module: no comments, no empty lines, no docstrings, any indentation."""
    line = list[str]()
    with tokenize.open(path) as file:
        for kind, text, *_ in tokenize.generate_tokens(file.readline):
            if kind in (tokenize.INDENT, tokenize.DEDENT):
                yield tokenize.tok_name[kind]
            elif kind == tokenize.NEWLINE:
                if not (len(line) == 1 and line[0].endswith(("'", '"'))):
                    yield from [*line, "\n"]
                line.clear()
            elif kind not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
                line.append(text)


def check_seal(
    directory: Path, unit: Unit, then: Mapping[str, str], now: Mapping[str, str], changed_code: bool
) -> None:
    """Refuse to go on with a unit that was computed from other things.

    changed_code : go on if only the code has changed; environment.json and summary.md then say so.
    """
    anew = f"or `fedref run {directory}/config.toml` anew"
    for key in sorted({*then, *now}):
        was, is_now = then.get(key, "nothing"), now.get(key, "nothing")
        text = f"{key} was {was:.12}, now {is_now:.12}"
        if was == is_now or text in (noted := changes_of(directory)):
            continue
        code = key not in (CONFIG, DATA)
        if not (code and changed_code):
            go_on = f", or `fedref resume --changed-code {directory}` to go on" * code
            raise DataError(
                f"{directory}: {key} changed after {unit.name} began; expected the same, {anew}{go_on}"
            )
        write_environment(directory, changed=[*noted, text])


def changes_of(directory: Path) -> list[str]:
    """Return what code a run went on with that it did not begin with, from environment.json."""
    try:
        content = read_bytes(directory / "environment.json", "JSON")
        return [str(text) for text in json.loads(content)["changed"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []


def refuse_strangers(directory: Path, work: list[Unit]) -> None:
    """Refuse a run directory that holds units of another config.toml."""
    known = {unit.file for unit in work}
    for path in sorted((directory / "checkpoints").glob("*.ckpt")):
        if path.name not in known:
            raise DataError(
                f"{directory}: config.toml changed after {path.stem} began; expected the same, or "
                f"`fedref run {directory}/config.toml` anew"
            )


# ---- what a unit has saved -----------------------------------------------------------------------


def record_path(directory: Path, unit: Unit) -> Path:
    return directory / "checkpoints" / unit.file


def read_tree(path: Path, code: bool = True) -> Any:
    with open_regular(path, "a checkpoint") as file:
        return checkpoint.loads(file.read(), str(path), code)


def write_tree(path: Path, value: Any) -> None:
    make_folder(path.parent)
    write_atomically(path, checkpoint.dumps(value))


def load_record(directory: Path, unit: Unit, code: bool = True) -> Record | None:
    """Return the record in a unit's file; None if the unit has not begun. DataError if it is damaged.

    Any other FedrefError: the file holds another unit.
    """
    path = record_path(directory, unit)
    if not path.exists():
        return None
    record: Record = read_tree(path, code)
    if record.seal.get(UNIT) != unit.name:
        raise FedrefError(f"{path}: holds {record.seal.get(UNIT)}, expected {unit.name}")
    return record


def drop_client_states(record: Record) -> Record:
    """Return the record without client states, which are large and stay on disk."""
    return record._replace(state=record.state._replace(clients={}))


def save_record(directory: Path, unit: Unit, record: Record, seal: Mapping[str, str]) -> None:
    write_tree(record_path(directory, unit), record._replace(seal=seal))


def state_path(directory: Path, unit: Unit, round: int) -> Path:
    """Return the path of the state after a round, which `keep_parameters` asks for."""
    return directory / "parameters" / f"{unit.file.removesuffix('.ckpt')}-round{round:06d}.ckpt"


def keep_state(directory: Path, unit: Unit, record: Record) -> None:
    """Save the state after a round if `keep_parameters` asks for it."""
    every = unit.experiment.keep_parameters
    if every and (record.round % every == 0 or record.status != "running"):
        kept = unit.file, record.round, record.state
        write_tree(state_path(directory, unit, record.round), kept)


def load_state(directory: Path, unit: Unit, round: int) -> State:
    """Return the state that was kept after a round; DataError if it is damaged, or another's."""
    path = state_path(directory, unit, round)
    kept = read_tree(path)
    unit_file, t, state = kept if len(kept) == 3 else (None, None, None)
    if (unit_file, t) != (unit.file, round):
        raise DataError(
            f"{path}: holds round {t} of {unit_file}, expected round {round} of {unit.file}"
        )
    return State(*state)  # type: ignore[misc]


def missing_state(directory: Path, unit: Unit, record: Record) -> str:
    """Say which state that `keep_parameters` asks for before this record is gone or damaged; "" if none."""
    every = unit.experiment.keep_parameters
    for t in range(0, record.round, every) if every else ():
        if not (path := state_path(directory, unit, t)).is_file():
            return f"{path}: is gone"
        try:
            load_state(directory, unit, t)
        except DataError as error:
            return str(error)
    return ""
