"""Executors of a run's units, and processes of this machine as one: the same sums in each, no orphans.

A worker process saves its own units in the run directory, tells through shared memory how far they are,
and is killed by the process that started it: what is not saved then is computed again.
"""

import copyreg
import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import current_process, parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.lab.experiments.run_directory import ResumableError
from fedref.rounds.threads import LIMIT, ONE_BLAS_THREAD, available_threads

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h
PR_SET_PDEATHSIG = 1  # as in Linux's prctl.h
#: Seconds between two looks at how far workers are.
PAUSE = 0.1


# ---- the same sums in every process --------------------------------------------------------------


@cache
def tune_malloc() -> None:
    """Let this process keep up to 256 MiB of freed memory for its next arrays; only with glibc.

    glibc otherwise maps and unmaps each array of more than 128 KiB anew, and the system clears its
    pages every time.
    """
    with suppress(AttributeError, OSError, TypeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that glibc accepts
        mallopt(M_TRIM_THRESHOLD, 256 << 20)


def run_single_threaded(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work with one BLAS thread and without warnings of overflows.

    With one thread, sums are the same on every machine; small products gain nothing from more, and
    large models run their clients side by side. The run itself reports divergence, once.
    """
    tune_malloc()
    with ONE_BLAS_THREAD, np.errstate(all="ignore"):
        return work(*arguments)


def make_proxy(mapping: Any) -> Any:
    return MappingProxyType(mapping)


#: Federations hold mapping proxies, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda proxy: (make_proxy, (dict(proxy),)))


# ---- who shares the work -------------------------------------------------------------------------


def run_in_executor(
    executor: Executor,
    work: Callable[[Any], Any],
    units: Sequence[Any],
    report: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each unit with work(unit), done in an executor, as they end; report is called meanwhile."""
    calls = dict[Future[Any], Any]()
    try:
        for unit in units:
            calls[executor.submit(run_single_threaded, work, unit)] = unit
        while calls:
            for future in wait(calls, PAUSE, FIRST_COMPLETED).done:
                yield calls.pop(future), future.result()
            report()
    except FedrefError:
        raise
    except Exception as error:  # each executor has its own for a worker that died
        raise ResumableError(f"the executor failed ({type(error).__name__}: {error})") from error
    finally:
        for future in calls:
            future.cancel()


Work = Callable[[Any, Callable[[int], None]], Any]


def run_in_workers(
    number: int,
    work: Work,
    units: Sequence[Any],
    report: Callable[[dict[int, int]], None],
    say: Callable[[str], None],
) -> Iterator[tuple[Any, Any]]:
    """Yield each unit with work(unit, tell), done in processes of this machine, as they end.

    Whatever ends this kills the processes. If one of them dies, the units that are left go on from what
    they have saved. tell(rounds) says how far a unit is; report gets it by the units' numbers.
    """
    left, before = [*units], 0
    while left:
        begun = [*left]
        with worker_processes(min(number, len(left)), work, begun) as (pool, rounds):
            tell = partial(report_rounds, report, begun, rounds)
            try:
                for place, result in run_in_executor(pool, work_on, range(len(begun)), tell):
                    left.remove(begun[place])
                    yield begun[place], result
            except ResumableError as error:
                if not isinstance(error.__cause__, BrokenProcessPool):
                    raise
                if not rounds[-1]:
                    raise ResumableError(
                        "no worker process could begin: a script that calls fedref.run with workers "
                        'does so below `if __name__ == "__main__":`'
                    ) from error.__cause__
                if len(left) == before:
                    names = ", ".join(unit.name for unit in left[:9])
                    raise ResumableError(
                        f"worker processes died again and again (left to do: {names})"
                    ) from error.__cause__
                before = len(left)
                say("a worker process died: the units that are left go on from what they saved")


def report_rounds(
    report: Callable[[dict[int, int]], None], units: Sequence[Any], rounds: Any
) -> None:
    report({unit.number: done for unit, done in zip(units, rounds) if done})


class Spawned(SpawnContext):
    """Start processes as "spawn" does, and keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **how: Any) -> SpawnProcess:  # type: ignore[override]
        self.processes.append(SpawnProcess(*arguments, **how))
        return self.processes[-1]


class Workers(ProcessPoolExecutor):
    """Processes that no signal to a terminal reaches: their owner handles it, and kills them."""

    def submit(self, *call: Any, **how: Any) -> Future[Any]:
        with signals_blocked():  # in processes that start here, too, from their beginning on
            return super().submit(*call, **how)


@contextmanager
def worker_processes(
    number: int, work: Work, units: Sequence[Any]
) -> Iterator[tuple[Executor, Any]]:
    """Start worker processes, which end with the block; yield them and memory that they share.

    The memory holds how many rounds of each unit are done, and then 1 once a process has begun.
    """
    if getattr(current_process(), "_inheriting", False):
        sys.exit(1)  # this is a worker that imports an unguarded script: its owner says so
    try:
        task = pickle.dumps((work, units))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"workers cannot get this experiment ({error}); expected what it names at the top of a "
            "module, or workers=1"
        ) from error
    context = Spawned()
    rounds = context.RawArray("q", len(units) + 1)
    with signals_blocked():  # it starts Python's tracker of resources
        pool = Workers(number, context, start_worker, (available_threads(), rounds, task))
    try:
        yield pool, rounds
    finally:
        for process in context.processes:
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that a terminal sends to all of its processes."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()  # SIGHUP stays blocked there; here this unblocks interrupts
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


SIGNALS = {getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)}


# ---- a worker ------------------------------------------------------------------------------------


#: What a worker process has from its beginning on: its work, all units, and the shared memory.
WORKER: list[tuple[Work, Sequence[Any], Any]] = []


def start_worker(threads: int, rounds: Any, task: bytes) -> None:
    """Begin a worker process, which ends with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # whatever it does then
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Thread(target=end_with_parent, daemon=True).start()
    LIMIT.set(threads)
    WORKER.append((*pickle.loads(task), rounds))
    rounds[-1] = 1


def end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work_on(place: int) -> Any:
    """Do, in a worker process, the work of one unit."""
    ((work, units, rounds),) = WORKER
    return work(units[place], partial(rounds.__setitem__, place))
