"""A round's clients over worker processes, that outlive the death of one of them.

Sums come out the same in each, and a client that fails is found and named.
"""

import ctypes
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from fedref.algorithm import AnyAlgorithm, ClientResult
from fedref.boundary.errors import FedrefError
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds import LocalData, run_clients
from fedref.rounds.cost import Counts, total

ALIGNED = 64  # bytes at which arrays begin
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h


class Shared(NamedTuple):
    """A value that lies in files, to be opened by each process that needs it, once."""

    path: str

    def value(self) -> Any:
        """The value; its arrays are mapped, read only, and so are in memory once for all."""
        return opened(self.path)


@cache
def opened(path: str) -> Any:
    places, body = pickle.loads(Path(path).read_bytes())
    arrays = np.memmap(f"{path}.arrays", mode="r") if places else b""
    return pickle.loads(body, buffers=[arrays[start : start + size] for start, size in places])


def laid_down(value: Any, path: str) -> Shared:
    """Write a value where `Shared` finds it: large arrays in a file of their own, to be mapped."""
    buffers: list[memoryview] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes:  # nothing cannot be mapped
            buffers.append(raw)
        return not raw.nbytes

    body = pickle.dumps(value, 5, buffer_callback=apart)
    places, end = [], 0
    with open(f"{path}.arrays", "wb") as file:
        for raw in buffers:
            places.append((end, raw.nbytes))
            file.write(raw)
            end += file.write(bytes(-raw.nbytes % ALIGNED)) + raw.nbytes
    Path(path).write_bytes(pickle.dumps((places, body)))
    return Shared(path)


class Kept(NamedTuple):
    """A value that each worker has been sent to keep."""

    name: str

    def value(self) -> Any:
        return HELD[self.name]


#: In a worker: what it keeps.
HELD: dict[str, Any] = {}


def found(value: Any) -> Any:
    """The value itself, wherever it lies."""
    return value.value() if hasattr(value, "value") else value


class Processes(Executor):
    """N processes. A pool breaks as a whole when one of its workers dies; the next work that is
    handed in then gets a new pool, so that one death costs one round and not the run.

    They start when they are first needed, and end with the process that made them, however it ends.
    """

    #: Seconds that it takes to start them; whoever may choose sends them no less work than that.
    starting = 2.0

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool = self._new()
        self.folder = TemporaryDirectory(prefix="fedref-")
        self.shared: dict[int, tuple[Any, Shared]] = {}  # the value stays, and with it its id
        self.first: list[Future[Any]] = []

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, get_context("spawn"), initializer=begin)

    @property
    def started(self) -> bool:
        return bool(self.first)

    @property
    def ready(self) -> bool:
        """Whether they have started."""
        return self.started and all(future.done() for future in self.first)

    def start(self) -> None:
        """Let them start, and go on meanwhile."""
        self.first = [self.submit(keep_pages) for _ in range(self.workers)]

    def share(self, value: Any) -> Shared:
        """Write a value where all workers find it: once, however often it is asked for."""
        if id(value) not in self.shared:
            path = str(Path(self.folder.name, f"{len(self.shared)}"))
            self.shared[id(value)] = value, laid_down(value, path)
        return self.shared[id(value)][1]

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with interrupts_held():  # a worker may be started
            try:
                return self.pool.submit(interruptible, work, *args, **kwargs)
            except BrokenProcessPool:
                self.pool.shutdown(wait=False)
                self.pool = self._new()
                return self.pool.submit(interruptible, work, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)
        self.shared.clear()
        self.folder.cleanup()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits, and finds a process that is started meanwhile only once that has begun."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it lets interrupts through where it starts itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interruptible(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The work, in a worker. Ctrl-C ends it there, without a word; a worker that ended while it
    receives or sends would leave half a message, for whose rest the other side waited for ever."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return work(*args, **kwargs)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def begin() -> None:
    """In a new worker: Ctrl-C ends what it works on, and it ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    if parent is not None:
        Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


@cache
def blas() -> ThreadpoolController:
    return ThreadpoolController()


class OneThread:
    """One BLAS thread as long as anybody in this process is inside; then as many as before."""

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
    """Let this thread set limits: threadpoolctl (from 3.8) else leaves that to the first that did."""
    for library in blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


ONE_THREAD = OneThread()


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
    with ONE_THREAD, np.errstate(all="ignore"):
        return work(*arguments)


class Calm(Executor):
    """An executor whose workers work as this process does."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner

    @property
    def share(self) -> Callable[[Any], Any] | None:
        """How values get to the workers once, if there is a way."""
        return getattr(self.inner, "share", None)

    @property
    def starting(self) -> float:
        """Seconds that its workers take to start: none if whoever made it has started them."""
        return getattr(self.inner, "starting", 0.0)

    @property
    def started(self) -> bool:
        return getattr(self.inner, "started", True)

    @property
    def ready(self) -> bool:
        return getattr(self.inner, "ready", True)

    def start(self) -> None:
        if isinstance(self.inner, Processes):
            self.inner.start()

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
    message : told of what happens on the way. The numbers depend on none of them, nor on the order
    in which the parts end.
    """

    executor: Executor | None = None
    workers: int = 1
    on_failure: str = "fail"
    stack: bool | None = None
    message: Callable[[str], None] = lambda text: None

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
        same = algorithm, model, sent
        calls: list[tuple[Any, ...]] = [
            (*same, [client_states[k] for k in part], *self.part_of(data, part), self.stack)
            for part in parts
        ]
        futures = [self.executor.submit(run_part, *call) for call in calls if self.executor]
        outcomes: list[Outcome] = []
        for i, call in enumerate(calls):
            try:
                outcomes.append(futures[i].result() if futures else run_part(*call))
            except BrokenExecutor as error:  # it does not say whose work killed the worker
                if self.on_failure != "drop":
                    lost = [part for part, f in zip(parts, futures) if f.exception()]
                    raise died(data, lost, error) from error
                outcomes.append(([None] * len(parts[i]), Counts()))
            except Exception as error:
                again = algorithm, model, sent, call[3], data.subset_rows(parts[i])
                outcomes.append(one_by_one(self.on_failure, *again))
                self.message(
                    f"round {data.round + 1}: {type(error).__name__}: {error}; "
                    f"the {len(parts[i])} clients of this part were run again one by one"
                )
        return [r for results, _ in outcomes for r in results], total(n for _, n in outcomes)

    def part_of(self, data: LocalData, part: Array) -> tuple[LocalData, Any, Any]:
        """What travels: the plan alone if the workers have X and y, else with the rows in it."""
        if self.executor is None:
            return data, data.X, data.y
        share = getattr(self.executor, "share", None)
        if share is None:
            own = data.subset_rows(part)
            return without_arrays(own), own.X, own.y
        return without_arrays(data.subset(part)), share(data.X), share(data.y)


def without_arrays(data: LocalData) -> LocalData:
    nothing: Any = None
    return data._replace(X=nothing, y=nothing)


def run_part(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
    X: Any,
    y: Any,
    stack: bool | None,
) -> Outcome:
    """`run_clients` where the part is worked on, with X and y from where they lie."""
    here = data._replace(X=found(X), y=found(y))
    return run_clients(algorithm, model, sent, client_states, here, stack)


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
            alone = data.subset_rows([k])
            outcomes.append(run_clients(algorithm, model, sent, [client_state], alone, stack=False))
        except Exception as error:
            if on_failure != "drop":
                raise ClientError(
                    f"client {data.clients[k]} failed in round {data.round + 1}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            outcomes.append(([None], Counts()))
    return [r for results, _ in outcomes for r in results], total(n for _, n in outcomes)
