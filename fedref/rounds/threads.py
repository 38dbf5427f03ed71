"""Clients side by side on threads: NumPy's products and ufuncs release the interpreter's lock.

Every thread computes whole clients, with BLAS on one thread, so no number depends on how many
threads there are.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

#: A thread pays from so many multiplications on between two of Python's steps. Measured on two cores
#: (Intel with AVX-512, MLP and CNN, 10 clients, 10 and 40 rows, FedAvg and Per-FedAvg): two threads
#: take 1.0 to 1.2 times as long below 15 million together, and from 20 million on .6 to 1.0 times in
#: float32, .5 to .9 in float64.
STEP = 10_000_000
#: And from so many on in a whole round, since it takes a millisecond until another core is up and warm.
#: Measured on two cores (AMD EPYC, an MLP and a CNN, 5 and 10 clients, 1 to 60 steps of 10 to 80 rows):
#: two threads take .8 to 1.6 times as long as one up to 180 million, .6 to 1.0 times from 250 million on.
ROUND = 100_000_000
#: Seconds that a round waits at Ctrl-C for threads that do not end.
PATIENCE = 1.0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h
LIMIT: ContextVar[int | None] = ContextVar("threads", default=None)


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to 256 MiB of freed memory for its next arrays; only with glibc.

    glibc otherwise maps and unmaps each array of more than 128 KiB anew, and the system clears its
    pages every time.
    """
    with suppress(AttributeError, OSError, TypeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that glibc accepts
        mallopt(M_TRIM_THRESHOLD, 256 << 20)


@contextmanager
def limit_threads(limit: int | None) -> Iterator[None]:
    """Let the clients of a round take at most so many threads; None: one a processor."""
    token = LIMIT.set(limit)
    try:
        yield
    finally:
        LIMIT.reset(token)


def available_threads() -> int:
    """Return how many threads the clients of a round may take here."""
    if (limit := LIMIT.get()) is not None:
        return limit
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(step: int, total: int) -> int:
    """Return the number of threads for work of so many multiplications in each step, and in total."""
    return max(1, min(available_threads(), step // STEP, total // ROUND))


def run_parts(
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    threads: int,
    stop: Callable[[int], None] = lambda first: None,
) -> list[Result]:
    """Return the results of all parts in order, computed on so many threads, of which this one is the first.

    If part i fails, `stop(i + 1)` ends the parts after it, and the error of the first failing part is
    raised. Ctrl-C calls `stop(0)`; threads that still run after PATIENCE seconds are abandoned.
    """
    n = min(threads, len(parts))
    if n < 2:
        return [work(part) for part in parts]

    def attempt(i: int) -> Result:
        try:
            return work(parts[i])
        except BaseException:
            stop(i + 1)
            raise

    pool = ThreadPoolExecutor(n - 1)
    futures = list[Future[Result]]()
    with ONE_BLAS_THREAD:
        try:
            for i in range(len(parts)):  # in this context: np.errstate is part of it
                futures.append(pool.submit(copy_context().run, attempt, i))
            for i in reversed(range(len(parts))):
                if futures[i].cancel():  # no thread has begun it, so this one does
                    futures[i] = Future()
                    try:
                        futures[i].set_result(attempt(i))
                    except Exception as error:
                        futures[i].set_exception(error)
            return [future.result() for future in futures]
        except BaseException as error:
            stop(0)
            pool.shutdown(wait=False, cancel_futures=True)
            begun = [future for future in futures if not future.cancelled()]
            wait(begun, PATIENCE if isinstance(error, KeyboardInterrupt) else None)
            raise
        finally:
            pool.shutdown(wait=all(future.done() for future in futures))


# ---- BLAS ----------------------------------------------------------------------------------------


@cache
def blas() -> Any:
    from threadpoolctl import ThreadpoolController  # one thread needs NumPy alone

    return ThreadpoolController()


class OneBlasThread:
    """A context manager that limits BLAS to one thread while any thread of this process is inside."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                take_control()
                self.limiter = blas().limit(limits=1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                take_control()
                self.limiter.restore_original_limits()


def take_control() -> None:
    """Let this thread set limits: threadpoolctl (from 3.8) allows it only to the first that did."""
    for library in blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


ONE_BLAS_THREAD = OneBlasThread()
