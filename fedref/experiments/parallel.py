"""Work in other processes: a pool on this machine, and a round's clients over any executor.

Every process computes the same sums. If a worker dies, only its work is lost. A client that fails is
found and named.

Long because the ways in which processes start, are interrupted and end depend on each other.
"""

import copyreg
import ctypes
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context, parent_process, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm, ClientResult
from fedref.boundary.errors import FedrefError
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds import LocalData, run_clients
from fedref.rounds.cost import Counts, total
from fedref.rounds.federation import Federation
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


def submit(
    executor: Executor, workers: int, work: Callable[..., Any], *arguments: Any
) -> Future[Any]:
    """Submit work to an executor of so many workers, which share the threads of this process.

    If its pool is broken, the future holds the error.
    """
    # what other executors' workers share is not known
    own = isinstance(executor, Processes)
    threads = max(1, available_threads() // workers) if own else 1
    try:
        return executor.submit(run_in_worker, threads, work, *arguments)
    except BrokenExecutor as error:  # a worker died before all work was submitted
        broken: Future[Any] = Future()
        broken.set_exception(error)
        return broken


def run_in_worker(threads: int, work: Callable[..., Any], *arguments: Any) -> Any:
    with limit_threads(threads):
        return run_single_threaded(work, *arguments)


def is_death(error: BaseException) -> bool:
    """Return whether work ended because its worker died, not because it raised."""
    killed = type(error).__name__ == "KilledWorker"  # Dask's
    return killed or isinstance(error, BrokenExecutor | CancelledError)


def reason_of(death: BaseException) -> str:
    return str(death) or "no worker is left"


# ---- processes of this machine -------------------------------------------------------------------


class SharedArray:
    """A reference to an array in a file; unpickled in a worker, it is the array, mapped read-only."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return map_array, (self.path,)


@cache
def map_array(path: str) -> Array:
    return np.asarray(np.load(path, mmap_mode="r"))


def make_proxy(mapping: Any) -> Any:
    return MappingProxyType(mapping)


#: Federations hold mapping proxies, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda proxy: (make_proxy, (dict(proxy),)))


#: The file in a folder of shared arrays that says whose it is, by process number.
ARRAYS = ".fedref-shared-arrays"


class Processes(Executor):
    """Worker processes on this machine.

    A pool breaks as a whole when one of its workers dies. The next `submit` then makes a new pool, so
    that one death costs a round and not the run. Processes start when they are first needed, and end
    with the process that made them, however it ends.
    """

    def __init__(self, workers: int) -> None:
        remove_abandoned_folders()
        self.workers = workers
        # Windows cannot remove files that are mapped
        prefix = f"fedref-{os.getpid()}-"
        self.folder = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        Path(self.folder.name, ARRAYS).write_text(str(os.getpid()))
        # id → (array, reference): keeping the array makes sure that no other one gets its id
        self.shared: dict[int, tuple[Array, SharedArray]] = {}
        self.pool = self.new_pool()

    def new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, get_context("spawn"), initializer=init_worker)

    def share(self, array: Array) -> Any:
        """Write an array to a file, once; return the reference that is sent to workers instead."""
        if id(array) not in self.shared:
            path = str(Path(self.folder.name, f"{len(self.shared)}.npy"))
            np.save(path, array, allow_pickle=False)
            self.shared[id(array)] = array, SharedArray(path)
        return self.shared[id(array)][1]

    def share_rows(self, federation: Federation) -> Federation:
        """Return the federation as it is sent to workers, with references to its rows."""
        source = federation.source
        shared = replace(source, X=self.share(source.X), y=self.share(source.y))
        return replace(federation, source=shared)

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with interrupts_blocked():  # this may start a worker
            try:
                return self.pool.submit(run_interruptibly, work, *args, **kwargs)
            except BrokenProcessPool:
                self.pool.shutdown(wait=False)
                self.pool = self.new_pool()
                return self.pool.submit(run_interruptibly, work, *args, **kwargs)

    def stop(self) -> None:
        """Interrupt the workers' work, as Ctrl-C does, and kill them after 10 s; start a new pool."""
        workers = list((getattr(self.pool, "_processes", None) or {}).values())
        self.pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + 10
        while alive := [worker for worker in workers if worker.is_alive()]:
            for worker in alive:
                late = time.monotonic() > deadline or os.name != "posix"
                with suppress(ProcessLookupError):
                    worker.kill() if late else os.kill(worker.pid, signal.SIGINT)
            alive[0].join(0.05)
        self.pool = self.new_pool()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)
        self.shared.clear()
        self.folder.cleanup()


