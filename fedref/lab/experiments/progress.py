"""Progress reports of a run: one line that is redrawn, or lines at growing intervals.

A thread of its own reports the progress, so that it goes on in a long phase. If a unit runs in another
process, its rounds are reported when it has ended.
"""

import builtins
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.results import describe_newest
from fedref.lab.experiments.unit import Engine, Record, Say, Unit, units


def ignore(*_: Any) -> None:
    """Do nothing. Workers get it, so it has a name."""


class Progress(NamedTuple):
    """The functions that a run calls.

    round : after each round of a unit. message : with warnings. elsewhere : now and then, with the
    rounds that units have done which other processes work on, by the units' numbers. phase : with what
    is done now: loading, splitting, training, evaluating.
    """

    round: Callable[[Unit, Record], None] = ignore
    message: Say = ignore
    elsewhere: Callable[[Mapping[int, int]], None] = ignore
    phase: Say = ignore

    def watch(self, engine: Engine) -> Engine:
        """Return an engine that tells when it evaluates."""

        def evaluate(*arguments: Any, **how: Any) -> Any:
            self.phase("evaluating")
            scores = engine.evaluate(*arguments, **how)
            self.phase("training")
            return scores

        return engine._replace(evaluate=evaluate)


SILENT = Progress()
#: Seconds between reports: on a screen, and the first and the longest pause between lines elsewhere.
REDRAW, FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0, 60.0
#: Seconds of work after which it is foreseen how long the rest takes.
FORESEEN_AFTER = 5.0


class Status:
    """How far a run is, as a line."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.phase, self.newest = experiment, "starting", experiment.name
        self.done: dict[int, int] = {}
        self.earlier = 0  # rounds that say nothing about the speed
        self.began: float | None = None

    @cached_property
    def total(self) -> int:
        """All rounds; not counted before the sweep was checked, which may be wrong or too large."""
        return sum(unit.experiment.rounds + 1 for unit in units(self.experiment))

    def count(self, rounds: Mapping[int, int]) -> None:
        if self.began is None and rounds:
            self.began = time.monotonic()
        self.earlier += sum(n for i, n in rounds.items() if i not in self.done)
        self.done.update(rounds)

    def line(self) -> str:
        """Return "fedavg (seed 0): round 82 of 400, accuracy 91.25 % (round 80); training; 20 % ..."."""
        done = sum(self.done.values())
        line = f"{self.newest}; {self.phase}; {min(99, 100 * done // self.total)} % of the run"
        spent = time.monotonic() - self.began if self.began is not None else 0.0
        if spent < FORESEEN_AFTER or done == self.earlier:
            return line
        left = round(spent * (self.total - done) / (done - self.earlier))
        return f"{line}, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"


def describe(unit: Unit, record: Record) -> str:
    """Return a unit's round, and its newest score with the round that it is of."""
    of = [row["round"] for row in record.rows if row.get("accuracy") is not None]
    score = f", {describe_newest(record)} (round {of[-1]})" if of else ""
    return f"{unit.name}: round {record.round} of {unit.experiment.rounds}{score}"


def on_screen() -> bool:
    """Return whether this is a notebook, or standard error a terminal."""
    with suppress(OSError, ValueError):  # the stream may be closed
        return hasattr(builtins, "__IPYTHON__") or (sys.stderr is not None and sys.stderr.isatty())
    return False


def print_message(text: str) -> None:
    print(f"fedref: {text}", file=sys.stderr, flush=True)


def redraw(text: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    with suppress(OSError, ValueError):
        print(f"\r{text[:width]:<{width}}", end="" if text else "\r", file=sys.stderr, flush=True)


@contextmanager
def console_progress(experiment: Experiment, say: Say = print_message) -> Iterator[Progress]:
    """Report on standard error: a line on a terminal and in a notebook, else lines now and then."""
    status, ended, writing, screen = Status(experiment), Event(), Lock(), on_screen()

    def report_status() -> None:
        pause = REDRAW if screen else FIRST_PAUSE
        while not ended.wait(pause):
            with writing:
                (redraw if screen else say)(status.line())
            pause = REDRAW if screen else min(2 * pause, LONGEST_PAUSE)

    def report_round(unit: Unit, record: Record) -> None:
        status.newest = describe(unit, record)
        status.count({unit.number: unit.rounds_done(record)})

    def report_message(text: str) -> None:
        with writing:
            if screen:
                redraw("")
            say(text)

    thread = Thread(target=report_status, daemon=True)
    thread.start()
    try:
        phase = partial(setattr, status, "phase")
        yield Progress(report_round, report_message, status.count, phase)
    finally:
        ended.set()
        thread.join()
        if screen:
            redraw("")
