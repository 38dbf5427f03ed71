"""Several processes on one run: the same sums in each, who works on which unit, workers.

A worker is another process that does what the first one does in the same folder. All share a file in which
each unit has a slot: who works on it holds a lock on the slot, which the system frees when the process
ends, in whatever way, and writes there how far it is.
"""

import copyreg
import ctypes
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context, parent_process, resource_tracker
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import open_regular_only
from fedref.rounds.threads import ONE_BLAS_THREAD, available_threads, limit_threads

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


# ---- who works on which unit ---------------------------------------------------------------------

#: Rounds done (the start is one), process id.
SLOT = struct.Struct("<qq")


class Board:
    """The file of slots, one for each unit. Without fcntl, units are not held: work may be repeated."""

    def __init__(self, path: Path, slots: int) -> None:
        self.slots = slots
        self.file = open_regular_only(str(path), os.O_RDWR | os.O_CREAT)
        self.lock("LOCK_SH", slots)  # every process holds the slot behind the last one

    def lock(self, how: str, slot: int) -> bool:
        """Lock a slot, or free it; return False if another process has locked it."""
        try:
            import fcntl
        except ImportError:
            return True
        try:
            operation = getattr(fcntl, how) | (0 if how == "LOCK_UN" else fcntl.LOCK_NB)
            fcntl.lockf(self.file, operation, SLOT.size, slot * SLOT.size)
        except OSError as error:
            return not isinstance(error, BlockingIOError | PermissionError)  # a disk without locks
        return True

    def clear(self) -> None:
        """Empty the file: the run is finished."""
        os.ftruncate(self.file, 0)

    def close(self) -> None:
        os.close(self.file)

    def is_alone(self) -> bool:
        """Return whether no other process has this file open."""
        return self.lock("LOCK_EX", self.slots)

    @contextmanager
    def hold(self, slot: int) -> Iterator[bool]:
        """Hold a slot; yield False if another process does."""
        mine = self.lock("LOCK_EX", slot)
        try:
            yield mine
        finally:
            if mine:
                self.lock("LOCK_UN", slot)

    def write(self, slot: int, rounds: int) -> None:
        with suppress(OSError):  # a full disk: it only shows progress
            os.lseek(self.file, slot * SLOT.size, os.SEEK_SET)
            os.write(self.file, SLOT.pack(rounds, os.getpid()))

    def read(self) -> list[tuple[int, int]]:
        """Return (rounds, process id) of every slot."""
        os.lseek(self.file, 0, os.SEEK_SET)
        data = os.read(self.file, self.slots * SLOT.size).ljust(self.slots * SLOT.size, b"\0")
        return list(SLOT.iter_unpack(data))


# ---- workers -------------------------------------------------------------------------------------


class WorkerProcesses:
    """Processes that all run `work(*arguments)`; leaving the context ends them.

    They end with the process that made them, however it ends.
    """

    def __init__(self, number: int, work: Callable[..., Any], *arguments: Any) -> None:
        context: Any = get_context("spawn")
        target = available_threads(), work, *arguments
        self.processes = [
            context.Process(target=run_worker, args=target, daemon=True) for _ in range(number)
        ]

    def __enter__(self) -> "WorkerProcesses":
        with signals_blocked():
            for process in self.processes:
                try:
                    process.start()
                except (pickle.PicklingError, AttributeError, TypeError) as error:
                    raise ConfigError(
                        f"workers cannot get this experiment ({error}); expected what it names at the "
                        "top of a module, or workers=1"
                    ) from error
        return self

    def __exit__(self, *_: object) -> None:
        started = [process for process in self.processes if process.pid is not None]
        for process in started:
            process.terminate()  # it saves its unit
        for process in started:
            process.join(10)
            process.kill()
            process.join()

    def take_dead(self) -> list[tuple[int, str]]:
        """Return (process id, how it ended) of processes that were killed or that crashed, once each."""
        dead = [p for p in self.processes if p.exitcode is not None and p.exitcode < 0]
        self.processes = [p for p in self.processes if p not in dead]
        return [(p.pid, name_of_signal(-p.exitcode)) for p in dead]


def name_of_signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that end a run, so that none reaches a worker before `run_worker`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it would unblock interrupts if it started later
    ours = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_worker(threads: int, work: Callable[..., Any], *arguments: Any) -> None:
    """Work until the parent ends it or itself ends, silently: what fails, the parent meets again."""
    with suppress(KeyboardInterrupt, Exception):
        try:
            for name in ("SIGINT", "SIGHUP"):  # the parent handles them
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), signal.SIG_IGN)
            signal.signal(signal.SIGTERM, interrupt_once)
            if hasattr(signal, "pthread_sigmask"):
                ours = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
            Thread(target=exit_with_parent, daemon=True).start()
            with limit_threads(threads):
                run_single_threaded(work, *arguments)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def interrupt_once(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
