"""The one MATLAB file that fedref knows: cell arrays X and Y with a cell for each client.

SciPy's reader may crash on a broken file, or allocate whatever size a dimension claims. So a file is
read only if it is this one to the byte.
"""

import io
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedref.boundary.files import data_error, read_bytes
from fedref.lab.datasets.formats.arrays import Raw

#: Landmine detection, 29 tasks (data/small.mat of github.com/gingsmith/fmtl).
LANDMINE = "456e9e96087ad2d0404a259af0a42a2d5880fba6cbc5f8ec0f6710c0ac3f45cc"
EXPECTED = (
    "landmine.mat as published; save any other as .npz: read it with scipy.io.loadmat, then "
    "numpy.savez('mine.npz', X=X, y=y, client=client)"
)


def read(path: Path) -> Raw:
    """Read the file, with one natural client per cell."""
    data = read_bytes(path, EXPECTED)
    found = sha256(data).hexdigest()
    if found != LANDMINE:
        raise data_error(path, f"is no MATLAB file that fedref knows (SHA-256 {found})", EXPECTED)
    from scipy.io import loadmat  # slow to import

    cells = loadmat(io.BytesIO(data), variable_names=("X", "Y"))
    X, Y = (cells[name].ravel("F").tolist() for name in ("X", "Y"))
    client = np.repeat(np.arange(len(X)), [len(x) for x in X])
    arrays = {"X": np.concatenate(X), "y": np.concatenate(Y), "client": client}
    return Raw(arrays, {"client_names": None})
