"""Named arrays, and the one function that checks them all and makes a Source: `source_of`.

    X       (n, p), (n, H, W) or (n, H, W, C): numbers
    y       (n,): whole numbers, words or real targets
    client  (n,): whose row it is, as whole numbers or words; optional
    test    (n,): true for test rows; optional

Test rows are moved to the end and keep their order. Arrays of other names are refused: if a mask
were ignored because of its name, training would use the test rows.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import printable
from fedref.boundary.files import as_data_error, data_error
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

#: The largest value of a byte, the full scale of pixels.
BYTE = 255.0
#: How many channels images have: one, three colours, or four with transparency.
CHANNELS = (1, 3, 4)
#: Of more names only so many are listed, and a longer one is cut.
MAX_LISTED, LABEL_WIDTH = 5, 40
#: What libraries write where a value is missing, and what stands for "unknown" in tables of others.
MISSING = {"nan", "NaN", "<NA>", "NaT"}
UNKNOWN = {*map(str.lower, MISSING), "?", "na", "n/a", "null", "none", "-", "."}


class Raw(NamedTuple):
    """The result of a reader: named arrays, unchecked, and what only its format knows.

    facts : fields of the Source. With `client_names` the clients are indices already, with
    `label_names` the labels are; `test_from` says that the test rows come last.
    """

    arrays: Mapping[str, Array]
    facts: Mapping[str, Any] = MappingProxyType({})


def source_of(raw: Raw, where: str, **more: Any) -> Source:
    """Check named arrays and make a Source of them. more : further fields, before the reader's facts."""
    arrays, facts = raw.arrays, dict[str, Any](raw.facts) | more
    X, y = take_arrays(arrays, where, ("X", "y"), ("client", "test"))
    pixels = X.dtype == np.uint8 and X.ndim > 2  # bytes in a table may count anything
    facts = {"full_scale": BYTE if pixels else None, **facts}
    X, image = as_features(X, where)
    y, words = as_targets(y, len(X), where)
    facts = {"image": image, "label_names": words, **facts}
    client = None
    if "client" in arrays:
        client = np.asarray(arrays["client"])
        if "client_names" not in facts:
            client, facts["client_names"] = encode_clients(client, len(X), where)
    named = (("y", facts["label_names"]), ("client", facts.get("client_names")))
    for what, names in named if "vocabulary" not in facts else ():  # a user may be called None
        unknown = [name for name in names or () if name.lower() in UNKNOWN]
        missing = f"{what} is {list_some(unknown)} in some rows"
        right = "a name in all rows; leave out those where it is missing"
        require(MISSING.isdisjoint(unknown), where, missing, right)
        note = f"{missing}, taken for a name: leave out these rows if it stands for an unknown one"
        facts["notes"] = (*facts.get("notes", ()), *([note] if unknown else []))
    if "test" in arrays:
        right = "true or 1 for test rows, false or 0 for training rows"
        test = as_integers(np.asarray(arrays["test"]), len(X), where, "test", right)
        wrong = "test holds other values, or is true for all rows"
        require({0} <= set(test.tolist()) <= {0, 1}, where, wrong, right)
        order = np.argsort(test, kind="stable")
        X, y, client = X[order], y[order], None if client is None else client[order]
        facts["test_from"] = int(len(X) - test.sum())
    return Source(X, y, client, **facts, sha256=fingerprint(X, y, client))


def fingerprint(X: Array, y: Array, client: Array | None) -> str:
    """Return the SHA-256 of the content: dtype, shape and little-endian bytes of X, y and client."""
    digest = hashlib.sha256()
    for array in (X, y) if client is None else (X, y, client):
        ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{ordered.dtype.str}{ordered.shape}".encode())
        digest.update(ordered.view(np.uint8).reshape(-1).data if ordered.size else b"")
    return digest.hexdigest()


def list_some(names: Sequence[object]) -> str:
    """Return the first names, and "..." if there are more."""
    shown = [printable(name, LABEL_WIDTH) for name in names[:MAX_LISTED]]
    return ", ".join(shown) + (", ..." if len(names) > MAX_LISTED else "")


# ---- one array -----------------------------------------------------------------------------------


def require(right: object, where: object, what: str, expected: str) -> None:
    """Raise a DataError unless it is right."""
    if not right:
        raise data_error(str(where), what, expected)


def take_arrays(
    arrays: Mapping[str, Array], where: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[Array]:
    """Return the arrays of these names; a DataError if one is missing, or there are others."""
    held = f"only {', '.join(sorted(arrays))}" if arrays else "and none of another name"
    for name in names:
        require(name in arrays, where, f"no array {name!r}, {held}", ", ".join(names))
    for name in arrays:
        known = names + optional
        require(name in known, where, f"unknown array {name!r}", f"only {', '.join(known)}")
    return [np.asarray(arrays[name]) for name in names]


def as_features(X: Array, where: str) -> tuple[Array, tuple[int, int, int] | None]:
    """Return X as (n, p), and the image shape (H, W, C) if X has three or four axes, else None."""
    require(X.dtype.kind in "buif", where, f"X holds {X.dtype}", "numbers in X")
    shapes = "X of shape (n, p), (n, H, W) or (n, H, W, C) with n of 1 or more"
    require(2 <= X.ndim <= 4 and X.size, where, f"X has shape {X.shape}", shapes)
    if X.ndim == 4 and X.shape[3] > max(CHANNELS):
        n, C, H, W = X.shape
        last = f"channels last, {(n, H, W, C)}: numpy.moveaxis(X, 1, -1)"
        wrong = f"X has shape {X.shape}, whose channels seem to be first"
        require(C not in CHANNELS and not C < H == W, where, wrong, last)
    X = X.view(np.uint8) if X.dtype.kind == "b" else X
    X = np.ascontiguousarray(X, X.dtype.newbyteorder("="))  # in this machine's byte order
    # min and max are nan or inf if any value is; unlike isfinite(X) they need no array of X's size
    with np.errstate(over="ignore"):  # a long double may be too large for a double
        if X.dtype.kind == "f" and not np.isfinite(np.array([X.min(), X.max()], np.float64)).all():
            row = np.argwhere(~np.isfinite(X.astype(np.float64)))[0]
            what = f"X has {X[tuple(row)]} in row {row[0]}"
            raise data_error(where, what, "finite numbers in X, below 1.8e308")
    image = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1) if X.ndim > 2 else None
    return X.reshape(len(X), -1), image


