"""`fedref flower`: what it writes, and what a server would be told."""

import re

from running import document, main, refused, toml, write

from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader, load_experiment
from fedref.lab.flower.node import read_part


def write_app(folder, *words, data="digits"):
    """Write an app; return its folder and the values of its configuration."""
    table = document(data={"name": data}, split={"rule": "dirichlet", "users": 7})
    del table["name"]
    there = folder / "there"
    assert main("flower", "write", write(folder / "seven.toml", table), there, *words) == 0
    table = toml(there / "app" / "pyproject.toml")
    assert table["project"]["dependencies"] == []
    return there, table["tool"]["flwr"]["app"]["config"]


def test_the_folder_holds_the_app_the_parts_and_the_commands(tmp_path, capsys):
    there, values = write_app(tmp_path, "--nodes", "2", "--limit", "30")
    held = "nodes/0.npz: clients 0 to 3\nnodes/1.npz: clients 4 to 6\n"
    assert capsys.readouterr().out.startswith(held)
    assert (values["clients"], values["limit"]) == (7, 30.0)
    experiment = config.compose(there / "app" / "experiment.toml", [])
    assert experiment.name == "seven"
    text = (there / "README.md").read_text()
    assert not re.search(r"[{]\w+[}]|<!--", text)
    assert "for i in 0 1; do" in text
    assert f"{there.resolve()}/nodes/$i.npz" in text
    whole = load_experiment(experiment, Loader()).whole
    for i, clients in enumerate((range(4), range(4, 7))):
        part, lines = read_part(there / "nodes" / f"{i}.npz"), []
        assert part.names == tuple(map(str, clients))
        for at, k in enumerate(clients):
            n_train, n_test = len(part.train.rows_of(at)), len(part.test.rows_of(at))
            lines.append(f"client {k}: {n_train} training rows, {n_test} test rows")
            assert (n_train, n_test) == (whole.train.sizes[k], whole.test.sizes[k])
        assert main("flower", "check", there / "nodes" / f"{i}.npz") == 0
        first, *others = capsys.readouterr().out.splitlines()
        assert first.startswith("features 64, labels 0, ")
        assert others == lines


def test_clients_without_a_training_row_are_refused(here, capsys):
    lines = [f"{i % 7},{i // 5},{i % 2},{int(i < 6)}" for i in range(20)]
    (here / "a.csv").write_text("\n".join(["x,client,y,test", *lines]))
    (here / "a.toml").write_text('rounds = 1\ndata.name = "a.csv"\n[algorithms]\nfedavg = {}\n')
    line = refused(capsys, "flower", "write", "a.toml", "there", "--nodes", "1")
    assert (
        "a.csv has test rows of clients without a training row, expected none over Flower" in line
    )


def test_without_parts_no_data_are_read(tmp_path, capsys):
    there, values = write_app(tmp_path, "--clients", "12", data="nowhere")
    assert not (there / "nodes").exists()
    assert values["clients"] == 12
    assert "the next steps are in" in capsys.readouterr().out
