"""Arrays as NumPy saves them, in an .npz archive or as .npy files in a folder.

X, y [, client] [, test or test_from], or (in an archive) train_images, train_labels, test_images,
test_labels. test (n,) says by true or 1 which rows are the published test part; they are put last,
in their order. test_from says that the rows from there on are. Other arrays are refused, not ignored.
"""

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedref.boundary.files import as_data_error, data_error, open_regular
from fedref.datasets.formats import archives, arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = (
    "an .npz archive with X, y and optionally client and test (true for test rows) or test_from, "
    "without pickled objects"
)
FOLDER = "a folder with X.npy and y.npy, and optionally client.npy and test.npy or test_from.npy"
PLAIN = ("X", "y", "client", "test", "test_from")
PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


def read_array(stream: IO[bytes], where: str, expected: str) -> Array:
    """Return the array of one .npy file or member, which ends with it."""
    with as_data_error(where, expected):
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):  # what follows is read, too, so that zipfile compares the checksum
            raise ValueError(f"goes on after its array of shape {array.shape}")
    return array


def read_archive(stream: IO[bytes], where: Path, expected: str = EXPECTED) -> dict[str, Array]:
    """Return all arrays of an archive by name, from any stream that can seek: `np.load` with limits."""
    found = {}
    with as_data_error(where, expected), zipfile.ZipFile(stream) as archive:
        for member, unpacked in archives.open_members(archive, where, expected):
            name = member.removesuffix(".npy")
            if name in found or name == member:
                raise data_error(where, f"unexpected member {member!r}", expected)
            found[name] = read_array(unpacked, f"{where}: {name}", expected)
    return found


def load(path: Path, **more: Any) -> Source:
    """Return a Source from either layout of arrays in an archive."""
    with open_regular(path, EXPECTED) as stream:
        found = read_archive(stream, path)
    layout = load_published if PUBLISHED[0] in found else load_plain
    return layout(found, path, more)


def folder_holds_arrays(folder: Path) -> bool:
    """Return whether X.npy or y.npy lies there."""
    return any((folder / f"{name}.npy").exists() for name in ("X", "y"))


def load_folder(folder: Path, **more: Any) -> Source:
    """Return a Source from the .npy files of a folder."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        with open_regular(path, FOLDER) as stream:
            found[path.stem] = read_array(stream, str(path), FOLDER)
    return load_plain(found, folder, more)


def require_arrays(found: dict[str, Array], path: Path, names: tuple[str, ...]) -> list[Array]:
    """Return the arrays of these names, all of which must be there."""
    missing = [name for name in names if name not in found]
    if missing:
        held = ", ".join(sorted(found)) or "nothing"
        raise data_error(path, f"no array {missing[0]!r}, only {held}", ", ".join(names))
    return [found[name] for name in names]


def reject_unknown_arrays(found: dict[str, Array], path: Path, names: tuple[str, ...]) -> None:
    """Refuse arrays of other names: a mask that nobody reads would be a split that nobody makes."""
    odd = sorted(set(found) - set(names))
    if odd:
        expected = f"no others than {', '.join(names)}"
        raise data_error(path, f"unknown array {odd[0]!r}", expected)


def load_plain(found: dict[str, Array], path: Path, more: dict[str, Any]) -> Source:
    """Return the Source of X, y and, if they are there, client and the test part."""
    X, y = require_arrays(found, path, ("X", "y"))
    reject_unknown_arrays(found, path, PLAIN)
    client = None
    if "client" in found:
        client, names = arrays.encode_clients(found["client"], y.size, str(path))
        more = more | {"client_names": names}
    if "test_from" in found:
        more = more | {"test_from": first_test_row(found, y.size, path)}
    more = arrays.image_defaults(X) | more
    return arrays.make_source(X, y, str(path), client, found.get("test"), **more)


def first_test_row(found: dict[str, Array], n: int, path: Path) -> int:
    """Return the number that `test_from` holds."""
    if "test" in found:
        raise data_error(path, "has test and test_from", "one of them")
    first = int(arrays.as_integers(found["test_from"].reshape(-1), 1, str(path), "test_from")[0])
    if not 0 < first < n:
        raise data_error(path, f"test_from is {first}", f"a row from 1 to {n - 1}")
    return first


def load_published(found: dict[str, Array], path: Path, more: dict[str, Any]) -> Source:
    """Return the Source of a training and a test part."""
    X, y, test_X, test_y = require_arrays(found, path, PUBLISHED)
    reject_unknown_arrays(found, path, PUBLISHED)
    if X.shape[1:] != test_X.shape[1:] or X.dtype != test_X.dtype or 0 in (X.ndim, test_X.ndim):
        what = f"training images {X.shape}, test images {test_X.shape}"
        raise data_error(path, what, "images alike")
    parts = ((X, y, "train_labels"), (test_X, test_y, "test_labels"))
    labels = np.concatenate([arrays.as_integers(y, len(X), str(path), n) for X, y, n in parts])
    more = {"test_from": len(X)} | arrays.image_defaults(X) | more
    return arrays.make_source(np.concatenate([X, test_X]), labels, str(path), **more)
