"""Text as rows of character codes: LEAF's 80 characters → the next one."""

import re

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedref.numerics import Array

# LEAF's alphabet for Shakespeare, in its order
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
OTHER = len(ALPHABET)  # any other character, and padding
LENGTH = 80
TWEET = 140

_CODES = np.full(0x110000, OTHER, np.uint8)  # by code point
_CODES[[ord(c) for c in ALPHABET]] = np.arange(OTHER)
BREAK, SPACE = _CODES[ord("\n")], _CODES[ord(" ")]


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


def windows(texts: list[str], length: int = LENGTH) -> tuple[Array, Array]:
    """Each character and the `length` before it in its line, as LEAF cuts a role's text.

    Each text begins a line. A line begins after `length` spaces, has single spaces only, and keeps
    its line break: n characters give n windows.

    >>> X, y = windows(["to  be\\nor not"], 4)
    >>> [decode(row) for row in X[:5]], decode(y[:6])
    (['    ', '   t', '  to', ' to ', 'to b'], 'to be\\n')
    """
    single = [re.sub("  +", " ", text) if "  " in text else text for text in texts]
    found = codes("".join(single))
    line = np.repeat(np.arange(len(single)), [len(text) for text in single])
    line += np.cumsum(found == BREAK) - (found == BREAK)  # the line that each character is in
    place = np.arange(len(found)) + length * (line + 1)
    flat = np.full(len(found) + length * (line.max(initial=0) + 1), SPACE)
    flat[place] = found
    return sliding_window_view(flat, length)[place - length], found.astype(np.int64)


def decode(row: Array) -> str:
    """The characters of some codes; OTHER is shown as ·."""
    return "".join((ALPHABET + "·")[c] for c in row)
