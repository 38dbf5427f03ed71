"""The named data sets that are text: Shakespeare's roles, and Sent140's tweets.

The first 80 % of a role's windows are for training. With windows of 80 characters LEAF leaves a gap of
79 before its first test window, which begins with the last training target. A gap of 80 leaves training
and test part no character in common. The split rule `natural` keeps the parts; its min_rows leaves out
clients with fewer rows.

Shakespeare's roles and windows are not quite LEAF's (data/README.md), which finds the roles by regular
expressions in the plain text of Project Gutenberg. `roles.json` comes from a marked-up edition, where a
messenger or a servant is a role of each play. 194 of its 1 349 roles have no window.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedref.boundary.files import data_error, read_json
from fedref.boundary.values import Bounds
from fedref.lab.datasets.formats import leaf
from fedref.lab.datasets.formats.arrays import Raw
from fedref.models.numerics import Array

EXPECTED = 'roles.json: an object {"play__ROLE": [[line, ...] of each speech, ...]}'
TRAIN = 0.8
TWEET_AT = 4  # LEAF: id, date, query, user, tweet[, "training" | "test"]
VOCABULARY, TWEET = 10_000, 25  # words that have a code, and that are kept of a tweet (as in LEAF)
SENTIMENTS = {0: 0, 1: 1, 4: 1, "0": 0, "1": 1, "4": 1}

# ---- characters and words ----------------------------------------------------------------------------

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


# ---- Shakespeare ------------------------------------------------------------------------------------


def read_shakespeare(path: Path, step: Annotated[int, Bounds(1)] = 1) -> Raw:
    """Return windows of 80 characters and the next one, one client per role.

    step : windows begin at every step-th character (in LEAF at every one).
    """
    users = read_roles(path)
    ends = [max(1, int(TRAIN * len(user.y))) for user in users]
    train = [cut(user, slice(0, n, step)) for user, n in zip(users, ends)]
    test = [cut(user, slice(n + LENGTH, None, step)) for user, n in zip(users, ends)]
    raw = leaf.join([("train", train), ("test", test)], path)
    return raw._replace(facts={**raw.facts, "vocabulary": CHARACTERS})


def cut(user: leaf.User, rows: slice) -> leaf.User:
    """Return a user with some of its rows."""
    return user._replace(X=user.X[rows], y=user.y[rows])


def read_roles(path: Path) -> list[leaf.User]:
    """Return the roles of roles.json that have a window. X is a view, which takes no memory."""
    users = []
    for name, speeches in read_json(path, EXPECTED).items():
        where = f"{path}: role {name!r}"
        if not isinstance(speeches, list) or not all(
            isinstance(speech, list) and all(isinstance(line, str) for line in speech)
            for speech in speeches
        ):
            raise data_error(where, "is not a list of lists of text", EXPECTED)
        words = " ".join(line for speech in speeches for line in speech).split()
        users.append(leaf.User(name, *windows(" ".join(words)), where))
    if not any(len(user.y) for user in users):
        raise data_error(path, f"no role has more than {LENGTH} characters", EXPECTED)
    return [user for user in users if len(user.y)]


# ---- Sent140 ----------------------------------------------------------------------------------------


def parse_tweets(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return the tweets as text (n, 1), and their class: 0 negative, 1 positive."""
    columns = (isinstance(row, list) and len(row) - TWEET_AT in (1, 2) for row in x)
    right = (fits and all(isinstance(cell, str) for cell in row) for fits, row in zip(columns, x))
    leaf.require_each("x", x, right, where, "a tweet as [id, date, query, user, tweet]")
    known = (type(label) in (int, str) and label in SENTIMENTS for label in y)
    leaf.require_each("y", y, known, where, "0 or 1, a tweet's class")
    tweets = np.array([row[TWEET_AT] for row in x], object)[:, None]
    return tweets, np.array([SENTIMENTS[label] for label in y], np.int64)


def read_sent140(
    path: Path,
    vocabulary: Annotated[int, Bounds(1)] = VOCABULARY,
    length: Annotated[int, Bounds(1, 10_000)] = TWEET,
) -> Raw:
    """Return tweets as codes of words, and their class. All unknown words share the last code.

    vocabulary : how many words have a code, the most frequent ones of the training part.
    length : how many words of a tweet are kept.
    """
    return encode_tweets(leaf.read_parts(path, parse_tweets), path, vocabulary, length)


def encode_tweets(parts: leaf.Parts, path: Path, vocabulary: int, length: int) -> Raw:
    """Return the tweets of all users as codes; the words of the first part alone are known."""
    trained = (tweet for user in parts[0][1] if len(user.y) for tweet in user.X[:, 0])
    known = vocabulary_of(trained, vocabulary)

    def encode(user: leaf.User) -> leaf.User:
        return user._replace(X=encode_words(user.X[:, 0].tolist(), known, length))

    coded = [(part, [encode(user) for user in users if len(user.y)]) for part, users in parts]
    raw = leaf.join(coded, path)
    return raw._replace(facts={**raw.facts, "vocabulary": known})


# ---- whatever LEAF has ------------------------------------------------------------------------------


def parse_windows(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return windows of characters as codes (n, length), and the code of the character after each."""
    for name, texts, length in (("x", x, len(x[0])), ("y", y, 1)):
        right = (isinstance(text, str) and len(text) == length > 0 for text in texts)
        expected = f"a string of {length or LENGTH} characters, as in all rows"
        leaf.require_each(name, texts, right, where, expected)
    return codes("".join(x)).reshape(len(x), -1), codes("".join(y)).astype(np.int64)


def parse_any(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return a user's rows by what the first one is: a window, a tweet, or a row of numbers."""
    if isinstance(x[0], str):
        return parse_windows(x, y, where)
    tweet = isinstance(x[0], list) and len(x[0]) > TWEET_AT and isinstance(x[0][0], str)
    return (parse_tweets if tweet else leaf.parse_rows)(x, y, where)


def kind_of(X: Array) -> str:
    """Return the kind of rows that `parse_any` made."""
    kinds = {np.dtype(object): "tweets", np.dtype(np.uint8): "windows of characters"}
    return kinds.get(X.dtype, "numbers")


def read_leaf(path: Path) -> Raw:
    """Read LEAF's JSON of rows of numbers, of Shakespeare's windows, or of Sent140's tweets."""
    parts = leaf.read_parts(path, parse_any)
    kinds = {kind_of(user.X): user for _, users in parts for user in users if len(user.y)}
    if len(kinds) > 1:
        (one, user), (other, also) = list(kinds.items())[:2]
        raise data_error(also.where, f"x holds {other}", f"{one}, as in {user.where}")
    if "tweets" in kinds:
        raw = encode_tweets(parts, path, VOCABULARY, TWEET)
        note = (
            f"tweets: the {len(raw.facts['vocabulary']) - 1} most frequent words, {TWEET} a tweet"
        )
    else:
        raw = leaf.join(parts, path)
        note = "windows of characters: the next one is the label"
    if "numbers" in kinds:
        return raw
    facts: dict[str, Any] = {"vocabulary": CHARACTERS, **raw.facts}
    return raw._replace(facts=facts | {"notes": (*facts["notes"], note)})
