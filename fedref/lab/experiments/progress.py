"""Progress reports of a run: a bar, or lines.

Units may run side by side, so reports of several units may alternate. If a unit runs in another
process, its rounds are reported when it has ended.
"""

import builtins
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.results import describe_newest
from fedref.lab.experiments.unit import Record, Say, Unit, rounds_done, units


class Progress(NamedTuple):
    """The functions that a run calls.

    round : after each round of a unit. message : with warnings. elsewhere : now and then, with the
    rounds that units have done which other processes work on, by the units' numbers.
    """

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Say = lambda text: None
    elsewhere: Callable[[Mapping[int, int]], None] = lambda rounds: None


SILENT = Progress()


#: Seconds between lines where there is no terminal.
LINE_SECONDS = 30.0


class Lines:
    """A stream that passes what tqdm draws to `say`, without what clears a line on a terminal."""

    def __init__(self, say: Say) -> None:
        self.say = say

    def write(self, text: str) -> None:
        if text.strip():
            self.say(text.strip())

    def flush(self) -> None:
        pass


def on_screen() -> bool:
    """Return whether this is a notebook, or standard error a terminal."""
    with suppress(OSError, ValueError):  # the stream may be closed
        return hasattr(builtins, "__IPYTHON__") or (sys.stderr is not None and sys.stderr.isatty())
    return False


def print_message(text: str) -> None:
    print(f"fedref: {text}", file=sys.stderr, flush=True)


@contextmanager
def console_progress(experiment: Experiment, say: Say = print_message) -> Iterator[Progress]:
    """Report on standard error: a bar on a terminal and in a notebook, else a line now and then."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():  # without ipywidgets tqdm draws a bar of characters
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm

    how: dict[str, Any] = {"dynamic_ncols": True}
    if not on_screen():
        form = "{desc}; {percentage:.0f}% of the run, {remaining} left"
        how = {"file": Lines(say), "bar_format": form, "maxinterval": 0, "miniters": 1}
        how |= {"mininterval": LINE_SECONDS, "delay": LINE_SECONDS}
    total = sum(unit.experiment.rounds + 1 for unit in units(experiment))
    done: dict[int, int] = {}
    with tqdm(total=total, unit="round", leave=False, smoothing=0, **how) as shown:
        shown.set_description_str(experiment.name, refresh=False)

        def report_rounds(rounds: Mapping[int, int]) -> None:
            # earlier rounds say nothing about the speed
            shown.initial += sum(n - 1 for i, n in rounds.items() if i not in done)
            done.update(rounds)
            shown.update(sum(done.values()) - shown.n)

        def report_round(unit: Unit, record: Record) -> None:
            shown.set_description_str(f"{unit.name}, {describe_newest(record)}", refresh=False)
            report_rounds({unit.number: rounds_done(unit, record)})

        def report_message(text: str) -> None:
            with shown.external_write_mode(file=sys.stderr):
                say(text)

        yield Progress(report_round, report_message, report_rounds)
