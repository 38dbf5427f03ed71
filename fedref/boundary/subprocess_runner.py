"""Run functions in another process, with a time limit: a hang or crash there costs one answer."""

import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self


class SubprocessRunner:
    """One child process that runs functions: started when first needed, and again after it died.

    Functions, arguments and results travel by pickle. What a function keeps at module level lasts
    from call to call, as long as the child lives. What the child prints goes to standard error.

    >>> with SubprocessRunner() as runner:
    ...     runner.call(max, 2, 3, timeout=60)
    3
    """

    def __init__(self) -> None:
        self.process: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the child go, which ends its own workers too."""
        if self.process is not None:
            self.connection.close()
            self.process.join(5)
            self.kill()

    def call(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> Any:
        """Return function(*arguments), or raise what it raises.

        Raises TimeoutError after `timeout` seconds, ChildProcessError if the child dies.
        """
        if self.process is None:
            self._start()
        try:
            self.connection.send((function, arguments))
            if not self.connection.poll(timeout):
                raise TimeoutError(f"no answer after {timeout:g} s")
            succeeded, result = self.connection.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise ChildProcessError("the process died") from None
        except BaseException:
            self.kill()  # an answer that nobody waits for must not be taken for the next one
            raise
        if not succeeded:
            raise result
        return result

    def _start(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()

    def kill(self) -> None:
        """End the child at once."""
        if self.process is not None:
            self.connection.close()
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(connection: Connection) -> None:
    """Answer calls until nobody asks any more."""
    os.dup2(2, 1)  # what is printed past Python's own streams must not spoil a report
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            function, arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:
                answer = False, error
            connection.send(answer)
