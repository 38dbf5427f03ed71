"""The flags of `fedref run`, their defaults and their help: everything that can be chosen runs."""

import re

import numpy as np
import pytest
from dataset_files import put_roles
from running import (
    SMALL,
    SPLIT,
    algorithms,
    document,
    made,
    main,
    rows,
    write,
)

from fedref.algorithms import ALGORITHMS
from fedref.boundary.values import with_dashes
from fedref.commands import run as cli
from fedref.experiments import config
from fedref.models import MODELS as KNOWN_MODELS

pytestmark = pytest.mark.usefixtures("here")


# ---- flags ---------------------------------------------------------------------------------------


def test_nothing_said_is_the_built_in_experiment():
    assert made() == config.from_table(config.built_in_table())
    assert list(made().algorithms) == [
        "fedavg", "fedavg-update", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf"
    ]  # fmt: skip


def test_flags_override_the_file(here):
    path = write(here / "t.toml", document(seeds=[4, 5], algorithms=algorithms("fedavg", "apfl")))
    got = made(
        path, "--lr", ".25", "--rounds", "7", "--steps", "3", "--seeds", "2", "--set", "name=x"
    )
    assert (got.rounds, got.steps, got.epochs, got.seeds, got.name) == (7, 3, None, (2,), "x")
    assert [table["lr"] for table in got.algorithms.values()] == [0.25, 0.25]
    assert made(path, "--set", "lr=1.", "--lr", "0.5").algorithms["apfl"]["lr"] == 1.0
    assert made(path, "--set", "algorithms.apfl.lr=2").algorithms["fedavg"]["lr"] == 0.05
    assert list(made(path, "apfl").algorithms) == ["apfl"]
    assert made(path, "apfl").split == made(path).split
    assert list(made("all", path).algorithms) == list(ALGORITHMS)
    assert made(path, "--model", "mlp").model["hidden"] == (80, 60)
    assert made(path, "--data", "synthetic(1,1)", "--split", "natural").split["rule"] == "natural"
    assert made(path, "--seeds", "0:3").seeds == (0, 1, 2)
    assert (
        made(path, "--rounds", "1e3", "--seeds", "4e0", "--set", "split.users=1e1").rounds == 1000
    )
    assert made("--set", 'model={name = "svm"}').model["name"] == "svm"
    assert made("--set", "sweep.lr=[0.1, 0.2]").sweep == {"lr": [0.1, 0.2]}


def test_other_data_come_with_their_usual_split_model_and_name():
    got = made("--data", "synthetic(0.5,0.5)")
    assert (got.split["rule"], got.model["name"], got.name) == ("natural", "logistic", "synthetic")
    assert (got.clients_per_round, got.plan.clients_per_round) == (None, 5)
    assert made("--data", "digits") == made()
    assert (got.steps, got.epochs, got.batch_size) == (10, None, 40)  # as --help says


def test_algorithms_may_come_before_or_after_the_options():
    before, after = made("fedavg", "apfl", "--rounds", "2"), made("--rounds", "2", "fedavg", "apfl")
    assert before == after
    assert (list(before.algorithms), before.rounds) == (["fedavg", "apfl"], 2)


# ---- the same defaults everywhere ----------------------------------------------------------------


def test_one_set_of_defaults_with_and_without_a_file(here):
    path = write(here / "t.toml", {"algorithms": {"fedavg": {}}})
    file, flags = made(path, "--rounds", 5), made("fedavg", "--rounds", 5)
    assert (file.split, file.model, file.steps, file.batch_size, file.clients_per_round) == (
        flags.split, flags.model, flags.steps, flags.batch_size, flags.clients_per_round
    )  # fmt: skip
    assert file.algorithms == flags.algorithms


def test_every_algorithm_takes_steps_of_the_same_size_unless_it_is_told():
    tables = made("all").algorithms
    other = {"apfl-deng", "pfedme"}  # α is a weight; β a share, and α is held below 2/(λ + L)
    tables = {name: table for name, table in tables.items() if name not in other}
    assert {table["lr"] for table in tables.values() if "lr" in table} == {0.05}
    assert {table["beta"] for table in tables.values() if "beta" in table} == {0.05}
    assert {table["alpha"] for table in tables.values() if "alpha" in table} == {0.1}


