"""What every loader ends with: arrays checked once, and the Source made of them."""

import hashlib
from typing import Any

import numpy as np

from fedref.boundary.files import as_data_error, data_error
from fedref.models.numerics import Array
from fedref.rounds.federation import Source


def fingerprint(X: Array, y: Array, client: Array | None) -> str:
    """Return the SHA-256 of the content: dtype, shape and little-endian bytes of X, y and client."""
    digest = hashlib.sha256()
    for array in (X, y) if client is None else (X, y, client):
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{plain.dtype.str}{plain.shape}".encode())
        digest.update(plain.view(np.uint8).reshape(-1).data if plain.size else b"")
    return digest.hexdigest()


def native(array: Array) -> Array:
    """Return the array C-contiguous, in this machine's byte order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def as_features(X: Array, where: str) -> tuple[Array, tuple[int, int, int] | None]:
    """Return X as (n, p), and the image shape that its axes told, if any."""
    if X.dtype.kind not in "buif":
        raise data_error(where, f"X holds {X.dtype}", "numbers in X")
    if not 2 <= X.ndim <= 4 or 0 in X.shape:
        expected = "X of shape (n, p), (n, H, W) or (n, H, W, C) with n of 1 or more"
        raise data_error(where, f"X has shape {X.shape}", expected)
    X = native(X.view(np.uint8) if X.dtype.kind == "b" else X)
    # the extremes tell whether any value is not finite, without a mask of X's size
    if X.dtype.kind == "f" and not (np.isfinite(X.min()) and np.isfinite(X.max())):
        place = np.argwhere(~np.isfinite(X))[0]
        what = f"X has {X[tuple(place)]} in row {place[0]}"
        raise data_error(where, what, "finite numbers in X")
    image = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1) if X.ndim > 2 else None
    return X.reshape(len(X), -1), image


def as_integers(values: Array, n: int, where: str, what: str = "y") -> Array:
    """Return (n,) whole numbers as int64; (n, 1) and floats like 3.0 are taken as meant."""
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


def as_targets(y: Array, n: int, where: str) -> tuple[Array, tuple[str, ...] | None]:
    """Return ((n,) labels as int64, their words if they are words), or ((n,) real targets, None)."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind in "US" and y.shape == (n,):
        with as_data_error(where, "UTF-8 text in y"):
            return encode_labels([w.decode() if isinstance(w, bytes) else w for w in y.tolist()])
    if y.dtype.kind == "f" and y.shape == (n,) and np.isfinite(y).all() and (y % 1 != 0).any():
        return native(y.astype(np.float64)), None
    return as_integers(y, n, where), None


def encode_labels(words: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Return (each word's place among all of them, the words in their order).

    Words that are all numbers stand in the order of the numbers.
    """
    different = set(words)
    by_number = int if all(word.isdecimal() for word in different) else None
    names = require_utf8(sorted(different, key=by_number))
    place = {word: i for i, word in enumerate(names)}
    return np.array([place[word] for word in words], np.int64), names


def encode_clients(values: Array, n: int, where: str) -> tuple[Array, tuple[str, ...]]:
    """Return (index (n,), names) of one client per row, named by numbers or text."""
    if values.shape != (n,):
        what = f"client has shape {values.shape}"
        raise data_error(where, what, f"one client for each of {n} rows")
    if values.dtype.kind not in "iuUS":
        raise data_error(where, f"client holds {values.dtype}", "whole numbers or text in client")
    names, index = np.unique(values, return_inverse=True)
    with as_data_error(where, "UTF-8 text in client"):
        text = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
        return index.astype(np.int64), require_utf8(text)


def require_utf8(names: list[str]) -> tuple[str, ...]:
    """Return names as given; a ValueError if one holds half a character, which no file can hold."""
    for name in names:
        name.encode()
    return tuple(names)


def image_defaults(X: Array) -> dict[str, Any]:
    """Return what bytes are taken for: pixels, whose full scale is 255."""
    return {"full_scale": 255.0} if X.dtype == np.uint8 else {}


def make_source(
    X: Array,
    y: Any,
    where: str,
    client: Array | None = None,
    test: Array | None = None,
    **more: Any,
) -> Source:
    """Return the Source of these arrays, checked: finite features, labels or real targets.

    test : (n,) true or 1 for the rows of the published test part, which are put last.
    """
    flat, image = as_features(X, where)
    target, names = as_targets(np.asarray(y), len(flat), where)
    more = {"image": image, "label_names": names} | more
    if test is not None:
        mask = as_integers(test, len(flat), where, "test")
        if set(np.unique(mask).tolist()) != {0, 1}:
            what = "test is not true for some rows and false for others"
            raise data_error(where, what, "true or 1 for test rows, false or 0 for the others")
        order = np.argsort(mask, kind="stable")
        flat, target = flat[order], target[order]
        client = None if client is None else client[order]
        more = {"test_from": int(len(flat) - mask.sum())} | more
    return Source(flat, target, client, **more, sha256=fingerprint(flat, target, client))
