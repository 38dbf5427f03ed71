"""A round's clients over worker processes, that outlive the death of one of them.

Sums come out the same in each, and a client that fails is found and named.
"""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from fedref.algorithm import AnyAlgorithm, ClientResult
from fedref.cost import Counts, total
from fedref.errors import FedrefError
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.rounds import LocalData, run_clients

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h


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


@cache
def keep_pages() -> None:
    """Let this process keep the memory that its arrays leave, up to 256 MiB, for the next ones.

    glibc otherwise maps and unmaps each array of more than 128 KiB anew, and the system clears its
    pages every time. Elsewhere nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no glibc
        return
    mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that it takes
    mallopt(M_TRIM_THRESHOLD, 256 << 20)


def calmly(work: Callable[..., Any], *arguments: Any) -> Any:
    """With one BLAS thread (small products gain nothing from two, and sums come out the same
    everywhere) and without a warning of every overflow (divergence is reported once)."""
    keep_pages()
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


class ClientError(FedrefError):
    """A client's work failed: says which client, in which round, and why."""


Outcome = tuple[list[ClientResult | None], Counts]


@dataclass(frozen=True)
class Workers:
    """`run_clients` for `run_round`: the cohort in `workers` parts, failures by client.

    executor : what runs the parts (None: this process, all at once).
    on_failure : "fail" raises ClientError, "drop" treats a client that fails as one that never
    answered (when a worker dies: every client that it may have been at work on).
    The numbers depend on none of them, nor on the order in which the parts end.
    """

    executor: Executor | None = None
    workers: int = 1
    on_failure: str = "fail"
    stack: bool | None = None

    def __call__(
        self,
        algorithm: AnyAlgorithm,
        model: Model,
        sent: Any,
        client_states: Sequence[Any],
        data: LocalData,
    ) -> Outcome:
        K = len(client_states)
        parts = np.array_split(np.arange(K), min(self.workers if self.executor else 1, K))
        calls: list[tuple[Any, ...]] = [
            (
                algorithm,
                model,
                sent,
                [client_states[k] for k in part],
                data.only(part) if self.executor else data,
                self.stack,
            )
            for part in parts
        ]
        futures = [self.executor.submit(run_clients, *call) for call in calls if self.executor]
        outcomes: list[Outcome] = []
        for i, call in enumerate(calls):
            try:
                outcomes.append(futures[i].result() if futures else run_clients(*call))
            except BrokenExecutor as error:  # it does not say whose work killed the worker
                if self.on_failure != "drop":
                    lost = [part for part, f in zip(parts, futures) if f.exception()]
                    raise died(data, lost, error) from error
                outcomes.append(([None] * len(parts[i]), Counts()))
            except Exception:
                outcomes.append(one_by_one(self.on_failure, *call[:-1]))
        return [r for results, _ in outcomes for r in results], total(n for _, n in outcomes)


def died(data: LocalData, lost: list[Array], error: Exception) -> ClientError:
    """A worker that died, with the clients that it may have been at work on."""
    clients = " or ".join(", ".join(str(data.clients[k]) for k in part) for part in lost)
    return ClientError(f"round {data.round + 1}: the worker with clients {clients} died ({error})")


def one_by_one(
    on_failure: str,
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
) -> Outcome:
    """After a part failed: its clients alone, to find and name the one that fails."""
    outcomes: list[Outcome] = []
    for k, client_state in enumerate(client_states):
        try:
            outcomes.append(
                run_clients(algorithm, model, sent, [client_state], data.only([k]), stack=False)
            )
        except Exception as error:
            if on_failure != "drop":
                raise ClientError(
                    f"client {data.clients[k]} failed in round {data.round + 1}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            outcomes.append(([None], Counts()))
    return [r for results, _ in outcomes for r in results], total(n for _, n in outcomes)
