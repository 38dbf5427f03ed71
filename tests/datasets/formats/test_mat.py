"""MATLAB files with one cell per task."""

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from dataset_files import assert_refused, mat_bytes, put

from fedref.datasets import load
from fedref.datasets.formats import mat


def saved(**variables: object) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables, do_compression=True)
    return stream.getvalue()


def cells(*values: object) -> np.ndarray:
    found = np.empty((1, len(values)), object)
    for k, value in enumerate(values):
        found[0, k] = value
    return found


def test_cells_become_clients(tmp_path: Path) -> None:
    source = load(put(tmp_path, "data.mat", mat_bytes()))
    assert source.X.shape == (9, 4)
    assert source.client.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert set(source.labels) <= {-1, 1}


ONE, Y = np.ones((3, 2)), np.ones((3, 1))
BROKEN = {
    "expected a MATLAB file": b"no MATLAB file at all" * 20,
    "X or Y is missing": saved(X=cells(ONE)),
    "X is not a cell array": saved(X=ONE, Y=Y),
    "X has 2 cells, Y has 1": saved(X=cells(ONE, ONE), Y=cells(Y)),
    r"cell 0: Y has shape \(2,\)": saved(X=cells(ONE), Y=cells(np.ones((2, 1)))),
    "cell 0: X has nan in row 0": saved(X=cells(ONE * np.nan), Y=cells(Y)),
    "cell 0 of X holds <U3, no matrix": saved(X=cells("abc"), Y=cells(Y)),
    "cell 1 has 3 features; expected 2": saved(X=cells(ONE, np.ones((3, 3))), Y=cells(Y, Y)),
    "cell 0 of X holds object": saved(X=cells(cells(ONE)), Y=cells(Y)),
    "holds 75497496 bytes when unpacked, more than 67108864": saved(
        X=cells(np.zeros((9 << 20, 1))), Y=cells(Y)
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, message: str) -> None:
    assert_refused(put(tmp_path, "data.mat", BROKEN[message]), message)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.abort()", r"SciPy's reader crashed \(-6\); expected a MATLAB file"),
        ("import time; time.sleep(60)", "takes more than 1 s to read; expected a MATLAB file"),
    ],
)
def test_a_reader_that_crashes_or_hangs_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    monkeypatch.setattr(mat, "READER", put(tmp_path, "reader.py", program.encode()))
    monkeypatch.setattr(mat, "TIMEOUT", 1)
    assert_refused(put(tmp_path, "data.mat", mat_bytes()), message)
