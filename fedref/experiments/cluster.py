"""The workers of a Dask cluster, as an executor: for units of a sweep, or a round's clients."""

import logging
import time
import warnings
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import fedref
from fedref.boundary.errors import ConfigError, FedrefError
from fedref.experiments.workers import Kept

CONNECT_SECONDS = 10.0
#: Seconds that a cluster without any worker is waited for.
PATIENCE = 30.0
#: How often work is sent again that the cluster has dropped.
RETRIES = 3


class WorkersGone(BrokenExecutor):
    """Work that no worker of the cluster has finished."""


def executor_of(text: str) -> "Dask":
    """What `--executor KIND:ADDRESS` stands for."""
    kind, _, address = text.partition(":")
    if kind != "dask" or not address:
        raise ConfigError(
            f"executor is {text!r}, expected dask:ADDRESS, as in dask:tcp://127.0.0.1:8786"
        )
    return Dask(address)


class Dask(Executor):
    """The cluster whose scheduler is at `address`.

    A worker that dies is made good for by Dask: another one does its work again (at most three
    times). Values that are shared are sent to each worker once.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ConfigError(
                "distributed is not installed, which the executor dask needs; "
                "expected `pip install 'fedref[dask]'`"
            ) from None
        self.name = f"dask:{address}"
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it is said here
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise FedrefError(
                f"{self.name}: no scheduler answers ({first_line(error)}); expected the address that "
                "`dask scheduler` shows, as tcp://HOST:8786"
            ) from error
        try:
            self.workers = self.greeted()
        except BaseException:
            self.client.close()
            raise
        self.inner = self.client.get_executor(pure=False)
        self.shared: dict[int, tuple[Any, Kept]] = {}  # the value stays, and with it its id
        self.waiting: set[Future[Any]] = set()
        self.closed = Event()
        Thread(target=self.watch, daemon=True).start()

    def greeted(self) -> int:
        """How many threads its workers have; all must have this version of fedref."""
        threads = sum(self.client.nthreads().values())
        if not threads:
            raise FedrefError(f"{self.name}: has no worker, expected `dask worker` to be running")
        try:
            versions = set(self.client.run(version).values())
        except ImportError as error:
            raise FedrefError(f"{self.name}: a worker cannot import fedref ({error})") from error
        if others := versions - {version()}:
            raise FedrefError(
                f"{self.name}: a worker has {'; '.join(sorted(others))}, expected {version()}"
            )
        return threads

    def share(self, value: Any) -> "Kept":
        """Send a value to every worker, and to those that come later: once, however often it is
        asked for. (What is scattered is not kept: Dask drops what it holds in several places.)"""
        if id(value) not in self.shared:
            kept = Kept(f"fedref-{uuid4().hex}")
            try:
                self.client.register_plugin(plugin(kept.name, value), name=kept.name)
            except (OSError, ValueError, RuntimeError) as error:
                raise FedrefError(
                    f"{self.name}: data could not be sent ({first_line(error)})"
                ) from error
            self.shared[id(value)] = value, kept
        return self.shared[id(value)][1]

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        outer: Future[Any] = Future()
        self.waiting.add(outer)
        self.send(outer, RETRIES, partial(work, **kwargs) if kwargs else work, args)
        return outer

    def send(self, outer: "Future[Any]", retries: int, work: Any, args: tuple[Any, ...]) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            inner = self.inner.submit(work, *args)

        def hand_on(_: object) -> None:
            """The result, or an error of the kind that executors have."""
            if (
                inner.cancelled()
                and not outer.done()
                and retries
                and self.client.status == "running"
            ):
                # its result went with a worker, or something that it needs: a pure function of its
                # arguments may be called again
                with suppress(Exception):  # the connection has just been lost
                    return self.send(outer, retries - 1, work, args)
            self.waiting.discard(outer)
            with suppress(InvalidStateError):  # given up, or no longer wanted
                try:
                    outer.set_result(inner.result())
                except CancelledError:
                    outer.set_exception(
                        self.gone("its scheduler, or all that had the data, are gone")
                    )
                except BaseException as error:
                    killed = type(error).__name__ == "KilledWorker"
                    outer.set_exception(self.gone(first_line(error)) if killed else error)

        outer.add_done_callback(lambda done: done.cancelled() and inner.cancel())
        inner.add_done_callback(hand_on)

    def gone(self, what: str) -> WorkersGone:
        return WorkersGone(f"{self.name}: {what}")

    def watch(self) -> None:
        """Give up what waits for workers when there have been none for a while."""
        seen = time.monotonic()
        while not self.closed.wait(min(1.0, PATIENCE / 4)):
            with suppress(Exception):
                if self.client.nthreads():
                    seen = time.monotonic()
            if time.monotonic() - seen > PATIENCE:
                for future in list(self.waiting):
                    with suppress(InvalidStateError):
                        future.set_exception(self.gone("no worker is left"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.closed.set()
        if self.client.status == "running":
            for _, kept in self.shared.values():
                with suppress(Exception):  # it may end at any moment
                    self.client.unregister_worker_plugin(kept.name)
        self.shared.clear()
        self.client.close(timeout=2)


def plugin(name: str, value: Any) -> Any:
    """What makes a worker keep a value."""
    from distributed import WorkerPlugin

    class Keep(WorkerPlugin):  # type: ignore[misc, unused-ignore]
        def setup(self, worker: Any) -> None:
            from fedref.experiments.workers import HELD  # the worker's: this class travels whole

            HELD[name] = value

        def teardown(self, worker: Any) -> None:
            from fedref.experiments.workers import HELD

            HELD.pop(name, None)

    return Keep()


def version() -> str:
    """What the numbers depend on, here or on a worker."""
    import numpy as np

    return f"fedref {fedref.__version__} with NumPy {np.__version__}"


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")
