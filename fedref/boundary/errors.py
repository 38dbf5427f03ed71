"""The errors of wrong input: each says what is wrong, where, and what would be right."""

from collections.abc import Iterable
from difflib import get_close_matches


class FedrefError(ValueError):
    """Wrong input, found at the border. The command line prints it and exits with 2."""


class DataError(FedrefError):
    """A file or an array that cannot be used as data: names the file and what was expected."""


class ConfigError(FedrefError):
    """A name, option or value of an experiment that cannot be run."""


def printable(text: object, limit: int = 200) -> str:
    r"""Return text from outside, safe to print or write: without control characters, cut to a limit.

    Names and messages of others may hold line breaks, and escape sequences that a terminal obeys.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    start = str(text)[: limit + 1]
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in start)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the nearest known one, then all of them."""
    names = sorted(known)
    if not names:
        return f"unknown {kind} {str(name)!r}: there is none"
    near = get_close_matches(str(name), names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {str(name)!r}: {hint}known are {', '.join(names)}"
