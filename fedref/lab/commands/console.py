"""Standard output and standard error, and the signal that stops a command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast

from fedref.boundary.errors import printable
from fedref.boundary.files import end_soon


def say(message: str) -> None:
    """Write one line to standard error, if there is one; what is indented below it, as further lines."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            lines = (printable(line, sys.maxsize) for line in message.split("\n    "))
            print("fedref: " + "\n    ".join(lines), file=sys.stderr, flush=True)


def show_progress(what: str, unit: str, iterable: Any = None, **how: Any) -> Any:
    """Return tqdm's bar; without a terminal it is a plain line every ten seconds, from the tenth on."""
    from tqdm import tqdm  # slow to import

    class Lines(tqdm):  # type: ignore[misc]
        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if msg is None:
                total = f" of {self.total}" if self.total else ""
                say(f"{self.desc.removesuffix(': ')}: {self.n}{total}{unit}")

        def clear(self, nolock: bool = False) -> None:
            pass

    shown = sys.stderr is not None and sys.stderr.isatty()
    pause, delay = (0.1, 0.0) if shown else (10.0, 10.0)
    how |= {"desc": what, "unit": unit, "mininterval": pause, "maxinterval": pause, "delay": delay}
    return (tqdm if shown else Lines)(iterable, leave=False, dynamic_ncols=True, **how)


@contextmanager
def named_errors() -> Iterator[None]:
    """Let an error of writing say that it is of standard output: others have no file's name, either."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


class PrintableStream:
    """A stream that escapes control characters: names may come from anywhere."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        with named_errors():
            self.stream.write("\n".join(printable(line, sys.maxsize) for line in text.split("\n")))

    def flush(self) -> None:
        with named_errors():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Escape characters that cannot be encoded or that control the terminal.

    Output that cannot be written raises an OSError here; otherwise the interpreter would print a
    message when it exits.
    """
    out = sys.stdout
    for stream in (out, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if out is None:
        yield
        return
    failed = False
    try:
        with redirect_stdout(cast(TextIO, PrintableStream(out))):
            yield
    except Exception:
        failed = True
        raise
    finally:
        try:
            with named_errors():
                out.flush()
        except OSError:
            with suppress(OSError, ValueError):  # drop the rest
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            if not failed:  # else the first error is told
                raise


class StopSignal(KeyboardInterrupt):
    """A signal as an exception, so that the command stops as at Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.code = 128 + number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM, or SIGHUP of a closed terminal end the command within two seconds.

    It raises an exception, so that what was done is saved. A second Ctrl-C ends at once; a terminal
    that closes, and a system that shuts down, may send several of the others.
    """

    def stop(number: int, frame: Any) -> None:
        for other in before:  # afterwards, too, for the process ends
            before[other] = signal.SIG_DFL if other == signal.SIGINT else signal.SIG_IGN
            # not SIG_IGN yet: Python complains of one that has arrived already
            signal.signal(other, signal.SIG_DFL if other == signal.SIGINT else lambda *_: None)
        end_soon(128 + number)
        raise KeyboardInterrupt if number == signal.SIGINT else StopSignal(number)

    before = dict[int, Any]()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                before.setdefault(number, signal.signal(number, stop))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
