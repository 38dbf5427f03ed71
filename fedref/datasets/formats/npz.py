"""NumPy archives: X, y [, client] [, test or test_from], or train_images, train_labels, test_images,
test_labels.

test (n,) says by true or 1 which rows are the published test part; they are put last, in their
order. test_from says that the rows from there on are. Other arrays are refused, not ignored.
"""

import io
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedref.boundary.files import Budget, Metered, bad, guard, read_up_to, regular
from fedref.datasets.formats import arrays
from fedref.datasets.formats.archives import size_of, zip_members
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = (
    "an .npz archive with X, y and optionally client and test (true for test rows) or test_from, "
    "without pickled objects"
)
PLAIN = ("X", "y", "client", "test", "test_from")
PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


HEAD = 1 << 14  # bytes that hold the header of an array: NumPy takes at most 10 000


def read_array(packed: Metered, size: int, where: str) -> Array:
    """One .npy member of `size` bytes; its header is checked before anything is allocated."""
    stream = io.BytesIO(read_up_to(packed, min(size, HEAD)))
    version = np.lib.format.read_magic(stream)
    reader = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if reader is None:
        raise bad(where, f"npy format version {version}", "version (1, 0) or (2, 0)")
    shape, fortran, dtype = reader(stream)
    if dtype.hasobject:
        raise bad(where, "holds pickled objects", "plain numbers or text")
    claimed, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or claimed != held:
        raise bad(where, f"shape {shape} of {dtype} needs {claimed} bytes", f"{held}, as stored")
    data = stream.read() + read_up_to(packed, max(size - HEAD, 0))
    if len(data) != claimed:
        raise bad(where, f"ends after {len(data)} bytes", f"{claimed} bytes")
    flat = np.frombuffer(data, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def unpack(
    stream: IO[bytes], budget: Budget, where: Path | str, expected: str = EXPECTED
) -> dict[str, Array]:
    """All arrays of an archive by name, from any stream that can seek: `np.load` with limits.

    budget : a new one, Budget(where); it grows by the length of the stream. Whatever is wrong with
    the archive, or costs too much, is a DataError.
    """
    found = {}
    with guard(where, expected):
        budget.grow(size_of(stream))
        for member, size, packed in zip_members(stream, budget, where, expected):
            name = member.removesuffix(".npy")
            if name in found or name == member:
                raise bad(where, f"unexpected member {member!r}", expected)
            found[name] = read_array(packed, size, f"{where}: {name}")
    return found


def load(path: Path, **more: Any) -> Source:
    """A Source from either layout of arrays."""
    budget = Budget(path)
    with regular(path, EXPECTED) as stream:
        found = unpack(stream, budget, path)
    layout = published if PUBLISHED[0] in found else plain
    return layout(found, budget, path, more)


def need(found: dict[str, Array], path: Path, names: tuple[str, ...]) -> list[Array]:
    missing = [name for name in names if name not in found]
    if missing:
        held = ", ".join(sorted(found)) or "nothing"
        raise bad(path, f"no array {missing[0]!r}, only {held}", ", ".join(names))
    return [found[name] for name in names]


def plain(found: dict[str, Array], budget: Budget, path: Path, more: dict[str, Any]) -> Source:
    """X, y and, if they are there, client and the test part."""
    X, y = need(found, path, ("X", "y"))
    only(found, path, PLAIN)
    budget.spend(y.size * arrays.ROW)
    client = None
    if "client" in found:
        client, names = arrays.clients(found["client"], y.size, str(path))
        more = more | {"client_names": names}
    if "test_from" in found:
        more = more | {"test_from": test_from(found, y.size, path)}
    more = arrays.pixels(X) | more
    return arrays.source(X, y, str(path), client, found.get("test"), **more)


def only(found: dict[str, Array], path: Path, names: tuple[str, ...]) -> None:
    """Refuse arrays of other names: a mask that nobody reads would be a split that nobody makes."""
    odd = sorted(set(found) - set(names))
    if odd:
        raise bad(path, f"unknown array {odd[0]!r}", f"no others than {', '.join(names)}")


def test_from(found: dict[str, Array], n: int, path: Path) -> int:
    """The first row of the test part."""
    if "test" in found:
        raise bad(path, "has test and test_from", "one of them")
    first = int(arrays.whole(found["test_from"].reshape(-1), 1, str(path), "test_from")[0])
    if not 0 < first < n:
        raise bad(path, f"test_from is {first}", f"a row from 1 to {n - 1}")
    return first


def published(found: dict[str, Array], budget: Budget, path: Path, more: dict[str, Any]) -> Source:
    """A training and a test part."""
    X, y, test_X, test_y = need(found, path, PUBLISHED)
    only(found, path, PUBLISHED)
    budget.spend((y.size + test_y.size) * arrays.ROW)
    if X.shape[1:] != test_X.shape[1:] or X.dtype != test_X.dtype or 0 in (X.ndim, test_X.ndim):
        raise bad(path, f"training images {X.shape}, test images {test_X.shape}", "images alike")
    parts = ((X, y, "train_labels"), (test_X, test_y, "test_labels"))
    labels = np.concatenate([arrays.whole(y, len(X), str(path), name) for X, y, name in parts])
    both = np.concatenate([X, test_X])
    more = {"test_from": len(X)} | arrays.pixels(X) | more
    return arrays.source(both, labels, str(path), **more)
