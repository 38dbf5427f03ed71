"""How far a unit has come: what is kept of it in memory, on disk, and told."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedref.boundary.errors import DataError
from fedref.experiments import checkpoint, names
from fedref.experiments.progress import Progress
from fedref.experiments.run_directory import disk_errors, keep_state, recovered
from fedref.experiments.setting import Setting
from fedref.experiments.unit import Record, Unit, problem_in_state


class Seen(NamedTuple):
    """A round that was done elsewhere."""

    status: str
    rows: int  # of the record after it
    spent: tuple[tuple[str, float], ...]  # on what, and seconds


class Book:
    """One unit and how far it has come; only who has the book writes the unit's checkpoints.

    own : the stamp of its experiment. every : seconds between checkpoints (more where one takes
    long; 0: after every round).
    """

    def __init__(
        self,
        unit: Unit,
        setting: Setting,
        own: str,
        directory: Path | None,
        every: float,
        progress: Progress,
    ) -> None:
        self.unit, self.setting, self.own = unit, setting, own
        self.directory, self.every, self.progress = directory, every, progress
        self.algorithm = names.make_algorithm(unit.label, setting.experiment.algorithms[unit.label])
        self.record: Record | None = None
        self.due = time.monotonic() + every
        if directory is not None:
            self.recover(directory)

    @property
    def ended(self) -> bool:
        return self.record is not None and self.record.status != "running"

    @property
    def path(self) -> Path | None:
        """Where its checkpoint is."""
        return self.directory and self.directory / "checkpoints" / self.unit.file

    def recover(self, directory: Path) -> None:
        """Go on from the checkpoint, if there is one."""
        found, warnings = recovered(directory, self.unit, self.setting.experiment, self.own)
        for warning in warnings:
            self.progress.message(warning)
        if found is None:
            return
        if found.status == "running":
            if problem := problem_in_state(found.state, self.algorithm, self.setting.model):
                raise DataError(
                    f"{self.path}: {problem}; expected a checkpoint of {self.unit.name}"
                )
            keep_state(directory, self.unit, self.setting.experiment, found)
        else:
            self.tidy()  # as at the end of any other run
            self.progress.round(self.unit, found)
        self.record = found

    def keep(self, record: Record) -> None:
        """The newest record: saved if it is the last one, or if it is time."""
        self.record = record
        if self.directory is not None:
            keep_state(self.directory, self.unit, self.setting.experiment, record)
        now = time.monotonic()
        if self.path is None or (record.status == "running" and now < self.due):
            return
        self.save()
        if self.ended:
            self.tidy()
        took = time.monotonic() - now
        self.due = time.monotonic() + max(self.every, 20 * took if self.every else 0)

    def went_on(self, rounds: Sequence[Seen]) -> None:
        """The record has grown by rounds done elsewhere."""
        record = self.record
        assert record is not None
        self.keep(record)
        for status, n, spent in rounds:
            for what, seconds in spent:
                self.progress.spent(self.unit, what, seconds)
            then = record._replace(status=status, round=n - 1, rows=record.rows[:n], reason="")
            self.progress.round(self.unit, then if status == "running" else record)

    def leave(self) -> None:
        """Save what has been done: the run is stopped here."""
        if self.record is not None and not self.ended:
            self.save()

    def save(self) -> None:
        if self.directory is not None and self.path is not None and self.record is not None:
            with disk_errors(self.directory):
                checkpoint.save(self.path, self.record._replace(experiment=self.own))

    def tidy(self) -> None:
        """The checkpoint before the last one goes."""
        if self.directory is not None and self.path is not None:
            with disk_errors(self.directory):
                checkpoint.old(self.path).unlink(missing_ok=True)
