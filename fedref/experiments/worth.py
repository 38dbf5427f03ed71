"""Whether work is worth sending to other processes: decided by measuring, told under `--verbose`.

The numbers do not depend on what is decided; only the time does.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fedref.experiments.unit import Record
from fedref.experiments.workers import Calm, Outcome, Workers
from fedref.rounds.cost import Counts

#: Seconds of work from which on a rate is believed.
BELIEVED = 0.2
#: Rounds of each kind that are timed before one is chosen.
TRIALS = 3


class Enough:
    """Whether the units ahead are worth the start of workers; asked after each round here.

    ahead : the rounds of each unit that is left, the one at work first. starting : seconds that it
    takes to start the workers (0: they are there).
    """

    def __init__(self, ahead: Sequence[int], workers: int, starting: float) -> None:
        self.rounds, self.at_once = sum(ahead), not starting
        self.starting, self.saved = starting, 1 - 1 / min(workers, len(ahead))
        self.began, self.done, self.why = time.monotonic(), 0, ""

    def __call__(self, record: Record) -> bool:
        self.done += 1
        passed = time.monotonic() - self.began
        rest = passed / self.done * (self.rounds - self.done)
        if passed < BELIEVED or rest * self.saved <= self.starting:
            return False
        self.why = f": about {rest:.0f} s of work are left"
        return True


class Chosen:
    """`run_clients` in this process or over workers, whichever proves faster for this unit.

    A few rounds are timed here; if those that are left are worth the start of the workers, a few are
    sent as soon as they are there. Times are for a gradient's sample, as rounds differ in size.
    """

    def __init__(
        self, workers: Workers, calm: Calm, rounds: int, detail: Callable[[str], None]
    ) -> None:
        self.sent, self.here = (
            workers,
            Workers(None, 1, workers.on_failure, message=workers.message),
        )
        self.calm, self.rounds, self.detail = calm, rounds, detail
        self.times: dict[Workers, list[float]] = {self.sent: [], self.here: []}
        self.choice: Workers | None = None

    def __call__(self, *call: Any) -> Outcome:
        how = self.choice or self.next()
        began = time.monotonic()
        results, counts = how(*call)
        self.last = time.monotonic() - began
        self.rounds -= 1
        if self.choice is None:
            self.times[how].append(self.last / max(samples(counts), 1))
        return results, counts

    def next(self) -> Workers:
        """Who does this round."""
        here, sent = self.times[self.here], self.times[self.sent]
        if len(here) < TRIALS:
            return self.here
        if not self.calm.started:
            if self.last * self.rounds * (1 - 1 / self.sent.workers) <= self.calm.starting:
                return self.here
            self.calm.start()
        if not self.calm.ready:
            return self.here
        if len(sent) <= TRIALS:  # the first one pays for what is sent once
            return self.sent
        ratio = min(sent[1:]) / min(here)
        self.choice = self.sent if ratio < 1 else self.here
        what = f"over {self.sent.workers} processes" if ratio < 1 else "in one process"
        self.detail(
            f"rounds {what}: sent to {self.sent.workers} one takes {ratio:.2f} of its time here"
        )
        return self.choice


def samples(counts: Counts) -> float:
    """The gradients' samples of a round; one of an HVP is worth about two."""
    return counts.grad_samples + 2 * counts.hvp_samples
