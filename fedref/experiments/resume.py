"""Resuming a run: its units go on from their checkpoints, on the same split, to the same bytes."""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedref
from fedref.algorithm import AnyAlgorithm
from fedref.boundary import checkpoint
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import read_bytes
from fedref.datasets import write_manifest
from fedref.datasets.manifest import read as read_manifest
from fedref.experiments import names
from fedref.experiments.progress import Progress
from fedref.experiments.run_directory import (
    changes,
    checkpoint_path,
    disk_errors,
    environment,
    missing_state,
    save_state,
    write_environment,
)
from fedref.experiments.unit import (
    LOCAL,
    UNIT,
    Engine,
    LoadedExperiment,
    Record,
    Unit,
    iterate_rounds,
)
from fedref.rounds.loop import RunClients


@dataclass
class UnitRun:
    """One unit as it is run: its record, its checkpoints, its progress reports.

    sealed : what its numbers depend on (`seal_of`). every : seconds between checkpoints (0: one after
    every round), or more if a checkpoint takes long. changed_code : go on although the code has
    changed; environment.json and summary.md then say so.
    """

    unit: Unit
    loaded: LoadedExperiment
    algorithm: AnyAlgorithm
    sealed: Mapping[str, str]
    directory: Path | None
    every: float
    progress: Progress
    changed_code: bool = False
    record: Record | None = None

    @property
    def has_ended(self) -> bool:
        return self.record is not None and self.record.status != "running"

    def resume(self) -> None:
        """Load the record of the newest intact checkpoint, if there is one."""
        if self.directory is None:
            return
        path = checkpoint_path(self.directory, self.unit)
        with disk_errors(self.directory):
            record, warnings = checkpoint.recover(path)
        for warning in warnings:
            self.progress.message(warning)
        if record is None:
            return
        self.compare_seals(path, record.sealed)
        if missing := missing_state(self.directory, self.unit, self.loaded.experiment, record):
            self.progress.message(f"{missing}: is gone, so {self.unit.name} is run again")
            return
        self.record = record
        save_state(self.directory, self.unit, self.loaded.experiment, record)
        if self.has_ended:
            self.remove_previous()  # `save` may have been killed before it did so
            self.progress.round(self.unit, record)

    def compare_seals(self, path: Path, then: Mapping[str, str]) -> None:
        """Raise a DataError unless the record at `path` was computed from what would go on with it."""
        assert self.directory is not None
        anew = f"or `fedref run {self.directory}/config.toml` anew"
        if then.get(UNIT) != self.unit.name:
            raise DataError(f"{path}: holds {then.get(UNIT)}, expected {self.unit.name}, {anew}")
        for key in sorted({*then, *self.sealed}):
            was, now = then.get(key, "nothing"), self.sealed.get(key, "nothing")
            text = f"{key} was {was:.12}, now {now:.12}"
            if was == now or text in (noted := changes(self.directory)):
                continue
            code = key not in (CONFIG, DATA)
            if not (code and self.changed_code):
                go_on = f", or `fedref resume --changed-code {self.directory}` to go on" * code
                raise DataError(
                    f"{self.directory}: {key} changed after {self.unit.name} began; expected the "
                    f"same, {anew}{go_on}"
                )
            begun = json.loads((self.directory / "environment.json").read_bytes())
            write_environment(self.directory, {**begun, "changed": [*noted, text]})

    def run(self, work: RunClients | None = None, engine: Engine = LOCAL) -> None:
        """Run the rounds that are left."""
        due, saved = time.monotonic() + self.every, self.record
        rounds = iterate_rounds(
            self.loaded, self.algorithm, self.unit.seed, self.record, work,
            self.progress.message, engine,
        )  # fmt: skip
        try:
            for self.record in rounds:
                if self.directory is not None:
                    save_state(self.directory, self.unit, self.loaded.experiment, self.record)
                began = time.monotonic()
                if self.has_ended or began >= due:
                    self.save()
                    saved = self.record
                    now = time.monotonic()
                    due = now + max(self.every, 20 * (now - began) if self.every else 0)
                self.progress.round(self.unit, self.record)
        except BaseException:  # a resumed run need not repeat any round
            if self.record is not saved:
                with suppress(FedrefError):  # what is told is the first error
                    self.save()
            raise

    def save(self) -> None:
        """Write a checkpoint, if there is a directory; at the end, remove the previous one."""
        if self.directory is None or self.record is None:
            return
        path = checkpoint_path(self.directory, self.unit)
        with disk_errors(self.directory):
            checkpoint.save(path, self.record._replace(sealed=self.sealed))
        if self.has_ended:
            self.remove_previous()

    def remove_previous(self) -> None:
        assert self.directory is not None
        with disk_errors(self.directory):
            path = checkpoint_path(self.directory, self.unit)
            checkpoint.previous_path(path).unlink(missing_ok=True)


# ---- what must be the same as when the run began -------------------------------------------------


CONFIG, DATA = "config.toml", "the data or the split"


def seal_of(unit: Unit, stamp: str, data: str, code: Iterable[Any]) -> dict[str, str]:
    """Return everything that a unit's numbers depend on, by name.

    stamp : that of the experiment. data : the SHA-256 of the split of its data. code : the classes and
    functions that it calls.
    """
    fixed = {UNIT: unit.name, CONFIG: stamp, DATA: data, "fedref": fedref.__version__}
    return fixed | names.own_code(code)


def check_split(directory: Path, manifest: dict[str, Any]) -> None:
    """Write split.json; if it exists, raise a DataError unless the split is the same."""
    path = directory / "split.json"
    if not path.exists():
        with disk_errors(directory):
            write_manifest(manifest, path)
    elif read_manifest(path)["sha256"] != manifest["sha256"]:
        raise DataError(
            f"{path}: the data or the split has changed since this run began; "
            "expected the same, or another --out"
        )


def compare_environment(directory: Path) -> str:
    """Return how this process differs from the one that began the run, as text; "" if it does not.

    A file that is gone or damaged is written anew.
    """
    path = directory / "environment.json"
    try:
        then = json.loads(read_bytes(path, "the file as the run left it"))
        then = {key: str(then[key]) for key in environment()}
    except (ValueError, TypeError, LookupError, RecursionError):
        write_environment(directory, environment())
        return f"{path.name} was gone or damaged: whether the last digits will match is unknown"
    differs = [f"{k} {then[k]}, now {now}" for k, now in environment().items() if then[k] != now]
    return f"begun with {'; '.join(differs)}: the last digits may differ" if differs else ""
