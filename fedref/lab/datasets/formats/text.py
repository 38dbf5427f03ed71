"""Text as rows of codes: windows of 80 characters with the next one as label, or words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedref.models.numerics import Array

# LEAF's alphabet for Shakespeare, in its order
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = "·"  # stands for any other character, or a word outside the vocabulary
OTHER = len(ALPHABET)  # the code of any other character
CHARACTERS = (*ALPHABET, UNKNOWN)  # by code
LENGTH = 80

_CODES = np.full(0x110000, OTHER, np.uint8)  # by code point
_CODES[[ord(c) for c in ALPHABET]] = np.arange(OTHER)


def codes(text: str) -> Array:
    """Return the code of each character: (len(text),) uint8."""
    # surrogatepass: JSON may hold half of a surrogate pair; it gets the code OTHER
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.asarray(_CODES[points])


def windows(text: str, length: int = LENGTH) -> tuple[Array, Array]:
    """Return all windows of a text, X (n, length), a view, and the character after each, y (n,).

    The text is prepared as LEAF does: line breaks become spaces, and several spaces become one.

    >>> X, y = windows("to  be\\nor not", 4)
    >>> [decode(row) for row in X[:3]], decode(y[:3])
    (['to b', 'o be', ' be '], 'e o')
    """
    flat = codes(re.sub("  +", " ", text.replace("\n", " ")))
    if len(flat) <= length:
        return np.empty((0, length), np.uint8), np.empty(0, np.int64)
    view = np.lib.stride_tricks.sliding_window_view(flat, length)[:-1]
    return view, flat[length:].astype(np.int64)


def decode(row: Array, vocabulary: Sequence[str] = CHARACTERS) -> str:
    """Return the text of codes, without padding."""
    return "".join(vocabulary[c] for c in row if c < len(vocabulary))


# ---- words ----------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Split a text into words and punctuation marks in lower case, as LEAF does.

    >>> words("Don't panic, it's Monday!")
    ["don't", 'panic', ',', "it's", 'monday', '!']
    """
    return re.findall(r"[\w']+|[.,!?;]", text.lower())


def vocabulary_of(texts: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the `limit` most frequent words (ties alphabetical), then UNKNOWN for all others."""
    count = Counter(word for text in texts for word in words(text))
    ranked = sorted(count, key=lambda word: (-count[word], word))
    return (*ranked[:limit], UNKNOWN)


def encode_words(texts: Sequence[str], vocabulary: Sequence[str], length: int) -> Array:
    """Return (n, length) codes of the first `length` words, in the smallest fitting dtype.

    A shorter text is padded at its end with the code len(vocabulary).
    """
    code, padding = {word: i for i, word in enumerate(vocabulary)}, len(vocabulary)
    out = np.full((len(texts), length), padding, np.min_scalar_type(padding))
    for row, text in zip(out, texts):
        codes = [code.get(word, padding - 1) for word in words(text)[:length]]
        row[: len(codes)] = codes
    return out
