"""Trials: the answers of wrong specifications, bounded in number, in a process that can be ended.

A trial costs as many function calls as the right answer takes. Calls are counted, not seconds: so a search
tries the same, and a report says the same, on a slow or busy machine. A wrong line may also run without
end. Then the process ends itself, and the search begins again without that line.
"""

import gc
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case
from fedref.judge.lines import CALLS, follow

#: Seconds of CPU time after which a trial is ended: the longest takes one of them. Bytes that it may take.
BOUND, MEMORY = 20, 2**33
#: So many wrong lines may run without end before the search is given up; seconds for all of it.
MOST_ENDED, CLOCK = 6, 600.0
#: Calls that a trial takes besides, to compile the wrong line.
COMPILING = 4_000
#: Windows has no such clock: there only that of the whole search ends it.
CAN_END = hasattr(signal, "SIGPROF")


class Trials:
    """left : how many calls are left, of all trials. ended : what is not tried, since it ran without end.

    journal : a file that says what is being tried; without one nothing is bounded.
    """

    def __init__(self, left: float, ended: Sequence[str] = (), journal: int | None = None) -> None:
        self.left, self.ended, self.journal = left, ended, journal
        self.efforts, self.begun = dict[tuple[str, int], int](), set[str]()

    def answer(
        self, case: Case, wrong: str, answer: Callable[[Case], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return answer(case), {} of what has ended a search before. wrong : its name."""
        if wrong in self.ended:
            return {}
        self.left -= self.effort(case)
        if self.journal is None or not CAN_END:
            return answer(case)
        os.ftruncate(self.journal, 0)
        os.pwrite(self.journal, wrong.encode(), 0)
        signal.setitimer(signal.ITIMER_PROF, BOUND)  # SIGPROF ends the process, within NumPy, too
        try:
            return answer(case)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def effort(self, case: Case) -> int:
        """Return how many calls the right answer takes."""
        key = case.name, len(case.inputs)  # of rounds, the first few may be tried
        if key not in self.efforts:
            if case.call not in self.begun:  # what is made once does not count
                try_answer(case, error=Exception)
            self.begun.add(case.call)
            self.efforts[key] = COMPILING + count_calls(lambda: try_answer(case, error=Exception))
        return self.efforts[key]


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions are called during `work()`."""
    n = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    follow(work, count, CALLS)
    return n


class SearchEnded(Exception):
    """A search that was ended, and why."""


def search_apart(search: Callable[..., Any], *about: object, **options: object) -> Any:
    """Return search(*about, begin=(ended, journal), **options), run in a process of its own.

    Raises SearchEnded where a clock ends it, or too many wrong lines run without end.
    """
    ended = list[str]()
    with TemporaryDirectory() as folder, SubprocessRunner() as runner:
        journal = Path(folder) / "journal"
        while len(ended) < MOST_ENDED:
            try:
                begin = tuple(ended), str(journal)
                return runner.call(bounded, search, about, options, begin, timeout=CLOCK)
            except TimeoutError:
                raise SearchEnded(f"ended after {CLOCK:g} s") from None
            except ChildProcessError:
                ended.append(journal.read_text("utf-8") if journal.exists() else "")
    raise SearchEnded(f"ended {MOST_ENDED} times: {ended[-1]}")


def bounded(
    search: Callable[..., Any], about: Sequence[object], options: Mapping[str, object],
    begin: tuple[Sequence[str], str],
) -> Any:  # fmt: skip
    """Run a search in the child, where all that it tries is bounded."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # Windows has none

        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, most))
    if CAN_END:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    gc.set_threshold(100_000)  # syntax trees are many, and seldom rings
    ended, path = begin
    journal = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        return search(*about, **options, begin=(ended, journal))
    finally:
        os.close(journal)
