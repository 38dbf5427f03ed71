"""Processes of this machine that share a run's units; no number depends on them, and none is left behind.

A worker saves its own units in the run directory, and reports its progress through shared memory. It ends
when the process that started it ends.
"""

import copyreg
import ctypes
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import current_process, parent_process, resource_tracker
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.files import WRITING, end_soon
from fedref.lab.experiments.run_directory import ResumableError
from fedref.rounds.threads import LIMIT, ONE_BLAS_THREAD, available_threads, keep_freed_memory

PR_SET_PDEATHSIG = 1  # as in Linux's prctl.h
#: Seconds that a worker has to react to SIGTERM, which it cannot in the middle of a call of C.
PATIENCE = 2.0
#: Seconds between two looks at how far workers are.
PAUSE = 0.1


# ---- the same sums in every process --------------------------------------------------------------


def run_single_threaded(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work with one BLAS thread and without warnings of overflows.

    With one thread, sums are the same on every machine; small products gain nothing from more, and
    large models run their clients side by side. The run itself reports divergence, once.
    """
    keep_freed_memory()
    with ONE_BLAS_THREAD, np.errstate(all="ignore"):
        return work(*arguments)


def make_proxy(mapping: Any) -> Any:
    return MappingProxyType(mapping)


#: Federations hold mapping proxies, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda proxy: (make_proxy, (dict(proxy),)))


# ---- who shares the work -------------------------------------------------------------------------


def run_in_executor(
    executor: futures.Executor, work: Callable[[Any], Any], units: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield each unit with work(unit), done in an executor, as they end."""
    calls = dict[futures.Future[Any], Any]()
    try:
        for unit in units:
            calls[executor.submit(run_single_threaded, work, unit)] = unit
        for future in futures.as_completed(calls):
            yield calls[future], future.result()
    except FedrefError:
        raise
    except Exception as error:  # each executor has its own for a worker that died
        raise ResumableError(f"the executor failed ({type(error).__name__}: {error})") from error
    finally:
        for future in calls:
            future.cancel()


class Spawned(SpawnContext):
    """Start processes as "spawn" does, and keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **how: Any) -> SpawnProcess:  # type: ignore[override]
        self.processes.append(SpawnProcess(*arguments, **how))
        return self.processes[-1]


class Shared(NamedTuple):
    """Memory that workers share with the run: for each unit its rounds, and who works on it, or 0.

    pids : negative if the process is about to end, as it was asked to.
    """

    rounds: Any
    pids: Any


Work = Callable[[Any, Callable[[int], None]], Any]


def run_in_workers(
    number: int,
    work: Work,
    units: Sequence[Any],
    report: Callable[[dict[int, int]], None],
    say: Callable[[str], None],
) -> Iterator[tuple[Any, Any]]:
    """Yield each unit with work(unit, tell), done in processes of this machine, as they end.

    A unit whose process dies is done once more. Whatever ends this lets units be saved. tell(rounds)
    says how far a unit is; report gets it by the units' numbers.
    """
    left, lost_before = {unit.number: unit for unit in units}, set[str]()
    while left:
        begun = [*left.values()]
        with worker_processes(min(number, len(left)), work, begun) as (calls, shared, processes):
            try:
                while calls:
                    for future in futures.wait(calls, PAUSE, futures.FIRST_COMPLETED).done:
                        unit = begun[calls.pop(future)]
                        result = future.result()
                        del left[unit.number]
                        yield unit, result
                    report({unit.number: n for unit, n in zip(begun, shared.rounds) if n})
            except BrokenProcessPool as error:
                # who does not react did not die by itself
                killed = stop_processes(processes, shared)
                ends = {exit_code(process) for process in processes if process.pid not in killed}
                by_signal = min(ends - {-signal.SIGTERM}, default=0) < 0  # SIGTERM is the pool's
                if not (any(shared.pids) or any(shared.rounds) or by_signal):
                    raise ResumableError(
                        "no worker process could begin: a script that calls fedref.run with workers "
                        'does so below `if __name__ == "__main__":`'
                    ) from error
                pairs = zip(begun, shared.pids)
                lost = {unit.name for unit, pid in pairs if pid > 0 and pid not in killed}
                lost = lost or {"no unit"}
                names = ", ".join(sorted(lost))
                if lost & lost_before:
                    raise ResumableError(
                        f"worker processes died again and again (at work: {names})"
                    ) from error
                lost_before |= lost
                say(f"a worker died (at work: {names}): others go on with its unit")


@contextmanager
def worker_processes(
    number: int, work: Work, units: Sequence[Any]
) -> Iterator[tuple[dict[futures.Future[Any], int], Shared, list[SpawnProcess]]]:
    """Let worker processes work on units, until the block ends; yield the calls by the units' places."""
    if getattr(current_process(), "_inheriting", False):
        sys.exit(1)  # this is a worker that imports an unguarded script: its owner says so
    try:
        pickle.dumps((work, units))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"workers cannot get this experiment ({error}); expected what it names at the top of a "
            "module, or workers=1"
        ) from error
    context = Spawned()
    with ExitStack() as stack:
        with signals_blocked(), start_errors():  # it starts Python's tracker of resources
            shared = Shared(*(context.RawArray("q", len(units)) for _ in Shared._fields))
            given = available_threads(), work, units, shared
            pool = futures.ProcessPoolExecutor(number, context, start_worker, given)
            stack.callback(end_pool, pool, context.processes, shared)
            calls = dict[futures.Future[Any], int]()
            for place in range(len(units)):
                calls[submit(pool, place)] = place
        yield calls, shared, context.processes