def test_print_config_is_a_file_that_gives_the_same_experiment(here, capsys):
    words = ["apfl", "--mu", "0.5", "--data", "synthetic(1,1,users=5)", "--set", "name=mine"]
    assert main("run", *words, "--print-config") == 0
    (here / "my.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert made("my.toml") == made(*words)
    assert [path.name for path in here.iterdir()] == ["my.toml"]


def test_steps_that_differ_are_said_and_so_is_what_was_evaluated(here, capsys):
    table = document(rounds=7, eval_every=3, algorithms=algorithms("fedavg", "per-fedavg"))
    assert main("run", write(here / "t.toml", table), "--out", "a") == 0
    shown = capsys.readouterr().out
    assert "over 4 evaluated rounds from 0 (the start) to 7" in shown
    assert "Note" not in shown
    assert main("run", "t.toml", "--beta", "0.001", "--out", "b") == 0
    said = "Note: step sizes differ (fedavg lr = 0.05, per-fedavg beta = 0.001)"
    assert said in capsys.readouterr().out


def test_clients_are_kept_as_often_as_is_said(here):
    table = document(rounds=7, clients_every=3)
    assert main("run", write(here / "t.toml", table), "--out", "a", "--quiet") == 0
    kept = {int(row["round"]) for row in rows(here / "a" / "clients.csv")}
    assert kept == {0, 3, 6, 7}
    assert main("run", "t.toml", "--set", "clients-every=1", "--out", "b", "--quiet") == 0
    assert (here / "a" / "metrics.csv").read_bytes() == (here / "b" / "metrics.csv").read_bytes()


# ---- everything that can be chosen runs ----------------------------------------------------------

MODELS = {
    "logistic": ["--data", "digits", *SPLIT],
    "mlp": ["--data", "digits", *SPLIT, "--set", "model.hidden=[5]"],
    "cnn": ["--data", "digits", *SPLIT, "--set", "model.channels=[2]", "--set", "model.kernel=3",
            "--set", "model.hidden=4"],
    "binary-logistic": ["--data", "synthetic(1,1,users=3,classes=2,features=4)"],
    "svm": ["--data", "synthetic(1,1,users=3,classes=2,features=4)"],
    "lstm": ["--data", "shakespeare(step=9)", "--data-dir", "data", "--set", "split.min-rows=1",
             "--set", "model.hidden=[2]"],
}  # fmt: skip


@pytest.mark.parametrize("model", KNOWN_MODELS)
def test_every_algorithm_runs_on_every_model(here, model):
    words = [*MODELS[model], "--model", model]
    if model == "lstm":
        put_roles(here / "data" / "shakespeare")
    if model == "cnn":  # --model is read first, and --set goes into its table
        assert made("all", *words).model["channels"] == (2,)
    assert main("run", "all", *words, *SMALL, "--out", "a") == 0
    table = rows(here / "a" / "metrics.csv")
    assert [row["algorithm"] for row in table if row["round"] == "1"] == list(ALGORITHMS)
    assert all(0 <= float(row["accuracy"]) <= 1 for row in table)
    assert all(np.isfinite(float(row["train_loss"])) for row in table)


OPTIONS = {
    "weighting": ["samples", "uniform"],
    "drop": ["true", "false"],
    "lr": [0.01],
    "alpha": [0.02],
    "beta": [0.03],
    "delta": [0.01],
    "inner-steps": [2],
    "server": ["sgd", "adam"],
    "episodes": ["one", "epochs"],
    "evaluate": ["theta", "theta1"],
    "mu": [0.1],
    "adaptive-mu": ["true"],
    "until-gamma": [0.5],
    "measure-gamma": ["false"],
    "lam": [0.5],
    "z": [0],
    "init": ["paper", "continuous"],
    "importance": ["gradient-square", "fisher", "si", "mas"],
    "delta-mu": [2],
    "delta-sigma": [0.1],
    "window": [1],
    "server-lr": [0.5],
    "control": ["difference", "gradient"],
    "adaptive-alpha": ["false"],
    "beta1": [0.5],
    "beta2": [0.5],
    "tau": [0.01],
    "momentum": [0.5],
    "sampling": ["uniform", "by-samples"],
    "stragglers": [0.5],
    "support": [0.5],
    "batch-size": [0],
    "steps": [2],
    "eval-every": [5],
    "clients-every": [5],
    "keep-parameters": [1],
    "eval-train": ["false"],
    "dissimilarity": ["true"],
    "classes": ["all", "own"],
    "dtype": ["float32"],
    "on-failure": ["drop"],
    "seed": [3],
    "seeds": ["[0, 1]"],
    "name": ["x"],
}
FLAGS = {"rounds", "clients-per-round", "epochs", "unseen"}  # SMALL has them; unseen: see below


def test_every_option_is_tried():
    assert set(OPTIONS) | FLAGS == {*map(with_dashes, cli.KEYS), "seed", "seeds"}


@pytest.mark.parametrize(
    ("option", "value"), [(o, v) for o, values in OPTIONS.items() for v in values]
)
def test_every_option_runs(here, option, value):
    taken = [n for n, cls in ALGORITHMS.items() if hasattr(cls, option.replace("-", "_"))]
    few = [*SMALL[:4], "--quiet", *(["--epochs", "1"] if option != "steps" else [])]
    words = [*(taken or ["fedavg", "apfl"]), *SPLIT, "--model", "logistic", *few]
    assert main("run", *words, "--set", f"{option}={value}", "--out", "a") == 0
    text = (here / "a" / "config.toml").read_text()
    if option not in ("seed", "seeds"):
        assert re.search(rf'^{option} = "?{re.escape(str(value))}', text, re.MULTILINE)


@pytest.mark.parametrize("split", ["iid", "dirichlet", "shards", "quantity", "fedprox-mnist"])
def test_other_splits_run(here, split):
    words = ["run", "fedavg", "--split", split, "--set", "split.users=5", *SMALL, "--out", "a"]
    assert main(*words) == 0
    assert len(rows(here / "a" / "clients.csv", round=0)) == 5
