"""The idx format of MNIST and similar data sets: magic number, dimensions, then the raw values."""

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from fedref.boundary.files import as_data_error, data_error, read_bytes
from fedref.datasets.formats import npz
from fedref.datasets.formats.arrays import Raw, require
from fedref.models.numerics import Array

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
EXPECTED = "an idx file, plain or gzip: two zero bytes, a type, the dimensions, the values"
NAME = re.compile(r"(?P<set>.*?)(?P<part>train|t10k|test)-images[-.]idx3-ubyte(\.gz)?")
Images = tuple[Array, Array]  # X (n, H, W), y (n,)
Files = Mapping[str, Callable[[], bytes]]  # name → content, in a folder or an archive


def parse(data: bytes, where: object) -> Array:
    """Return the array of an idx file's bytes."""
    magic = data[:4]
    right = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in TYPES and magic[3]
    require(right, where, f"magic number {magic.hex() or 'missing'}", EXPECTED)
    start = 4 + 4 * magic[3]
    require(len(data) >= start, where, "ends within its dimensions", EXPECTED)
    shape = struct.unpack(f">{magic[3]}I", data[4:start])
    dtype = np.dtype(TYPES[magic[2]])
    size, held = math.prod(shape) * dtype.itemsize, len(data) - start
    claim = f"dimensions {shape} claim {size} bytes"
    require(size == held, where, claim, f"{held} bytes, as many as it holds")
    with as_data_error(str(where), EXPECTED):  # NumPy has at most 64 dimensions
        return np.frombuffer(data, dtype, offset=start).reshape(shape)


def read_parts(files: Files, where: Path, prefix: str | None = None) -> list[Images]:
    """Return the training pair of a set and, if it has one, the test pair; prefix : the set's."""
    sets: dict[
        str, dict[str, str]
    ] = {}  # set → "train" or "test" → images; t10k in a name means test
    for match in filter(None, map(NAME.fullmatch, sorted(files))):
        part = "train" if match["part"] == "train" else "test"
        sets.setdefault(match["set"], {}).setdefault(part, match[0])
    several = f"holds several sets: {', '.join(sorted(sets))}"
    require(prefix is not None or len(sets) < 2, where, several, "a single set, or the name of one")
    images = next(iter(sets.values()), {}) if prefix is None else sets.get(prefix, {})
    expected = f"{prefix or ''}train-images-idx3-ubyte[.gz]"
    require("train" in images, where, "no training images", expected)
    return [read_pair(files, images[part], where) for part in ("train", "test") if part in images]


def read_pair(files: Files, images: str, where: Path) -> Images:
    """Read images and their labels, whose name has labels for images and idx1 for idx3."""
    stem = images.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    labels = next((name for name in (stem, stem + ".gz") if name in files), None)
    if labels is None:
        what = "has no label file beside it"
        raise data_error(where / images, what, "a pair of image and label files")
    X, y = (parse(files[name](), where / name) for name in (images, labels))
    require(X.ndim == 3, where / images, f"{X.ndim} dimensions", "3: images, height, width")
    shape, right = f"labels of shape {y.shape}", f"one for each of {len(X)} images"
    require(y.shape == (len(X),), where / labels, shape, right)
    return X, y


def files_of(folder: Path) -> Files:
    """Return the files of a folder, which are read when they are called."""
    return {path.name: partial(read_bytes, path, EXPECTED) for path in folder.iterdir()}


def folder_holds_images(folder: Path, prefix: str | None = None) -> bool:
    """Return whether a file name in the folder is that of training images (of the set `prefix`)."""
    found = [match for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return any(match["part"] == "train" and prefix in (None, match["set"]) for match in found)


def read(folder: Path, prefix: str | None = None) -> Raw:
    """Read a folder of idx files."""
    return npz.join(read_parts(files_of(folder), folder, prefix), folder)
