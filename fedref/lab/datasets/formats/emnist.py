"""EMNIST: sets of character images, as idx files in the archive as it is published."""

import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import (
    as_data_error,
    data_error,
    gunzip,
    open_regular,
    read_up_to,
    unpacked_limit,
)
from fedref.lab.datasets.formats import idx, npz
from fedref.lab.datasets.formats.arrays import Raw

EXPECTED = "EMNIST's gzip.zip"
LOWER = "abcdefghijklmnopqrstuvwxyz"
# place = label; in `letters`, upper and lower case are one class
ALPHABETS = {"letters": LOWER, "byclass": "0123456789" + LOWER.upper() + LOWER}


@dataclass(frozen=True)
class EMNIST:
    """Parameters: one of the two sets, and the characters to keep, such as a-j (None: all)."""

    part: str = "letters"
    classes: str | None = None

    choices: ClassVar[Mapping[str, Collection[str]]] = {"part": tuple(ALPHABETS)}


def read(path: Path, part: str, classes: str | None) -> Raw:
    """Read the archive; the images are upright and the labels begin at 0, see `idx.read_parts`.

    classes : the characters to keep, labelled 0, 1, ... in this order.
    """
    alphabet, parts = ALPHABETS[part], []
    labels = find_labels(alphabet, classes)
    with (
        open_regular(path, EXPECTED) as stream,
        as_data_error(path, EXPECTED),
        zipfile.ZipFile(stream) as archive,
    ):
        limit = unpacked_limit(path.stat().st_size)
        files = {
            PurePosixPath(name).name: partial(unpack, archive, name, limit, path)
            for name in npz.names_in(archive, path) if f"emnist-{part}-" in name
        }  # fmt: skip
        pairs = idx.read_parts(files, path)
    for X, y in pairs:
        odd = y[(y < 0) | (y >= len(alphabet))]
        if odd.size:
            expected = f"labels below {len(alphabet)} in {part}"
            raise data_error(path, f"label {odd[0]}", expected)
        rows = np.isin(y, labels)
        parts.append((X[rows], y[rows] - labels[0]))
    return npz.join(parts, path)


def unpack(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytes:
    """Return the content of a gzip'd member."""
    with archive.open(name) as packed:
        return read_up_to(gunzip(packed), limit, f"{path}: {name}")


def find_labels(alphabet: str, classes: str | None) -> range:
    """Return the labels of the characters "a-j"; by default, all labels."""
    ends = f"{alphabet[0]}-{alphabet[-1]}" if classes is None else classes
    first, _, last = ends.partition("-")
    labels = range(alphabet.find(first), alphabet.find(last) + 1)
    if not (len(first) == len(last) == 1 and labels and {first, last} <= {*alphabet}):
        raise ConfigError(
            f"emnist: classes is {classes!r}, expected some of {alphabet}, such as a-j"
        )
    return labels
