"""What is told about a run as it goes: a bar, lines, a log, and where the time goes.

Units may be at work side by side, so nothing here takes them to come one after the other.
"""

import builtins
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from fedref.experiments import names
from fedref.experiments.experiment import Experiment
from fedref.experiments.unit import Record, Unit, units


class Progress(NamedTuple):
    """What a run calls as it goes.

    round : after every round of a unit; message : with a warning; spent : with a unit, "training" or
    "evaluation", and the seconds that went into it; detail : with what belongs into a log only.
    """

    round: Callable[[Unit, Record], None] = lambda unit, record: None
    message: Callable[[str], None] = lambda text: None
    spent: Callable[[Unit, str, float], None] = lambda unit, what, seconds: None
    detail: Callable[[str], None] = lambda text: None


SILENT = Progress()
Say = Callable[[str], None]


def together(*told: Progress) -> Progress:
    """All of them, in this order."""

    def call(name: str) -> Callable[..., None]:
        def all_of_them(*what: Any) -> None:
            for one in told:
                getattr(one, name)(*what)

        return all_of_them

    return Progress(*(call(name) for name in Progress._fields))


def duration(seconds: float) -> str:
    """A time in one or two units: 0.3 s, 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def measured(record: Record) -> str:
    """The newest evaluated losses and accuracies of a record, as words."""
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
        waited, reached = now() - last, 10 * count.done // count.total
        due = waited >= LINE_SECONDS or (reached > tenth and waited >= LEAST_SECONDS)
        if not due or count.done == count.total:
            return
        last, tenth = now(), reached
        rounds = count.lengths[unit.number] - 1
        left = f", about {duration(count.left)} left" if isfinite(count.left) else ""
        say(
            f"{unit.name}: round {record.round} of {rounds}, {measured(record)}; "
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
            drawn.set_postfix_str(measured(record).rpartition(", ")[2], refresh=False)
            drawn.update(count.done - drawn.n)

        yield Progress(told, lambda text: drawn.write(f"fedref: {text}", file=sys.stderr))


def in_notebook() -> bool:
    """Whether IPython runs this process and shows what is displayed."""
    return hasattr(builtins, "__IPYTHON__")


@contextmanager
def shown(experiment: Experiment) -> Iterator[Progress]:
    """For Python: a bar on a terminal and in a notebook, else lines; all on standard error."""

    def say(text: str) -> None:
        print(f"fedref: {text}", file=sys.stderr, flush=True)

    spent = Spent(experiment)
    if in_notebook() or (sys.stderr is not None and sys.stderr.isatty()):
        from tqdm.auto import tqdm

        with bar(experiment, tqdm) as told:
            yield together(told, Progress(spent=spent.add))
    else:
        yield together(lines(experiment, say), Progress(spent=spent.add))
    if note := spent.note():
        say(note)


# ---- where the time goes -------------------------------------------------------------------------


def evaluations(rounds: int, every: int) -> int:
    """How often a unit is evaluated: at the start, after every so many rounds, and at the end."""
    return 1 + rounds // every + bool(rounds % every)


class Spent:
    """The seconds that training and evaluation take, and what fewer evaluations would save."""

    #: Less than this is not worth a word.
    SECONDS = 10.0
    CHOICES = (2, 5, 10, 20, 50, 100)

    def __init__(self, experiment: Experiment) -> None:
        self.every, self.rounds = experiment.eval_every, experiment.rounds
        self.fixed = bool({"eval_every", "rounds"} & experiment.sweep.keys())
        self.watchers = {  # these evaluate every round, whatever is said
            label
            for label, table in experiment.algorithms.items()
            if names.make_algorithm(label, table).watches_loss
        }
        self.seconds: Counter[tuple[str, str]] = Counter()  # (label, what) → seconds
        self.times: Counter[tuple[str, str]] = Counter()

    def add(self, unit: Unit, what: str, seconds: float) -> None:
        self.seconds[unit.label, what] += seconds  # type: ignore[assignment]
        self.times[unit.label, what] += 1

    def a_round(self, every: int) -> tuple[float, float]:
        """(training, evaluation) seconds a round, mean over the rounds of a whole run, at the speed
        so far; `every` counts the rounds from one evaluation to the next."""
        T, rounds = max(self.rounds, 1), 0
        training = evaluation = 0.0
        for label in dict.fromkeys(label for label, what in self.times if what == "training"):
            trained = self.times[label, "training"]
            mean = self.seconds[label, "evaluation"] / max(self.times[label, "evaluation"], 1)
            times = evaluations(T, 1 if label in self.watchers else every)
            rounds += trained
            training += self.seconds[label, "training"]
            evaluation += mean * trained * times / T
        return training / max(rounds, 1), evaluation / max(rounds, 1)

    def note(self) -> str:
        """What time goes where, if evaluation outweighs training; else ""."""
        training, evaluation = self.a_round(self.every)
        whole = sum(s for (_, what), s in self.seconds.items() if what == "evaluation")
        if evaluation <= training or whole < self.SECONDS:
            return ""
        said = f"training {duration(training)}, evaluation {duration(evaluation)} a round"
        better = [k for k in self.CHOICES if self.every < k <= self.rounds]
        k = next((k for k in better if self.a_round(k)[1] <= training), (better or [0])[-1])
        if not k or self.fixed or self.watchers.issuperset(label for label, _ in self.times):
            return said
        then, now = duration(sum(self.a_round(k))), duration(training + evaluation)
        return f"{said}: --eval-every {k} would make it about {then} in place of {now}"

    def once(self, say: Say, after: float = 60.0) -> Progress:
        """Says so while the run goes on: one time, once evaluation has taken `after` seconds."""
        told = False

        def add(unit: Unit, what: str, seconds: float) -> None:
            nonlocal told
            self.add(unit, what, seconds)
            if not told and what == "training" and sum(self.seconds.values()) >= after:
                note = self.note()
                told = bool(note)
                if note:
                    say(note)

        return Progress(spent=add)


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
            f"{unit.name}: round {record.round}, {measured(record)}{'; ' * bool(spent)}{spent}{end}"
        )

    def add(unit: Unit, what: str, seconds: float) -> None:
        pending.setdefault(unit.number, []).append(f"{what} {duration(seconds)}")

    try:
        yield Progress(told, write, add, write)
    finally:
        handler.close()
