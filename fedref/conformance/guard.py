"""The suite in a process of its own: a backend that hangs or dies costs one case, not the run."""

import os
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.conformance import suite, vectors
from fedref.conformance.load import load
from fedref.conformance.suite import FAILED, Result
from fedref.conformance.vectors import Case

#: What importing a backend may take, in seconds: torch and JAX need a few.
IMPORT = 120.0


def serve(connection: Connection, name: str) -> None:
    """Verdicts for the cases that are asked for, by name, until nobody asks any more."""
    os.dup2(2, 1)  # what a backend prints past Python's own streams must not spoil a report
    try:
        backend = load(name)
    except FedrefError as error:
        connection.send(str(error))
        return
    cases = {case.name: case for case in vectors.read()}
    connection.send(None)
    while True:
        try:
            wanted, dtype = connection.recv()
        except EOFError:
            return
        case = cases[wanted]
        connection.send(suite.judge(suite.answer(backend, case, dtype), case, dtype))


class Served:
    """A process that answers; it is started when first asked, and again after it was lost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Any = None

    def start(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.name))
        self.process.start()
        theirs.close()
        said = self._received(IMPORT) if self.connection.poll(IMPORT) else "did not end in time"
        if said is not None:
            self.stop()
            raise ConfigError(f"{self.name}: {said}")

    def _received(self, timeout: float) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            return "its import ended the process"

    def stop(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.connection.close()
            self.process.kill()
            self.process.join()
            self.process = None

    def end(self) -> None:
        """Let the process go, which ends its own workers too."""
        if self.process is not None:
            self.connection.close()
            self.process.join(5)
            self.stop()

    def verdict(self, case: Case, dtype: str, timeout: float) -> Result:
        if self.process is None:
            self.start()

        def lost(reason: str) -> Result:
            self.stop()
            return Result(case.name, case.tag, FAILED, reason=reason)

        try:
            self.connection.send((case.name, dtype))
            if not self.connection.poll(timeout):
                return lost(f"no answer after {timeout:g} s (--timeout)")
            return self.connection.recv()
        except (EOFError, OSError):
            return lost("the process died")


def run(
    name: str, cases: Sequence[Case], dtype: str = "float64", timeout: float = 60.0
) -> Iterator[Result]:
    """Verdicts on the backend of that name, as `suite.run`, at most `timeout` seconds a case."""
    served = Served(name)
    try:
        for case in cases:
            yield served.verdict(case, dtype, timeout)
    finally:
        served.end()
