"""The idx format of MNIST and similar data sets: magic number, dimensions, then the raw values."""

import math
import re
import struct
from pathlib import Path

import numpy as np

from fedref.boundary.files import as_data_error, data_error, read_bytes
from fedref.datasets.formats import npz
from fedref.datasets.formats.arrays import Raw
from fedref.models.numerics import Array

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
EXPECTED = "an idx file, plain or gzip: two zero bytes, a type, the dimensions, the values"
NAME = re.compile(r"(?P<set>.*?)(?P<part>train|t10k|test)-images[-.]idx3-ubyte(\.gz)?")
Images = tuple[Array, Array]  # X (n, H, W), y (n,)


def parse(data: bytes, where: object) -> Array:
    """Return the array of an idx file's bytes."""
    magic = data[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        raise data_error(str(where), f"magic number {magic.hex() or 'missing'}", EXPECTED)
    start = 4 + 4 * magic[3]
    if len(data) < start:
        raise data_error(str(where), "ends within its dimensions", EXPECTED)
    shape = struct.unpack(f">{magic[3]}I", data[4:start])
    dtype = np.dtype(TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize
    if size != len(data) - start:
        what = f"dimensions {shape} claim {size} bytes"
        raise data_error(str(where), what, f"{len(data) - start} bytes, as many as it holds")
    with as_data_error(str(where), EXPECTED):  # NumPy has at most 64 dimensions
        return np.frombuffer(data, dtype, offset=start).reshape(shape)


def check_pair(X: Array, y: Array, images: object, labels: object) -> Images:
    """Return images (n, H, W) and labels (n,); a DataError if they do not fit together."""
    if X.ndim != 3:
        raise data_error(str(images), f"{X.ndim} dimensions", "3: images, height, width")
    if y.ndim != 1 or len(y) != len(X):
        what = f"labels of shape {y.shape}"
        raise data_error(str(labels), what, f"one for each of {len(X)} images")
    return X, y


def read_pair(images: Path) -> Images:
    """Read a file of images and that of its labels, whose name has labels for images, idx1 for idx3."""
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = (images.with_name(stem), images.with_name(stem + ".gz"))
    labels = next((path for path in places if path.exists()), None)
    if labels is None:
        raise data_error(images, "has no label file beside it", "a pair of image and label files")
    X, y = (parse(read_bytes(path, EXPECTED), path) for path in (images, labels))
    return check_pair(X, y, images, labels)


def find_sets(folder: Path) -> dict[str, dict[str, Path]]:
    """Return {set: {"train" or "test": images}} of a folder; t10k in a name means test."""
    sets: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := NAME.fullmatch(path.name):
            part = "train" if match["part"] == "train" else "test"
            sets.setdefault(match["set"], {}).setdefault(part, path)
    return sets


def folder_holds_images(folder: Path, prefix: str | None = None) -> bool:
    """Return whether the folder holds training images (of the set `prefix`)."""
    return any(
        prefix in (None, name) and "train" in parts for name, parts in find_sets(folder).items()
    )


def read_parts(folder: Path, prefix: str | None = None) -> list[Images]:
    """Return the training pair of a folder and, if it has one, the test pair; prefix : the set."""
    sets = find_sets(folder)
    if prefix is None and len(sets) > 1:
        what = f"holds several sets: {', '.join(sorted(sets))}"
        raise data_error(folder, what, "a single set, or the name of one")
    images = next(iter(sets.values()), {}) if prefix is None else sets.get(prefix, {})
    if "train" not in images:
        expected = f"{prefix or ''}train-images-idx3-ubyte[.gz]"
        raise data_error(folder, "no training images", expected)
    return [read_pair(images[part]) for part in ("train", "test") if part in images]


def read(folder: Path, prefix: str | None = None) -> Raw:
    """Read a folder of idx files."""
    return npz.join(read_parts(folder, prefix), folder)
