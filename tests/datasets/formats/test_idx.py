"""idx files, as MNIST and its family are published."""

from pathlib import Path

import numpy as np
import pytest
from dataset_files import idx_bytes, images, write_idx

from fedref import DataError
from fedref.datasets import load
from fedref.datasets.formats import idx


@pytest.mark.parametrize(("pack", "test"), [(False, "t10k"), (True, "test")])
def test_a_folder_gives_training_and_test_images(tmp_path: Path, pack: bool, test: str) -> None:
    source = load(write_idx(tmp_path / "drawn", test=test, pack=pack))
    (X, y), (test_X, test_y) = images(12, 1), images(6, 2)
    np.testing.assert_array_equal(source.X, np.concatenate([X, test_X]).reshape(18, 9))
    np.testing.assert_array_equal(source.y, np.concatenate([y, test_y]))
    assert (source.name, source.test_from, source.image) == ("drawn", 12, (3, 3, 1))
    assert (source.X.dtype, source.y.dtype, source.full_scale) == (np.uint8, np.int64, 255)


@pytest.mark.parametrize("dtype", ["u1", ">i4", ">f4"])
def test_types_and_dimensions(dtype: str) -> None:
    for shape in ((5,), (2, 3), (2, 3, 4)):
        array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        np.testing.assert_array_equal(idx.parse(idx_bytes(array), "a"), array)


def test_several_sets_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    write_idx(write_idx(tmp_path, "emnist-digits-"), "emnist-letters-")
    assert idx.read(tmp_path, "emnist-letters-").arrays["X"].shape == (18, 3, 3)
    with pytest.raises(DataError, match="no training images"):
        idx.read(tmp_path, "emnist-mnist-")
