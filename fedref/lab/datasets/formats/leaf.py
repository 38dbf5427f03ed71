"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

x holds rows of numbers (FEMNIST, Synthetic, Vehicle). `texts.py` reads Sent140's rows of text columns.
"""

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import as_data_error, data_error, first_repeated, read_json
from fedref.lab.datasets.formats import arrays
from fedref.lab.datasets.formats.arrays import Raw, require
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


def read_users(path: Path, parse: Parse) -> list[User]:
    """Return the users of one file, in its order."""
    tree = read_json(path, EXPECTED)
    names, entries, counts = (tree.get(key) for key in ("users", "user_data", "num_samples"))
    if not (isinstance(names, list) and isinstance(entries, dict) and isinstance(counts, list)):
        raise data_error(path, "users, num_samples or user_data is missing or odd", EXPECTED)
    with as_data_error(path, "names of users in UTF-8"):
        arrays.require_utf8(names)
    same = set(names) == entries.keys() and len(names) == len(entries) == len(counts)
    odd = first_repeated(names) or min(set(names) ^ entries.keys(), default="")
    what = f"{len(names)} users, {len(entries)} user_data, {len(counts)} num_samples: {odd!r}"
    require(same, path, what, "every user once in each of them")
    return [
        read_user(name, entries[name], count, f"{path}: user {name!r}", parse)
        for name, count in zip(names, counts)
    ]


def read_user(name: str, entry: Any, count: Any, where: str, parse: Parse) -> User:
    """Return one user's entry as arrays; count : how many rows the file says that there are."""
    x, y = (entry.get(key) if isinstance(entry, dict) else None for key in ("x", "y"))
    if not isinstance(x, list) or not isinstance(y, list):
        raise data_error(where, "x or y is missing or no list", "lists x and y")
    what = f"{len(x)} rows in x, {len(y)} in y, {reprlib.repr(count)} in num_samples"
    require(len(x) == len(y) == count, where, what, "as many of each")
    if not x:
        return User(name, np.empty((0, 0), np.uint8), np.empty(0, np.int64), where)
    return User(name, *parse(x, y, where), where)


def parse_rows(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return a user's rows as arrays (n, p) and (n,)."""
    p = max(len(x[0]), 1) if isinstance(x[0], list) else 1
    # checked first, because NumPy would give every cell as much memory as a text among them needs
    for i, row in enumerate(x):
        if not (isinstance(row, list) and len(row) == p and NUMBERS.issuperset(map(type, row))):
            expected = f"a list of {p} numbers, as in all rows"
            raise data_error(where, f"x[{i}] is {reprlib.repr(row)}", expected)
    X = np.array(x)
    require(X.dtype.kind in "iuf", where, "x holds numbers too large", "numbers")
    labels = [c[0] if isinstance(c, list) and len(c) == 1 else c for c in y]
    odd = [i for i, label in enumerate(labels) if type(label) not in NUMBERS | {bool}]
    what = f"y[{odd[0]}] is {reprlib.repr(y[odd[0]])}" if odd else ""
    require(not odd, where, what, "one number for each row in y")
    return X, arrays.as_integers(np.array(labels), len(y), where)


def read_parts(path: Path, parse: Parse = parse_rows) -> Parts:
    """Return the users of one file, or of all files of a folder, with both parts if it has both."""
    files = {part: sorted((path / part).glob("*.json")) for part in ("train", "test")}
    if not all(files.values()):
        files = {"": sorted(path.glob("*.json")) if path.is_dir() else [path]}
        expected = "LEAF JSON files, or folders train and test of them"
        require(files[""], path, "holds no .json file", expected)
    parts = []
    for part, paths in files.items():
        users = [user for file in paths for user in read_users(file, parse)]
        twice = first_repeated(user.name for user in users)
        places = ", ".join(user.where for user in users if user.name == twice)
        require(twice is None, path, f"holds {places}", "every user in one file")
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
    expected = f"{first.X.shape[1]}, as in {first.where}"
    for one in filled:
        alike = one.X.shape[1:] == first.X.shape[1:]
        require(alike, one.where, f"{one.X.shape[1]} features", expected)
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
    return Raw(found, facts)


def folder_holds_json(folder: Path) -> bool:
    """Return whether the folder holds .json files, or a folder train of them."""
    return any(folder.glob("*.json")) or any((folder / "train").glob("*.json"))
