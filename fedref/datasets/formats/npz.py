"""Arrays saved by NumPy, in an .npz archive or as .npy files in a folder.

The arrays are those of `arrays.py`; an archive may instead hold train_images, train_labels,
test_images and test_labels.
"""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedref.boundary.files import as_data_error, data_error, open_regular, unpacked_limit
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = (
    "an .npz archive with X, y and optionally client and test (true for test rows), train or "
    "test_from, without pickled objects"
)
FOLDER = (
    "a folder with X.npy and y.npy, and optionally client.npy and test.npy, train.npy or "
    "test_from.npy"
)
PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


def read_array(stream: IO[bytes], where: str, expected: str) -> Array:
    """Return the array of one .npy file or member; a DataError if more bytes follow it."""
    with as_data_error(where, expected):
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):  # reading to the end makes zipfile compare the checksum
            raise ValueError(f"has more bytes after its array of shape {array.shape}")
    return array


def open_members(archive: zipfile.ZipFile, where: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, stream) of each member of a zip archive; a DataError if they are too large.

    Nothing is ever unpacked to disk.
    """
    assert archive.fp is not None
    limit = unpacked_limit(archive.fp.seek(0, io.SEEK_END))
    claimed = sum(member.file_size for member in archive.infolist())
    if claimed > limit:
        raise data_error(where, f"claims {claimed} bytes when unpacked", f"at most {limit}")
    for member in archive.infolist():
        with archive.open(member) as unpacked:  # yields no more bytes than the member claims
            yield member.filename, unpacked


def read_archive(stream: IO[bytes], where: Path, expected: str = EXPECTED) -> dict[str, Array]:
    """Return all arrays of an archive by name: `np.load` with a limit on the unpacked size."""
    contents = {}
    with as_data_error(where, expected), zipfile.ZipFile(stream) as archive:
        for member, unpacked in open_members(archive, where):
            name = member.removesuffix(".npy")
            if name in contents or name == member:
                raise data_error(where, f"unexpected member {member!r}", expected)
            contents[name] = read_array(unpacked, f"{where}: {name}", expected)
    return contents


def load(path: Path, **more: Any) -> Source:
    """Return a Source from an archive in either layout (see the module's docstring)."""
    with open_regular(path, EXPECTED) as stream:
        contents = read_archive(stream, path)
    make = from_published if PUBLISHED[0] in contents else arrays.from_arrays
    return make(contents, str(path), **more)


def folder_holds_arrays(folder: Path) -> bool:
    """Return whether the folder holds X.npy or y.npy."""
    return any((folder / f"{name}.npy").exists() for name in ("X", "y"))


def load_folder(folder: Path, **more: Any) -> Source:
    """Return a Source from the .npy files of a folder."""
    contents = {}
    for path in sorted(folder.glob("*.npy")):
        with open_regular(path, FOLDER) as stream:
            contents[path.stem] = read_array(stream, str(path), FOLDER)
    return arrays.from_arrays(contents, str(folder), **more)


def from_published(contents: dict[str, Array], where: str, **more: Any) -> Source:
    """Return the Source of train_images, train_labels, test_images and test_labels."""
    X, y, test_X, test_y = arrays.require_arrays(contents, where, PUBLISHED)
    arrays.reject_unknown_arrays(contents, where, PUBLISHED)
    if X.shape[1:] != test_X.shape[1:] or X.dtype != test_X.dtype or 0 in (X.ndim, test_X.ndim):
        what = f"training images {X.shape}, test images {test_X.shape}"
        raise data_error(where, what, "images of one size and type")
    parts = ((X, y, "train_labels"), (test_X, test_y, "test_labels"))
    labels = np.concatenate([arrays.as_integers(y, len(X), where, n) for X, y, n in parts])
    more = {"test_from": len(X)} | arrays.image_defaults(X) | more
    return arrays.make_source(np.concatenate([X, test_X]), labels, where, **more)
