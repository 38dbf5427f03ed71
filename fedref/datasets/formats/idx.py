"""The idx format of MNIST and similar data sets: magic number, dimensions, then the raw values."""

import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.files import as_data_error, data_error, read_bytes
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
EXPECTED = "an idx file, plain or gzip: two zero bytes, a type, the dimensions, the values"
NAME = re.compile(r"(?P<set>.*?)(?P<part>train|t10k|test)-images[-.]idx3-ubyte(\.gz)?")
Images = tuple[Array, Array]  # X (n, H, W), y (n,)


def parse(data: bytes, where: str) -> Array:
    """Return the array of an idx file's bytes."""
    magic = data[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        raise data_error(where, f"magic number {magic.hex() or 'missing'}", EXPECTED)
    start = 4 + 4 * magic[3]
    if len(data) < start:
        raise data_error(where, "ends within its dimensions", EXPECTED)
    shape = struct.unpack(f">{magic[3]}I", data[4:start])
    dtype = np.dtype(TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize
    if size != len(data) - start:
        what = f"dimensions {shape} claim {size} bytes"
        raise data_error(where, what, f"{len(data) - start} bytes, as many as it holds")
    with as_data_error(where, EXPECTED):  # NumPy has at most 64 dimensions
        return np.frombuffer(data, dtype, offset=start).reshape(shape)


def read(path: Path) -> Array:
    """Return the array of one idx file."""
    return parse(read_bytes(path, EXPECTED), str(path))


def check_pair(X: Array, y: Array, images: object, labels: object) -> Images:
    """Return images (n, H, W) and labels (n,); a DataError if they do not fit together."""
    if X.ndim != 3:
        raise data_error(str(images), f"{X.ndim} dimensions", "3: images, height, width")
    if y.ndim != 1 or len(y) != len(X):
        what = f"labels of shape {y.shape}"
        raise data_error(str(labels), what, f"one for each of {len(X)} images")
    return X, y


def label_file(images: Path) -> Path | None:
    """Return the label file of an image file: its name has labels and idx1 for images and idx3."""
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = (images.with_name(stem), images.with_name(stem + ".gz"))
    return next((path for path in places if path.is_file()), None)


def find_pairs(folder: Path) -> dict[str, dict[str, tuple[Path, Path]]]:
    """Return {set: {"train" or "test": (images, labels)}} of a folder; t10k in a name means test."""
    sets: dict[str, dict[str, tuple[Path, Path]]] = {}
    for path in sorted(folder.iterdir()):
        match = NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        labels = label_file(path)
        if labels is None:
            what = "has no label file beside it"
            raise data_error(path, what, "a pair of image and label files")
        part = "train" if match["part"] == "train" else "test"
        sets.setdefault(match["set"], {}).setdefault(part, (path, labels))
    return sets


def read_folder(folder: Path, prefix: str | None = None) -> list[Images]:
    """Return the training pair of a folder and, if it has one, the test pair; prefix : the set."""
    sets = find_pairs(folder)
    if prefix is None and len(sets) > 1:
        what = f"holds several sets: {', '.join(sorted(sets))}"
        raise data_error(folder, what, "a single set, or the name of one")
    pairs = sets.get(prefix, {}) if prefix is not None else next(iter(sets.values()), {})
    if "train" not in pairs:
        expected = f"{prefix or ''}train-images-idx3-ubyte[.gz]"
        raise data_error(folder, "no training images", expected)
    chosen = [pairs[part] for part in ("train", "test") if part in pairs]
    return [check_pair(read(images), read(labels), images, labels) for images, labels in chosen]


def join(parts: list[Images], where: str, **more: Any) -> Source:
    """Join the training part and the test part, if there is one, in one Source."""
    X, y = zip(*parts)
    if len({(images.shape[1:], images.dtype) for images in X}) > 1:
        what = "training and test images differ in size or type"
        raise data_error(where, what, "images of one size and type")
    test = {"test_from": len(X[0])} if len(X) > 1 else {}
    more = test | arrays.image_defaults(X[0]) | more
    return arrays.make_source(np.concatenate(X), np.concatenate(y), where, **more)


def load(folder: Path, prefix: str | None = None, **more: Any) -> Source:
    """Return a Source from a folder of idx files."""
    return join(read_folder(folder, prefix), str(folder), **more)


def folder_holds_images(folder: Path, prefix: str | None = None) -> bool:
    """Return whether a file name in the folder is that of training images (of the set `prefix`)."""
    return any(
        (match := NAME.fullmatch(path.name)) is not None
        and match["part"] == "train"
        and prefix in (None, match["set"])
        for path in folder.iterdir()
    )
