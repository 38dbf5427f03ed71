"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

x holds rows of numbers (FEMNIST, Synthetic, Vehicle), or strings (Shakespeare: 80 characters, y the
next one), which become codes of characters. `texts.py` reads Sent140's rows of text columns.
"""

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import as_data_error, data_error, first_repeated, read_json
from fedref.datasets.formats import arrays, text
from fedref.datasets.formats.arrays import Raw, require
from fedref.models.numerics import Array

EXPECTED = "LEAF JSON: an object with users, num_samples and user_data"
NUMBERS = {int, float}  # and not bool, which NumPy would take for 1 and 0


class User(NamedTuple):
    """One user's rows: X (n, p), y (n,); where : file and user, for messages."""

    name: str
    X: Array
    y: Array
    where: str


Parts = list[tuple[str, list[User]]]  # ("", all users), or those of "train" and of "test"
Parse = Callable[[list[Any], list[Any], str], tuple[Array, Array]]  # x, y and where → X, y


def parse_rows(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return the rows of a user as arrays (n, p) and (n,), text as codes."""
    return parse_features(x, where), parse_labels(y, where)


def read_users(path: Path, parse: Parse) -> list[User]:
    """Return the users of one file, in its order."""
    tree = read_json(path, EXPECTED)
    for key, kind in (("users", list), ("user_data", dict), ("num_samples", list)):
        what = f"{key} is missing or no {kind.__name__}"
        require(isinstance(tree.get(key), kind), path, what, EXPECTED)
    names, entries, counts = tree["users"], tree["user_data"], tree["num_samples"]
    with as_data_error(path, "names of users in UTF-8"):
        arrays.require_utf8(names)
    twice = first_repeated(names)
    require(twice is None, path, f"user {twice!r} is listed twice", "every user once")
    for name in names:
        require(name in entries, path, f"user_data has no {name!r}", "the same users in both")
    for name in entries.keys() - set(names):
        raise data_error(path, f"users does not list {name!r}", "the same users in both")
    what = f"{len(counts)} num_samples for {len(names)} users"
    require(len(counts) == len(names), path, what, "as many of both")
    users = [read_user(name, entries[name], f"{path}: user {name!r}", parse) for name in names]
    for user, count in zip(users, counts):
        said = f"{reprlib.repr(count)}, as num_samples says"
        require(count == len(user.y), user.where, f"{len(user.y)} rows", said)
    return users


def read_user(name: str, entry: Any, where: str, parse: Parse) -> User:
    """Return one user's entry as arrays."""
    x, y = (entry.get(key) if isinstance(entry, dict) else None for key in ("x", "y"))
    if not isinstance(x, list) or not isinstance(y, list):
        raise data_error(where, "x or y is missing or no list", "lists x and y")
    require(len(x) == len(y), where, f"{len(x)} rows in x and {len(y)} in y", "as many of both")
    if not x:
        return User(name, np.empty((0, 0), np.uint8), np.empty(0, np.int64), where)
    return User(name, *parse(x, y, where), where)


def parse_features(x: list[Any], where: str) -> Array:
    """Return x as an array (n, p), its text as codes."""
    if isinstance(x[0], str):
        for i, row in enumerate(x):
            what = f"x[{i}] is {reprlib.repr(row)}"
            require(isinstance(row, str), where, what, "text, as in the rows before it")
        return text.encode(x, text.LENGTH)
    p = max(len(x[0]), 1) if isinstance(x[0], list) else 1
    # checked first, because NumPy would give every cell as much memory as the longest text needs
    for i, row in enumerate(x):
        if not isinstance(row, list) or len(row) != p:
            got = f"{len(row)} features" if isinstance(row, list) else reprlib.repr(row)
            expected = f"a list of {p} numbers in each row, as in x[0]"
            raise data_error(where, f"x[{i}] has {got}", expected)
        if not NUMBERS.issuperset(map(type, row)):
            value = next(v for v in row if type(v) not in NUMBERS)
            raise data_error(where, f"x holds {reprlib.repr(value)}", "lists of numbers in x")
    X = np.array(x)
    require(X.dtype.kind in "iuf", where, "x holds numbers too large", "numbers")
    return X


def parse_labels(y: list[Any], where: str) -> Array:
    """Return y as an array (n,): numbers, or codes of characters."""
    if isinstance(y[0], str):
        places = [text.ALPHABET.find(c) if isinstance(c, str) and len(c) == 1 else -1 for c in y]
        codes = [None if place < 0 else place for place in places]
        expected = "one character of LEAF's alphabet"
    else:
        codes = [c[0] if isinstance(c, list) and len(c) == 1 else c for c in y]
        codes = [c if type(c) in NUMBERS | {bool} else None for c in codes]
        expected = "one number for each row in y"
    if None in codes:
        row = codes.index(None)
        raise data_error(where, f"y[{row}] is {reprlib.repr(y[row])}", expected)
    return arrays.as_integers(np.array(codes), len(y), where)


def list_files(path: Path) -> list[tuple[str, list[Path]]]:
    """Return [("", files)], or if there are folders of these names [("train", ...), ("test", ...)]."""
    if not path.is_dir():
        return [("", [path])]
    both = [(part, sorted((path / part).glob("*.json"))) for part in ("train", "test")]
    if all(found for _, found in both):
        return both
    files = sorted(path.glob("*.json"))
    expected = "LEAF JSON files, or folders train and test of them"
    require(files, path, "holds no .json file", expected)
    return [("", files)]


def read_parts(path: Path, parse: Parse = parse_rows) -> Parts:
    """Return the users of one file, or of all files of a folder, with both parts if it has both."""
    parts = []
    for part, paths in list_files(path):
        users = [user for file in paths for user in read_users(file, parse)]
        seen: dict[str, str] = {}
        for user in users:
            if user.name in seen:
                raise data_error(user.where, f"also in {seen[user.name]}", "every user in one file")
            seen[user.name] = user.where
        parts.append((part, users))
    return parts


def read(path: Path) -> Raw:
    """Read one file or a folder of them; every user is a natural client."""
    return join(read_parts(path), path)


def join(parts: Parts, path: Path) -> Raw:
    """Join the users of all parts; if the first is "train", the second is for testing."""
    everyone = [user for _, users in parts for user in users]
    filled = [user for user in everyone if len(user.y)]
    require(filled, path, "no user has any rows", EXPECTED)
    first = filled[0]
    expected = f"{first.X.shape[1]} of {first.X.dtype}, as in {first.where}"
    for one in filled:
        alike = one.X.shape[1:] == first.X.shape[1:] and is_text(one) == is_text(first)
        require(alike, one.where, f"{one.X.shape[1]} features of {one.X.dtype}", expected)
    names = list(dict.fromkeys(user.name for user in everyone))
    index = {name: k for k, name in enumerate(names)}
    found = {
        "X": np.concatenate([user.X for user in filled]),
        "y": np.concatenate([user.y for user in filled]),
        "client": np.repeat(
            [index[user.name] for user in filled], [len(user.y) for user in filled]
        ),
    }
    facts: dict[str, Any] = {"client_names": tuple(names)}
    if parts[0][0] == "train":
        facts["test_from"] = sum(len(user.y) for user in parts[0][1])
    if is_text(first):
        facts["vocabulary"] = text.CHARACTERS
    return Raw(found, facts)


def is_text(user: User) -> bool:
    """Return whether a user's X holds codes of text."""
    return user.X.dtype.kind == "u"  # JSON's numbers are signed


def folder_holds_json(folder: Path) -> bool:
    """Return whether the folder holds .json files, or a folder train of them."""
    return any(folder.glob("*.json")) or any((folder / "train").glob("*.json"))
