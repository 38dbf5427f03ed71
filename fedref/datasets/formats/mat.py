"""MATLAB files (version 5 to 7): cell arrays X and Y, one cell a task, which becomes a client."""

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from fedref.datasets.formats import arrays
from fedref.federation import Source
from fedref.files import bad, budget, guard, read_all
from fedref.numerics import Array

EXPECTED = "a MATLAB file (version 5 to 7) with cell arrays X (n, p) and Y (n, 1), one cell a task"
HEADER, COMPRESSED = 128, 15


def check_size(data: bytes, path: Path) -> None:
    """Refuse a zip bomb: what all compressed variables unpack to, found without keeping it."""
    order = "<" if data[126:128] == b"IM" else ">"
    limit, place = budget(len(data)), HEADER
    while place + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        if kind == COMPRESSED:
            inflate = zlib.decompressobj()
            pending = data[place + 8 : place + 8 + size]
            while pending and not inflate.eof:
                piece = inflate.decompress(pending, 1 << 20)
                limit -= len(piece)
                if limit < 0:
                    raise bad(path, "unpacks to more than a hundred times its size", EXPECTED)
                if not piece and inflate.unconsumed_tail == pending:
                    break
                pending = inflate.unconsumed_tail
        place += 8 + size


def read(path: Path) -> tuple[Array, Array]:
    """X and Y as the file holds them."""
    data = read_all(path, EXPECTED)
    with guard(path, EXPECTED), warnings.catch_warnings():
        warnings.simplefilter("error")
        check_size(data, path)
        found = scipy.io.loadmat(path, variable_names=("X", "Y"))
    if not {"X", "Y"} <= set(found):
        raise bad(path, "X or Y is missing", EXPECTED)
    return found["X"], found["Y"]


def task(X: Any, y: Any, where: str) -> tuple[Array, Array]:
    """One cell's rows, checked."""
    if not isinstance(X, np.ndarray) or not isinstance(y, np.ndarray):
        raise bad(where, "is no matrix", EXPECTED)
    flat, _ = arrays.features(X, where)
    return flat, arrays.whole(y.ravel() if 1 in y.shape else y, len(flat), where, "Y")


def load(path: Path, **more: Any) -> Source:
    """A Source with one natural client a cell."""
    X, Y = read(path)
    if X.dtype != object or Y.dtype != object or X.size != Y.size or not X.size:
        raise bad(path, f"X is {X.dtype} {X.shape}, Y is {Y.dtype} {Y.shape}", EXPECTED)
    tasks = [task(x, y, f"{path}: cell {k}") for k, (x, y) in enumerate(zip(X.ravel(), Y.ravel()))]
    widths = [x.shape[1] for x, _ in tasks]
    if len(set(widths)) > 1:
        k = next(k for k, width in enumerate(widths) if width != widths[0])
        raise bad(path, f"cell {k} has {widths[k]} features", f"{widths[0]}, as in cell 0")
    xs, ys = zip(*tasks)
    client = np.repeat(np.arange(len(ys)), [len(y) for y in ys])
    return arrays.source(np.concatenate(xs), np.concatenate(ys), str(path), client, **more)
