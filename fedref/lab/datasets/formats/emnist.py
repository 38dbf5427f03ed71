"""EMNIST: sets of character images, as transposed idx files in the archive as it is published."""

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
# place = published label; the labels of `letters` begin at 1 (upper and lower case are one class)
ALPHABETS = {"letters": "·" + LOWER, "byclass": "0123456789" + LOWER.upper() + LOWER}


@dataclass(frozen=True)
class EMNIST:
    """Parameters: one of the two sets, and the characters to keep, such as a-j (None: all)."""

    part: str = "letters"
    classes: str | None = None

    choices: ClassVar[Mapping[str, Collection[str]]] = {"part": tuple(ALPHABETS)}


def read(path: Path, part: str, classes: str | None) -> Raw:
    """Read the archive; the images become upright (the files hold them transposed).

    classes : the characters to keep, labelled 0, 1, ... in this order.
    """
    alphabet, upright = ALPHABETS[part], []
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
        if y.dtype != np.uint8 or y.max(initial=0) >= len(alphabet):
            expected = f"labels below {len(alphabet)} in {part}"
            raise data_error(path, f"label {y.max(initial=0)}", expected)
        rows = np.isin(y, labels)
        upright.append((X[rows].swapaxes(1, 2), y[rows].astype(np.int64) - labels[0]))
    return npz.join(upright, path)


def unpack(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytes:
    """Return the content of a gzip'd member."""
    with archive.open(name) as packed:
        return read_up_to(gunzip(packed), limit, f"{path}: {name}")


def find_labels(alphabet: str, classes: str | None) -> range:
    """Return the published labels of the characters "a-j"; by default, all labels."""
    known = alphabet.strip("·")
    ends = f"{known[0]}-{known[-1]}" if classes is None else classes
    first, _, last = ends.partition("-")
    labels = range(alphabet.find(first), alphabet.find(last) + 1)
    if not (len(first) == len(last) == 1 and labels and {first, last} <= {*known}):
        raise ConfigError(f"emnist: classes is {classes!r}, expected some of {known}, such as a-j")
    return labels
