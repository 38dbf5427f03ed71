"""MATLAB files (version 5 to 7): cell arrays X and Y, one cell a task, which becomes a client.

The reader is our own and takes what such a file needs: numeric arrays and cells of them. It checks
every size against the bytes that are there. scipy.io crashes the process on one in a hundred files
with a changed byte and allocates what a dimension claims; to contain it in a process of its own
would cost a second a file and limits that only some systems have.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import PIECE, Budget, bad, guard, read_all
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = "a MATLAB file (version 5 to 7) with cell arrays X (n, p) and Y (n, 1), one cell a task"
HEADER = 128
MATRIX, COMPRESSED, CELLS = 14, 15, 1
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC = range(6, 16)  # classes: double, single, int8, uint8, ..., uint64
CLASSES = {2: "struct", 3: "object", 4: "text", 5: "sparse matrix"}
COMPLEX, LOGICAL = 0x08, 0x02  # flags


class Element(NamedTuple):
    """A piece of the file: its type and its bytes."""

    type: int
    data: memoryview


class Variable(NamedTuple):
    """A named array: what its values are, and the elements that hold them, not yet looked at."""

    name: str
    kind: int
    flags: int
    shape: tuple[int, ...]
    values: Iterator[Element]


def elements(data: memoryview, order: str) -> Iterator[Element]:
    """The elements one after the other; a ValueError if one is longer than what is left."""
    place = 0
    while place < len(data):
        if len(data) - place < 8:
            raise ValueError(f"ends within a tag, {len(data) - place} bytes long")
        kind, size = struct.unpack_from(f"{order}II", data, place)
        start = place + 8
        if kind >> 16:  # a small element: size and type share a word, and four bytes of data follow
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            end = place + 8
        else:
            end = start + (size if kind == COMPRESSED else size + -size % 8)
        if start + size > min(end, len(data)):
            raise ValueError(f"an element of {size} bytes, where {len(data) - start} are left")
        yield Element(kind, data[start : start + size])
        place = end


def inflate(data: memoryview, budget: Budget) -> memoryview:
    """A compressed element's bytes, paid for piece by piece."""
    unpacker, pieces = zlib.decompressobj(), []
    pending: bytes | memoryview = data
    while pending and not unpacker.eof:
        pieces.append(unpacker.decompress(pending, PIECE))
        budget.spend(len(pieces[-1]))
        pending = unpacker.unconsumed_tail
    if not unpacker.eof:
        raise ValueError("ends within a compressed element")
    return memoryview(b"".join(pieces))


def numbers(element: Element, order: str) -> Array:
    """The numbers of a numeric element, in the type that they are stored in."""
    if element.type not in TYPES:
        raise ValueError(f"an element of type {element.type} where numbers should be")
    return np.frombuffer(element.data, order + TYPES[element.type])


def variable(element: Element, order: str) -> Variable:
    """The array of an element of type MATRIX: flags, dimensions, name, values."""
    if element.type != MATRIX:
        raise ValueError(f"an element of type {element.type} where an array should be")
    parts = elements(element.data, order)
    try:
        flags, shape, name = (numbers(next(parts), order) for _ in range(3))
    except StopIteration:
        raise ValueError("an array without a name") from None
    if not flags.size or shape.size < 2 or shape.min() < 0:
        raise ValueError(f"an array of dimensions {shape.tolist()[:4]}")
    word = int(flags[0])
    dimensions = tuple(map(int, shape.tolist()))
    text = name.tobytes().decode("latin-1")
    return Variable(text, word & 0xFF, word >> 8 & 0xFF, dimensions, parts)


def values(found: Variable, order: str) -> Array:
    """A numeric array, in the type that its values are stored in."""
    if found.kind not in NUMERIC:
        raise ValueError(f"holds a {CLASSES.get(found.kind, 'cell')}, no matrix of numbers")
    if found.flags & COMPLEX:
        raise ValueError("holds complex numbers")
    stored = next(found.values, None)
    flat = np.empty(0) if stored is None else numbers(stored, order)
    if len(flat) != math.prod(found.shape):
        raise ValueError(f"holds {len(flat)} numbers for dimensions {found.shape}")
    array = flat.reshape(found.shape, order="F")
    return array.astype(bool) if found.flags & LOGICAL else array


def cells(found: Variable, order: str, budget: Budget, where: str) -> list[Array]:
    """The arrays of a cell array, in MATLAB's order."""
    if found.kind != CELLS:
        raise bad(where, f"{found.name} is no cell array", EXPECTED)
    inner = []
    for k, element in enumerate(found.values):
        budget.member()
        with guard(f"{where}: cell {k} of {found.name}", EXPECTED):
            inner.append(values(variable(element, order), order))
    if len(inner) != math.prod(found.shape):
        raise ValueError(f"{found.name} holds {len(inner)} cells for dimensions {found.shape}")
    return inner


def read(path: Path, budget: Budget) -> tuple[list[Array], list[Array]]:
    """The cells of X and of Y, as the file holds them."""
    data = read_all(path, budget, EXPECTED)
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    found = {}
    with guard(path, EXPECTED):
        if order is None or data[124:126] != (b"\0\1" if order == "<" else b"\1\0"):
            raise ValueError("has no header of version 5")
        for element in elements(memoryview(data)[HEADER:], order):
            if element.type == COMPRESSED:
                (element,) = elements(inflate(element.data, budget), order)
            one = variable(element, order)
            if one.name in ("X", "Y"):
                found[one.name] = cells(one, order, budget, str(path))
    if len(found) < 2:
        raise bad(path, "X or Y is missing", EXPECTED)
    return found["X"], found["Y"]


def task(X: Array, y: Array, where: str) -> tuple[Array, Array]:
    """One cell's rows, checked."""
    flat, _ = arrays.features(X, where)
    return flat, arrays.whole(y.ravel() if 1 in y.shape else y, len(flat), where, "Y")


def load(path: Path, **more: Any) -> Source:
    """A Source with one natural client a cell."""
    budget = Budget(path)
    X, Y = read(path, budget)
    if len(X) != len(Y) or not X:
        raise bad(path, f"X has {len(X)} cells, Y has {len(Y)}", EXPECTED)
    budget.spend(sum(y.size for y in Y) * arrays.ROW)
    tasks = [task(x, y, f"{path}: cell {k}") for k, (x, y) in enumerate(zip(X, Y))]
    widths = [x.shape[1] for x, _ in tasks]
    if len(set(widths)) > 1:
        k = next(k for k, width in enumerate(widths) if width != widths[0])
        raise bad(path, f"cell {k} has {widths[k]} features", f"{widths[0]}, as in cell 0")
    xs, ys = zip(*tasks)
    client = np.repeat(np.arange(len(ys)), [len(y) for y in ys])
    return arrays.source(np.concatenate(xs), np.concatenate(ys), str(path), client, **more)
