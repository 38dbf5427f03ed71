"""Text as rows of character codes: LEAF's 80 characters → the next one."""

import io
import re

import numpy as np

from fedref.numerics import Array

# LEAF's alphabet for Shakespeare, in its order
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
OTHER = len(ALPHABET)  # any other character, and padding
LENGTH = 80
TWEET = 140

_CODES = np.full(0x110000, OTHER, np.uint8)  # by code point
_CODES[[ord(c) for c in ALPHABET]] = np.arange(OTHER)


def codes(text: str) -> Array:
    """One code for each character: (len(text),) uint8."""
    # surrogatepass: JSON may hold half of a surrogate pair, which is a character like any other
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.asarray(_CODES[points])


def encode(texts: list[str], length: int) -> Array:
    """(n, length) codes; a longer text loses its end, a shorter one is padded with OTHER."""
    out = np.full((len(texts), length), OTHER, np.uint8)
    for row, text in zip(out, texts):
        row[: len(text)] = codes(text[:length])
    return out


def windows(text: str, length: int = LENGTH) -> tuple[Array, Array]:
    """Each character and the `length` before it in its line, as LEAF cuts a role's text.

    A line begins after `length` spaces, has single spaces only, and keeps its line break: n
    characters give n windows.

    >>> X, y = windows("to  be\\nor not", 4)
    >>> [decode(row) for row in X[:5]], decode(y[:6])
    (['    ', '   t', '  to', ' to ', 'to b'], 'to be\\n')
    """
    X, y = [np.empty((0, length), np.uint8)], [np.empty(0, np.uint8)]
    for line in io.StringIO(text):
        flat = codes(" " * length + re.sub("  +", " ", line))
        X.append(np.lib.stride_tricks.sliding_window_view(flat, length)[:-1])
        y.append(flat[length:])
    return np.concatenate(X), np.concatenate(y).astype(np.int64)


def decode(row: Array) -> str:
    """The characters of some codes; OTHER is shown as ·."""
    return "".join((ALPHABET + "·")[c] for c in row)
