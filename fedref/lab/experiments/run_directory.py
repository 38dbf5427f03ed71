"""A run directory: its files, and how they are written and read.

config.toml (every value: it reproduces the run), environment.json (what else the last digits depend
on), checkpoints/ (for each unit its record and its scores, from which all results are made), on request
parameters/ (states of chosen rounds); and at the end split.json (the exact split), metrics.csv
(a row per algorithm and round), clients.csv (a row per algorithm, evaluated round and client), summary.md,
summary.csv, curves.png.
"""

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from fedref.algorithm import State
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import WRITING, make_folder, open_regular, sync_folder, write_atomically
from fedref.lab.experiments import checkpoint, config, names
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.scores import EMPTY, ScoreFile, Stored
from fedref.lab.experiments.seal import UNIT, check_seal, compare_environment, write_environment
from fedref.lab.experiments.unit import Record, Say, Unit

try:
    import fcntl
except ImportError:  # Windows, which locks no folders
    fcntl = None  # type: ignore[assignment]

#: What a run writes to its directory. The mark says that fedref made it: it is written first.
MARK = ".fedref-run"
WRITTEN = (
    "config.toml", "environment.json", "split.json", "metrics.csv", "clients.csv", "summary.md",
    "summary.csv", "curves.png", "parameters",
)  # fmt: skip
#: Without these, a folder is no longer the one of a run that goes on.
REQUIRED = (MARK, "config.toml")


class ResumableError(FedrefError):
    """An error after which a run can go on from what was saved."""


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError, such as that of a full disk, into an error that names the file."""
    path = folder.absolute()  # user code may change the working directory
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, DataError) as raised:
        error = raised if isinstance(raised, OSError) else raised.__cause__
        if not isinstance(error, OSError):
            raise
        if error is not raised and path not in Path(str(error.filename)).absolute().parents:
            raise  # of data, and it says more
        why = error.strerror or error
        where = f"{error.filename}: cannot be read or written ({why})"
        raise ResumableError(where if error.filename else f"the system says: {why}") from error


@contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Let disk errors, interrupts and workers that died say how the run in this directory goes on."""
    base, path = Path.cwd(), directory.absolute()
    name = path.relative_to(base) if base in path.parents else directory
    again = f"fedref resume {shlex.quote(str(name))}"
    try:
        with disk_errors(directory):
            yield
    except KeyboardInterrupt as stop:
        if len(stop.args) < 2:
            stop.args = (*(stop.args or ("interrupted",)), f"resume with: {again}")
        raise
    except ResumableError as error:
        hint = f"; what was saved before is whole: go on with `{again}`"
        hint = hint if (path / "config.toml").exists() else ""
        raise FedrefError(f"{error}{hint}") from error


# ---- who owns a directory ------------------------------------------------------------------------


@contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Own a run directory, which is made if it is not there; refuse one that another run owns.

    The system's lock on the folder ends with the process, in whatever way that ends.
    """
    with disk_errors(directory):
        make_folder(directory)
    folder = os.open(directory, os.O_RDONLY) if fcntl else -1
    HELD.add(folder)
    try:
        for _ in range(5):  # who looks whether a run writes here holds it for a moment
            if lock_folder(folder):
                break
            time.sleep(0.1)
        else:
            hint = "wait for it, or use another --out"
            raise FedrefError(f"{directory}: {owner_of(folder)} writes here; {hint}")
        yield
    finally:
        if fcntl and folder in HELD:
            HELD.remove(folder)
            os.close(folder)


#: The open folders that this process owns, or is about to.
HELD = set[int]()


def disown() -> None:
    """Close, in a process that was forked, the folders of its parent: it may live longer."""
    while HELD:
        os.close(HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=disown)


def lock_folder(folder: int, shared: bool = False) -> bool:
    """Lock an open folder, shared with other readers or not; return False if it is locked."""
    try:
        if fcntl:
            fcntl.flock(folder, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def is_held(directory: Path) -> bool:
    """Return whether a run writes to this directory now."""
    with suppress(OSError):
        folder = os.open(directory, os.O_RDONLY)
        try:
            return not lock_folder(folder, shared=True)
        finally:
            os.close(folder)
    return False


def owner_of(folder: int) -> str:
    """Return who holds the lock on an open folder: "process 123, running since 12:30:59,"."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and int(words[5].split(":")[2]) == os.fstat(folder).st_ino:
                began = time.localtime(os.stat(f"/proc/{words[4]}").st_ctime)
                return f"process {words[4]}, running since {time.strftime('%H:%M:%S', began)},"
    return "another run"


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Own a run directory that is removed at the end."""
    with TemporaryDirectory(prefix="fedref-") as folder, hold_directory(Path(folder)):
        for name in REQUIRED:
            (Path(folder) / name).touch()
        yield Path(folder)


def is_folder(place: os.stat_result, folder: int) -> bool:
    """Return whether a folder that this process owns is at the place."""
    try:
        return os.path.samestat(place, os.fstat(folder))
    except OSError:  # another thread has just ended with its folder
        return False


def require_run(directory: Path) -> None:
    """Refuse to write where the run's folder no longer is: it may be moved, emptied or replaced."""
    wrong = [f"{name} is gone" for name in REQUIRED if not (directory / name).is_file()]
    held = HELD - {-1}  # none in a worker process
    if held and not wrong:
        place = os.stat(directory)
        own = any(is_folder(place, folder) for folder in held)
        wrong = [] if own else ["is another folder than at the start"]
    if wrong:
        expected = "the run's folder in its place until the run ends"
        raise ResumableError(f"{directory}: {wrong[0]}; expected {expected}")


# ---- beginning -----------------------------------------------------------------------------------


@contextmanager
def begin_run(experiment: Experiment, out: Path, say: Say = lambda text: None) -> Iterator[None]:
    """Own a folder, and write config.toml and environment.json; refuse one with another run's work."""
    algorithms = map(type, experiment.algorithms.values())
    names.require_importable(experiment.model["name"], experiment.data["name"], *algorithms)
    with hold_directory(out):
        begun = is_begun(experiment, out)
        if begun and (differs := compare_environment(out)):
            say(f"{out}: {differs}")
        with resumable(out):
            (out / MARK).touch()
            sync_folder(out)
            if not begun:
                write_environment(out)
                write_atomically(out / "config.toml", config.toml_text(experiment).encode())
        yield


def is_begun(experiment: Experiment, out: Path) -> bool:
    """Return whether a folder holds this run; refuse another's work, and files that no run has written."""
    foreign = [name for name in WRITTEN if os.path.lexists(out / name)]
    if foreign and not (out / MARK).exists():
        wrong = f"holds {foreign[0]}, which fedref did not write"
        raise FedrefError(f"{out}: {wrong}; expected another --out")
    path, text = out / "config.toml", config.toml_text(experiment)
    begun = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    saved = any(any((out / name).glob("*.ckpt")) for name in ("checkpoints", "parameters"))
    if begun not in ("", text) and saved:
        others = [line for line in text.splitlines() if line not in begun.splitlines()]
        hint = f"`fedref resume {out}`, or another --out"
        why = f"that run has not {', '.join(others[:1]) or 'the same values'}"
        raise FedrefError(f"{out} already holds a run: {hint} ({why})")
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


def make_folders(directory: Path, work: list[Unit]) -> None:
    """Make the folders of what units save. Later none is made: the place may be another's by then."""
    require_run(directory)
    make_folder(directory / "checkpoints")
    if any(unit.experiment.keep_parameters for unit in work):
        make_folder(directory / "parameters")


def refuse_other_units(directory: Path, work: list[Unit]) -> None:
    """Refuse a run directory that holds units of another config.toml."""
    known = {unit.file for unit in work}
    for path in sorted((directory / "checkpoints").glob("*.ckpt")):
        if path.name not in known:
            raise DataError(
                f"{directory}: config.toml changed after {path.stem} began; expected the same, or "
                f"`fedref run {directory}/config.toml` anew"
            )


