"""Resuming a run: its units go on from their checkpoints, on the same split, to the same bytes."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedref.algorithm import AnyAlgorithm
from fedref.boundary import checkpoint
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import read_bytes
from fedref.datasets import manifest_of, write_manifest
from fedref.datasets.manifest import read as read_manifest
from fedref.experiments.progress import Progress
from fedref.experiments.run_directory import (
    checkpoint_path,
    disk_errors,
    environment,
    missing_state,
    save_state,
    write_environment,
)
from fedref.experiments.unit import LOCAL, Engine, LoadedExperiment, Record, Unit, iterate_rounds
from fedref.rounds.federation import Federation
from fedref.rounds.loop import RunClients


@dataclass
class UnitRun:
    """One unit as it is run: its record, its checkpoints, its progress reports.

    stamp : that of the experiment. every : seconds between checkpoints (0: one after every round),
    or more if a checkpoint takes long.
    """

    unit: Unit
    loaded: LoadedExperiment
    algorithm: AnyAlgorithm
    stamp: str
    directory: Path | None
    every: float
    progress: Progress
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
        if record.experiment != self.stamp:
            raise DataError(
                f"{path}: belongs to another config.toml; expected the one that the run began "
                "with, or another --out"
            )
        if missing := missing_state(self.directory, self.unit, self.loaded.experiment, record):
            self.progress.message(f"{missing}: is gone, so {self.unit.name} is run again")
            return
        self.record = record
        save_state(self.directory, self.unit, self.loaded.experiment, record)
        if self.has_ended:
            self.remove_previous()  # `save` may have been killed before it did so
            self.progress.round(self.unit, record)

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
            checkpoint.save(path, self.record._replace(experiment=self.stamp))
        if self.has_ended:
            self.remove_previous()

    def remove_previous(self) -> None:
        assert self.directory is not None
        with disk_errors(self.directory):
            path = checkpoint_path(self.directory, self.unit)
            checkpoint.previous_path(path).unlink(missing_ok=True)


# ---- what must be the same as when the run began -------------------------------------------------


def check_split(directory: Path, federation: Federation) -> None:
    """Write split.json; if it exists, raise a DataError unless the split is the same."""
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
