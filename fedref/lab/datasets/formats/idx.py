"""The idx format of MNIST and similar data sets: magic number, dimensions, then the raw values.

EMNIST's sets of character images are such files in one archive, as it is published.
"""

import math
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from fedref.boundary import files as boundary
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import as_data_error, data_error, open_regular, read_bytes
from fedref.lab.datasets.formats import npz
from fedref.lab.datasets.formats.arrays import Raw, as_integers, require
from fedref.models.numerics import Array

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
EXPECTED = "an idx file, plain or gzip: two zero bytes, a type, the dimensions, the values"
#: How the names of files end; a prefix such as emnist-letters- may stand before.
NAME = r"(%s)-%s-ubyte(\.gz)?$"
TRAINING = re.compile(NAME % ("train", "images.idx3"))
EMNIST = "emnist-"
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


def read_parts(files: Files, where: Path) -> list[Images]:
    """Return the training pair of a set and, if it has one, the test pair; t10k means test.

    Files of EMNIST, by their names, hold images transposed, and `letters` labels from 1: the images
    become upright and the labels begin at 0.
    """
    parts = []
    for part in ("train", "t10k|test"):
        found = [
            {name.removesuffix(".gz") for name in files if re.search(NAME % (part, kind), name)}
            for kind in ("images.idx3", "labels.idx1")
        ]
        if part != "train" and not any(found):
            continue
        held = ", ".join(sorted(set.union(*found))) or "no train-images-idx3-ubyte"
        right = "one idx file of images and one of their labels, for training and for testing"
        require([len(names) for names in found] == [1, 1], where, f"holds {held}", right)
        (images, X), (labels, y) = (
            (where / name, parse((files.get(name) or files[name + ".gz"])(), where / name))
            for (name,) in found
        )
        require(X.ndim == 3, images, f"{X.ndim} dimensions", "3: images, height, width")
        shape, right = f"labels of shape {y.shape}", f"one for each of {len(X)} images"
        require(y.shape == (len(X),), labels, shape, right)
        if EMNIST in images.name:
            first = 1 if f"{EMNIST}letters-" in images.name else 0
            X, y = X.swapaxes(1, 2), as_integers(y, len(y), str(labels)) - first
        parts.append((X, y))
    return parts


def folder_holds_images(folder: Path) -> bool:
    """Return whether the folder holds an idx file of training images."""
    return any(TRAINING.search(path.name) for path in folder.iterdir())


def read(path: Path) -> Raw:
    """Read a folder with the idx files of one set."""
    files = {file.name: partial(read_bytes, file, EXPECTED) for file in path.iterdir()}
    raw = npz.join(read_parts(files, path), path)
    turned = any(EMNIST in name and TRAINING.search(name) for name in files)
    notes = ("EMNIST's files: images turned upright, labels from 0",) if turned else ()
    return raw._replace(facts={**raw.facts, "notes": notes})


# ---- EMNIST's archive -----------------------------------------------------------------------------

ARCHIVE = "EMNIST's gzip.zip"
LOWER = "abcdefghijklmnopqrstuvwxyz"
# place = label; in `letters`, upper and lower case are one class
ALPHABETS = {"letters": LOWER, "byclass": "0123456789" + LOWER.upper() + LOWER}


def read_emnist(
    path: Path, part: Literal["letters", "byclass"] = "letters", classes: str | None = None
) -> Raw:
    """Read the archive; the images are upright and the labels begin at 0, see `read_parts`.

    part : one of the two sets. classes : the characters to keep, such as a-j, labelled 0, 1, ... in this
    order (None: all).
    """
    alphabet, parts = ALPHABETS[part], []
    labels = find_labels(alphabet, classes)
    with (
        open_regular(path, ARCHIVE) as stream,
        as_data_error(path, ARCHIVE),
        zipfile.ZipFile(stream) as archive,
    ):
        limit = boundary.unpacked_limit(path.stat().st_size)
        names = [x for x in npz.names_in(archive, path) if f"emnist-{part}-" in x]
        files = {PurePosixPath(x).name: partial(unpack, archive, x, limit, path) for x in names}
        pairs = read_parts(files, path)
    for X, y in pairs:
        odd = y[(y < 0) | (y >= len(alphabet))]
        if odd.size:
            raise data_error(path, f"label {odd[0]}", f"labels below {len(alphabet)} in {part}")
        rows = np.isin(y, labels)
        parts.append((X[rows], y[rows] - labels[0]))
    return npz.join(parts, path)


def unpack(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytes:
    """Return the content of a gzip'd member."""
    with archive.open(name) as packed:
        return boundary.read_up_to(boundary.gunzip(packed), limit, f"{path}: {name}")


def find_labels(alphabet: str, classes: str | None) -> range:
    """Return the labels of the characters "a-j"; by default, all labels."""
    ends = f"{alphabet[0]}-{alphabet[-1]}" if classes is None else classes
    first, _, last = ends.partition("-")
    labels = range(alphabet.find(first), alphabet.find(last) + 1)
    if not (len(first) == len(last) == 1 and labels and {first, last} <= {*alphabet}):
        expected = f"some of {alphabet}, such as a-j"
        raise ConfigError(f"emnist: classes is {classes!r}, expected {expected}")
    return labels