def remove_partial_files(directory: Path) -> None:
    """Remove what killed processes have left here."""
    for folder in ("", "checkpoints", "parameters"):
        for partial in (directory / folder).glob(".fedref-*.new"):
            partial.unlink(missing_ok=True)


# ---- what a unit has saved -----------------------------------------------------------------------


class UnitFiles(NamedTuple):
    """What a unit saves in a run directory: its record, its scores, and states of chosen rounds."""

    directory: Path
    unit: Unit

    @property
    def record(self) -> Path:
        return self.directory / "checkpoints" / self.unit.file

    def state(self, round: int) -> Path:
        """Return the path of the state after a round, which `keep_parameters` asks for."""
        return self.directory / "parameters" / f"{self.record.stem}-round{round:06d}.ckpt"

    def scores(self, stored: Stored = EMPTY) -> ScoreFile:
        """Return the scores: those that a record counts on; by default, of a unit that begins, none."""
        return ScoreFile(self.record.with_suffix(".scores"), stored)

    def load(self, code: bool = True) -> Record | None:
        """Return the record; None if the unit has not begun. DataError if a file is damaged.

        Any other FedrefError: the file holds another unit. code : as in `load_run`.
        """
        if not self.record.exists():
            return None
        record: Record = read_tree(self.record, code)
        held, stored = record.seal.get(UNIT), cast(Any, record.scores)
        if held != self.unit.file:
            raise FedrefError(f"{self.record}: holds {held}, expected {self.unit.file}")
        if not isinstance(stored, Stored):
            raise DataError(f"{self.record}: was written by another version of fedref")
        return record._replace(scores=self.scores(stored).check())

    def load_begun(self, seal: Mapping[str, str], changed_code: bool, say: Say) -> Record | None:
        """Return the record to go on from; None if the unit begins, or its files are gone or damaged."""
        every = self.unit.experiment.keep_parameters
        try:
            record = self.load()
            for t in range(0, record.round, every) if record is not None and every else ():
                self.load_state(t)
        except DataError as error:
            if not self.record.is_file():
                raise
            say(f"{error}: {self.unit.name} starts anew")
            return None
        if record is not None:
            check_seal(self.directory, self.unit, record.seal, seal, changed_code)
        return record

    def save(self, record: Record, seal: Mapping[str, str]) -> None:
        """Save a record and the scores that it counts on."""
        with WRITING:  # an interrupt waits for both
            scores: Any = record.scores
            scores.sync()
            self.write(self.record, record._replace(seal=seal, scores=scores.stored))

    def keep_state(self, record: Record) -> None:
        """Save the state after a round if `keep_parameters` asks for it."""
        every = self.unit.experiment.keep_parameters
        if every and (record.round % every == 0 or record.status != "running"):
            kept = self.unit.file, record.round, record.state
            with WRITING:
                self.write(self.state(record.round), kept)

    def write(self, path: Path, value: Any) -> None:
        write_below(self.directory, path, checkpoint.dumps(value))

    def load_state(self, round: int) -> State:
        """Return the state that was kept after a round; DataError if it is damaged, or another's."""
        path, wanted = self.state(round), self.unit.file
        kept = read_tree(path)
        held, t, state = kept if len(kept) == 3 else (None, None, None)
        if (held, t) != (wanted, round):
            expected = f"expected round {round} of {wanted}"
            raise DataError(f"{path}: holds round {t} of {held}, {expected}")
        return State(*state)  # type: ignore[misc]


def times_of_saving(directory: Path) -> dict[Path, int]:
    """Return when each unit was saved last."""
    return {path: path.stat().st_mtime_ns for path in (directory / "checkpoints").glob("*.ckpt")}


def read_tree(path: Path, code: bool = True) -> Any:
    with open_regular(path, "a checkpoint") as file:
        return checkpoint.loads(file.read(), str(path), code)


def write_below(directory: Path, path: Path, content: bytes) -> None:
    """Write a file in a folder of the run directory."""
    require_run(directory)
    write_atomically(path, content)


def drop_client_states(record: Record) -> Record:
    """Return the record without client states, which are large and stay on disk."""
    return record._replace(state=record.state._replace(clients={}))
