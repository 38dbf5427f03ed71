"""Checks of named arrays, and the Source that is made of them; all readers end here.

The arrays are X, y, optionally `client`, and optionally one that marks the test rows: `test` (true
for test rows), `train` (false for test rows) or `test_from` (the first test row, counted from 0).
Test rows are moved to the end and keep their order. Arrays of other names are refused: if a mask
were ignored because of its name, training would use the test rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedref.boundary.files import as_data_error, data_error
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

TEST_ROWS = ("test", "train", "test_from")
ARRAY_NAMES = ("X", "y", "client", *TEST_ROWS)


def fingerprint(X: Array, y: Array, client: Array | None) -> str:
    """Return the SHA-256 of the content: dtype, shape and little-endian bytes of X, y and client."""
    digest = hashlib.sha256()
    for array in (X, y) if client is None else (X, y, client):
        ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{ordered.dtype.str}{ordered.shape}".encode())
        digest.update(ordered.view(np.uint8).reshape(-1).data if ordered.size else b"")
    return digest.hexdigest()


def to_native_order(array: Array) -> Array:
    """Return the array C-contiguous, in this machine's byte order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def as_features(X: Array, where: str) -> tuple[Array, tuple[int, int, int] | None]:
    """Return X as (n, p), and the image shape (H, W, C) if X has three or four axes, else None."""
    if X.dtype.kind not in "buif":
        raise data_error(where, f"X holds {X.dtype}", "numbers in X")
    if not 2 <= X.ndim <= 4 or 0 in X.shape:
        expected = "X of shape (n, p), (n, H, W) or (n, H, W, C) with n of 1 or more"
        raise data_error(where, f"X has shape {X.shape}", expected)
    X = to_native_order(X.view(np.uint8) if X.dtype.kind == "b" else X)
    # min and max are nan or inf if any value is; unlike isfinite(X) they need no array of X's size
    if X.dtype.kind == "f" and not (np.isfinite(X.min()) and np.isfinite(X.max())):
        place = np.argwhere(~np.isfinite(X))[0]
        what = f"X has {X[tuple(place)]} in row {place[0]}"
        raise data_error(where, what, "finite numbers in X")
    image = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1) if X.ndim > 2 else None
    return X.reshape(len(X), -1), image


def as_integers(values: Array, n: int, where: str, what: str = "y") -> Array:
    """Return whole numbers as (n,) int64; accept shape (n, 1), and floats such as 3.0."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        wrong = f"{what} has shape {values.shape}"
        raise data_error(where, wrong, f"one {what} for each of {n} rows")
    if values.dtype.kind not in "buif":
        raise data_error(where, f"{what} holds {values.dtype}", f"whole numbers in {what}")
    if values.dtype.kind == "f" or values.dtype.itemsize > 4:
        with np.errstate(invalid="ignore"):
            odd = np.flatnonzero(~(np.abs(values.astype(np.float64)) < 2**53) | (values % 1 != 0))
        if odd.size:
            wrong = f"{what} is {values[odd[0]]} in row {odd[0]}"
            raise data_error(where, wrong, f"whole numbers in {what}")
    return values.astype(np.int64)


def as_text(values: Array, where: str, what: str) -> Array:
    """Convert an array of Python strings (dtype object, as in pandas) to NumPy text; keep others."""
    if values.dtype.kind not in "OT":
        return values
    odd = next((i for i, cell in enumerate(values.flat) if not isinstance(cell, str)), None)
    if odd is not None:
        wrong = f"{what} is {str(values.flat[odd])[:40]} in row {odd}"
        raise data_error(where, wrong, f"text in all rows of {what}, or numbers in all")
    return values.astype(str)


def as_targets(y: Array, n: int, where: str) -> tuple[Array, tuple[str, ...] | None]:
    """Return (labels (n,) as int64, their words if y holds words), or (real targets (n,), None)."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    y = as_text(y, where, "y")
    if y.dtype.kind in "US" and y.shape == (n,):
        with as_data_error(where, "UTF-8 text in y"):
            return encode_labels([w.decode() if isinstance(w, bytes) else w for w in y.tolist()])
    if y.dtype.kind == "f" and y.shape == (n,) and np.isfinite(y).all() and (y % 1 != 0).any():
        return to_native_order(y.astype(np.float64)), None
    return as_integers(y, n, where), None


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
    if values.shape != (n,):
        what = f"client has shape {values.shape}"
        raise data_error(where, what, f"one client for each of {n} rows")
    values = as_text(values, where, "client")
    if values.dtype.kind not in "iuUS":
        raise data_error(where, f"client holds {values.dtype}", "whole numbers or text in client")
    names, index = np.unique(values, return_inverse=True)
    with as_data_error(where, "UTF-8 text in client"):
        text = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
        return index.astype(np.int64), require_utf8(text)


