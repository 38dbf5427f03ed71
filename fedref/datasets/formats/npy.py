"""A folder of arrays X.npy, y.npy [, client.npy] [, test.npy or test_from.npy]: an .npz unpacked."""

import os
from pathlib import Path
from typing import Any

from fedref.boundary.files import Budget, Metered, guard, regular
from fedref.datasets.formats import npz
from fedref.rounds.federation import Source

EXPECTED = "a folder with X.npy and y.npy, and optionally client.npy and test.npy or test_from.npy"


def in_folder(folder: Path) -> bool:
    """Whether these files, or some of them, lie there."""
    return any((folder / f"{name}.npy").exists() for name in ("X", "y"))


def load(folder: Path, **more: Any) -> Source:
    """A Source from the arrays of a folder."""
    budget, found = Budget(folder), {}
    for path in sorted(folder.glob("*.npy")):
        with regular(path, EXPECTED) as stream, guard(path, EXPECTED):
            size = os.fstat(stream.fileno()).st_size
            budget.grow(size)
            found[path.stem] = npz.read_array(Metered(stream, budget), size, str(path))
    return npz.plain(found, budget, folder, more)
