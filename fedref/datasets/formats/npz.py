"""NumPy archives: X, y [, client], or train_images, train_labels, test_images, test_labels."""

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedref.datasets.formats import arrays
from fedref.datasets.formats.archives import check_members
from fedref.federation import Source
from fedref.files import bad, budget, guard, read_up_to, size_of
from fedref.numerics import Array

EXPECTED = "an .npz archive with X, y and optionally client, without pickled objects"
PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


def read_array(stream: IO[bytes], size: int, where: str) -> Array:
    """One .npy member of `size` bytes; its header is checked before anything is allocated."""
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
    data = read_up_to(stream, claimed)
    if len(data) != claimed:
        raise bad(where, f"ends after {len(data)} bytes", f"{claimed} bytes")
    flat = np.frombuffer(data, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def read(path: Path) -> dict[str, Array]:
    """All arrays of the archive by name."""
    limit = budget(size_of(path, EXPECTED))
    found = {}
    with guard(path, EXPECTED), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        sizes = sum(member.file_size for member in members)
        check_members(path, [m.filename for m in members], sizes, limit, EXPECTED)
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in found or name == member.filename:
                raise bad(path, f"unexpected member {member.filename!r}", EXPECTED)
            with archive.open(member) as stream:
                found[name] = read_array(stream, member.file_size, f"{path}: {name}")
    return found


def load(path: Path, **more: Any) -> Source:
    """A Source from either layout of arrays."""
    found = read(path)
    layout = published if PUBLISHED[0] in found else plain
    return layout(found, path, more)


def need(found: dict[str, Array], path: Path, names: tuple[str, ...]) -> list[Array]:
    missing = [name for name in names if name not in found]
    if missing:
        held = ", ".join(sorted(found)) or "nothing"
        raise bad(path, f"no array {missing[0]!r}, only {held}", ", ".join(names))
    return [found[name] for name in names]


def plain(found: dict[str, Array], path: Path, more: dict[str, Any]) -> Source:
    """X, y and, if there is one, client."""
    X, y = need(found, path, ("X", "y"))
    client = None
    if "client" in found:
        client, names = arrays.clients(found["client"], len(y), str(path))
        more = more | {"client_names": names}
    return arrays.source(X, y, str(path), client, **(pixels(X) | more))


def published(found: dict[str, Array], path: Path, more: dict[str, Any]) -> Source:
    """A training and a test part."""
    X, y, test_X, test_y = need(found, path, PUBLISHED)
    if X.shape[1:] != test_X.shape[1:] or X.dtype != test_X.dtype or y.ndim != test_y.ndim:
        raise bad(path, f"training images {X.shape}, test images {test_X.shape}", "images alike")
    both = np.concatenate([X, test_X])
    if len(X) != len(y):
        raise bad(path, f"{len(X)} training images and {len(y)} labels", "as many of both")
    labels = np.concatenate([y, test_y])
    more = {"test_from": len(X)} | pixels(X) | more
    return arrays.source(both, labels, str(path), **more)


def pixels(X: Array) -> dict[str, Any]:
    """Bytes are taken for pixels, whose full scale is 255."""
    return {"full_scale": 255.0} if X.dtype == np.uint8 else {}
