"""What is told about a run as it goes: a bar, lines, a log, and where the time goes.

Units may be at work side by side, so nothing here takes them to come one after the other. Rounds that
were done in another process are told when their unit has ended, without the state after them.
"""

import builtins
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from fedref.experiments.config import Experiment
from fedref.experiments.unit import Record, Unit, units


class Progress(NamedTuple):
    """What a run calls as it goes.

    round : after every round of a unit; message : with a warning; spent : with a unit, "training" or
    "evaluation", and the seconds that went into it.
    """

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Callable[[str], None] = lambda text: None
    spent: Callable[[Unit, str, float], None] = lambda unit, what, seconds: None


SILENT = Progress()
Say = Callable[[str], None]


def broadcast(*told: Progress) -> Progress:
    """Call all of them, in this order."""

    def call(name: str) -> Callable[..., None]:
        def all_of_them(*what: Any) -> None:
            for one in told:
                getattr(one, name)(*what)

        return all_of_them

    return Progress(*(call(name) for name in Progress._fields))


def duration(seconds: float) -> str:
    """Return a time in one or two units: 0.3 s, 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def describe_newest(record: Record) -> str:
    """Return the newest evaluated losses and accuracies of a record, as words."""
    row = next((r for r in reversed(record.rows) if r.get("accuracy") is not None), {})
    found = {name: x for name, x in row.items() if isfinite(x)}  # real targets have no accuracy
    words = [f"training loss {found['train_loss']:.4g}"] if "train_loss" in found else []
    if "test_loss" in found and not (words and "accuracy" in found):
        words.append(f"test loss {found['test_loss']:.4g}")
    if "accuracy" in found:
        words.append(f"accuracy {100 * found['accuracy']:.2f} %")
    return ", ".join(words)


# ---- how far it is -------------------------------------------------------------------------------


class Count:
    """How many rounds of a run are done (the start counts as one), and how long the others take."""

    def __init__(self, experiment: Experiment, now: Callable[[], float] = time.monotonic) -> None:
        self.now, self.began = now, now()
        self.lengths = {
            unit.number: unit.point.get("rounds", experiment.rounds) + 1
            for unit in units(experiment)
        }
        self.of: dict[int, int] = {}  # unit → rounds done
        self.before = 0  # those that were done before this process began

    def add(self, unit: Unit, record: Record) -> None:
        ended, length = record.status != "running", self.lengths[unit.number]
        if unit.number not in self.of:
            self.before += length if ended else record.round
        self.of[unit.number] = length if ended else record.round + 1

    @property
    def done(self) -> int:
        return sum(self.of.values())

    @property
    def total(self) -> int:
        return sum(self.lengths.values())

    @property
    def left(self) -> float:
        """Seconds, if the other rounds take as long as those that were done here."""
        here = self.done - self.before
        return (self.now() - self.began) / here * (self.total - self.done) if here else float("nan")


LINE_SECONDS, LEAST_SECONDS = 30.0, 2.0


def lines(experiment: Experiment, say: Say, now: Callable[[], float] = time.monotonic) -> Progress:
    """A line every 30 seconds and at every tenth of the run, but none within 2 seconds."""
    count, last, tenth = Count(experiment, now), now(), 0

    def told(unit: Unit, record: Record) -> None:
        nonlocal last, tenth
        count.add(unit, record)
        if record.state is None:  # the unit has gone on
            return
        waited, reached = now() - last, 10 * count.done // count.total
        due = waited >= LINE_SECONDS or (reached > tenth and waited >= LEAST_SECONDS)
        if not due or count.done == count.total:
            return
        last, tenth = now(), reached
        rounds = count.lengths[unit.number] - 1
        left = f", about {duration(count.left)} left" if isfinite(count.left) else ""
        say(
            f"{unit.name}: round {record.round} of {rounds}, {describe_newest(record)}; "
            f"{count.done / count.total:.0%} of the run{left}"
        )

    return Progress(told, say)


@contextmanager
def bar(experiment: Experiment, tqdm: Any) -> Iterator[Progress]:
    """A bar of all rounds; tqdm : the class that draws it."""
    count = Count(experiment)
    with tqdm(total=count.total, unit="round", dynamic_ncols=True, leave=False) as drawn:

        def told(unit: Unit, record: Record) -> None:
            count.add(unit, record)
            drawn.initial = count.before  # what was done before says nothing of the speed
            drawn.set_description_str(unit.name, refresh=False)
            drawn.set_postfix_str(describe_newest(record).rpartition(", ")[2], refresh=False)
            drawn.update(count.done - drawn.n)

        yield Progress(told, lambda text: drawn.write(f"fedref: {text}", file=sys.stderr))


def in_notebook() -> bool:
    """Whether IPython runs this process and shows what is displayed."""
    return hasattr(builtins, "__IPYTHON__")


@contextmanager
def console_progress(experiment: Experiment) -> Iterator[Progress]:
    """For Python: a bar on a terminal and in a notebook, else lines; all on standard error."""

    def say(text: str) -> None:
        print(f"fedref: {text}", file=sys.stderr, flush=True)

    if in_notebook() or (sys.stderr is not None and sys.stderr.isatty()):
        from tqdm.auto import tqdm

        shown: AbstractContextManager[Progress] = bar(experiment, tqdm)
    else:
        shown = nullcontext(lines(experiment, say))
    with shown as told:
        spent = TimeSpent(told.message)
        yield broadcast(told, Progress(spent=spent.add))
    spent.advise()


# ---- where the time goes -------------------------------------------------------------------------


class TimeSpent:
    """The seconds that training and evaluation take; said once, if evaluation outweighs training."""

    #: Less than this is not worth a word, and that much is worth one while the run goes on.
    LEAST, MUCH = 10.0, 60.0

    def __init__(self, say: Say) -> None:
        self.say, self.said = say, False
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self.rounds = 0

    def add(self, unit: Unit, what: str, seconds: float) -> None:
        self.seconds[what] += seconds
        if what == "training":
            self.rounds += 1
            if sum(self.seconds.values()) >= self.MUCH:
                self.advise()

    def advise(self) -> None:
        training, evaluation = self.seconds.values()
        if not self.said and self.rounds and evaluation > max(training, self.LEAST):
            self.said = True
            each = (duration(seconds / self.rounds) for seconds in (training, evaluation))
            self.say("training {}, evaluation {} a round: see --eval-every".format(*each))


# ---- a log ---------------------------------------------------------------------------------------


@contextmanager
def log(path: Path) -> Iterator[Progress]:
    """Everything that is told, with its time, at the end of a file."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    pending: dict[int, list[str]] = {}

    def write(text: str) -> None:
        handler.emit(logging.LogRecord("fedref", logging.INFO, "", 0, text, None, None))

    def told(unit: Unit, record: Record) -> None:
        spent = ", ".join(pending.pop(unit.number, ()))
        end = f"; {record.status} {record.reason}".rstrip() if record.status != "running" else ""
        write(
            f"{unit.name}: round {record.round}, {describe_newest(record)}{'; ' * bool(spent)}{spent}{end}"
        )

    def add(unit: Unit, what: str, seconds: float) -> None:
        pending.setdefault(unit.number, []).append(f"{what} {duration(seconds)}")

    try:
        yield Progress(told, write, add)
    finally:
        handler.close()
