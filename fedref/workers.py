"""Worker processes that outlive the death of one of them."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any


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
