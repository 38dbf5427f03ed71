"""Progress reports of a run: a bar, lines, a log.

Units may run side by side, so reports of several units may alternate. If a unit runs in another
process, its rounds are reported when it has ended, and only the last one with a state.
"""

import builtins
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from fedref.boundary.errors import printable
from fedref.boundary.files import open_regular_only
from fedref.experiments.config import Experiment
from fedref.experiments.results import describe_newest
from fedref.experiments.unit import Record, Say, Unit, units


class Progress(NamedTuple):
    """The functions that a run calls.

    round : after each round of a unit. message : with warnings. elsewhere : now and then, with the
    rounds that units have done which other processes work on, by the units' numbers.
    """

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Say = lambda text: None
    elsewhere: Callable[[Mapping[int, int]], None] = lambda rounds: None


SILENT = Progress()


def duration(seconds: float) -> str:
    """Return a time as text: 0.3 s, 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


# ---- how many rounds are done --------------------------------------------------------------------


class RoundCount:
    """A count of the rounds that are done, and their mean time; a unit's start counts as a round."""

    def __init__(self, experiment: Experiment, now: Callable[[], float] = time.monotonic) -> None:
        self.now, self.began = now, now()
        self.lengths = {unit.number: unit.experiment.rounds + 1 for unit in units(experiment)}
        self.done_by_unit: dict[int, int] = {}
        self.before = 0  # rounds that were done before this process began

    def add(self, unit: Unit, record: Record) -> None:
        ended, length = record.status != "running", self.lengths[unit.number]
        if unit.number not in self.done_by_unit:
            self.before += length if ended else record.round
        self.done_by_unit[unit.number] = length if ended else record.round + 1

    def add_elsewhere(self, rounds: Mapping[int, int]) -> None:
        self.before += sum(n for i, n in rounds.items() if i not in self.done_by_unit)
        self.done_by_unit |= {i: min(n, self.lengths[i]) for i, n in rounds.items()}

    @property
    def rounds_done(self) -> int:
        return sum(self.done_by_unit.values())

    @property
    def total(self) -> int:
        return sum(self.lengths.values())

    @property
    def seconds(self) -> float:
        """The mean time of the rounds that were done since this process began; NaN if there is none."""
        done = self.rounds_done - self.before
        return (self.now() - self.began) / done if done > 0 else float("nan")


LINE_SECONDS, LEAST_SECONDS = 30.0, 2.0


def report_by_lines(
    experiment: Experiment, say: Say, now: Callable[[], float] = time.monotonic
) -> Progress:
    """Report by a line every 30 seconds and at every tenth of the run, but at most one in 2 seconds."""
    count, last, tenth = RoundCount(experiment, now), now(), 0

    def report(text: Callable[[], str]) -> None:
        nonlocal last, tenth
        waited, reached = now() - last, 10 * count.rounds_done // count.total
        due = waited >= LINE_SECONDS or (reached > tenth and waited >= LEAST_SECONDS)
        if not due or count.rounds_done == count.total:
            return
        last, tenth, pace = now(), reached, ""
        if isfinite(each := count.seconds):
            left = duration(each * (count.total - count.rounds_done))
            pace = f", {duration(each)} a round, about {left} left"
        say(f"{text()}{count.rounds_done / count.total:.0%} of the run{pace}")

    def report_round(unit: Unit, record: Record) -> None:
        count.add(unit, record)
        if record.state is None:  # the unit is already further than this round
            return
        rounds = count.lengths[unit.number] - 1
        report(
            lambda: f"{unit.name}: round {record.round} of {rounds}, {describe_newest(record)}; "
        )

    def report_elsewhere(rounds: Mapping[int, int]) -> None:
        count.add_elsewhere(rounds)
        report(lambda: "")

    return Progress(report_round, say, report_elsewhere)


@contextmanager
def report_by_bar(experiment: Experiment, tqdm: Any, say: Say) -> Iterator[Progress]:
    """Draw a bar of all rounds, with messages above it; tqdm : the class of the bar."""
    count = RoundCount(experiment)
    with tqdm(total=count.total, unit="round", dynamic_ncols=True, leave=False) as shown_bar:

        def update() -> None:
            shown_bar.initial = count.before  # earlier rounds say nothing about the speed
            shown_bar.update(count.rounds_done - shown_bar.n)

        def report_round(unit: Unit, record: Record) -> None:
            count.add(unit, record)
            shown_bar.set_description_str(unit.name, refresh=False)
            shown_bar.set_postfix_str(describe_newest(record).rpartition(", ")[2], refresh=False)
            update()

        def report_elsewhere(rounds: Mapping[int, int]) -> None:
            count.add_elsewhere(rounds)
            update()

        def report_message(text: str) -> None:
            with shown_bar.external_write_mode(file=sys.stderr):
                say(text)

        yield Progress(report_round, report_message, report_elsewhere)


def in_notebook() -> bool:
    """Return whether this process runs in IPython, as that of a notebook does."""
    return hasattr(builtins, "__IPYTHON__")


def on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    with suppress(OSError, ValueError):  # the stream may be closed
        return sys.stderr is not None and sys.stderr.isatty()
    return False


def print_message(text: str) -> None:
    print(f"fedref: {text}", file=sys.stderr, flush=True)


@contextmanager
def console_progress(experiment: Experiment, say: Say = print_message) -> Iterator[Progress]:
    """Report by a bar on a terminal and in a notebook, else by lines; all on standard error."""
    if not in_notebook() and not on_terminal():
        yield report_by_lines(experiment, say)
        return
    from tqdm import TqdmWarning

    with warnings.catch_warnings():  # without ipywidgets tqdm draws a bar of characters
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    with report_by_bar(experiment, tqdm, say) as progress:
        yield progress


# ---- a log ---------------------------------------------------------------------------------------


@contextmanager
def report_to_log(path: Path, heading: str, progress: Progress) -> Iterator[Progress]:
    """Append a heading and all reports to a file, each with its time; pass reports on to `progress`.

    Refuse a path that is a link.
    """

    with open(path, "ab", buffering=0, opener=open_regular_only) as file:

        def write(text: str) -> None:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text, sys.maxsize)}\n"
            try:
                file.write(line.encode())
            except OSError as error:
                error.filename = str(path)
                raise

        def report_round(unit: Unit, record: Record) -> None:
            progress.round(unit, record)
            end = f"; {record.status} {record.reason}".rstrip() * (record.status != "running")
            write(f"{unit.name}: round {record.round}, {describe_newest(record)}{end}")

        def report_message(text: str) -> None:
            progress.message(text)
            write(text)

        write(heading)
        yield Progress(report_round, report_message, progress.elsewhere)