def require_rows(values: Array, n: int, where: str, what: str) -> None:
    """Raise a DataError unless there is one value for each row."""
    wrong, right = f"{what} has shape {values.shape}", f"one {what} for each of {n} rows"
    right += f": {what}.argmax(1) if each is one-hot" if values.shape[:-1] == (n,) else ""
    require(values.shape == (n,), where, wrong, right)


def as_integers(values: Array, n: int, where: str, what: str = "y", right: str = "") -> Array:
    """Return whole numbers as (n,) int64; accept shape (n, 1), and floats such as 3.0."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    require_rows(values, n, where, what)
    expected = right or f"whole numbers below 2^53 in {what}"
    require(values.dtype.kind in "buif", where, f"{what} holds {values.dtype}", expected)
    if values.dtype.kind == "f" or values.dtype.itemsize > 4:
        with np.errstate(invalid="ignore"):
            odd = np.flatnonzero(~(np.abs(values.astype(np.float64)) < 2**53) | (values % 1 != 0))
        if odd.size:
            raise data_error(where, f"{what} is {values[odd[0]]} in row {odd[0]}", expected)
    return values.astype(np.int64)


def as_text(values: Array, where: str, what: str) -> Array:
    """Convert Python's strings (dtype object, as in pandas), and bytes, to NumPy's text; keep others."""
    if values.dtype.kind == "O" and values.size and all(isinstance(x, bytes) for x in values.flat):
        values = values.astype("S")
    if values.dtype.kind == "S":
        with as_data_error(where, f"UTF-8 text in {what}"):
            return np.char.decode(values, "utf-8")
    if values.dtype.kind != "O":
        return values
    odd = next((i for i, cell in enumerate(values.flat) if not isinstance(cell, str)), None)
    if odd is not None:
        wrong = f"{what} is {str(values.flat[odd])[:40]} in row {odd}"
        raise data_error(where, wrong, f"text in all rows of {what}, or numbers in all")
    return values.astype(str)


def as_targets(y: Array, n: int, where: str) -> tuple[Array, tuple[str, ...] | None]:
    """Return (labels (n,) as int64, their words if y holds words), or (real targets (n,), None)."""
    y = as_text(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, where, "y")
    if y.dtype.kind == "U" and y.shape == (n,):
        numbers = signed_numbers(y)
        if numbers is not None:
            return as_targets(numbers, n, where)
        with as_data_error(where, "UTF-8 text in y"):
            return encode_labels(y.tolist())
    if y.dtype.kind == "f" and y.shape == (n,) and np.isfinite(y).all() and (y % 1 != 0).any():
        return y.astype(np.float64), None
    return as_integers(y, n, where), None


def signed_numbers(words: Array) -> Array | None:
    """Return words such as "+1" and "-1" or "0.5" as numbers; None if there are others, or digits alone."""
    distinct, place = np.unique(words, return_inverse=True)
    numbers = [as_number(word) for word in distinct.tolist()]
    if None in numbers or all(word.isdecimal() for word in distinct.tolist()):
        return None
    return np.array(numbers, float)[place]


def as_number(cell: str) -> float | None:
    """Return the number that a cell holds; None if it holds none."""
    if "_" in cell or not cell.isascii():  # Python would read 1_000 and ١٢
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def encode_labels(words: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Return (for each word its index among the names, the names: the distinct words, sorted).

    If all words are whole numbers, they are sorted as numbers.
    """
    distinct = set(words)
    by_number = int if all(word.isdecimal() for word in distinct) else None
    names = require_utf8(sorted(distinct, key=by_number))
    place = {word: i for i, word in enumerate(names)}
    return np.array([place[word] for word in words], np.int64), names


def encode_clients(values: Array, n: int, where: str) -> tuple[Array, tuple[str, ...]]:
    """Return (each row's client as an index (n,), the clients' names); they may be numbers or text."""
    require_rows(values, n, where, "client")
    values = as_text(values, where, "client")
    right = "whole numbers or text in client"
    require(values.dtype.kind in "iuU", where, f"client holds {values.dtype}", right)
    names, index = np.unique(values, return_inverse=True)
    with as_data_error(where, "UTF-8 text in client"):
        return index.astype(np.int64), require_utf8(map(str, names.tolist()))


def require_utf8(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names; a ValueError if one is not text or cannot be encoded (a lone surrogate)."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{name!r:.40} is not text")
        name.encode()
    return names
