"""A run on data that are not those published: refused, and taken where that is asked for."""

import pytest
from dataset_files import write_idx
from running import main, refused

from fedref import DataError, run

WORDS = ["fedavg", "--data", "mnist", "--split", "iid", "--set", "split.users=2", "--rounds", 1,
         "--clients-per-round", 2, "--model", "logistic", "--quiet"]  # fmt: skip


@pytest.fixture
def root(tmp_path, here):
    """Files in MNIST's format and place, with other images."""
    write_idx(tmp_path / "data" / "mnist")
    return tmp_path / "data"


def test_a_run_on_other_images_is_refused_in_one_line(root, capsys):
    message = refused(capsys, "run", *WORDS, "--data-dir", root)
    assert "is not mnist as published" in message
    assert "--data-unverified" in message
    assert not (root.parent / "runs").exists()


def test_it_runs_and_resumes_where_that_is_asked_for(root, capsys):
    how = ["--data-dir", root, "--data-unverified", "--quiet"]
    assert main("run", *WORDS, *how, "--out", "a") == 0
    assert main("resume", "a", *how) == 0
    assert "as published" in refused(capsys, "resume", "a", "--data-dir", root, "--quiet")


def test_from_python(root):
    table = {"data": {"name": "mnist"}, "split": {"rule": "iid", "users": 2},
             "model": {"name": "logistic"}, "clients-per-round": 2}  # fmt: skip
    with pytest.raises(DataError, match="as published"):
        run(table, algorithm="fedavg", rounds=1, data_dir=root)
    assert run(table, algorithm="fedavg", rounds=1, data_dir=root, verify=False).records