def submit(pool: futures.ProcessPoolExecutor, place: int) -> futures.Future[Any]:
    """Submit a unit; if a process has died meanwhile, return a future that says so."""
    try:
        return pool.submit(work_on, place)
    except (BrokenProcessPool, OSError) as error:
        if getattr(error, "errno", None):  # else: "handle is closed", by the pool's own thread
            raise
        broken = futures.Future[Any]()
        broken.set_exception(BrokenProcessPool(str(error)))
        return broken


@contextmanager
def start_errors() -> Iterator[None]:
    """Turn an error of the system, which has no more files, processes or memory, into one that says so."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # a thread that cannot start is a RuntimeError
        why = getattr(error, "strerror", None) or error
        raise ResumableError(
            f"worker processes cannot be started ({why}); expected fewer workers, or higher limits "
            "of open files, processes and shared memory"
        ) from error


def end_pool(
    pool: futures.ProcessPoolExecutor, processes: list[SpawnProcess], shared: Shared
) -> None:
    with WRITING:  # their saving is ours
        stop_processes(processes, shared)
        pool.shutdown(cancel_futures=True)


def exit_code(process: SpawnProcess) -> int:
    """Return the exit code of a process that has ended: negative if a signal has ended it."""
    end = time.monotonic() + PATIENCE
    while process.exitcode is None and time.monotonic() < end:
        time.sleep(PAUSE / 10)  # the pool's thread has taken it, and not stored it yet
    return process.exitcode or 0


def stop_processes(processes: list[SpawnProcess], shared: Shared) -> set[int]:
    """Let units at work be saved, and end all processes; kill those that do not react, and return them."""
    processes = [process for process in processes if process.pid]  # the others could not start
    for process in processes:
        process.terminate()
    deadline, killed = time.monotonic() + PATIENCE, set[int]()
    for process in processes:
        # not is_alive() alone: the pool's thread may have taken the exit code, and not stored it yet
        ended = wait_for([process.sentinel], max(0.0, deadline - time.monotonic()))
        if not ended and process.is_alive() and process.pid and -process.pid not in shared.pids:
            process.kill()
            killed.add(process.pid)
    return killed


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that end a run, so that none reaches a worker before `start_worker`."""
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


SIGNALS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


# ---- a worker ------------------------------------------------------------------------------------


#: What a worker process has from its beginning on: its work, all units, and the shared memory.
WORKER: list[tuple[Work, Sequence[Any], Shared]] = []


def start_worker(threads: int, *worker: Any) -> None:
    """Begin a worker process, which ends at SIGTERM, or with the process that started it."""
    for number in SIGNALS - {signal.SIGTERM}:  # the parent handles them
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_unit)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if sys.platform == "linux":  # whatever it does then
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Thread(target=end_with_parent, daemon=True).start()
    LIMIT.set(threads)
    WORKER.append(worker)


def end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work_on(place: int) -> Any:
    """Do, in a worker, the work of one unit."""
    ((work, units, shared),) = WORKER
    shared.pids[place] = os.getpid()
    try:
        try:
            tell = partial(shared.rounds.__setitem__, place)
            return run_single_threaded(work, units[place], tell)
        finally:
            shared.pids[place] = 0  # also after an error: `end_unit` interrupts no other work
    except KeyboardInterrupt:
        os._exit(1)  # nobody waits for the rest


def end_unit(number: int, frame: Any) -> None:
    """End the unit at work, which is saved, and then the process; at once if there is none."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids: Any = WORKER[0][2].pids if WORKER else ()
    if os.getpid() not in pids:
        os._exit(1)
    pids[[*pids].index(os.getpid())] = -os.getpid()
    end_soon(1)
    raise KeyboardInterrupt
