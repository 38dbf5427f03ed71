"""EMNIST: six sets of character images, as transposed idx files in a zip archive or a folder."""

import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar, cast

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
from fedref.datasets.formats import idx, npz
from fedref.datasets.formats.arrays import Raw

EXPECTED = "EMNIST's gzip.zip"
DIGITS = "0123456789"
UPPER, LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
MERGED = DIGITS + UPPER + "abdefghnqrt"
# place = published label; the labels of `letters` begin at 1 (upper and lower case are one class)
ALPHABETS = {
    "letters": "·" + LOWER,
    "balanced": MERGED,
    "bymerge": MERGED,
    "byclass": DIGITS + UPPER + LOWER,
    "digits": DIGITS,
    "mnist": DIGITS,
}


@dataclass(frozen=True)
class EMNIST:
    """Parameters: one of the six sets, and the characters to keep, such as a-j (None: all)."""

    part: str = "letters"
    classes: str | None = None

    choices: ClassVar[Mapping[str, Collection[str]]] = {"part": tuple(ALPHABETS)}


def find(folder: Path, part: str, classes: str | None) -> Path | None:
    """Return the folder that holds the files of a part, the archive of all parts, or None."""
    for place in (folder, folder / "gzip"):
        if place.is_dir() and idx.folder_holds_images(place, f"emnist-{part}-"):
            return place
    zips = (folder / name for name in ("gzip.zip", "emnist.zip"))
    return next((path for path in zips if path.exists()), None)


def read(path: Path, part: str, classes: str | None) -> Raw:
    """Read a folder or the archive; the images become upright (the files hold them transposed).

    classes : the characters to keep, labelled 0, 1, ... in this order.
    """
    files = idx.files_of(path) if path.is_dir() else read_archive(path, f"emnist-{part}-")
    pairs = idx.read_parts(files, path, f"emnist-{part}-")
    alphabet = ALPHABETS[part]
    labels = find_labels(alphabet, classes)
    new_label = np.full(256, -1)
    new_label[labels] = np.arange(len(labels))
    upright = []
    for X, y in pairs:
        if y.dtype != np.uint8 or y.max(initial=0) >= len(alphabet):
            expected = f"labels below {len(alphabet)} in {part}"
            raise data_error(path, f"label {y.max(initial=0)}", expected)
        rows = new_label[y] >= 0
        upright.append((X[rows].swapaxes(1, 2), new_label[y[rows]]))
    return npz.join(upright, path)


def read_archive(path: Path, prefix: str) -> idx.Files:
    """Return the gzip'd idx files of a set, from any folder of the archive."""
    files = dict[str, Callable[[], bytes]]()
    with (
        open_regular(path, EXPECTED) as stream,
        as_data_error(path, EXPECTED),
        zipfile.ZipFile(stream) as archive,
    ):
        limit = unpacked_limit(path.stat().st_size)
        for member, unpacked in npz.open_members(archive, path):
            if (name := PurePosixPath(member).name).startswith(prefix):
                data = read_up_to(gunzip(unpacked), limit, f"{path}: {name}")
                files[name] = partial(cast, bytes, data)  # no copy: a call returns the data
    return files


def find_labels(alphabet: str, classes: str | None) -> list[int]:
    """Return the published labels of characters such as "a-j" or "acx"; by default, all labels."""
    if classes is None:
        return [i for i, c in enumerate(alphabet) if c != "·"]
    ends = classes.split("-")
    wanted = classes
    if len(ends) == 2 and all(len(end) == 1 for end in ends):
        wanted = "".join(map(chr, range(ord(ends[0]), ord(ends[1]) + 1)))
    missing = [c for c in wanted if c not in alphabet.replace("·", "")]
    if missing or not wanted or len(set(wanted)) < len(wanted):
        raise ConfigError(
            f"emnist: classes is {classes!r}, expected characters of {alphabet.strip('·')}, "
            "such as a-j"
        )
    return [alphabet.index(c) for c in wanted]
