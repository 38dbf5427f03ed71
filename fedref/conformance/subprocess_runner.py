"""Run functions in another process, with a time limit: a hang or crash fails only that call."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Self
from uuid import uuid4

#: The variable of the environment that marks a child, and all that it starts.
MARK = "FEDREF_CHILD"


class SubprocessRunner:
    """One child process that runs functions; it starts at the first call and again if it has died.

    Functions, arguments and results are pickled. Module-level state persists between calls as long
    as the child lives. Whatever the child prints goes to standard error. fork : on Linux the child
    begins as a copy of this process, with all that it has imported and computed.

    >>> with SubprocessRunner() as runner:
    ...     runner.call(max, 2, 3, timeout=60)
    3
    """

    def __init__(self, fork: bool = False) -> None:
        self.process: Any = None
        self.method = "fork" if fork and sys.platform == "linux" else "spawn"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(patience=5)

    def call(self, function: Callable[..., Any], *arguments: object, timeout: float) -> Any:
        """Return function(*arguments), or raise what it raises.

        Raises TimeoutError after `timeout` seconds, ChildProcessError if the child dies.
        """
        if self.process is None:
            self._start()
        try:
            self.connection.send((function, arguments))
            self._wait(timeout)
            succeeded, result = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join(1)
            code = self.process.exitcode  # None: it lives, but closed the connection
            self.kill()
            how = "" if code is None else f": exit code {code}"
            if code and code < 0:
                how = f": {signal.strsignal(-code)}"
            raise ChildProcessError(f"the process died{how}") from None
        except BaseException:
            self.kill()  # a late answer must not be mistaken for the next call's
            raise
        if not succeeded:
            raise result
        return result

    def _wait(self, timeout: float) -> None:
        """Wait for an answer; what a dead child has started may hold the connection open."""
        end = monotonic() + timeout
        while not self.connection.poll(min(max(end - monotonic(), 0), 0.5)):
            if not self.process.is_alive() and not self.connection.poll():
                raise EOFError
            if monotonic() >= end:
                raise TimeoutError(f"no answer after {timeout:g} s")

    def _start(self) -> None:
        context: Any = get_context(self.method)
        self.connection, child_end = context.Pipe()
        ours = self.connection if self.method == "fork" else None  # a copy that the child closes
        self.process = context.Process(target=_serve, args=(child_end, ours))
        self.mark = uuid4().hex
        resource_tracker.ensure_running()  # before the mark, which is for the child
        os.environ[MARK] = self.mark
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of a fork beside BLAS's threads, which are ready for it
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        finally:
            del os.environ[MARK]
        child_end.close()

    def kill(self, patience: float = 0) -> None:
        """End the child with all processes that it has started, if they live.

        patience : seconds in which it may end itself and its own workers, as the connection is closed.
        """
        if self.process is None:
            return
        self.connection.close()
        self.process.join(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.process = None
        for pid in find_marked(self.mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def find_marked(mark: str) -> Iterator[int]:
    """Yield the processes that have this mark in their environment, where /proc shows it.

    One that began a session of its own is no longer in the child's group, but has its environment.
    """
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes():
                yield int(path.parent.name)


def _serve(connection: Connection, others: Connection | None = None) -> None:
    """Answer calls until the connection is closed; others : the parent's end, which a fork copies."""
    if others is not None:
        others.close()
    with suppress(OSError):
        os.setsid()  # what it starts ends with it
    os.dup2(2, 1)  # C code that prints must not spoil the parent's output
    pid = os.getpid()
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            function, arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:
                answer = False, error
            if os.getpid() != pid:  # a fork that the function has left behind
                os._exit(0)
            connection.send(answer)
