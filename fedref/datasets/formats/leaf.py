"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

x holds rows of numbers (FEMNIST, Synthetic, Vehicle), strings (Shakespeare: 80 characters, y the
next one) or rows of text columns (Sent140: id, date, query, user, tweet[, part]; y 0 or 1). Instead
of x and y an entry may hold "raw", a role's whole text, from which the windows are cut here. Text
becomes codes of characters (`texts.py` makes codes of words from Sent140's).
"""

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedref.boundary.errors import DataError
from fedref.boundary.files import (
    PIECE,
    Budget,
    bad,
    from_json,
    guard,
    opened,
    read_all,
    unique,
    written,
)
from fedref.datasets.formats import arrays, text
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source

EXPECTED = "LEAF JSON: an object with users, num_samples and user_data"
NUMBERS = {int, float}  # true and false are neither, though NumPy would take them for 1 and 0
USER = 2048  # bytes that a user takes beside the rows
TWEET_AT = 4  # LEAF: id, date, query, user, tweet[, "training" | "test"]


Tweets = Callable[[list[str]], Array]


def as_characters(tweets: list[str]) -> Array:
    """(n, 140) codes."""
    return text.encode(tweets, text.TWEET)


class User(NamedTuple):
    """One user's rows: X (n, p), y (n,)."""

    name: str
    X: Array
    y: Array
    where: str


def repeated(names: list[str]) -> list[str]:
    """The names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def no_constant(name: str) -> float:
    raise ValueError(f"holds {name}")


def read_json(path: Path, budget: Budget) -> dict[str, Any]:
    """The file's object, with its three keys in their types."""
    data = read_all(path, budget, EXPECTED)
    with guard(path, EXPECTED):
        found = from_json(data, budget, object_pairs_hook=unique, parse_constant=no_constant)
    if not isinstance(found, dict):
        raise bad(path, f"holds a {type(found).__name__}", EXPECTED)
    for key, kind in (("users", list), ("user_data", dict), ("num_samples", list)):
        if not isinstance(found.get(key), kind):
            raise bad(path, f"{key} is missing or no {kind.__name__}", EXPECTED)
    return found


def read(path: Path, budget: Budget, tweets: Tweets = as_characters) -> list[User]:
    """The users of one file, in its order; `tweets` makes rows of Sent140's texts."""
    found = read_json(path, budget)
    names, entries, counts = found["users"], found["user_data"], found["num_samples"]
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise bad(path, f"user {odd[0]!r} is no text", EXPECTED)
    if twice := repeated(names):
        raise bad(path, f"user {twice[0]!r} is listed twice", "every user once")
    with guard(path, "names in UTF-8"):
        arrays.writable(names)
    if set(names) != set(entries):
        name = sorted(set(names) ^ set(entries))[0]
        what = "user_data has no" if name in names else "users does not list"
        raise bad(path, f"{what} {name!r}", "the same users in users and user_data")
    if len(counts) != len(names):
        raise bad(path, f"{len(counts)} num_samples for {len(names)} users", "as many of both")
    odd = [count for count in counts if type(count) is not int]  # True is an int to Python
    if odd:
        raise bad(path, f"num_samples holds {reprlib.repr(odd[0])}", "whole numbers in num_samples")
    users = [user(name, entries[name], budget, f"{path}: user {name!r}", tweets) for name in names]
    for one, count in zip(users, counts):
        if "raw" not in entries[one.name] and count != len(one.y):
            raise bad(one.where, f"{len(one.y)} rows", f"{count}, as num_samples says")
    return users


def user(name: str, entry: Any, budget: Budget, where: str, tweets: Tweets = as_characters) -> User:
    """One user's entry as arrays."""
    budget.spend(USER)
    if isinstance(entry, dict) and "x" not in entry and "raw" in entry:
        raw = entry["raw"]
        texts = raw if isinstance(raw, list) else [raw]
        if not all(isinstance(one, str) for one in texts):
            raise bad(where, "raw is no text", "a string or a list of strings")
        budget.spend(sum(map(len, texts)) * (text.LENGTH + arrays.ROW))
        return User(name, *text.windows("\n".join(texts)), where)
    x, y = (entry.get(key) if isinstance(entry, dict) else None for key in ("x", "y"))
    if not isinstance(x, list) or not isinstance(y, list):
        raise bad(where, "x or y is missing or no list", "lists x and y")
    if len(x) != len(y):
        raise bad(where, f"{len(x)} rows in x and {len(y)} in y", "as many of both")
    budget.spend(len(y) * arrays.ROW)
    told = two_classes(y, where) if x and is_tweet(x[0]) else labels(y, where)
    return User(name, features(x, budget, where, tweets), told, where)


def features(x: list[Any], budget: Budget, where: str, tweets: Tweets = as_characters) -> Array:
    """x as (n, p): numbers as they are, text as character codes."""
    if not x:
        return np.empty((0, 0), np.uint8)
    if isinstance(x[0], str):
        return text.encode(all_strings(x, text.LENGTH, budget, where), text.LENGTH)
    if is_tweet(x[0]):
        alike = (isinstance(row, list) and len(row) == len(x[0]) for row in x)
        said = [row[TWEET_AT] if same else None for row, same in zip(x, alike)]
        return tweets(all_strings(said, text.TWEET, budget, where))
    widths = [len(row) if isinstance(row, list) else -1 for row in x]
    p = max(widths[0], 1)
    odd = next((i for i, width in enumerate(widths) if width != p), None)
    if odd is not None:
        got = f"{widths[odd]} features" if widths[odd] >= 0 else reprlib.repr(x[odd])
        raise bad(where, f"x[{odd}] has {got}", f"a list of {p} numbers in each row, as in x[0]")
    # asked before NumPy is: it would give every row the room of the longest text among them
    if not all(NUMBERS.issuperset(map(type, row)) for row in x):
        raise bad(where, f"x holds {kind_of(x)}", "lists of numbers in x")
    X = np.array(x)
    if X.dtype.kind not in "iuf":
        raise bad(where, "x holds numbers too large", "numbers")
    return X


def is_tweet(row: Any) -> bool:
    """Whether a row is Sent140's: five or six columns of text."""
    columns = (TWEET_AT + 1, TWEET_AT + 2)
    return isinstance(row, list) and len(row) in columns and all(isinstance(c, str) for c in row)


def kind_of(x: list[Any]) -> str:
    """The first thing in x that is no number."""
    flat = (value for row in x for value in (row if isinstance(row, list) else [row]))
    odd = (v for v in flat if isinstance(v, bool) or not isinstance(v, int | float))
    return reprlib.repr(next(odd))


def all_strings(x: list[Any], length: int, budget: Budget, where: str) -> list[str]:
    """x, if it is texts, and there is room for `length` codes of each."""
    odd = next((i for i, row in enumerate(x) if not isinstance(row, str)), None)
    if odd is not None:
        raise bad(where, f"x[{odd}] is {reprlib.repr(x[odd])}", "text, as in the rows before it")
    budget.spend(len(x) * length)
    return x


def two_classes(y: list[Any], where: str) -> Array:
    """Sent140's y as 0 and 1; its files may have 4 for 1, and "0" for 0."""
    known = {0: 0, 1: 1, 4: 1, "0": 0, "1": 1, "4": 1}
    odd = next((i for i, v in enumerate(y) if type(v) not in (int, str) or v not in known), None)
    if odd is not None:
        raise bad(where, f"y[{odd}] is {reprlib.repr(y[odd])}", "0 or 1, a tweet's class")
    return np.array([known[value] for value in y], np.int64)


def labels(y: list[Any], where: str) -> Array:
    """y as (n,): numbers, or single characters as their codes."""
    if not y:
        return np.empty(0, np.int64)
    if isinstance(y[0], str):
        codes = [text.ALPHABET.find(c) if isinstance(c, str) and len(c) == 1 else -1 for c in y]
        if min(codes) < 0:
            row = codes.index(-1)
            raise bad(where, f"y[{row}] is {y[row]!r}", "one character of LEAF's alphabet")
        return np.array(codes)
    flat = [c[0] if isinstance(c, list) and len(c) == 1 else c for c in y]
    odd = next((row for row, c in enumerate(flat) if type(c) not in NUMBERS | {bool}), None)
    if odd is not None:
        raise bad(where, f"y[{odd}] is {reprlib.repr(y[odd])}", "one number for each row in y")
    return arrays.whole(np.array(flat), len(y), where)


def files(path: Path) -> list[tuple[str, list[Path]]]:
    """("", files) of a file or a folder, or ("train", files), ("test", files) of its two folders."""
    if not path.is_dir():
        return [("", [path])]
    both = [(part, sorted((path / part).glob("*.json"))) for part in ("train", "test")]
    if all(found for _, found in both):
        return both
    here = sorted(path.glob("*.json"))
    if not here:
        raise bad(path, "holds no .json file", "LEAF JSON files, or folders train and test of them")
    return [("", here)]


def read_parts(path: Path, tweets: Tweets = as_characters) -> list[tuple[str, list[User]]]:
    """("", users) of a file or a folder, or ("train", users), ("test", users)."""
    parts, budget = [], Budget(path)
    for part, paths in files(path):
        users = [user for file in paths for user in read(file, budget, tweets)]
        seen: dict[str, str] = {}
        for one in users:
            if one.name in seen:
                raise bad(one.where, f"also in {seen[one.name]}", "every user in one file")
            seen[one.name] = one.where
        parts.append((part, users))
    return parts


def load(path: Path, **more: Any) -> Source:
    """A Source with one natural client a user, from one file or a folder of them."""
    return join(read_parts(path), path, **more)


def join(parts: list[tuple[str, list[User]]], path: Path, **more: Any) -> Source:
    """The Source of what was read; where the first part is "train", the others are for testing."""
    everyone = [user for _, users in parts for user in users]
    filled = [user for user in everyone if len(user.y)]
    if not filled:
        raise bad(path, "no user has any rows", EXPECTED)
    for one in filled:
        first = filled[0]
        if one.X.shape[1:] != first.X.shape[1:] or is_text(one) != is_text(first):
            raise bad(
                one.where,
                f"{one.X.shape[1]} features of {one.X.dtype}",
                f"{first.X.shape[1]} of {first.X.dtype}, as in {first.where}",
            )
    names = list(dict.fromkeys(user.name for user in everyone))
    index = {name: k for k, name in enumerate(names)}
    client = np.repeat([index[user.name] for user in filled], [len(user.y) for user in filled])
    if parts[0][0] == "train":
        more = {"test_from": sum(len(user.y) for user in parts[0][1])} | more
    if is_text(filled[0]):
        more = {"vocabulary": text.CHARACTERS} | more
    return arrays.source(
        np.concatenate([user.X for user in filled]),
        np.concatenate([user.y for user in filled]),
        str(path),
        client.astype(np.int64),
        client_names=tuple(names),
        **more,
    )


def is_text(user: User) -> bool:
    return user.X.dtype.kind == "u"  # JSON's numbers are signed


def in_folder(folder: Path) -> bool:
    """Whether the folder holds LEAF files, without reading them."""
    return any(folder.glob("*.json")) or any((folder / "train").glob("*.json"))


ROWS = re.compile(rb'"raw"\s*:\s*\[?\s*(")|"x"\s*:\s*\[[\s\[]*([^\s\[\]])')
OVERLAP = 1 << 10


def holds_text(path: Path) -> bool:
    """Whether a file or folder is LEAF's JSON with text in x, as far as its first row says; what
    cannot be read, or is another format, does not."""
    with suppress(DataError, OSError):
        here = in_folder(path) if path.is_dir() else re.search(r"\.json(\.gz)?$", path.name, re.I)
        if not here:
            return False
        budget = Budget(path)
        for file in files(path)[0][1]:
            seen = b""
            with opened(file, budget, EXPECTED) as (stream, _):
                while piece := stream.read(PIECE):
                    seen = seen[-OVERLAP:] + piece
                    if found := ROWS.search(seen):
                        return (found[1] or found[2]) == b'"'
    return False


# ---- writing ------------------------------------------------------------------------------------


def write_part(stream: IO[bytes], federation: Federation, part: Part, raw: bool) -> None:
    """One LEAF file, client by client, so that it never stands in memory as a whole."""
    names = federation.names
    head = {"users": list(names), "num_samples": part.sizes.tolist()}
    stream.write(json.dumps(head)[:-1].encode() + b', "user_data": {')
    for k, name in enumerate(names):
        rows = part.of(k)
        X = federation.source.X[rows] if raw else federation.batch(rows).X
        entry = json.dumps({"x": X.tolist(), "y": federation.source.y[rows].tolist()})
        stream.write(f"{', ' if k else ''}\n{json.dumps(name)}: {entry}".encode())
    stream.write(b"}}\n")


def export(federation: Federation, folder: Path, raw: bool = False) -> Iterable[Path]:
    """train/train.json and test/test.json: features as in batches, or `raw` as in the source."""
    paths = []
    for name, part in (("train", federation.train), ("test", federation.test)):
        path = folder / name / f"{name}.json"

        def write(stream: IO[bytes], part: Part = part) -> None:
            write_part(stream, federation, part, raw)

        written(path, write)
        paths.append(path)
    return paths
