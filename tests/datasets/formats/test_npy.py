"""Folders of arrays, and folders of one file."""

from pathlib import Path

import numpy as np
import pytest
from dataset_files import images, npz_bytes, put

from fedref import DataError
from fedref.datasets import load

X, Y = images(8)
ARRAYS = {"X": X, "y": Y, "client": np.array(list("bbaaaccc")), "test": np.arange(8) % 2}


def folder(root: Path, **arrays: np.ndarray) -> Path:
    root.mkdir()
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    return root


def test_arrays_in_a_folder_are_those_of_an_npz(tmp_path: Path) -> None:
    found = load(folder(tmp_path / "mine", **ARRAYS))
    packed = load(put(tmp_path, "a.npz", npz_bytes(ARRAYS)))
    assert found.sha256 == packed.sha256
    assert (found.name, found.test_from, found.image) == ("mine", 4, (3, 3, 1))
    assert found.client_names == ("a", "b", "c")
    assert load(folder(tmp_path / "two", X=X, y=Y)).client is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, "no array 'y', only X"),
        ({"X": X, "y": Y, "train": Y}, "unknown array 'train'; expected no others than X, y, cl"),
        ({"X": X, "y": Y[:3]}, r"y has shape \(3,\)"),
    ],
)
def test_other_folders_of_arrays_are_refused(tmp_path: Path, arrays, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(folder(tmp_path / "mine", **arrays))
    assert "mine: " in str(caught.value)


def test_a_broken_array_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path / "mine", X=X, y=Y)
    (root / "y.npy").write_bytes((root / "y.npy").read_bytes()[:-3])
    with pytest.raises(DataError, match=r"y.npy: .*expected a folder with X.npy and y.npy"):
        load(root)


def test_the_one_file_of_a_folder_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    root.mkdir()
    (root / "README.txt").write_text("mine")
    packed = put(root, "a.npz", npz_bytes(ARRAYS))
    assert (load(root).sha256, load(root).name) == (load(packed).sha256, "mine")
    put(root, "b.csv", b"x,y\n1,1\n2,0\n")
    with pytest.raises(DataError, match=r"mine: holds a.npz, b.csv; expected one of them, by its"):
        load(root)
