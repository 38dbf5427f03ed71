"""Errors for wrong input: each says what is wrong, where, and what would be right."""

import os
import sysconfig
import traceback
from collections.abc import Iterable
from difflib import get_close_matches


class FedrefError(ValueError):
    """Wrong input from the user. The command line prints the message and exits with code 2."""


class DataError(FedrefError):
    """A file or an array cannot be used. The message names it and says what was expected."""


class ConfigError(FedrefError):
    """A name, an option or a value that an experiment cannot be run with."""


def printable(text: object, limit: int = 200) -> str:
    r"""Return text with its control characters escaped, cut to a limit: safe to print or write.

    Names in users' files may hold line breaks, or escape sequences that a terminal would execute.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    try:
        start = str(text)[: limit + 1]
    except Exception:  # of a user's `__str__`
        start = f"a {type(text).__name__}"
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in start)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


#: A message lists all known names if there are no more than this; else it names the nearest three.
MOST_NAMES = 30


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the error message for an unknown name: the closest known name, then all of them."""
    names, wrong = sorted(known), f"unknown {kind} {str(name)!r}"
    if not names:
        return f"{wrong}: there is none"
    many = len(names) > MOST_NAMES
    closest = get_close_matches(str(name), names, n=3 if many else 1, cutoff=0.6)
    hints = [f"did you mean {' or '.join(map(repr, closest))}?"] if closest else []
    hints += [] if many else [f"known are {', '.join(names)}"]
    return f"{wrong}: {' '.join(hints)}" if hints else wrong


PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
#: How the names of files begin that no user wrote: this package, Python's library, installed packages,
#: and text that was compiled, as <string>.
FOREIGN = (*(os.path.join(folder, "") for folder in (PACKAGE, *LIBRARIES)), "<")


def user_line(error: BaseException) -> tuple[str, int] | None:
    """Return the file and line of the innermost code of a user in an error's traceback."""
    places = ((x.filename, x.lineno or 0) for x in traceback.extract_tb(error.__traceback__))
    own = [x for x in places if not x[0].startswith(FOREIGN) and "-packages" not in x[0]]
    return own[-1] if own else None


def place_of(error: BaseException) -> str:
    """Return an error with the file and line of the innermost code that is no library's."""
    place, text = user_line(error), printable(error, 1000)
    return f"{f'{place[0]}, line {place[1]}: ' if place else ''}{type(error).__name__}: {text}"


def tell_error(error: BaseException) -> str:
    """Return an error of a user's code in one line; of a write into what is read-only, what to write."""
    if isinstance(error, FedrefError):
        return str(error)
    hint = (
        ". It writes into an array that it was given, which others read, too: write w = w - x for "
        "w -= x, or work on a copy"
    )
    return place_of(error) + (hint if "read-only" in str(error) else "")
