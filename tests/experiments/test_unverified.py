"""A run on data that are not those published: refused by name, and taken by path."""

import pytest
from dataset_files import write_idx
from running import main, refused

from fedref import DataError, run

WORDS = ["fedavg", "--split", "iid", "--set", "split.users=2", "--rounds", 1,
         "--clients-per-round", 2, "--model", "logistic", "--quiet"]  # fmt: skip


@pytest.fixture
def root(tmp_path, here):
    """Files in MNIST's format and place, with other images."""
    write_idx(tmp_path / "data" / "mnist")
    return tmp_path / "data"


def test_other_images_are_refused_by_name_and_taken_by_path(root, capsys):
    line = refused(capsys, "run", *WORDS, "--data", "mnist", "--data-dir", root)
    assert "is not mnist as published" in line
    assert "give the path of its file or folder" in line
    assert not (root.parent / "runs").exists()
    assert main("run", *WORDS, "--data", root / "mnist", "--out", "a") == 0
    assert main("resume", "a", "--quiet") == 0
    with pytest.raises(DataError, match="as published"):
        run(data="mnist", data_dir=root)
