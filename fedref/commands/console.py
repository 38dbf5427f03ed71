"""Standard output and standard error, and the signals that stop a command."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any

from fedref.boundary.values import as_kind, literal


def say(message: str) -> None:
    """One line on standard error, if there is one."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(f"fedref: {message}", file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    with suppress(OSError, ValueError):
        return sys.stderr is not None and sys.stderr.isatty()
    return False


def whole_number(text: str) -> int:
    """An option's integer, by the rule of experiment files: 1e3 is 1000."""
    found: int | None = as_kind(int, literal(text))
    if found is None:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number")
    return found


def columns_shown() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    with suppress(OSError, ValueError):
        if sys.stdout is not None and sys.stdout.isatty():
            return get_terminal_size().columns
    return None


@contextmanager
def standard_streams() -> Iterator[None]:
    """What cannot be encoded is escaped; what cannot be written at the end is an OSError here, not
    a message of the interpreter when it exits."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit):
            if sys.stdout is not None:
                flush_or_drop()
        elif error.filename is None:
            drop_output()
        raise


def flush_or_drop() -> None:
    """The end of --help and --version, whose exit code is argparse's."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
        raise


def drop_output() -> None:
    """Send what is left of standard output nowhere: it cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminated(KeyboardInterrupt):
    """SIGTERM: the command stops as it does at Ctrl-C."""

    code = 128 + signal.SIGTERM


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM raises Terminated, once: a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated("stopped by SIGTERM")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
