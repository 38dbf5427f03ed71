"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

x holds rows of numbers (FEMNIST, Synthetic, Vehicle). `texts.py` reads Shakespeare's strings and Sent140's
rows of text columns. y holds whole numbers, words or real targets.
"""

import reprlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import as_data_error, data_error, first_repeated, read_json
from fedref.lab.datasets.formats.arrays import Raw, as_targets, require, require_utf8
from fedref.models.numerics import Array

EXPECTED = "LEAF JSON: an object with users, num_samples and user_data"
#: LEAF's script counts so many rows too many for Shakespeare's test part, where it leaves a gap.
GAP = 79
WORD = 200  # characters of a label: NumPy gives each as much memory as the longest
NUMBERS = {int, float}  # and not bool, which NumPy would take for 1 and 0


#: The folder in which LEAF's scripts put all data before they divide them.
ALL = "all_data"


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
        require_utf8(names)
    same = set(names) == entries.keys() and len(names) == len(entries) == len(counts)
    odd = first_repeated(names) or min(set(names) ^ entries.keys(), default="")
    what = f"{len(names)} users, {len(entries)} user_data, {len(counts)} num_samples: {odd!r}"
    require(same, path, what, "every user once in each of them")
    windows = any(holds_windows(entry) for entry in entries.values())
    return [
        read_user(name, entries[name], count, f"{path}: user {name!r}", parse, GAP * windows)
        for name, count in zip(names, counts)
    ]


def holds_windows(entry: object) -> bool:
    """Return whether a user's rows are strings, as LEAF's Shakespeare has them."""
    x = entry.get("x") if isinstance(entry, dict) else None
    return isinstance(x, list) and bool(x) and isinstance(x[0], str)


def read_user(name: str, entry: Any, count: Any, where: str, parse: Parse, more: int = 0) -> User:
    """Return one user's entry as arrays.

    count : how many rows the file says that there are, or at most `more` above that.
    """
    x, y = (entry.get(key) if isinstance(entry, dict) else None for key in ("x", "y"))
    if not isinstance(x, list) or not isinstance(y, list):
        raise data_error(where, "x or y is missing or no list", "lists x and y")
    what = f"{len(x)} rows in x, {len(y)} in y, {reprlib.repr(count)} in num_samples"
    right = count in (len(y), len(y) + more)
    if not y:
        right = isinstance(count, int) and 0 <= count <= more
    require(len(x) == len(y) and right, where, what, "as many of each")
    if not x:
        return User(name, np.empty((0, 0), np.uint8), np.empty(0, np.int64), where)
    return User(name, *parse(x, y, where), where)


def require_each(
    name: str, values: list[object], right: Iterable[object], where: str, expected: str
) -> None:
    """Refuse the first of a user's values that is not right; they are called x or y."""
    odd = next((i for i, fine in enumerate(right) if not fine), None)
    if odd is not None:
        raise data_error(where, f"{name}[{odd}] is {reprlib.repr(values[odd])}", expected)


def parse_rows(x: list[Any], y: list[Any], where: str) -> tuple[Array, Array]:
    """Return a user's rows as arrays (n, p) and (n,)."""
    p = max(len(x[0]), 1) if isinstance(x[0], list) else 1
    # checked first, because NumPy would give every cell as much memory as a text among them needs
    rows = (isinstance(r, list) and len(r) == p and NUMBERS.issuperset(map(type, r)) for r in x)
    require_each("x", x, rows, where, f"a list of {p} numbers, as in all rows")
    X = np.array(x)
    require(X.dtype.kind in "iuf", where, "x holds numbers too large", "numbers")
    return X, parse_labels(y, where)


def parse_labels(y: list[Any], where: str) -> Array:
    """Return whole numbers, real targets or words (dtype object): (n,). Each may be a list of one."""
    labels = [c[0] if isinstance(c, list) and len(c) == 1 else c for c in y]
    words = isinstance(labels[0], str)
    kinds = {str} if words else NUMBERS | {bool}
    right = (type(x) in kinds and not (words and len(x) > WORD) for x in labels)
    expected = f"one number for each row in y, or a word of at most {WORD} characters for each"
    require_each("y", y, right, where, expected)
    if words:
        return np.array(labels, object)
    return as_targets(np.array(labels), len(y), where)[0]


def read_parts(path: Path, parse: Parse = parse_rows) -> Parts:
    """Return the users of one file, or of all files of a folder, with both parts if it has both."""
    files = {part: sorted((path / part).glob("*.json")) for part in ("train", "test")}
    if not all(files.values()):
        held = [part for part, paths in files.items() if paths]
        files = {"": sorted(path.glob("*.json")) if path.is_dir() else [path]}
        files[""] = files[""] or sorted((path / ALL).glob("*.json"))
        what = f"holds {held[0]}/*.json without the other part" if held else "holds no .json file"
        folders = "folders train and test of them (or name the folder of one part)"
        require(files[""], path, what, f"LEAF JSON files, or {folders}")
    parts = []
    for part, paths in files.items():
        users = [user for file in paths for user in read_users(file, parse)]
        twice = first_repeated(user.name for user in users)
        places = ", ".join(user.where for user in users if user.name == twice)
        require(twice is None, path, f"holds {places}", "every user in one file")
        parts.append((part, users))
    return parts


def read(path: Path) -> Raw:
    """Read one file or a folder of them, of rows of numbers; every user is a natural client."""
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
        words = {False: "numbers", True: "words"}
        kind, kinds = (words[user.y.dtype.kind == "O"] for user in (one, first))
        require(kind == kinds, one.where, f"labels are {kind}", f"{kinds}, as in {first.where}")
    names = list(dict.fromkeys(user.name for user in everyone))
    index = {name: k for k, name in enumerate(names)}
    clients, n = zip(*((index[user.name], len(user.y)) for user in filled))
    found = {
        "X": np.concatenate([user.X for user in filled]),
        "y": np.concatenate([user.y for user in filled]),
        "client": np.repeat(clients, n),
    }
    empty = len(names) - len({user.name for user in filled})
    notes = (f"{empty} of {len(names)} users have no row",) if empty else ()
    facts: dict[str, object] = {"client_names": tuple(names), "notes": notes}
    if parts[0][0] == "train":
        facts["test_from"] = sum(len(user.y) for user in parts[0][1])
    return Raw(found, facts)


def folder_holds_json(folder: Path) -> bool:
    """Return whether the folder holds .json files, or a folder of LEAF's names that does."""
    return any(any((folder / name).glob("*.json")) for name in ("", "train", "test", ALL))
