"""Named data sets and where they are looked for."""

from pathlib import Path

import numpy as np
import pytest
from dataset_files import (
    emnist_zip,
    idx_files,
    images,
    leaf_object,
    npz_bytes,
    put,
    put_json,
    write_idx,
)

from fedref import ConfigError, DataError
from fedref.lab.datasets import SOURCES, load, sources
from fedref.lab.datasets.formats import idx


def test_the_shipped_digits_are_in_the_package_or_beside_it(tmp_path, monkeypatch):
    source = load("digits")
    assert (source.X.shape, source.X.dtype, source.image) == ((1797, 64), np.uint8, (8, 8, 1))
    assert source.X.max() == source.full_scale == 16
    assert source.sha256 == SOURCES["digits"].sha256
    package = tmp_path / "site-packages" / "fedref"
    (package / "lab" / "datasets").mkdir(parents=True)
    monkeypatch.setattr(sources, "__file__", str(package / "lab" / "datasets" / "sources.py"))
    assert sources.shipped_folder() == tmp_path / "site-packages" / "data"
    (package / "_data").mkdir()
    assert sources.shipped_folder() == package / "_data"


def data_dir(root):
    """Make a folder with small files for data sets that are neither generated nor shipped."""
    write_idx(root / "mnist")
    put(root, "emnist/gzip.zip", emnist_zip("digits", "letters"))
    put_json(root, leaf_object(), "vehicle/vehicle.json")
    X, y = images(8)
    parts = {"train_images": X, "train_labels": y, "test_images": X, "test_labels": y}
    put(root, "cifar10-gray/cifar10-gray.npz", npz_bytes(parts))
    return root


@pytest.mark.parametrize("name", ["mnist", "emnist", "vehicle", "cifar10-gray"])
def test_data_sets_are_found_by_name(tmp_path, monkeypatch, name):
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    for words in (SOURCES[name].files, f"DIR/{name}", "FEDREF_DATA"):
        assert words in str(caught.value)
    source = load(name, data_dir(tmp_path), verify=False)
    assert source.name == name
    monkeypatch.setenv("FEDREF_DATA", str(tmp_path))
    assert load(name, verify=False).sha256 == source.sha256
    with pytest.raises(DataError, match="nowhere: no such folder"):
        load(name, tmp_path / "nowhere")  # an explicit folder goes before FEDREF_DATA
    monkeypatch.setenv("FEDREF_DATA", str(tmp_path / "nope"))
    assert sources.locate("vehicle", None) is None  # as `data list` asks
    with pytest.raises(DataError, match="nope: no such folder"):
        load(name)  # and no download


def test_files_and_folders_by_path(tmp_path, monkeypatch):
    root = data_dir(tmp_path)
    source = load(root / "vehicle" / "vehicle.json")
    assert source.name == "vehicle.json"
    monkeypatch.chdir(root / "vehicle")
    for same in (load("vehicle/vehicle.json", root), load("./vehicle.json"), load(Path.cwd())):
        assert same.sha256 == source.sha256
    assert same.name == "vehicle"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "did you mean 'mnist'"),
        ("emnist(letter)", "did you mean 'letters'"),
        ("synthetic(1,alpha=2)", "alpha is given twice"),
    ],
)
def test_wrong_names_and_arguments_are_refused(name, message):
    with pytest.raises((ConfigError, DataError), match=message):
        load(name)


def test_parameters_are_part_of_the_name():
    one, other = load("synthetic(1,1)"), load("synthetic(1,1,seed=2)")
    assert one.sha256 == load("synthetic(1, 1.0)").sha256 != other.sha256
    assert (one.name, other.name) == ("synthetic(1,1)", "synthetic(1,1,seed=2)")
    assert load(other.name).sha256 == other.sha256
    assert load("synthetic", alpha=1, beta=1, seed=2).sha256 == other.sha256
    assert load("synthetic-iid(5)").name == "synthetic-iid(5)"


def test_every_published_file_has_an_address_and_a_hash():
    for known in SOURCES.values():
        assert bool(known.addresses) == bool(known.hashes)
        assert all(a.startswith("https://") and a.endswith("/") for a in known.addresses)
        for kind, _, digest in (hash.rpartition(":") for hash in known.hashes.values()):
            assert len(digest) == {"md5": 32, "": 64}[kind]


def test_emnist_is_upright_and_its_classes_count_from_zero(tmp_path):
    root = data_dir(tmp_path)
    names = "emnist", "emnist(letters,b-c)", "mnist"
    whole, some, upright = (load(name, root, verify=False) for name in names)
    np.testing.assert_array_equal(whole.X, upright.X)
    np.testing.assert_array_equal(whole.y, upright.y)
    assert whole.test_from == 12
    kept = (whole.y >= 1) & (whole.y <= 2)
    np.testing.assert_array_equal(some.y, whole.y[kept] - 1)
    np.testing.assert_array_equal(some.X, whole.X[kept])
    assert some.test_from == kept[:12].sum()
    assert load(some.name, root, verify=False).sha256 == some.sha256


@pytest.mark.parametrize("part", ["letters", "digits"])
def test_a_folder_of_emnists_own_files_is_upright_by_their_names(tmp_path, part):
    first = 1 if part == "letters" else 0
    for folder, prefix in (("by-name", f"emnist-{part}-"), ("as-stored", "mine-")):
        for name, data in idx_files(prefix, "test", turned=True, first=first).items():
            put(tmp_path / folder, name, data)
    write_idx(tmp_path / "upright")
    upright, turned, stored = (load(tmp_path / x) for x in ("upright", "by-name", "as-stored"))
    assert turned.sha256 == upright.sha256
    assert turned.notes == ("EMNIST's files: images turned upright, labels from 0",)
    assert (turned.test_from, upright.notes, stored.notes) == (12, (), ())
    transposed = upright.X.reshape(-1, 3, 3).swapaxes(1, 2)
    np.testing.assert_array_equal(stored.X.reshape(-1, 3, 3), transposed)
    np.testing.assert_array_equal(stored.y, upright.y + first)


def test_classes_are_characters_of_the_set(tmp_path, monkeypatch):
    letters, byclass = idx.ALPHABETS["letters"], idx.ALPHABETS["byclass"]
    assert idx.find_labels(byclass, "a-j") == range(36, 46)
    assert idx.find_labels(letters, None) == range(26)
    for classes in ("j-a", "a-", "aj", "a-1", "é-z", "·-b", "", "a-bc"):
        with pytest.raises(ConfigError, match="expected some of abc"):
            idx.find_labels(letters, classes)
    monkeypatch.setitem(idx.ALPHABETS, "letters", "abc")
    with pytest.raises(DataError, match="label 3; expected labels below 3 in letters"):
        load("emnist", data_dir(tmp_path))
