"""The idx files of MNIST and its family: magic number, dimensions, then the raw values."""

import io
import math
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import Budget, Metered, bad, guard, opened, read_up_to, unzipped
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
EXPECTED = "an idx file, plain or gzip: two zero bytes, a type, the dimensions, the values"
NAME = re.compile(r"(?P<set>.*?)(?P<part>train|t10k|test)-images[-.]idx3-ubyte(\.gz)?")


def parse(stream: Metered, length: int | None, where: str) -> Array:
    """The array of an idx stream of this length (None: as much as its budget allows)."""
    magic = read_up_to(stream, 4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        raise bad(where, f"magic number {magic.hex() or 'missing'}", EXPECTED)
    head = read_up_to(stream, 4 * magic[3])
    if len(head) < 4 * magic[3]:
        raise bad(where, "ends within its dimensions", EXPECTED)
    shape = struct.unpack(f">{magic[3]}I", head)
    dtype = np.dtype(TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize
    left = stream.budget.left if length is None else length - 4 - len(head)
    if size > left:  # refused before a byte of it is allocated
        held = (
            f"{left} bytes"
            if length is not None
            else f"at most {left} bytes, by the file's own size"
        )
        raise bad(where, f"dimensions {shape} claim {size} bytes", held)
    data = read_up_to(stream, size)
    if len(data) < size or stream.read(1):
        held = "more" if len(data) == size else str(len(data))
        raise bad(where, f"holds {held} bytes of values", f"{size}, as its dimensions {shape} say")
    with guard(where, EXPECTED):  # NumPy has at most 64 dimensions
        return np.frombuffer(data, dtype).reshape(shape)


def read(path: Path, budget: Budget) -> Array:
    """The array of one idx file."""
    with opened(path, budget, EXPECTED) as (stream, length):
        return parse(stream, length, str(path))


def unpack(data: bytes, budget: Budget, where: str) -> Array:
    """The array of an idx file, plain or gzip, that was a member of an archive."""
    with guard(where, EXPECTED), unzipped(io.BytesIO(data), len(data), budget) as (stream, length):
        return parse(stream, length, where)


class Pair(NamedTuple):
    """An image file and its label file."""

    images: Path
    labels: Path


def check_pair(X: Array, y: Array, images: object, labels: object) -> tuple[Array, Array]:
    """Images (n, H, W) and labels (n,), refused if they do not fit together."""
    if X.ndim != 3:
        raise bad(str(images), f"{X.ndim} dimensions", "3: images, height, width")
    if y.ndim != 1 or len(y) != len(X):
        raise bad(str(labels), f"labels of shape {y.shape}", f"one for each of {len(X)} images")
    return X, y


def label_file(images: Path) -> Path | None:
    """The label file beside an image file: same name, labels and idx1 instead."""
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = (images.with_name(stem), images.with_name(stem + ".gz"))
    return next((path for path in places if path.is_file()), None)


def find(folder: Path) -> dict[str, dict[str, Pair]]:
    """{set: {part: pair}} of a folder: the part is train or test (t10k is test)."""
    sets: dict[str, dict[str, Pair]] = {}
    for path in sorted(folder.iterdir()):
        match = NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        labels = label_file(path)
        if labels is None:
            raise bad(path, "has no label file beside it", "a pair of image and label files")
        part = "train" if match["part"] == "train" else "test"
        sets.setdefault(match["set"], {}).setdefault(part, Pair(path, labels))
    return sets


Images = tuple[Array, Array]  # X (n, H, W), y (n,)


def read_folder(folder: Path, budget: Budget, prefix: str | None = None) -> list[Images]:
    """The training pair and, if there is one, the test pair of a folder."""
    sets = find(folder)
    if prefix is None and len(sets) > 1:
        raise bad(folder, f"holds several sets: {', '.join(sorted(sets))}", "one, or a named one")
    pairs = sets.get(prefix, {}) if prefix is not None else next(iter(sets.values()), {})
    if "train" not in pairs:
        raise bad(folder, "no training images", f"{prefix or ''}train-images-idx3-ubyte[.gz]")
    chosen = [pairs[part] for part in ("train", "test") if part in pairs]
    return [
        check_pair(read(pair.images, budget), read(pair.labels, budget), *pair) for pair in chosen
    ]


def join(parts: list[Images], budget: Budget, where: str, **more: Any) -> Source:
    """One Source of the training part and, if there is one, the test part."""
    X, y = zip(*parts)
    budget.spend(sum(map(len, y)) * arrays.ROW)
    if len({(images.shape[1:], images.dtype) for images in X}) > 1:
        raise bad(where, "training and test images differ in size or type", "images alike")
    found: dict[str, Any] = {"test_from": len(X[0])} if len(X) > 1 else {}
    if X[0].dtype == np.uint8:
        found["full_scale"] = 255.0
    return arrays.source(np.concatenate(X), np.concatenate(y), where, **(found | more))


def load(folder: Path, prefix: str | None = None, **more: Any) -> Source:
    """A Source from a folder of idx files."""
    budget = Budget(folder)
    return join(read_folder(folder, budget, prefix), budget, str(folder), **more)


def in_folder(folder: Path, prefix: str | None = None) -> bool:
    """Whether the folder holds a training set (of that prefix), without reading it."""
    return any(
        (match := NAME.fullmatch(path.name)) is not None
        and match["part"] == "train"
        and prefix in (None, match["set"])
        for path in folder.iterdir()
    )
