"""The binary version of CIFAR-10: records of one label byte and 32×32 red, green, blue planes."""

import io
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from fedref.boundary.files import as_data_error, data_error, read_bytes, require_members
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
SIDE, CLASSES = 32, 10
MAX_MEMBERS = 1000  # in an archive: more could fill the memory with their names
RECORD = 1 + 3 * SIDE * SIDE
EXPECTED = f"the binary version of CIFAR-10: records of {RECORD} bytes, labels 0 to {CLASSES - 1}"
GREY = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


def parse(data: bytes, where: str) -> tuple[Array, Array]:
    """Return colour planes (n, 3, 32, 32) and labels (n,) of one file."""
    if not data or len(data) % RECORD:
        raise data_error(where, f"{len(data)} bytes", EXPECTED)
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CLASSES)
    if wrong.size:
        raise data_error(where, f"label {records[wrong[0], 0]} in record {wrong[0]}", EXPECTED)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0]


def to_grey(planes: Array, block: int = 2000) -> Array:
    """Return 0.299 R + 0.587 G + 0.114 B, rounded: (n, 3, H, W) → (n, H, W) uint8, block by block."""
    out = np.empty(planes[:, 0].shape, np.uint8)
    for i in range(0, len(planes), block):
        rows = slice(i, i + block)
        out[rows] = np.rint(np.einsum("c,nchw->nhw", GREY, planes[rows]))
    return out


def to_colour(planes: Array) -> Array:
    """Return the planes as pixels: (n, 3, H, W) → (n, H, W, 3)."""
    return planes.transpose(0, 2, 3, 1)


CHANNELS = {"grey": to_grey, "color": to_colour}


@dataclass(frozen=True)
class CIFAR10:
    """Parameters: whether images keep three channels (color) or become grey."""

    channels: str = "grey"

    choices: ClassVar[Mapping[str, Collection[str]]] = {"channels": tuple(CHANNELS)}


def find(folder: Path) -> Path | None:
    """Return the folder that holds the six files, the path of the archive of them, or None."""
    for place in (folder, folder / FOLDER):
        if (place / FILES[0]).is_file():
            return place
    archive = folder / ARCHIVE
    return archive if archive.is_file() else None


def read_archive(path: Path) -> list[bytes]:
    """Return the contents of the six files, from any folder of the archive."""
    data, contents = read_bytes(path, EXPECTED), {}
    with (
        as_data_error(path, EXPECTED),
        tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive,
    ):
        for number, member in enumerate(iter(archive.next, None)):
            if number == MAX_MEMBERS:
                raise ValueError(f"has more than {MAX_MEMBERS} members")
            if not 0 <= member.size <= len(data):  # a sparse member may claim any size
                raise ValueError(f"member {member.name!r} claims {member.size} bytes")
            name = PurePosixPath(member.name).name
            if name in FILES and member.isreg() and (content := archive.extractfile(member)):
                contents[name] = content.read()
        return [contents[name] for name in require_members(FILES, contents)]


def load(path: Path, channels: str = "grey", **more: Any) -> Source:
    """Return the Source of all 60 000 images, the published test part last.

    path : the archive, or a folder that holds it or the six files.
    """
    path = find(path) or path
    in_folder = path.is_dir()
    files = (
        [read_bytes(path / name, EXPECTED) for name in FILES] if in_folder else read_archive(path)
    )
    pieces = []
    for name, data in zip(FILES, files):
        planes, y = parse(data, f"{path}: {name}")
        pieces.append((CHANNELS[channels](planes), y))
    X, y = (np.concatenate(column) for column in zip(*pieces))
    first_test = len(X) - len(pieces[-1][0])
    return arrays.make_source(X, y, str(path), test_from=first_test, full_scale=255.0, **more)
