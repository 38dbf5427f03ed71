"""Arrays saved by NumPy in an .npz archive.

They are those of `arrays.py`, or train_images, train_labels, test_images and test_labels.
"""

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from fedref.boundary.files import as_data_error, open_regular, unpacked_limit
from fedref.lab.datasets.formats import arrays, recipes
from fedref.models.numerics import Array

EXPECTED = (
    "an .npz archive with X, y and optionally client and test (true for test rows), without "
    "pickled objects"
)
PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


def names_in(archive: zipfile.ZipFile, where: Path) -> list[str]:
    """Return the names of an archive's members; a DataError if they would unpack to too much.

    (A member never yields more bytes than it claims, and nothing is ever unpacked to disk.)
    """
    assert archive.fp is not None
    limit = unpacked_limit(archive.fp.seek(0, io.SEEK_END))
    claimed = sum(member.file_size for member in archive.infolist())
    wrong = f"claims {claimed} bytes when unpacked"
    arrays.require(claimed <= limit, where, wrong, f"at most {limit}")
    return archive.namelist()


def read_archive(stream: IO[bytes], where: Path, expected: str = EXPECTED) -> dict[str, Array]:
    """Return all arrays of an archive by name: `np.load` with a limit on the unpacked size."""
    with as_data_error(where, expected), zipfile.ZipFile(stream) as archive:
        names_in(archive, where)
        damaged = archive.testzip()  # np.load reads no further than an array says that it goes
        arrays.require(not damaged, where, f"{damaged} is damaged", expected)
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as loaded:
            contents = dict(loaded)
        for name, array in contents.items():
            right = isinstance(array, np.ndarray)
            arrays.require(right, where, f"unexpected member {name!r}", expected)
    return contents


def read(path: Path) -> arrays.Raw:
    """Read an archive in either layout (see the module's docstring)."""
    with open_regular(path, EXPECTED) as stream:
        contents = read_archive(stream, path, expected_of(stream))
    if PUBLISHED[0] not in contents:
        return arrays.Raw(contents)
    X, y, test_X, test_y = arrays.take_arrays(contents, str(path), PUBLISHED)
    with as_data_error(path, "as many labels as images in both parts"):
        parts = [(X, y, "train_labels"), (test_X, test_y, "test_labels")]
        return join([(x, arrays.as_integers(y, len(x), str(path), n)) for x, y, n in parts], path)


def expected_of(stream: IO[bytes]) -> str:
    """Return what an archive is expected to be; PFLlib's has one array, a pickled dictionary."""
    expected = EXPECTED
    with suppress(Exception):  # a damaged archive is refused by `read_archive`
        if zipfile.ZipFile(stream).namelist() == ["data.npy"]:
            expected = recipes.one_line("PFLlib")
    stream.seek(0)
    return expected


def join(parts: list[tuple[Array, Array]], where: object) -> arrays.Raw:
    """Join the training part (X, y) and the test part, if there is one, which comes last."""
    X, y = zip(*parts)
    kinds = " and ".join(f"{x.shape} of {x.dtype}" for x in X)
    alike = len({(x.shape[1:], x.dtype) for x in X}) == 1
    arrays.require(alike, where, f"images of shape {kinds}", "images of one size and type")
    test = {"test_from": len(X[0])} if len(X) > 1 else {}
    return arrays.Raw({"X": np.concatenate(X), "y": np.concatenate(y)}, test)
