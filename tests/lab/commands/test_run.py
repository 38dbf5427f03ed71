"""`fedref run`: the files that it writes, and what it tells."""

import re
import shlex
import tomllib
from dataclasses import fields

import numpy as np
import pytest
from running import (
    SMALL,
    algorithms,
    contents,
    document,
    made,
    main,
    npz,
    refused,
    rows,
    toml,
    write,
)

import fedref
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.boundary.values import schema, with_dashes
from fedref.lab.commands import COMMANDS
from fedref.lab.commands import run as cli
from fedref.lab.commands.run import listing
from fedref.lab.datasets import RULES, SOURCES
from fedref.lab.experiments import names
from fedref.lab.experiments.config import TABLES, Experiment
from fedref.models import MODELS as KNOWN_MODELS

pytestmark = pytest.mark.usefixtures("here")


VARIED = document(
    dtype="float32", unseen=0.3, data={"name": "synthetic-iid", "users": 12},
    split={"rule": "iid", "of": "shards", "users": 12, "shards": 3, "seed": 4},
    model={"name": "mlp", "hidden": [3], "l2": 0.5},
    algorithms={"my_own-label": {"algorithm": "apfl", "z": 1}, "fedmeta-sgd": {}},
)  # fmt: skip
SWEPT = document(sweep={"lr": [0.1, 0.2], "split.users": [4, 6]}, split={"rule": "per-fedavg"})


@pytest.mark.parametrize("table", [VARIED, SWEPT], ids=["varied", "sweep of the split"])
def test_config_reproduces(here, table):
    path = write(here / "t.toml", table)
    assert main("run", path, "--quiet", "--out", "a") == 0
    assert main("run", "a/config.toml", "--quiet", "--out", "b") == 0
    assert contents(here / "b") == contents(here / "a")
    assert len(rows(here / "a" / "metrics.csv")) >= 4


def test_files_are_named_in_full_so_that_a_run_can_be_gone_on_with_elsewhere(here, monkeypatch):
    npz(here / "my.npz")
    (here / "iid").mkdir()  # is not the rule
    words = ["--data", "my.npz", "--split", "iid", "--set", "split.users=3"]
    assert main("run", "fedavg", *words, *SMALL, "--out", "a") == 0
    table = toml(here / "a" / "config.toml")
    assert table["data"]["name"] == str(here / "my.npz")
    assert table["split"]["scaling"] == "none"  # the parameters that were not given are there, too
    words = ["--data", "my.npz", "--split", "a/split.json"]
    assert main("run", "fedavg", *words, *SMALL, "--out", "b") == 0
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    for name in ("a", "b"):
        assert main("run", f"../{name}/config.toml", "--quiet", "--out", name) == 0
        assert contents(here / name) == contents(here / "else" / name)
    assert (here / "a" / "metrics.csv").read_bytes() == (here / "b" / "metrics.csv").read_bytes()


def test_a_manifest_brings_its_data_with_their_model_or_is_refused(here, capsys):
    table = document(data={"name": "synthetic(1,1,users=5)"}, split={"rule": "natural"})
    assert main("run", write(here / "t.toml", table), "--quiet", "--out", "a") == 0
    split = ["--split", "a/split.json"]
    assert made("fedavg", *split).model["name"] == "logistic"
    assert made("fedavg", *split).name == "synthetic"
    assert made("fedavg", *split, "--data", "synthetic(1, 1, 5)").data["users"] == 5
    line = refused(capsys, "run", *split, "--data", "synthetic(1,1,users=6)")
    assert "users=6), but a/split.json is a split of synthetic(1,1,5)" in line
    assert main("run", "fedavg", *split, *SMALL, "--out", "b") == 0
    assert len(rows(here / "b" / "clients.csv", round=0)) == 5


