"""What every loader ends with: arrays checked once, and the Source made of them."""

import hashlib
from typing import Any

import numpy as np

from fedref.boundary.files import bad, guard
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

ROW = 32  # bytes that a row takes beside its features: its label, its client, sorting them


def fingerprint(X: Array, y: Array, client: Array | None) -> str:
    """SHA-256 of the content: dtype, shape and little-endian bytes of X, y and client."""
    digest = hashlib.sha256()
    for array in (X, y) if client is None else (X, y, client):
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{plain.dtype.str}{plain.shape}".encode())
        digest.update(plain.view(np.uint8).reshape(-1).data if plain.size else b"")
    return digest.hexdigest()


def native(array: Array) -> Array:
    """C-contiguous, in this machine's byte order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def features(X: Array, where: str) -> tuple[Array, tuple[int, int, int] | None]:
    """X as (n, p), and the image shape that its axes told, if any."""
    if X.dtype.kind not in "buif":
        raise bad(where, f"X holds {X.dtype}", "numbers in X")
    if not 2 <= X.ndim <= 4 or 0 in X.shape:
        raise bad(
            where,
            f"X has shape {X.shape}",
            "X of shape (n, p), (n, H, W) or (n, H, W, C) with n of 1 or more",
        )
    X = native(X.view(np.uint8) if X.dtype.kind == "b" else X)
    # the extremes tell whether any value is not finite, without a mask of X's size
    if X.dtype.kind == "f" and not (np.isfinite(X.min()) and np.isfinite(X.max())):
        place = np.argwhere(~np.isfinite(X))[0]
        raise bad(where, f"X has {X[tuple(place)]} in row {place[0]}", "finite numbers in X")
    image = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1) if X.ndim > 2 else None
    return X.reshape(len(X), -1), image


def whole(values: Array, n: int, where: str, what: str = "y") -> Array:
    """(n,) whole numbers as int64; (n, 1) and floats like 3.0 are taken as meant."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise bad(where, f"{what} has shape {values.shape}", f"one {what} for each of {n} rows")
    if values.dtype.kind not in "buif":
        raise bad(where, f"{what} holds {values.dtype}", f"whole numbers in {what}")
    if values.dtype.kind == "f" or values.dtype.itemsize > 4:
        with np.errstate(invalid="ignore"):
            odd = np.flatnonzero(~(np.abs(values.astype(np.float64)) < 2**53) | (values % 1 != 0))
        if odd.size:
            row = odd[0]
            raise bad(where, f"{what} is {values[row]} in row {row}", f"whole numbers in {what}")
    return values.astype(np.int64)


def targets(y: Array, n: int, where: str) -> tuple[Array, tuple[str, ...] | None]:
    """((n,) labels as int64, what they are called where they are words), or (n,) real targets."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind in "US" and y.shape == (n,):
        with guard(where, "UTF-8 text in y"):
            return coded([w.decode() if isinstance(w, bytes) else w for w in y.tolist()])
    if y.dtype.kind == "f" and y.shape == (n,) and np.isfinite(y).all() and (y % 1 != 0).any():
        return native(y.astype(np.float64)), None
    return whole(y, n, where), None


def coded(words: list[str]) -> tuple[Array, tuple[str, ...]]:
    """(each word's place among all of them, the words in order: as numbers if all are numbers)."""
    found = set(words)
    names = writable(sorted(found, key=int if all(w.isdecimal() for w in found) else None))
    place = {word: i for i, word in enumerate(names)}
    return np.array([place[word] for word in words], np.int64), names


def clients(values: Array, n: int, where: str) -> tuple[Array, tuple[str, ...]]:
    """One client per row, named by numbers or text → (index (n,), names)."""
    if values.shape != (n,):
        raise bad(where, f"client has shape {values.shape}", f"one client for each of {n} rows")
    if values.dtype.kind not in "iuUS":
        raise bad(where, f"client holds {values.dtype}", "whole numbers or text in client")
    names, index = np.unique(values, return_inverse=True)
    with guard(where, "UTF-8 text in client"):
        found = names.tolist()
        text = [name.decode() if isinstance(name, bytes) else str(name) for name in found]
        return index.astype(np.int64), writable(text)


def writable(names: list[str]) -> tuple[str, ...]:
    """Names as given; a ValueError if one holds half a character, which no file can hold."""
    for name in names:
        name.encode()
    return tuple(names)


def pixels(X: Array) -> dict[str, Any]:
    """Bytes are taken for pixels, whose full scale is 255."""
    return {"full_scale": 255.0} if X.dtype == np.uint8 else {}


def source(
    X: Array,
    y: Any,
    where: str,
    client: Array | None = None,
    test: Array | None = None,
    **more: Any,
) -> Source:
    """The Source of these arrays, checked: finite features, labels or real targets, equal lengths.

    test : (n,) true or 1 for the rows of the published test part, which are put last.
    """
    flat, image = features(X, where)
    target, names = targets(np.asarray(y), len(flat), where)
    more = {"image": image, "label_names": names} | more
    if test is not None:
        mask = whole(test, len(flat), where, "test")
        if set(np.unique(mask).tolist()) != {0, 1}:
            what = "test is not true for some rows and false for others"
            raise bad(where, what, "true or 1 for test rows, false or 0 for the others")
        order = np.argsort(mask, kind="stable")
        flat, target = flat[order], target[order]
        client = None if client is None else client[order]
        more = {"test_from": int(len(flat) - mask.sum())} | more
    return Source(flat, target, client, **more, sha256=fingerprint(flat, target, client))
