"""`fedref flower`: what it writes, and one line for what is wrong."""

import re

import numpy as np
import pytest

from fedref.commands import main
from fedref.experiments import config
from fedref.experiments.loading import Loader, load_experiment
from fedref.flower.node import read_part

EXPERIMENT = """
rounds = 2
[data]
name = "digits"
[split]
rule = "dirichlet"
users = 7
[algorithms.fedavg]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "seven.toml"
    path.write_text(EXPERIMENT)
    return path


def test_the_folder_holds_the_app_the_parts_and_the_commands(file, tmp_path, capsys):
    there = tmp_path / "there"
    assert main(["flower", "write", str(file), str(there), "--nodes", "2", "--limit", "30"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "nodes/0.npz: clients 0 to 3",
        "nodes/1.npz: clients 4 to 6",
    ]
    table = config.read(there / "app" / "pyproject.toml")
    values = table["tool"]["flwr"]["app"]["config"]
    assert (values["clients"], values["limit"]) == (7, 30.0)
    assert table["project"]["dependencies"] == []
    experiment = config.compose(there / "app" / "experiment.toml", [])
    assert experiment.name == "seven"
    text = (there / "README.md").read_text()
    assert not re.search(r"[{]\w+[}]|<!--", text)
    assert "for i in 0 1; do" in text
    assert f"{there.resolve()}/nodes/$i.npz" in text
    whole = load_experiment(experiment, Loader()).whole
    for i, clients in enumerate((range(4), range(4, 7))):
        part = read_part(there / "nodes" / f"{i}.npz")
        assert part.names == tuple(map(str, clients))
        for at, k in enumerate(clients):
            for name in ("train", "test"):
                own = part.batch(getattr(part, name).rows_of(at))
                right = whole.batch(getattr(whole, name).rows_of(k))
                np.testing.assert_array_equal(own.X, right.X)
                np.testing.assert_array_equal(own.y, right.y)
    assert len(config.stamp(experiment)) == 64


def test_check_says_what_a_server_would_be_told(file, tmp_path, capsys):
    main(["flower", "write", str(file), str(tmp_path / "there"), "--nodes", "7"])
    capsys.readouterr()
    assert main(["flower", "check", str(tmp_path / "there" / "nodes" / "6.npz")]) == 0
    part = read_part(tmp_path / "there" / "nodes" / "6.npz")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("features 64, labels ")
    n_train, n_test = len(part.train.rows), len(part.test.rows)
    assert lines[1] == f"client 6: {n_train} training rows, {n_test} test rows"


def test_without_parts_no_data_are_read(tmp_path, capsys):
    path = tmp_path / "far.toml"
    path.write_text(EXPERIMENT.replace('"digits"', '"nowhere.npz"'))
    there = tmp_path / "there"
    assert main(["flower", "write", str(path), str(there), "--clients", "12"]) == 0
    assert not (there / "nodes").exists()
    values = config.read(there / "app" / "pyproject.toml")["tool"]["flwr"]["app"]["config"]
    assert values["clients"] == 12
    assert "the next steps are in" in capsys.readouterr().out
