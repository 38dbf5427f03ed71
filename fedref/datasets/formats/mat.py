"""MATLAB files (version 5 to 7): cell arrays X and Y, one cell per task, which becomes a client.

SciPy reads them in a separate process (`mat_reader.py`): of a hundred files with a changed byte, one
crashes SciPy or makes it allocate whatever size a dimension claims. The process is started as a
program, because multiprocessing would import the user's script a second time.
"""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.files import data_error, read_bytes, unpacked_limit
from fedref.datasets.formats import arrays, npz
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = (
    "a MATLAB file (version 5 to 7) with cell arrays X (n, p) and Y (n, 1), one cell per task"
)
READER = Path(__file__).with_name("mat_reader.py")
TIMEOUT = 60  # seconds
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # further threads would only take memory


def read(path: Path) -> tuple[list[Array], list[Array]]:
    """Return the cells of X and of Y, unchecked."""
    data = read_bytes(path, EXPECTED)
    # -P: import nothing from the program's folder or the current one
    command = [sys.executable, "-P", str(READER), str(unpacked_limit(len(data)))]
    try:
        process = subprocess.run(
            command, input=data, env=ENVIRONMENT, capture_output=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired as error:
        raise data_error(path, f"takes more than {TIMEOUT} s to read", EXPECTED) from error
    if process.returncode:
        messages = process.stderr.decode(errors="replace").strip().splitlines()
        crash = f"SciPy's reader crashed ({process.returncode})"
        raise data_error(path, messages[-1] if messages else crash, EXPECTED)
    cells = npz.read_archive(io.BytesIO(process.stdout), path, EXPECTED)
    X, Y = ([array for key, array in cells.items() if key[0] == name] for name in "XY")
    return X, Y


def as_task(X: Array, y: Array, where: str) -> tuple[Array, Array]:
    """Check one cell of X and of Y; return its features and labels."""
    flat, _ = arrays.as_features(X, where)
    return flat, arrays.as_integers(y.ravel() if 1 in y.shape else y, len(flat), where, "Y")


def load(path: Path, **more: Any) -> Source:
    """Return a Source with one natural client per cell."""
    X, Y = read(path)
    if len(X) != len(Y) or not X:
        raise data_error(path, f"X has {len(X)} cells, Y has {len(Y)}", EXPECTED)
    tasks = [as_task(x, y, f"{path}: cell {k}") for k, (x, y) in enumerate(zip(X, Y))]
    widths = [x.shape[1] for x, _ in tasks]
    if len(set(widths)) > 1:
        k = next(k for k, width in enumerate(widths) if width != widths[0])
        what = f"cell {k} has {widths[k]} features"
        raise data_error(path, what, f"{widths[0]}, as in cell 0")
    xs, ys = zip(*tasks)
    client = np.repeat(np.arange(len(ys)), [len(y) for y in ys])
    return arrays.make_source(np.concatenate(xs), np.concatenate(ys), str(path), client, **more)
