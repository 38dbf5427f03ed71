"""Text as rows of codes: windows of 80 characters and the next one, or a text's words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedref.models.numerics import Array

# LEAF's alphabet for Shakespeare, in its order
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = "·"  # what any other character, or a word out of vocabulary, is shown as
OTHER = len(ALPHABET)  # the code of any other character
CHARACTERS = (*ALPHABET, UNKNOWN)  # by code
PADDING = len(CHARACTERS)
LENGTH = 80
TWEET = 140

_CODES = np.full(0x110000, OTHER, np.uint8)  # by code point
_CODES[[ord(c) for c in ALPHABET]] = np.arange(OTHER)
BREAK, SPACE = _CODES[ord("\n")], _CODES[ord(" ")]


def codes(text: str) -> Array:
    """Return one code for each character: (len(text),) uint8."""
    # surrogatepass: JSON may hold half of a surrogate pair, which is a character like any other
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.asarray(_CODES[points])


def encode(texts: Sequence[str], length: int) -> Array:
    """Return (n, length) codes; a longer text loses its end, a shorter one is padded at its end."""
    return pad_rows([codes(text[:length]) for text in texts], length, PADDING)


def pad_rows(rows: Sequence[Array], length: int, padding: int) -> Array:
    """Return (n, length) of n rows of codes of `length` or fewer, in the smallest type that holds them."""
    out = np.full((len(rows), length), padding, np.min_scalar_type(padding))
    for to, row in zip(out, rows):
        to[: len(row)] = row
    return out


def windows(text: str, length: int = LENGTH) -> tuple[Array, Array]:
    """Return each character but the first `length`, and those before it: X (n, length), a view.

    As LEAF cuts a role's text: line breaks are spaces, and several spaces are one.

    >>> X, y = windows("to  be\\nor not", 4)
    >>> [decode(row) for row in X[:3]], decode(y[:3])
    (['to b', 'o be', ' be '], 'e o')
    """
    flat = codes(re.sub("  +", " ", text.replace("\n", " ")))
    if len(flat) <= length:
        return np.empty((0, length), np.uint8), np.empty(0, np.int64)
    view = np.lib.stride_tricks.sliding_window_view(flat, length)[:-1]
    return view, flat[length:].astype(np.int64)


def decode(row: Array, vocabulary: Sequence[str] = CHARACTERS, between: str = "") -> str:
    """Return what some codes stand for; padding is left out."""
    return between.join(vocabulary[c] for c in row if c < len(vocabulary))


# ---- words ----------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Return LEAF's words and stops, in lower case.

    >>> words("Don't panic, it's Monday!")
    ["don't", 'panic', ',', "it's", 'monday', '!']
    """
    return re.findall(r"[\w']+|[.,!?;]", text.lower())


def vocabulary_of(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the `most` most frequent words, ties in alphabetical order; last, the one for all others."""
    count = Counter(word for text in texts for word in words(text))
    ranked = sorted(count, key=lambda word: (-count[word], word))
    return (*ranked[:most], UNKNOWN)


def encode_words(texts: Sequence[str], vocabulary: Sequence[str], length: int) -> Array:
    """Return (n, length) codes of the first `length` words; a shorter text is padded at its end."""
    code = {word: i for i, word in enumerate(vocabulary)}
    other = len(vocabulary) - 1
    rows = [np.array([code.get(w, other) for w in words(text)[:length]], int) for text in texts]
    return pad_rows(rows, length, len(vocabulary))
