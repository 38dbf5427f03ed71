"""CIFAR-10's binary version, from a folder or its archive."""

from pathlib import Path

import numpy as np
import pytest
from dataset_files import assert_refused, cifar_members, cifar_records, put, tar_bytes

from fedref.datasets import load
from fedref.datasets.formats import cifar


def data_dir(folder: Path, packed: bool) -> Path:
    inside = folder / "cifar10"
    inside.mkdir()
    members = {f"{cifar.FOLDER}/{name}": data for name, data in cifar_members().items()}
    if packed:
        put(inside, cifar.ARCHIVE, tar_bytes(members))
        return folder
    (inside / cifar.FOLDER).mkdir()
    for name, data in members.items():
        put(inside, name, data)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_grey_has_the_documented_weights_and_colour_keeps_pixels_together(
    tmp_path: Path, packed: bool
) -> None:
    source = load("cifar10", data_dir(tmp_path, packed), verify=False)
    assert (source.X.shape, source.test_from, source.image) == ((12, 1024), 10, (32, 32, 1))
    for i in range(6):
        _, planes, y = cifar_records(2, i)
        R, G, B = planes.astype(float).swapaxes(0, 1)
        grey = np.rint(0.299 * R + 0.587 * G + 0.114 * B).reshape(2, -1)
        # where the sum is a half but for rounding, either neighbour is right
        assert abs(source.X[2 * i : 2 * i + 2] - grey).max() <= 1
        assert (source.X[2 * i : 2 * i + 2] == grey).mean() > 0.99
        np.testing.assert_array_equal(source.y[2 * i : 2 * i + 2], y)
    assert load(tmp_path / "cifar10").sha256 == source.sha256
    if not packed:
        assert load(tmp_path / "cifar10" / cifar.FOLDER).sha256 == source.sha256
    source = load("cifar10(color)", tmp_path, verify=False)
    _, planes, _ = cifar_records(2, 0)
    assert (source.name, source.image) == ("cifar10(color)", (32, 32, 3))
    np.testing.assert_array_equal(source.X[0].reshape(32, 32, 3)[5, 7], planes[0, :, 5, 7])


def test_grey_of_grey_is_itself() -> None:
    planes = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None, None], 3, 1)
    np.testing.assert_array_equal(cifar.to_grey(planes), planes[:, 0])


GOOD = cifar_records(2)[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD[:-1], "6145 bytes"),
        (GOOD[: cifar.RECORD] + b"\x0a" + GOOD[cifar.RECORD + 1 :], "label 10 in record 1"),
        ({"x/data_batch_1.bin": GOOD}, "has no member 'data_batch_2.bin'"),
    ],
)
def test_broken_files_and_archives_are_refused(
    tmp_path: Path, data: bytes | dict[str, bytes], message: str
) -> None:
    (tmp_path / "cifar10").mkdir()
    if isinstance(data, dict):
        path = put(tmp_path / "cifar10", cifar.ARCHIVE, tar_bytes(data))
    else:
        folder = data_dir(tmp_path / "cifar10", packed=False) / "cifar10" / cifar.FOLDER
        path = put(folder, "data_batch_1.bin", data)
    assert_refused(path, message, lambda path: load("cifar10", path.parent))
