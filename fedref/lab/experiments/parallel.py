"""Processes of this machine as an executor of a run's units: the same sums in each, ends without orphans.

A worker is a process of a ProcessPoolExecutor. It saves its own units in the run directory, and tells how
far it is through memory that it shares with the process that started it, and ends with that process.
"""

import copyreg
import ctypes
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import WRITING, end_soon
from fedref.rounds.threads import LIMIT, ONE_BLAS_THREAD, available_threads

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h


# ---- the same sums in every process --------------------------------------------------------------


@cache
def tune_malloc() -> None:
    """Let this process keep up to 256 MiB of freed memory for its next arrays; only with glibc.

    glibc otherwise maps and unmaps each array of more than 128 KiB anew, and the system clears its
    pages every time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no glibc
        return
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


# ---- workers -------------------------------------------------------------------------------------


class Shared(NamedTuple):
    """Memory that workers share with the run. rounds, pids : (units,), 0 if none; stop : (1,)."""

    rounds: Any
    pids: Any
    stop: Any


class Worker(NamedTuple):
    """What a worker process has from its beginning on."""

    work: Callable[[Any, Callable[[int], None]], Any]
    units: Sequence[Any]
    shared: Shared


WORKER: list[Worker] = []
CONTEXT = get_context("spawn")


@contextmanager
def worker_processes(
    number: int, work: Callable[[Any, Callable[[int], None]], Any], units: Sequence[Any]
) -> Iterator[tuple[Executor, Shared]]:
    """Yield an executor of `run_unit`; if the block fails, or at Ctrl-C, its units are saved and end.

    work : is called as work(unit, tell), where tell(rounds) says how far it is.
    """
    shared = Shared(*(CONTEXT.RawArray("q", n) for n in (len(units), len(units), 1)))
    try:
        pickle.dumps((work, units))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"workers cannot get this experiment ({error}); expected what it names at the top of a "
            "module, or workers=1"
        ) from error
    given = available_threads(), Worker(work, units, shared)
    pool = ProcessPoolExecutor(number, CONTEXT, start_worker, given)
    try:
        yield pool, shared
    except BaseException:
        shared.stop[0] = 1
        for pid in {*shared.pids} - {0}:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)  # it saves its unit
        raise
    finally:
        with WRITING:  # their saving is ours
            pool.shutdown(cancel_futures=True)


def run_unit(place: int) -> Any:
    """Do, in a worker, the work of one unit."""
    (worker,) = WORKER
    pids, rounds, stop = worker.shared.pids, worker.shared.rounds, worker.shared.stop
    if stop[0]:
        return None
    pids[place] = os.getpid()
    try:
        result = run_single_threaded(
            worker.work, worker.units[place], partial(rounds.__setitem__, place)
        )
    except KeyboardInterrupt:
        os._exit(1)  # nobody waits for the rest
    pids[place] = 0
    return result


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that end a run, so that none reaches a worker before `start_worker`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it would unblock interrupts if it started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


SIGNALS = {
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
}


def start_worker(threads: int, worker: Worker) -> None:
    """Begin a worker process, which ends at SIGTERM, or with the process that started it."""
    for number in SIGNALS - {signal.SIGTERM}:  # the parent handles them
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_unit)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    Thread(target=exit_with_parent, daemon=True).start()
    LIMIT.set(threads)
    WORKER.append(worker)


def exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def end_unit(number: int, frame: Any) -> None:
    """End the unit at work, which is saved, and then the process; at once if there is none."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not WORKER or os.getpid() not in WORKER[0].shared.pids:
        os._exit(1)
    end_soon(1)
    raise KeyboardInterrupt
