"""idx files, as MNIST and its family are published."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from dataset_files import assert_refused, idx_bytes, images, put, write_idx

from fedref import DataError
from fedref.datasets import load
from fedref.datasets.formats import idx


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("test", ["t10k", "test"])
def test_a_folder_gives_training_and_test_images(tmp_path: Path, pack: bool, test: str) -> None:
    source = load(write_idx(tmp_path / "drawn", test=test, pack=pack))
    (X, y), (test_X, test_y) = images(12, 1), images(6, 2)
    np.testing.assert_array_equal(source.X, np.concatenate([X, test_X]).reshape(18, 9))
    np.testing.assert_array_equal(source.y, np.concatenate([y, test_y]))
    assert (source.name, source.test_from, source.image) == ("drawn", 12, (3, 3, 1))
    assert source.X.dtype == np.uint8
    assert source.y.dtype == np.int64
    assert source.full_scale == 255


@pytest.mark.parametrize("dtype", ["u1", ">i4", ">f4"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4)])
def test_types_and_dimensions(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.testing.assert_array_equal(idx.parse(idx_bytes(array), "a"), array)


X, Y = images(4)
GOOD = idx_bytes(X)
HEAD = struct.pack(">4B", 0, 0, 8, 3)
BROKEN = {
    "is empty; expected an idx": gzip.compress(b""),
    "magic number 00": b"\0",
    "magic number 000008": b"\0\0\x08",
    "magic number 504b0304": b"PK\x03\x04" + GOOD,
    "magic number 00000703": b"\0\0\x07\x03" + GOOD[4:],
    "magic number 00000800": b"\0\0\x08\x00" + GOOD[4:],
    "ends within its dimensions": GOOD[:9],
    "claim 36 bytes; expected 35 bytes": GOOD[:-1],
    "claim 36 bytes; expected 37 bytes": GOOD + b"x",
    "claim 79228162458924105385300197375 bytes": HEAD + b"\xff" * 12,
    "end-of-stream": gzip.compress(GOOD)[:-12],
    "expected an idx file": b"\x1f\x8b" + b"\x55" * 40,
    "an idx file.*the dimensions": b"\0\0\x08\x64" + b"\0\0\0\x01" * 100 + b"x",
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files_are_refused_by_name(tmp_path: Path, message: str) -> None:
    write_idx(tmp_path, pack=False)
    path = put(tmp_path, "train-images-idx3-ubyte", BROKEN[message])
    assert_refused(path, message, lambda path: load(path.parent))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-labels", idx_bytes(Y[:3]), r"\(3,\); expected one for each of 12 images"),
        ("train-labels", None, "no label file beside"),
        ("t10k-images", idx_bytes(images(6, side=4)[0]), "images of one size and type"),
        ("train-images", idx_bytes(Y), "1 dimensions; expected 3"),
    ],
)
def test_folders_that_do_not_fit_together(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    (path,) = write_idx(tmp_path, pack=False).glob(f"{name}*")
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_several_sets_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    write_idx(write_idx(tmp_path, "emnist-digits-"), "emnist-letters-")
    with pytest.raises(DataError, match="several sets: emnist-digits-, emnist-letters-"):
        load(tmp_path)
    assert idx.read(tmp_path, "emnist-letters-").arrays["X"].shape == (18, 3, 3)
    with pytest.raises(DataError, match="no training images"):
        idx.read(tmp_path, "emnist-mnist-")
