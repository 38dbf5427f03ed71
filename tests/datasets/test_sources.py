"""Named data sets and where they are looked for."""

from pathlib import Path

import numpy as np
import pytest
from dataset_files import (
    emnist_zip,
    idx_bytes,
    images,
    leaf_object,
    npz_bytes,
    put,
    put_json,
    write_idx,
)  # fmt: skip

from fedref import ConfigError, DataError
from fedref.datasets import SOURCES, load, shipped_folder, sources
from fedref.datasets.formats import emnist


def test_the_shipped_digits_are_in_the_package_or_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load("digits")
    assert (source.X.shape, source.X.dtype, source.image) == ((1797, 64), np.uint8, (8, 8, 1))
    assert source.X.max() == source.full_scale == 16
    assert source.sha256 == SOURCES["digits"].sha256
    package = tmp_path / "site-packages" / "fedref"
    (package / "datasets").mkdir(parents=True)
    monkeypatch.setattr(sources, "__file__", str(package / "datasets" / "sources.py"))
    assert shipped_folder() == tmp_path / "site-packages" / "data"
    (package / "_data").mkdir()
    assert shipped_folder() == package / "_data"


@pytest.mark.parametrize(
    ("name", "shape", "clients"),
    [
        ("mnist", (70_000, 784), 0),
        ("vehicle", (1860, 100), 23),
        ("landmine", (1464, 9), 29),
        ("cifar10-gray", (60_000, 1024), 0),
    ],
)
def test_real_data_is_read(real: Path, name: str, shape: tuple[int, int], clients: int) -> None:
    source = load(name, real)
    assert source.X.shape == shape
    assert (0 if source.client is None else len(set(source.client))) == clients


def data_dir(root: Path) -> Path:
    """Make a folder with small files for data sets that are neither generated nor shipped."""
    for name in ("emnist", "vehicle", "cifar10-gray"):
        (root / name).mkdir()
    write_idx(root / "mnist")
    put(root / "emnist", "gzip.zip", emnist_zip())
    put_json(root / "vehicle", leaf_object(), "vehicle.json")
    X, y = images(8)
    parts = {"train_images": X, "train_labels": y, "test_images": X, "test_labels": y}
    put(root / "cifar10-gray", "cifar10-gray.npz", npz_bytes(parts))
    return root


@pytest.mark.parametrize("name", ["mnist", "emnist", "vehicle", "cifar10-gray"])
def test_data_sets_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = data_dir(tmp_path)
    source = load(name, root, verify=False)
    assert source.name == name
    assert load(name, root / name, verify=False).sha256 == source.sha256  # the folder itself
    monkeypatch.setenv("FEDREF_DATA", str(root))
    assert load(name, verify=False).sha256 == source.sha256
    with pytest.raises(DataError):
        load(name, tmp_path / "nowhere")  # an explicit folder goes before FEDREF_DATA


def test_files_and_folders_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = data_dir(tmp_path)
    source = load(root / "vehicle" / "vehicle.json")
    assert source.name == "vehicle.json"
    monkeypatch.chdir(root / "vehicle")
    for same in (load("vehicle/vehicle.json", root), load("./vehicle.json"), load(Path.cwd())):
        assert same.sha256 == source.sha256
    assert same.name == "vehicle"


@pytest.mark.parametrize("name", [n for n in SOURCES if SOURCES[n].files and n != "digits"])
def test_the_error_for_missing_data_says_which_files_to_put_where(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    for words in (SOURCES[name].files, f"DIR/{name}", "FEDREF_DATA"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "did you mean 'mnist'"),
        ("nowhere.npz", "nor is it a file or folder"),
        ("", "unknown data set ''"),
        ("mnist(3)", "one argument too many"),
        ("emnist(letter)", "did you mean 'letters'"),
    ],
)
def test_unknown_names_and_arguments(name: str, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        load(name)


def test_a_wrong_folder_matters_only_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "mnist", "emnist-letters-", "test")
    with pytest.raises(DataError, match=r"emnist: .*in the folder DIR/emnist"):
        load("emnist", tmp_path / "mnist")  # another data set's
    monkeypatch.setenv("FEDREF_DATA", str(tmp_path / "nope"))
    assert load("digits").sha256 == SOURCES["digits"].sha256
    assert sources.locate("vehicle", {}, None) is None  # as `data list` asks
    with pytest.raises(DataError, match="nope: no such folder"):
        load("mnist")  # and no download
    with pytest.raises(DataError, match="nope: no such folder"):
        load("digits", tmp_path / "nope")
    with pytest.raises(ConfigError, match="unknown key of data 'classes'"):
        load(put(tmp_path, "a.npz", b""), classes="a-j")


# ---- EMNIST ---------------------------------------------------------------------------------------


def test_emnist_is_upright_and_its_classes_count_from_zero(tmp_path: Path) -> None:
    root = data_dir(tmp_path)
    whole = load("emnist", root, verify=False)
    (X, y), (test_X, test_y) = images(10, 1, classes=5), images(5, 2, classes=5)
    np.testing.assert_array_equal(whole.X, np.concatenate([X, test_X]).reshape(15, 9))
    np.testing.assert_array_equal(whole.y, np.concatenate([y, test_y]))
    assert whole.test_from == 10
    some = load("emnist(letters,b-d)", root, verify=False)
    kept = (whole.y >= 1) & (whole.y <= 3)
    np.testing.assert_array_equal(some.y, whole.y[kept] - 1)
    np.testing.assert_array_equal(some.X, whole.X[kept])
    assert some.test_from == kept[:10].sum()
    swapped = load("emnist", root, classes="cb", verify=False)
    both = whole.y[(whole.y == 1) | (whole.y == 2)]
    np.testing.assert_array_equal(swapped.y, np.where(both == 2, 0, 1))
    assert load(some.name, root, verify=False).sha256 == some.sha256


def test_classes_are_characters_of_the_set() -> None:
    for part, labels in (
        ("byclass", range(36, 46)),
        ("balanced", (36, 37)),
        ("letters", range(1, 11)),
    ):
        classes = "ab" if part == "balanced" else "a-j"
        assert emnist.find_labels(emnist.ALPHABETS[part], classes) == list(labels)
    for classes in ("j-a", "a-", "aa", "a1", "é", "·"):
        with pytest.raises(ConfigError, match="characters of abc"):
            emnist.find_labels(emnist.ALPHABETS["letters"], classes)


def test_emnist_labels_beyond_the_set_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "emnist"
    for part in ("letters", "mnist"):
        write_idx(folder, f"emnist-{part}-", "test")
    labels = idx_bytes(np.full(12, 27, np.uint8))
    put(folder, "emnist-letters-train-labels-idx1-ubyte.gz", labels)
    with pytest.raises(DataError, match="label 27; expected labels below 27 in letters"):
        load("emnist", tmp_path)
    assert load("emnist(mnist)", tmp_path, verify=False).test_from == 12
