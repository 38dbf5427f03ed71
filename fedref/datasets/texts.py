"""The named data sets that are text: Shakespeare's roles, and Sent140's tweets.

Both have a training and a test part. If the files do not have them, the first 80 % of a client's
rows, in the order of the file, are for training and the rest for testing. The split rule `natural`
keeps the parts; its min_rows leaves out clients with fewer rows.

Shakespeare's statistics, with step=1 and every role that has a window, beside LEAF's:

                          here                LEAF
    roles                 1 155               1 129
    windows               4 221 808           4 226 158
    windows per role      3 655 ± 6 018       3 743 ± 6 212

They differ because the editions differ. LEAF finds the roles by regular expressions in the plain text
of Project Gutenberg. `roles.json` comes from a marked-up edition, where a messenger or a servant is a
role of each play. 194 of its 1 349 roles say no more than 80 characters and have no window. (LEAF's
files can be read as well; according to its README they keep 660 roles.)
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedref.boundary.files import data_error, read_json
from fedref.datasets.formats import leaf, text
from fedref.datasets.formats.arrays import Raw, require
from fedref.datasets.formats.leaf import Parts, User
from fedref.models.numerics import Array

ROLES = ("roles.json.gz", "roles.json")
EXPECTED = 'roles.json: an object {"play__ROLE": [[line, ...] of each speech, ...]}'
TRAIN = 0.8
TWEET_AT = 4  # LEAF: id, date, query, user, tweet[, "training" | "test"]
SENTIMENTS = {0: 0, 1: 1, 4: 1, "0": 0, "1": 1, "4": 1}


def split_in_time(users: list[User], gap: int) -> Parts:
    """Split each user's rows: the first 80 % for training, and after `gap` rows the rest for testing.

    With windows of 80 characters LEAF has a gap of 79: its first test window begins with the last
    training target. A gap of 80 leaves training and test part no character in common.
    """
    ends = [max(1, int(TRAIN * len(user.y))) for user in users]
    train = [user._replace(X=user.X[:n], y=user.y[:n]) for user, n in zip(users, ends)]
    test = [user._replace(X=user.X[n + gap :], y=user.y[n + gap :]) for user, n in zip(users, ends)]
    return [("train", train), ("test", test)]


# ---- Shakespeare ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shakespeare:
    """Parameters: windows begin at every step-th character (in LEAF at every one)."""

    step: int = 1

    bounds: ClassVar[Mapping[str, Any]] = {"step": (1,)}


def find_shakespeare(folder: Path, step: int) -> Path | None:
    """Return the path of roles.json, or the folder if it holds LEAF JSON, or None."""
    path = next((folder / name for name in ROLES if (folder / name).exists()), None)
    return path or (folder if leaf.folder_holds_json(folder) else None)


def read_shakespeare(path: Path, step: int) -> Raw:
    """Return windows of 80 characters and the next one, one client per role."""
    parts = leaf.read_parts(path) if path.is_dir() else [("", read_roles(path))]
    if len(parts) == 1:
        parts = split_in_time(parts[0][1], text.LENGTH)
    thinned = [
        (part, [user._replace(X=user.X[::step], y=user.y[::step]) for user in users])
        for part, users in parts
    ]
    return leaf.join(thinned, path)


def read_roles(path: Path) -> list[User]:
    """Return the roles of roles.json that have a window. X is a view, which takes no memory."""
    users = []
    for name, speeches in read_json(path, EXPECTED).items():
        where = f"{path}: role {name!r}"
        if not is_role(speeches):
            raise data_error(where, "is not a list of lists of text", EXPECTED)
        words = " ".join(line for speech in speeches for line in speech).split()
        users.append(User(name, *text.windows(" ".join(words)), where))
    if not any(len(user.y) for user in users):
        raise data_error(path, f"no role has more than {text.LENGTH} characters", EXPECTED)
    return [user for user in users if len(user.y)]


def is_role(speeches: Any) -> bool:
    """Return whether a value is a list of speeches, and every speech a list of lines."""
    return isinstance(speeches, list) and all(
        isinstance(speech, list) and all(isinstance(line, str) for line in speech)
        for speech in speeches
    )


# ---- Sent140 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent140:
    """Parameters: how many words have a code, and how many words of a tweet are kept (in LEAF 25).

    Those with a code are the most frequent ones of the training part.
    """

    vocabulary: int = 10_000
    length: int = 25

    bounds: ClassVar[Mapping[str, Any]] = {"vocabulary": (1,), "length": (1, 10_000)}


def find_sent140(folder: Path, **parameters: Any) -> Path | None:
    """Return the folder if it holds LEAF JSON."""
    return folder if leaf.folder_holds_json(folder) else None


def parse_tweets(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return the tweets as text (n, 1), and their class: 0 negative, 1 positive."""
    for i, (row, label) in enumerate(zip(x, y)):
        columns = isinstance(row, list) and len(row) in (TWEET_AT + 1, TWEET_AT + 2)
        expected = "a tweet as [id, date, query, user, tweet]"
        right = columns and all(isinstance(cell, str) for cell in row)
        require(right, where, f"x[{i}] is {reprlib.repr(row)}", expected)
        right = type(label) in (int, str) and label in SENTIMENTS
        require(right, where, f"y[{i}] is {reprlib.repr(label)}", "0 or 1, a tweet's class")
    tweets = np.array([row[TWEET_AT] for row in x], object)[:, None]
    return tweets, np.array([SENTIMENTS[label] for label in y], np.int64)


def read_sent140(path: Path, vocabulary: int, length: int) -> Raw:
    """Return tweets as codes of words, and their class. All unknown words share the last code."""
    parts = leaf.read_parts(path, parse_tweets)
    if len(parts) == 1:
        parts = split_in_time([user for user in parts[0][1] if len(user.y)], 0)
    trained = (tweet for user in parts[0][1] if len(user.y) for tweet in user.X[:, 0])
    known = text.vocabulary_of(trained, vocabulary)
    coded = [
        (part, [
            user._replace(X=text.encode_words(user.X[:, 0].tolist(), known, length))
            for user in users
            if len(user.y)
        ])
        for part, users in parts
    ]  # fmt: skip
    raw = leaf.join(coded, path)
    return raw._replace(facts={**raw.facts, "vocabulary": known})
