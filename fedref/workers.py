"""Worker processes that outlive the death of one of them, and sums that come out the same in each."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController


class Processes(Executor):
    """N processes. A pool breaks as a whole when one of its workers dies; the next work that is
    handed in then gets a new pool, so that one death costs one round and not the run."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, get_context("spawn"))

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return self.pool.submit(work, *args, **kwargs)
        except BrokenProcessPool:
            self.pool.shutdown(wait=False)
            self.pool = self._new()
            return self.pool.submit(work, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


@cache
def blas() -> ThreadpoolController:
    return ThreadpoolController()


def calmly(work: Callable[..., Any], *arguments: Any) -> Any:
    """With one BLAS thread (small products gain nothing from two, and sums come out the same
    everywhere) and without a warning of every overflow (divergence is reported once)."""
    with blas().limit(limits=1), np.errstate(all="ignore"):
        return work(*arguments)


class Calm(Executor):
    """An executor whose workers work as this process does."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        try:
            return self.inner.submit(calmly, work, *arguments, **more)
        except BrokenExecutor as error:  # a worker died before all had their work
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken
