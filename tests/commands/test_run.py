"""The command line: what it says, what it refuses, what it writes, and that all of it can be chosen."""

import json
import os
import re
import shlex
import struct
from dataclasses import fields

import numpy as np
import pytest
from running import (
    TINY,
    algorithms,
    contents,
    document,
    main,
    process,
    refused,
    rows,
    toml,
    write,
)

import fedref
from fedref import sampling
from fedref.algorithm import Algorithm, State
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.commands import run as cli
from fedref.experiments import config, results, runs
from fedref.experiments import unit as experiment
from fedref.experiments.config import Experiment

SMALL = ["--rounds", "1", "--clients-per-round", "2", "--epochs", "1", "--quiet"]
SPLIT = ["--split", "per-fedavg", "--set", "split.users=4", "--set", "split.a=2",
         "--set", "split.a-test=2"]  # fmt: skip


pytestmark = pytest.mark.usefixtures("here")


# ---- refused: one line, exit code 2, nothing written ---------------------------------------------

REFUSED = {
    "algorithm": ("run fedavgg", "unknown algorithm 'fedavgg': did you mean 'fedavg'? known are"),
    "option": ("run --roundz 3", "unknown option '--roundz': did you mean '--rounds'?"),
    "abbreviation": ("run --round 3", "unknown option '--round': did you mean '--rounds'?"),
    "command": ("rum", "invalid choice: 'rum'"),
    "no command": ("", "COMMAND"),
    "data": ("run --data digitz", "unknown data set 'digitz': did you mean 'digits'?"),
    "split": ("run --split natrual", "unknown split rule 'natrual': did you mean 'natural'?"),
    "no natural": ("run --split natural", "digits has no natural clients; use another split rule"),
    "model": ("run --model mpl", "unknown model 'mpl': did you mean 'mlp'?"),
    "labels": ("run --model svm", "digits has the labels [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], LinearSVM"),
    "no layer": ("run --set model.hidden=[0]", "0"),
    "rounds": ("run --rounds -1", "rounds is -1, expected at least 0"),
    "rounds type": ("run --rounds ten", "rounds is 'ten', expected an integer"),
    "clients": (
        "run --clients-per-round 21",
        "clients-per-round is 21, but there are only 20 clients to train on",
    ),
    "users": ("run --set split.users=5000", "per-fedavg: a="),
    "epochs and steps": ("run --epochs 1 --steps 2", "both epochs and steps are given"),
    "seed and seeds": ("run --seed 1 --seeds 0:2", "both seed and seeds are given"),
    "seed": ("run --seed x", "argument --seed: invalid int value: 'x'"),
    "seeds": ("run --seeds 3:x", "--seeds is '3:x', expected A:B or A,B,..."),
    "no seeds": ("run --seeds 3:3", "seeds are [], expected different integers"),
    "many seeds": ("run --seeds 0:999999999999", "expected at most 10000 seeds"),
    "bool": ("run --drop maybe", "drop is 'maybe', expected true or false"),
    "none takes it": ("run fedavg --mu 1", "no algorithm of this run takes mu"),
    "set": ("run --set mu", "--set 'mu': expected KEY=VALUE"),
    "set no key": ("run --set =3", "--set '=3': expected KEY=VALUE"),
    "set key": ("run --set muh=1", "unknown key 'muh': did you mean 'mu'?"),
    "set table": ("run --set modell.l2=1", "unknown table 'modell': did you mean 'model'?"),
    "set sweep": ("run --set sweep.lr=3", "sweep lr is 3, expected a list of values"),
    "set sweep key": ("run --set sweep.lrr=[3]", "unknown key 'lrr': did you mean 'lr'?"),
    "sweep model": ("run --set sweep.model.hiden=[[3]]", "unknown key of model mlp 'hiden'"),
    "sweep clients": ("run --set sweep.clients-per-round=[2,50]", "clients-per-round is 50"),
    "workers": ("run --workers 0", "argument --workers: is '0', expected an integer of at least 1"),
    "workers type": ("run --workers 1.5", "argument --workers: is '1.5', expected an integer"),
    "checkpoints": ("run --checkpoint-every -1", "is '-1', expected a number of seconds"),
    "checkpoints nan": ("run --checkpoint-every nan", "is 'nan', expected a number of seconds"),
    "unseen": ("run --unseen 0.2 --set split.users=4", "unseen needs 10 clients or more"),
    "unseen clients": ("run --unseen 0.2 --clients-per-round 17", "there are only 16 clients"),
    "file": ("run nothing.toml", "nothing.toml: cannot be read (No such file or directory)"),
    "two files": ("run a.toml b.toml", "2 files are given, expected one at most"),
    "manifest": ("run --split no.json", "no.json"),
    "data folder": ("run --data mnist --data-dir nowhere", "nowhere: no such folder"),
    "resume": ("resume .", ".: is no run directory, expected config.toml"),
    "resume nothing": ("resume nowhere", "nowhere: is no run directory, expected nowhere/config.t"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(here, capsys, name):
    words, message = REFUSED[name]
    assert message in refused(capsys, *words.split())
    assert not list(here.iterdir())


def test_a_mistake_in_a_file_names_the_file(here, capsys):
    path = write(here / "my.toml", document(rouns=3))
    line = refused(capsys, "run", path.name)
    assert "my.toml: unknown key 'rouns': did you mean 'rounds'?" in line
    path.write_text("rounds = ")
    assert "my.toml: is not TOML" in refused(capsys, "run", path.name)
    write(path, TINY)
    assert "my.toml: rounds is -3, expected" in refused(capsys, "run", path.name, "--rounds=-3")
    assert [p.name for p in here.iterdir()] == ["my.toml"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sweep": {"lr": 3}}, "sweep lr is 3, expected a list"),
        ({"sweep": {"lrr": [3]}}, "no algorithm of this run takes lrr"),
        ({"data": {"name": 3}}, "data name is 3, expected a string"),
        ({"algorithms": 3}, "algorithms is 3, expected a table"),
        ({"model": {"name": "mlp", "hidden": [0]}}, "0"),
        ({"split": {"rule": "per-fedavg", "users": 5000}}, "per-fedavg: a="),
    ],
)
def test_whatever_is_wrong_in_a_file_names_the_file(here, capsys, change, message):
    line = refused(capsys, "run", write(here / "my.toml", document(**change)).name)
    assert line.startswith("fedref: error: my.toml: ")
    assert line.count("my.toml") == 1
    assert message in line


def test_too_large_a_model_is_one_line(capsys, monkeypatch):
    def init(model, rng):
        return np.empty((2**20, 2**36))  # more than there are addresses

    monkeypatch.setattr(fedref.models.Logistic, "init", init)
    line = refused(capsys, "run", "fedavg", *SPLIT, "--model", "logistic", *SMALL)
    assert "not enough memory (Unable to allocate" in line


def npz(path, **arrays):
    good = {"X": np.arange(40.0).reshape(20, 2), "y": np.arange(20) % 2}
    np.savez(path, **{**good, **arrays})
    return path


def test_wrong_data_are_refused_before_anything_is_written(here, capsys):
    X = np.arange(40.0).reshape(20, 2)
    X[3, 1] = np.nan
    cases = {
        "nan": (npz(here / "a.npz", X=X), "X has nan in row 3; expected finite numbers"),
        "shape": (npz(here / "b.npz", y=np.arange(19) % 2), "19"),
        "labels": (
            npz(here / "c.npz", y=np.arange(20) / 2),
            "y is 0.5 in row 1; expected whole numbers",
        ),
        "rows": (npz(here / "d.npz", X=np.zeros((0, 2)), y=np.zeros(0, int)), "d.npz"),
    }
    (here / "e.npz").write_bytes(b"PK\x03\x04 broken")
    cases["broken"] = (here / "e.npz", "e.npz")
    for path, message in cases.values():
        words = ["run", "fedavg", "--data", path.name, "--split", "iid", "--set", "split.users=3"]
        assert message in refused(capsys, *words, *SMALL)
    assert not (here / "runs").exists()
    npz(here / "a.npz")
    assert main("run", "fedavg", "--data", "a.npz", "--split", "iid", "--set", "split.users=3",
                *SMALL) == 0  # fmt: skip


def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(here, capsys):
    path = write(here / "t.toml", TINY)
    assert main("run", path, "--out", "a", "--quiet") == 0
    before = contents(here / "a")
    line = refused(capsys, "run", path, "--out", "a", "--seed", "5")
    assert "a already holds a run: `fedref resume a`, or another --out" in line
    assert contents(here / "a") == before


# ---- config.toml ---------------------------------------------------------------------------------


def test_config_holds_every_value_and_reproduces_the_run_byte_for_byte(here):
    words = ["run", "fedprox", "apfl", "--data", "digits", "--split", "per-fedavg", "--set",
             "split.users=6", "--rounds", "3", "--clients-per-round", "4", "--epochs", "2",
             "--mu", "0.5", "--stragglers", "0.5", "--seeds", "3,1", "--name", "my own"]  # fmt: skip
    assert main(*words, "--quiet", "--out", "a") == 0
    table = toml(here / "a" / "config.toml")
    # found from the data, and given
    assert table["split"] == {
        "rule": "per-fedavg", "seed": 0, "scaling": "unit", "users": 6, "a": 34, "a-test": 14,
        "train-fraction": 0.7,
    }  # fmt: skip
    made = experiment.federation_of(config.from_table(table))
    assert dict(made.parameters) == {
        key.replace("-", "_"): value
        for key, value in table["split"].items()
        if key not in ("rule", "seed")
    }
    known = {config.dashed(f.name) for f in fields(Experiment)} - {"steps", "sweep"}
    assert set(table) == known
    assert (table["seeds"], table["name"], table["epochs"]) == ([3, 1], "my own", 2)
    for label in ("fedprox", "apfl"):
        own = {config.dashed(f.name) for f in fields(ALGORITHMS[label])}
        assert set(table["algorithms"][label]) == own | {"algorithm"}
        assert table["algorithms"][label]["mu"] == 0.5
    assert main("run", "a/config.toml", "--quiet", "--out", "b") == 0
    assert contents(here / "b") == contents(here / "a")


@pytest.mark.parametrize(
    "table",
    [
        document(sweep={"lr": [0.1, 0.2], "split.users": [4, 6]}, split={"rule": "per-fedavg"}),
        document(sweep={"model.name": ["logistic", "mlp"], "batch_size": [5]}),
        document(data={"name": "synthetic(1,0.5,users=5)"}, split={"rule": "natural"}),
        document(data={"name": "synthetic-iid", "users": 5}, split={"rule": "iid", "of": "shards",
                 "users": 5, "shards": 3}, model={"name": "logistic", "l2": 0.5}),
        document(dtype="float32", algorithms={"my_own-label": {"algorithm": "apfl", "z": 1}},
                 model={"name": "mlp", "hidden": [3]}),
        document(unseen=0.3, split={"rule": "per-fedavg", "users": 10, "a": 2, "seed": 4},
                 algorithms=algorithms("fedmeta-sgd")),
    ],
    ids=["sweep of the split", "sweep of models", "synthetic", "iid of", "float32", "unseen"],
)  # fmt: skip
def test_config_reproduces(here, table):
    path = write(here / "t.toml", table)
    assert main("run", path, "--quiet", "--out", "a") == 0
    assert main("run", "a/config.toml", "--quiet", "--out", "b") == 0
    assert contents(here / "b") == contents(here / "a")
    assert len(rows(here / "a" / "metrics.csv")) >= 4


def test_a_sweep_of_the_split_leaves_what_each_point_finds_open(here):
    path = write(here / "t.toml", document(sweep={"split.users": [4, 6]}, split={}))
    assert main("run", path, "--quiet", "--out", "a") == 0
    assert "a" not in toml(here / "a" / "config.toml")["split"]
    clients = {
        n: {row["client"] for row in rows(here / "a" / "clients.csv", **{"sweep.split.users": n})}
        for n in (4, 6)
    }
    assert {n: len(ids) for n, ids in clients.items()} == {4: 4, 6: 6}


def test_files_are_named_in_full_so_that_a_run_can_be_gone_on_with_elsewhere(here, monkeypatch):
    npz(here / "my.npz")
    words = ["--data", "my.npz", "--split", "iid", "--set", "split.users=3"]
    assert main("run", "fedavg", *words, *SMALL, "--out", "a") == 0
    assert toml(here / "a" / "config.toml")["data"]["name"] == str(here / "my.npz")
    words = ["--data", "my.npz", "--split", "a/split.json"]
    assert main("run", "fedavg", *words, *SMALL, "--out", "b") == 0
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    for name in ("a", "b"):
        assert main("run", f"../{name}/config.toml", "--quiet", "--out", name) == 0
        assert contents(here / name) == contents(here / "else" / name)
    assert (here / "a" / "metrics.csv").read_bytes() == (here / "b" / "metrics.csv").read_bytes()


def test_a_manifest_says_what_the_data_are(here):
    table = document(data={"name": "synthetic(1,1,users=5)"}, split={"rule": "natural"})
    assert main("run", write(here / "t.toml", table), "--quiet", "--out", "a") == 0
    words = ["--split", "a/split.json", "--model", "logistic", *SMALL]
    assert main("run", "fedavg", *words, "--out", "b") == 0
    assert toml(here / "b" / "config.toml")["data"]["name"] == "synthetic"
    assert len(rows(here / "b" / "clients.csv", round=0)) == 5


def test_a_manifest_brings_its_data_with_their_model_or_is_refused(here, capsys):
    table = document(data={"name": "synthetic(1,1,users=5)"}, split={"rule": "natural"})
    assert main("run", write(here / "t.toml", table), "--quiet", "--out", "a") == 0
    split = ["--split", "a/split.json"]
    assert made("fedavg", *split).model["name"] == "logistic"
    assert made("fedavg", *split).name == "synthetic"
    assert made("fedavg", *split, "--data", "synthetic(1, 1, 5)").data["users"] == 5
    for other in ("digits", "synthetic(1,1,users=6)", "my.npz"):
        line = refused(capsys, "run", *split, "--data", other)
        assert f"--data {other}, but a/split.json is a split of synthetic(1,1,5)" in line


def test_a_manifest_of_a_file_is_taken_with_the_file(here):
    (here / "sub").mkdir()
    npz(here / "sub" / "my.npz")
    split = {"rule": "iid", "users": 4, "scaling": "none"}
    table = document(data={"name": "sub/my.npz"}, split=split)
    assert main("run", write(here / "t.toml", table), "--quiet", "--out", "a") == 0
    words = ["run", "fedavg", "--data", "sub/my.npz", "--split", "a/split.json", *SMALL]
    assert main(*words, "--out", "b") == 0


# ---- flags ---------------------------------------------------------------------------------------


def made(*words) -> Experiment:
    return cli.experiment_of(cli.make_parser().parse_args(["run", *map(str, words)]))


def test_nothing_said_is_the_built_in_experiment():
    assert made() == config.from_table(config.built_in())
    assert list(made().algorithms) == [
        "fedavg", "fedavg-update", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf"
    ]  # fmt: skip


def test_flags_override_the_file(here):
    path = write(here / "t.toml", document(seeds=[4, 5], algorithms=algorithms("fedavg", "apfl")))
    got = made(path, "--lr", ".25", "--rounds", "7", "--steps", "3", "--seed", "2", "--name", "12")
    assert (got.rounds, got.steps, got.epochs, got.seeds, got.name) == (7, 3, None, (2,), "12")
    assert [table["lr"] for table in got.algorithms.values()] == [0.25, 0.25]
    assert made(path, "--set", "lr=1.", "--lr", "0.5").algorithms["apfl"]["lr"] == 1.0
    assert made(path, "--set", "algorithms.apfl.lr=2").algorithms["fedavg"]["lr"] == 0.05
    assert list(made(path, "apfl").algorithms) == ["apfl"]
    assert made(path, "apfl").split == made(path).split
    assert list(made("all", path).algorithms) == list(ALGORITHMS)
    assert made(path, "--model", "mlp").model["hidden"] == (80, 60)
    assert made(path, "--data", "synthetic(1,1)", "--split", "natural").split["rule"] == "natural"
    assert made(path, "--seeds", "0:3").seeds == (0, 1, 2)
    assert made("--set", 'model={name = "svm"}').model["name"] == "svm"
    assert made("--set", "sweep.lr=[0.1, 0.2]").sweep == {"lr": [0.1, 0.2]}


def test_other_data_come_with_their_usual_split_model_and_name():
    got = made("--data", "synthetic(0.5,0.5)")
    assert (got.split["rule"], got.model["name"], got.name) == ("natural", "logistic", "synthetic")
    assert got.clients_per_round == 10
    assert made("--data", "digits") == made()
    assert (got.steps, got.epochs, got.batch_size) == (None, 1, 10)  # as --help says


def test_algorithms_may_come_before_or_after_the_options():
    before, after = made("fedavg", "apfl", "--rounds", "2"), made("--rounds", "2", "fedavg", "apfl")
    assert before == after
    assert (list(before.algorithms), before.rounds) == (["fedavg", "apfl"], 2)


def test_seeds_as_a_range_or_a_list():
    assert cli.parse_seeds("0:5") == [0, 1, 2, 3, 4]
    assert cli.parse_seeds("3,7") == [3, 7]
    assert cli.parse_seeds("4") == [4]


# ---- help ----------------------------------------------------------------------------------------


def test_help_says_every_option_and_command(capsys):
    assert main("--help") == 0
    shown = capsys.readouterr().out
    for command in ("run", "resume", "plot", "check", "data"):
        assert re.search(rf"^ +{command} ", shown, re.MULTILINE)
    assert main("run", "--help") == 0
    shown = capsys.readouterr().out
    own = {f.name for f in fields(Experiment)} - set(config.TABLES)
    for name in own | set(HYPERPARAMETERS) | {"seed", "data", "split", "model", "set", "out",
        "data_dir", "workers", "checkpoint_every", "quiet", "json"}:  # fmt: skip
        assert f"--{config.dashed(name)} " in shown.replace("\n", " "), name
    for name in (*ALGORITHMS, *config.MODELS):
        assert name in shown
    assert all(f.metadata["help"] for f in fields(Experiment) if f.name in own)
    for command in ("resume", "plot"):
        assert main(command, "--help") == 0
    assert main("run", "--help") == 0
    assert "`fedref run` alone is fedref/digits.toml" in capsys.readouterr().out.replace("\n ", "")
    assert main("resume", "--help") == 0
    assert "Give --data-dir again" in " ".join(capsys.readouterr().out.split())
    assert main("--version") == 0
    assert fedref.__version__ in capsys.readouterr().out


def examples() -> list[list[str]]:
    """The command lines of the epilog."""
    text = cli.EPILOG.partition("examples\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    return [
        shlex.split(re.split(r"\s{5,}(?=the )", line.strip())[0])[1:] for line in text.splitlines()
    ]


def test_the_examples_work_as_written(here):
    shipped = [words for words in examples() if "mnist" not in words]
    assert len(shipped) == len(examples()) - 1 == 3
    write(
        here / "experiment.toml", document(algorithms=algorithms("fedprox"), model={"name": "mlp"})
    )
    for words in shipped:
        few = ["--rounds", "1"]  # as written, but for the number of rounds
        assert main(*words, *few, "--quiet") == 0, words
    assert (here / "DIR" / "metrics.csv").exists()
    assert len(list((here / "runs").iterdir())) == 2
    with_mnist = next(words for words in examples() if "mnist" in words)
    got = made(*with_mnist[1:])
    assert (got.data["name"], got.split["rule"], got.seeds) == ("mnist", "fedprox-mnist", (0, 1, 2))


# ---- what it tells -------------------------------------------------------------------------------


def test_it_is_quiet_but_for_the_table_where_no_terminal_is(here, capsys):
    assert main("run", write(here / "t.toml", TINY), "--out", "a") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "| algorithm | average | maximum | final |" in out
    assert (here / "a" / "summary.md").read_text() in out
    assert main("run", "t.toml", "--out", "b", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_json_is_one_line_a_round_and_nothing_else(here, capsys):
    tables = algorithms("fedavg", "fedprox")
    table = document(eval_every=2, dissimilarity=True, seeds=[0, 1], algorithms=tables)
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    metrics = rows(here / "a" / "metrics.csv")
    assert len(lines) == len(metrics) == 2 * 2 * 4
    for line, row in zip(lines, metrics):
        assert line.pop("status") == ("done" if row["round"] == "3" else "running")
        assert {k: results.cell(v) for k, v in line.items()} == {
            k: v for k, v in row.items() if k in line
        }
        assert not [v for k, v in row.items() if v and k not in line]


def test_json_has_no_numbers_that_json_has_not(capsys):
    unit = experiment.Unit(0, "fedavg", 0, {})
    row = {"round": 1, "B": float("inf"), "accuracy": float("nan"), "gamma": 0.5}
    state = State(None, {})
    cli.json_line(unit, experiment.Record("diverged", 1, state, [row], [], [], "why"))
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "algorithm": "fedavg", "seed": 0, "round": 1, "B": None, "accuracy": None, "gamma": 0.5,
        "status": "diverged", "reason": "why",
    }  # fmt: skip


def test_on_a_terminal_a_bar_shows_rounds_accuracy_speed_and_time_left(here):
    pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    path = write(here / "t.toml", document(rounds=200))
    run = process("run", path, "--out", "a", stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    out = run.stdout.read()
    assert run.wait() == 0
    run.stdout.close()
    text = shown.decode()
    assert re.search(r"fedavg \(seed 0\): +\d+%", text)
    assert re.search(r"\d+/201 \[\d\d:\d\d<", text)  # rounds, time so far and left
    assert re.search(r"(round/s|s/round), accuracy \d+\.\d\d %", text)
    assert "| algorithm |" in out
    assert "%|" not in out


def test_a_reader_that_goes_away_is_no_error_of_the_disk(here):
    path = write(here / "t.toml", document(rounds=30))
    run = process("run", path, "--out", "a", "--json")
    run.stdout.readline()
    run.stdout.close()
    err = run.stderr.read()
    run.wait()
    run.stderr.close()
    assert err == ""


def test_several_seeds_give_mean_and_standard_deviation(here, capsys):
    path = write(here / "t.toml", document(seeds=[0, 1, 2]))
    assert main("run", path, "--out", "a") == 0
    final = [float(row["accuracy"]) for row in rows(here / "a" / "metrics.csv", round=3)]
    assert len(set(final)) > 1
    expected = f"{100 * np.mean(final):.2f} ± {100 * np.std(final):.2f}"
    assert expected in capsys.readouterr().out.splitlines()[-3]
    assert expected in (here / "a" / "summary.md").read_text()


def test_default_directories_never_clash(here, monkeypatch):
    monkeypatch.setattr(runs.time, "strftime", lambda form: "NOW")
    path = write(here / "t.toml", TINY)
    for _ in range(3):
        assert main("run", path, "--quiet") == 0
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["NOW-tiny", "NOW-tiny-2",
                                                                 "NOW-tiny-3"]  # fmt: skip


# ---- everything that can be chosen runs ----------------------------------------------------------

MODELS = {
    "logistic": ["--data", "digits", *SPLIT],
    "mlp": ["--data", "digits", *SPLIT, "--set", "model.hidden=[5]"],
    "cnn": ["--data", "digits", *SPLIT, "--set", "model.channels=[2]", "--set", "model.kernel=3",
            "--set", "model.hidden=4"],
    "binary-logistic": ["--data", "synthetic(1,1,users=3,classes=2,features=4)"],
    "svm": ["--data", "synthetic(1,1,users=3,classes=2,features=4)"],
}  # fmt: skip


@pytest.mark.parametrize("model", config.MODELS)
def test_every_algorithm_runs_on_every_model(here, model):
    words = [*MODELS[model], "--model", model]
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
    "sampling": ["uniform", "by-samples"],
    "stragglers": [0.5],
    "support": [0.5],
    "batch-size": [0],
    "steps": [2],
    "eval-every": [5],
    "eval-train": ["false"],
    "dissimilarity": ["true"],
    "dtype": ["float32"],
    "on-failure": ["drop"],
    "seed": [3],
    "seeds": ["0:2"],
    "name": ["x"],
}
FLAGS = {"rounds", "clients-per-round", "epochs", "unseen"}  # SMALL has them; unseen: see below


def test_every_option_is_tried():
    flags = {config.dashed(name) for name in (*HYPERPARAMETERS, *cli.EXPERIMENT_FLAGS)}
    assert set(OPTIONS) | FLAGS == flags | {"seed", "seeds"}


@pytest.mark.parametrize(
    ("option", "value"), [(o, v) for o, values in OPTIONS.items() for v in values]
)
def test_every_option_runs(here, option, value):
    taken = [n for n, cls in ALGORITHMS.items() if hasattr(cls, option.replace("-", "_"))]
    few = [*SMALL[:4], "--quiet", *(["--epochs", "1"] if option != "steps" else [])]
    words = [*(taken or ["fedavg", "apfl"]), *SPLIT, "--model", "logistic", *few]
    assert main("run", *words, f"--{option}", value, "--out", "a") == 0
    text = (here / "a" / "config.toml").read_text()
    if option not in ("seed", "seeds"):
        assert re.search(rf'^{option} = "?{re.escape(str(value))}', text, re.MULTILINE)


@pytest.mark.parametrize("split", ["iid", "dirichlet", "shards", "quantity", "fedprox-mnist"])
def test_other_splits_run(here, split):
    words = ["run", "fedavg", "--split", split, "--set", "split.users=5", *SMALL, "--out", "a"]
    assert main(*words) == 0
    assert len(rows(here / "a" / "clients.csv", round=0)) == 5


# ---- one comparison, on equal terms --------------------------------------------------------------


@pytest.mark.parametrize("model", ["logistic", "mlp"])
@pytest.mark.parametrize("stragglers", [0, 0.5])
def test_fedprox_with_mu_0_is_fedavg_bit_for_bit(here, model, stragglers):
    # unless they treat stragglers differently, which is the point of FedProx: here both drop them
    assert main("run", "fedavg", "fedprox", *SPLIT, "--model", model, "--mu", "0", "--rounds", "4",
                "--drop", "true", "--stragglers", stragglers, "--clients-per-round", "3", "--steps",
                "3", "--out", "a", "--quiet") == 0  # fmt: skip
    avg, prox = (rows(here / "a" / "metrics.csv", algorithm=n) for n in ("fedavg", "fedprox"))
    for one, other in zip(avg, prox):  # μ itself travels: one number a client and round
        sent = 8 * 3 * int(one["round"])
        assert int(other.pop("bytes_down")) - int(one.pop("bytes_down")) == sent
    more = {"algorithm", "gamma", "penalty", "mu"}
    assert [{k: v for k, v in row.items() if k not in more} for row in avg] == [
        {k: v for k, v in row.items() if k not in more} for row in prox
    ]
    assert len({row["test_loss"] for row in avg}) == 5
    avg, prox = (rows(here / "a" / "clients.csv", algorithm=n) for n in ("fedavg", "fedprox"))
    assert [[*row.values()][1:] for row in avg] == [[*row.values()][1:] for row in prox]


def test_all_algorithms_meet_the_same_clients_and_batches(here, monkeypatch):
    seen = {}

    def watched(sampled, sizes, round, seed, roles):
        plan = sampling.make_plan(sampled, sizes, round, seed, roles)
        seen.setdefault(round, []).append(plan)
        return plan

    monkeypatch.setattr(experiment, "make_plan", watched)
    names = [name for name, cls in ALGORITHMS.items() if not cls.pooled]
    words = [*SPLIT, "--model", "logistic", "--rounds", "2", "--clients-per-round", "3"]
    assert main("run", *names, *words, "--epochs", "2", "--stragglers", "0.4", "--quiet") == 0
    assert len(seen) == 2
    for plans in seen.values():
        assert len(plans) == len(names)
        first = plans[0]
        batches = {}
        for plan in plans:
            assert plan.clients.tolist() == first.clients.tolist()
            assert plan.straggler.tolist() == first.straggler.tolist()
            for role, drawn in plan.rows.items():
                assert batches.setdefault(role, drawn.tolist()) == drawn.tolist()
        assert set(batches) == {"D", "D1", "D2", "S", "Q"}


def test_two_runs_are_the_same_and_another_seed_is_another_start_cohort_and_batch(
    here, monkeypatch
):
    plans, starts = [], []
    real = Algorithm.initial

    def watched(sampled, sizes, round, seed, roles):
        plans.append(sampling.make_plan(sampled, sizes, round, seed, roles))
        return plans[-1]

    def initial(self, model, w):
        starts.append(w)
        return real(self, model, w)

    monkeypatch.setattr(experiment, "make_plan", watched)
    monkeypatch.setattr(Algorithm, "initial", initial)
    words = ["run", "fedavg", *SPLIT, "--rounds", "4", "--clients-per-round", "2", "--model", "mlp",
             "--quiet"]  # fmt: skip
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        assert main(*words, "--seed", seed, "--out", name) == 0
    a, b, c = (contents(here / name) for name in "abc")
    for name in ("metrics.csv", "clients.csv", "split.json"):
        assert a[name] == b[name]
        assert (a[name] == c[name]) == (name == "split.json")
    one, other = plans[:4], plans[8:]
    assert [p.clients.tolist() for p in one] != [p.clients.tolist() for p in other]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    everyone = [sampling.make_plan(config.from_table(document(clients_per_round=4)).plan,
                                   np.array([20, 20, 10, 10]), 0, seed) for seed in (7, 8)]  # fmt: skip
    assert everyone[0].rows["D"].tolist() != everyone[1].rows["D"].tolist()