def test_help_says_every_option_and_command(capsys, monkeypatch):
    assert main("--help") == 0
    shown = capsys.readouterr().out
    for command in (name for name in COMMANDS if " " not in name):
        assert re.search(rf"^ +{command}\b", shown, re.MULTILINE)
    assert main("run", "--help") == 0
    shown = capsys.readouterr().out
    keys = {f.name for f in fields(Experiment)} - set(TABLES)
    for name in {*cli.FLAGS, "seeds", "data", "split", "model", "set", "out", "data_dir", "workers",
        "checkpoint_every", "quiet", "json"}:  # fmt: skip
        assert f"--{with_dashes(name)} " in shown.replace("\n", " "), name
    for name in keys - {"seeds"} | set(HYPERPARAMETERS) - set(cli.FLAGS):
        assert f"  {with_dashes(name)} " in shown or name in cli.FLAGS, name
    for name in (*ALGORITHMS, *KNOWN_MODELS):
        assert name in shown
    assert all(schema(Experiment)[key].meaning for key in keys)
    version = (
        rf"fedref {fedref.__version__}, Python 3\.\S+, NumPy {np.__version__}, BLAS .+ \(.*\)\n"
    )
    for set_to, line in (("", ""), ("Haswell", "OPENBLAS_CORETYPE is Haswell: .*\n")):
        monkeypatch.setenv("OPENBLAS_CORETYPE", set_to)
        assert main("--version") == 0
        assert re.fullmatch(version + line, capsys.readouterr().out)


def test_the_examples_work_as_written(here):
    text = cli.run.__doc__.partition("examples\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    lines = (re.split(r"\s{4,}(?=the )", line.strip())[0] for line in text.splitlines())
    examples = [shlex.split(line)[1:] for line in lines]
    shipped = [words for words in examples if "mnist" not in words and words[0] == "run"]
    assert len(shipped) == len(examples) - 2 == 4
    table = document(algorithms=algorithms("fedprox"), model={"name": "mlp"})
    write(here / "experiment.toml", table)
    for i, words in enumerate(shipped):
        few = ["--rounds", "1"]  # as written, but for the number of rounds
        words = [f"DIR{i}" if word == "DIR" else word for word in words]
        assert main(*words, *few, "--quiet") == 0, words
    assert (here / "DIR1" / "metrics.csv").exists()
    assert len(list((here / "runs").iterdir())) == 2
    with_mnist = next(words for words in examples if "mnist" in words)
    got = made(*with_mnist[1:])
    assert (got.data["name"], got.split["rule"], got.seeds) == ("mnist", "fedprox-mnist", (0, 1, 2))


def test_a_run_that_was_complete_says_so_and_keeps_its_bytes(here, capsys):
    words = ["run", write(here / "t.toml", document(seeds=[0, 1])), "-o", "a"]
    assert main(*words) == 0
    before, told = contents(here / "a"), "fedref: a/ was complete before: no round was run\n"
    assert told not in capsys.readouterr().err
    for again in (words, [*words, "--workers", 2], ["resume", "a"]):
        assert main(*again) == 0
        assert told in capsys.readouterr().err
        assert contents(here / "a") == before


def test_a_dry_run_checks_everything_prints_the_experiment_and_writes_nothing(here, capsys):
    path = write(here / "t.toml", document())
    before = sorted(here.rglob("*"))
    assert main("run", path, "--dry-run", "-o", "a", "--lr", "0.07") == 0
    out, err = capsys.readouterr()
    assert err == "fedref: 1 unit, 3 rounds, 4 evaluations\n"
    shown = tomllib.loads(out)
    assert (shown["algorithms"]["fedavg"]["lr"], shown["split"]["users"]) == (0.07, 4)
    assert sorted(here.rglob("*")) == before
    assert main("run", path, "--dry-run", "-q") == 0
    assert capsys.readouterr().out == ""
    assert "only 4 clients" in refused(capsys, "run", path, "--dry-run", "--clients-per-round", 9)


def test_the_list_has_a_line_for_everything_that_can_be_chosen(capsys, monkeypatch):
    assert main("run", "--list") == 0
    shown = capsys.readouterr().out
    named = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    assert named == [*ALGORITHMS, *KNOWN_MODELS, *SOURCES, *RULES]
    assert max(map(len, shown.splitlines())) <= 120
    monkeypatch.setattr(names, "entry_points_of", lambda kind: {f"my-{kind}": "mine:Ditto"})
    for kind in ("algorithm", "model", "data"):
        assert f"my-{kind} " in listing()
    assert "from mine:Ditto" in listing()


def test_training_that_blew_up_is_told_even_quietly(here, capsys):
    words = "run", "fedavg", "--lr", 30, "--rounds", 2, "--split", "iid", "--quiet", "--out"
    assert main(*words, "a") == 0
    out, told = capsys.readouterr()
    assert out == ""
    assert re.search(
        r"fedavg \(seed 0\): the training loss was .* a smaller step size may help", told
    )
