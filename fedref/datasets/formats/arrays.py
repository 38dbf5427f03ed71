"""What every loader ends with: arrays checked once, and the Source made of them."""

import hashlib
from typing import Any

import numpy as np

from fedref.federation import Source
from fedref.files import bad, guard
from fedref.numerics import Array

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
        raise bad(where, f"X has shape {X.shape}", "X of shape (n, p), (n, H, W) or (n, H, W, C)")
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


def source(X: Array, y: Array, where: str, client: Array | None = None, **more: Any) -> Source:
    """The Source of these arrays, checked: finite features, whole labels, equal lengths."""
    flat, image = features(X, where)
    labels = whole(y, len(flat), where)
    return Source(
        flat,
        labels,
        client,
        **({"image": image} | more),
        sha256=fingerprint(flat, labels, client),
    )
