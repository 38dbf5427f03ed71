"""What `fedref run` refuses: one line, exit code 2, and nothing written."""

import numpy as np
import pytest
from running import (
    TINY,
    contents,
    document,
    main,
    npz,
    refused,
    write,
)

import fedref

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
    "no parameters": ("run --set data.part=x", "unknown parameter of digits 'part': there is none"),
    "20 digits": (
        "run --rounds 99999999999999999999",
        "rounds is 99999999999999999999, expected a whole number, at least 0, below 2^63",
    ),
    "no natural": ("run --split natural", "digits has no natural clients; use another split rule"),
    "model": ("run --model mpl", "unknown model 'mpl': did you mean 'mlp'?"),
    "labels": ("run --model svm", "digits has the labels [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], LinearSVM"),
    "no layer": ("run --set model.hidden=[0]", "0"),
    "rounds": ("run --rounds -1", "rounds is -1, expected a whole number, at least 0"),
    "rounds type": ("run --rounds ten", "rounds is 'ten', expected a whole number"),
    "clients": (
        "run --clients-per-round 21",
        "clients-per-round is 21, but there are only 20 clients to train on",
    ),
    "users": ("run --set split.users=5000", "per-fedavg: a="),
    "epochs and steps": ("run --epochs 1 --steps 2", "both epochs and steps are given"),
    "seed and seeds": ("run --seed 1 --seeds 0:2", "both seed and seeds are given"),
    "seeds": ("run --seeds 3:x", "--seeds is '3:x', expected A:B (A to B−1) or A,B,..."),
    "seed": ("run --seed x", "seeds is 'x', expected a whole number"),
    "split key": ("run --set a-test=2", "run takes a-test; did you mean split.a-test?"),
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
    "workers": ("run --workers 0", "--workers is 0, expected a whole number, at least 1"),
    "workers type": ("run --workers 1.5", "--workers is 1.5, expected a whole number"),
    "checkpoints": ("run --checkpoint-every -1", "is -1, expected a finite number, at least 0"),
    "checkpoints nan": ("run --checkpoint-every nan", "--checkpoint-every is nan, expected a finite number"),
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


def test_wrong_data_are_refused_before_anything_is_written(here, capsys):
    X = np.arange(40.0).reshape(20, 2)
    X[3, 1] = np.nan
    cases = {
        "nan": (npz(here / "a.npz", X=X), "X has nan in row 3; expected finite numbers"),
        "shape": (npz(here / "b.npz", y=np.arange(19) % 2), "19"),
        "labels": (
            npz(here / "c.npz", y=np.arange(20) / 2),
            "c.npz: y is 0.5 in row 1, and model logistic takes labels",
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


def test_without_test_rows_nothing_is_trained(here, capsys):
    X = np.arange(40.0).reshape(20, 2)
    path = npz(here / "a.npz", X=X, client=np.arange(20))  # one row a client: for training
    words = ["run", "fedavg", "--data", path.name, "--split", "natural", *SMALL]
    assert "a.npz: no client has a test row, so nothing could be" in refused(capsys, *words)
    assert not (here / "runs").exists()
    npz(path, X=X, client=np.repeat(np.arange(10), 2))
    assert main(*words) == 0


def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(here, capsys):
    path = write(here / "t.toml", TINY)
    assert main("run", path, "--out", "a", "--quiet") == 0
    before = contents(here / "a")
    line = refused(capsys, "run", path, "--out", "a", "--seed", "5")
    assert "a already holds a run: `fedref resume a`, or another --out" in line
    assert contents(here / "a") == before