def remove_abandoned_folders() -> None:
    """Remove the folders of shared arrays that killed processes have left, known by their marker."""
    for marker in Path(gettempdir()).glob(f"fedref-*/{ARRAYS}") if os.name == "posix" else ():
        with suppress(OSError, ValueError):
            if not is_running(int(marker.read_text())):
                shutil.rmtree(marker.parent)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's process
        pass
    return True


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT, so that Ctrl-C cannot reach a worker before `init_worker` has run in it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it would unblock interrupts if it started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def init_worker() -> None:
    """Let a new worker ignore Ctrl-C while it has no work, and end when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    if parent is not None:
        Thread(target=exit_with_parent, args=(parent,), daemon=True).start()


def exit_with_parent(parent: Any) -> None:
    parent.join()
    os._exit(1)


def run_interruptibly(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Do the work in a worker; the first Ctrl-C interrupts it, others are ignored.

    A worker that ended while it receives or sends would leave half a message, and the other side
    would wait for the rest for ever.
    """
    signal.signal(signal.SIGINT, interrupt_once)
    try:
        return work(*args, **kwargs)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def interrupt_once(number: int, frame: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


# ---- a round's clients ---------------------------------------------------------------------------


class ClientError(FedrefError):
    """A client's work failed: names the client, the round and the reason."""


class WorkerDeath(ClientError):
    """A worker died: names the clients or units that it may have worked on, and the reason."""


Results = tuple[list[ClientResult | None], Counts]


@dataclass(frozen=True)
class Workers:
    """A `run_clients` for `run_round` that divides the cohort into `workers` parts.

    executor : runs the parts (None: this process runs the whole cohort).
    on_failure : "fail" raises ClientError. "drop" treats a client that fails as one that never
    answered; if a worker dies, so are all clients that it may have worked on.
    stack : whether clients are stacked, as in `run_clients`. message : is called if a part fails, and
    for a client that is dropped.

    The numbers depend neither on the executor nor on the order in which parts end.
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
    ) -> Results:
        K = len(client_states)
        parts = np.array_split(np.arange(K), min(self.workers if self.executor else 1, K))
        run = partial(run_clients, algorithm, model, sent)
        calls = [
            ([client_states[k] for k in part], self.part_of(data, part), self.stack)
            for part in parts
        ]
        futures = [
            submit(self.executor, self.workers, run, *call) for call in calls if self.executor
        ]
        done: list[Results] = []
        for i, part in enumerate(parts):
            try:
                done.append(futures[i].result() if futures else run(*calls[i]))
            except Exception as error:
                if is_death(error):  # the error does not say whose work killed the worker
                    if self.on_failure != "drop":
                        lost = [p for p, future in zip(parts, futures) if has_failed(future)]
                        raise worker_death_error(data, lost, error) from error
                    done.append(([None] * len(part), Counts()))
                    continue
                some = data.subset_rows(part)
                done += one_by_one(run, calls[i][0], some, self.on_failure, self.message)
                self.message(
                    f"round {data.round + 1}: {type(error).__name__}: {error}; "
                    f"the {len(part)} clients of this part were run again one by one"
                )
        return [result for results, _ in done for result in results], total(n for _, n in done)

    def part_of(self, data: LocalData, part: Array) -> LocalData:
        """Return the data of a part as it is sent: with references to X and y, or with its rows."""
        if self.executor is None:
            return data
        if isinstance(self.executor, Processes):
            share = self.executor.share
            return data.subset(part)._replace(X=share(data.X), y=share(data.y))
        return data.subset_rows(part)


def has_failed(future: Future[Any]) -> bool:
    """Wait for the end of work; return whether it raised an error."""
    try:
        future.result()
    except Exception:
        return True
    return False


def worker_death_error(data: LocalData, lost: list[Array], error: Exception) -> WorkerDeath:
    clients = " or ".join(", ".join(str(data.clients[k]) for k in part) for part in lost)
    return WorkerDeath(
        f"round {data.round + 1}: the worker with clients {clients} died ({reason_of(error)})"
    )


def one_by_one(
    run: Callable[..., Results],
    client_states: Sequence[Any],
    data: LocalData,
    on_failure: str,
    message: Callable[[str], None],
) -> Iterator[Results]:
    """Run the clients of a part that failed one by one, to find and name the one that fails."""
    for k, client_state in enumerate(client_states):
        try:
            yield run([client_state], data.subset_rows([k]), stack=False)
        except Exception as error:
            reason = (
                f"client {data.clients[k]} failed in round {data.round + 1}: "
                f"{type(error).__name__}: {error}"
            )
            if on_failure != "drop":
                raise ClientError(reason) from error
            message(f"{reason}; it is dropped")
            yield [None], Counts()
