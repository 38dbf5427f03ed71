"""A program that reads a MATLAB file from standard input and writes an .npz to standard output.

python mat_reader.py BYTES: refuse more than BYTES of arrays, and limit the memory accordingly. An
error is one line on standard error; a crash of SciPy's reader ends this process alone.
"""

import io
import sys
from contextlib import suppress

import numpy as np
from scipy.io import loadmat

PROGRAM = 1 << 30  # bytes of address space for Python, NumPy, SciPy and their libraries


def main(limit: int) -> None:
    """Write the cells of X and Y as arrays X0, X1, ..., Y0, Y1, ..."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError):  # a stricter limit stays
            resource.setrlimit(resource.RLIMIT_AS, (PROGRAM + 4 * limit,) * 2)
    variables = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=("X", "Y"))
    if not {"X", "Y"} <= set(variables):
        raise ValueError("X or Y is missing")
    cells = {}
    for name in ("X", "Y"):
        if getattr(variables[name], "dtype", None) != np.dtype(object):
            raise ValueError(f"{name} is not a cell array")
        for k, cell in enumerate(variables[name].ravel("F")):
            kind = getattr(cell, "dtype", type(cell).__name__)
            if getattr(kind, "kind", "") not in ("b", "u", "i", "f"):
                raise ValueError(f"cell {k} of {name} holds {kind}, no matrix of numbers")
            cells[f"{name}{k}"] = cell
    size = sum(cell.nbytes for cell in cells.values())
    if size > limit:
        raise ValueError(f"holds {size} bytes when unpacked, more than {limit}")
    np.savez(sys.stdout.buffer, **cells)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except Exception as error:
        sys.exit(f"{error}" or type(error).__name__)
