"""The one MATLAB file that is read, by its hash; any other is refused before SciPy sees it."""

from hashlib import sha256
from pathlib import Path

import pytest
from dataset_files import assert_refused, mat_bytes, put

from fedref.datasets import load
from fedref.datasets.formats import mat


def test_cells_become_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat, "LANDMINE", sha256(mat_bytes()).hexdigest())
    source = load(put(tmp_path, "data.mat", mat_bytes()))
    assert source.X.shape == (9, 4)
    assert source.client.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert set(source.labels) <= {-1, 1}
    changed = mat_bytes()[:-1] + b"\0"
    assert_refused(put(tmp_path, "data.mat", changed), "no MATLAB file that fedref knows")
    assert_refused(
        put(tmp_path, "data.mat", b"x"), r"expected landmine.mat .*numpy.savez\('mine.np"
    )