def require_utf8(names: Iterable[Any]) -> tuple[str, ...]:
    """Return the names; a ValueError if one is not text or cannot be encoded (a lone surrogate)."""
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{name!r:.40} is not text")
        name.encode()
    return tuple(names)


def image_defaults(X: Array) -> dict[str, Any]:
    """Return {"full_scale": 255} if X holds bytes, which are taken for pixels, else nothing."""
    return {"full_scale": 255.0} if X.dtype == np.uint8 else {}


def require_arrays(arrays: Mapping[str, Any], where: str, names: tuple[str, ...]) -> list[Array]:
    """Return the arrays of these names; a DataError if one is missing."""
    missing = [name for name in names if name not in arrays]
    if missing:
        held = f"only {', '.join(sorted(arrays))}" if arrays else "and none of another name"
        raise data_error(where, f"no array {missing[0]!r}, {held}", ", ".join(names))
    return [np.asarray(arrays[name]) for name in names]


def reject_unknown_arrays(arrays: Mapping[str, Any], where: str, names: tuple[str, ...]) -> None:
    """Raise a DataError if an array has another name than these."""
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        expected = f"only {', '.join(names)}"
        raise data_error(where, f"unknown array {unknown[0]!r}", expected)


def from_arrays(arrays: Mapping[str, Any], where: str, **more: Any) -> Source:
    """Make a Source of named arrays; the names must be among ARRAY_NAMES."""
    X, y = require_arrays(arrays, where, ("X", "y"))
    reject_unknown_arrays(arrays, where, ARRAY_NAMES)
    n, client, test = len(X) if X.ndim else 0, None, None
    if "client" in arrays:
        client, names = encode_clients(np.asarray(arrays["client"]), n, where)
        more = {"client_names": names} | more
    marks = {name: np.asarray(arrays[name]) for name in TEST_ROWS if name in arrays}
    if len(marks) > 1:
        raise data_error(where, f"has {' and '.join(marks)}", "one of them")
    if "test_from" in marks:
        more = {"test_from": first_test_row(marks["test_from"], n, where)} | more
    elif marks:
        test = mask_of_test_rows(*marks.popitem(), n, where)
    return make_source(X, y, where, client, test, **image_defaults(X) | more)


def first_test_row(test_from: Array, n: int, where: str) -> int:
    """Return the row number in the array test_from; a DataError if it is out of range."""
    first = int(as_integers(test_from.reshape(-1), 1, where, "test_from")[0])
    if not 0 < first < n:
        raise data_error(where, f"test_from is {first}", f"a row from 1 to {n - 1}")
    return first


def mask_of_test_rows(name: str, values: Array, n: int, where: str) -> Array:
    """Return (n,) 1 for test rows and 0 for others, from the array `test` or its opposite `train`."""
    mask = as_integers(values, n, where, name)
    if set(np.unique(mask).tolist()) != {0, 1}:
        what = f"{name} is not true for some rows and false for others"
        other = {"test": "training", "train": "test"}[name]
        raise data_error(where, what, f"true or 1 for {name} rows, false or 0 for {other} rows")
    return mask if name == "test" else 1 - mask


def make_source(
    X: Array,
    y: Any,
    where: str,
    client: Array | None = None,
    test: Array | None = None,
    **more: Any,
) -> Source:
    """Check features and targets, and make a Source of them.

    client : (n,) indices. test : (n,) 1 for the published test rows, which are moved to the end.
    more : further fields of the Source.
    """
    flat, image = as_features(X, where)
    target, names = as_targets(np.asarray(y), len(flat), where)
    more = {"image": image, "label_names": names} | more
    if test is not None:
        order = np.argsort(test, kind="stable")
        flat, target = flat[order], target[order]
        client = None if client is None else client[order]
        more = {"test_from": int(len(flat) - test.sum())} | more
    return Source(flat, target, client, **more, sha256=fingerprint(flat, target, client))
