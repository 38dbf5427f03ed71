"""fedref/README.md's "Extend it", run as written: an algorithm, a model and data from outside."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType

import numpy as np
import pytest
from pages import EXTEND, blocks
from running import contents, document, main, process, refused, toml

import fedref
from fedref.lab.datasets import split
from fedref.lab.experiments import names, results
from fedref.lab.experiments.own_code import ClientError
from fedref.lab.experiments.seal import own_modules
from fedref.lab.plots.figures import curves
from fedref.models import BinaryLogistic, Logistic, Model, tree
from fedref.rounds.federation import Source

SECTION = EXTEND.partition("## Extend it\n")[2].partition("\n## ")[0]
_, MINE, NET, PROOF, IN_PYTHON = blocks(SECTION, "python")
COMMAND = shlex.split(blocks(SECTION, "sh")[0])[1:]

pytestmark = pytest.mark.usefixtures("here")


#: Models whose mistakes are met before the first round.
MISTAKEN = """
@dataclass(frozen=True)
class Half(Model):
    features: int
    init = loss = predict = None


class Summed(Poisson):
    def loss(self, w, D):
        return np.sum(super().loss(w, D))


@dataclass(frozen=True, kw_only=True)
class Wide(Poisson):
    width: int


def whatever(it):
    return it
"""


@pytest.fixture
def mine(here, page_files):
    """The files of the pages in the current folder, with these models."""
    (here / "mine.py").write_text(MINE + MISTAKEN, encoding="utf-8")
    return here


def test_the_proof_holds_and_a_wrong_gradient_is_found(mine):
    exec(PROOF, {})
    wrong = MINE.replace("(np.exp(z) - D.y)", "(np.exp(z) + D.y)")
    assert wrong != MINE
    (mine / "mine.py").write_text(wrong, encoding="utf-8")
    del sys.modules["mine"]
    shutil.rmtree(mine / "__pycache__", ignore_errors=True)  # of the same second and size
    with pytest.raises(AssertionError):
        exec(PROOF, {})


def test_the_command_runs_is_resumed_and_gives_the_numbers_of_python(mine, capsys):
    assert main(*COMMAND, "--quiet") == 0
    table = toml(mine / "ditto" / "config.toml")
    assert table["algorithms"]["Ditto"]["algorithm"] == "stacked:Ditto"
    assert table["algorithms"]["Ditto"]["lam"] == 0.5
    assert (table["model"]["name"], table["data"]["name"]) == ("mine:Poisson", "mine:load")
    assert table["data"]["clients"] == 20  # the function's own parameters are there
    before = contents(mine / "ditto")
    for path in sorted((mine / "ditto" / "checkpoints").iterdir())[2:]:
        path.unlink()
    again = process("resume", "ditto", "--quiet", "--workers", "2")
    assert (again.communicate(), again.returncode) == (("", ""), 0)
    assert contents(mine / "ditto") == before

    scope: dict = {}
    exec(IN_PYTHON, scope)
    run = fedref.load_run("ditto")
    t, accuracy = run.curve("Ditto", "accuracy_mean")
    assert t.tolist() == scope["rounds"].tolist() == list(range(21))
    assert accuracy.tolist() == scope["accuracy"].tolist()
    assert accuracy.tolist() != run.curve("fedavg", "accuracy_mean")[1].tolist()


def call_whole(name):
    return lambda few, *inputs: getattr(BinaryLogistic(few.features, few.l2), name)(*inputs)


@dataclass(frozen=True)
class Few(Model):
    """Binary logistic regression of the functions that must be written; else it has BinaryLogistic's."""

    features: int
    classes: int
    l2: float = 0.0
    init, loss, grad, predict = map(call_whole, ("init", "loss", "grad", "predict"))
    d = property(lambda few: few.features + 1)


def test_a_model_of_few_functions_runs_with_every_algorithm():
    """What the base class derives is what a complete model says of itself."""
    how = {
        **FEW,
        "algorithm": [*names.ALGORITHMS],
        "data": (X, Y, CLIENT),
        "rounds": 3,
        "epochs": 2,
    }
    how |= {"model.l2": 0.1, "stragglers": 0.5, "dissimilarity": True}
    few, whole = (fedref.run(**how, model=model) for model in (Few, BinaryLogistic))
    for name, one, other in zip(how["algorithm"], few.records, whole.records, strict=True):
        for row, expected in zip(one.rows, other.rows, strict=True):
            assert row.keys() == expected.keys()
            if "apfl" not in name:  # whose units it does not know
                shares = {"flops": row["flops"]}  # it counts d numbers a sample, not layers
                assert row == pytest.approx({**expected, **shares}, rel=1e-9)
            assert all(np.isfinite(x) for x in row.values() if isinstance(x, float))
    with pytest.raises(ClientError, match=r"Few has no logits\(w, X\), which this needs"):
        fedref.run(**{**FEW, "algorithm": "apfl"}, importance="mas", data=(X, Y, CLIENT), model=Few)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "stacked:Dito",
            "stacked:Dito: cannot be imported (AttributeError: module 'stacked' has no at",
        ),
        ("nowhere:Ditto", "nowhere:Ditto: cannot be imported (ModuleNotFoundError: No module"),
        ("broken:X", "broken:X: cannot be imported (ZeroDivisionError: division by zero)"),
        (
            "mine:load",
            "mine:load takes (clients=20, seed=0), expected a function (f, w, rounds, lam=0.1",
        ),
        (
            "mine:Poisson",
            "algorithm is 'mine:Poisson', expected a dataclass derived",
        ),
        ("stacked:Ditto --set lam=-1", "lam is -1, expected a finite number, at least 0"),
        ("fedavg --model stacked:Ditto", "expected a dataclass derived from fedref.models.Model"),
        ("fedavg --model mine:load", "expected a dataclass"),
        ("fedavg --model mine:Half", "mine:Half has no d, grad, which every model must"),
        ("fedavg --model mine:Summed", "Summed.loss returns shape () for two clients at once, exp"),
        ("fedavg --model mine:Wide", "mine:Wide needs width: give it in [model], or as --set mo"),
        ("fedavg --data mine:whatever", "whatever: missing a required argument: 'it'"),
        ("fedavg --data mine:whatever --set data.it=3", "mine:whatever: is a int, expected arrays"),
        ("stacked:Ditto --data mine:load --set data.clientz=3", "'clientz'"),
        ("stacked:Ditto --data mine:load --set data.clients=-3", "mine:load: ValueError"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(mine, capsys, words, message):
    (mine / "broken.py").write_text("1 / 0")
    assert message in refused(capsys, "run", *words.split(), "--rounds", "1")
    assert not (mine / "runs").exists()


# ---- from Python ---------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(60, 4))
Y, CLIENT = (X.sum(1) > 0).astype(int), np.repeat(["a", "b", "c"], 20)
FEW = {"rounds": 2, "clients_per_round": 2, "algorithm": "fedavg"}


def test_a_model_object_is_taken_and_must_fit_the_data(here):
    named, table = fedref.run(document(), rounds=1), {**document(), "model": Logistic(64, 10)}
    assert fedref.run(table, rounds=1).records[0].rows == named.records[0].rows
    with pytest.raises(fedref.ConfigError, match="takes 63 features, but digits has 64"):
        fedref.run({**table, "model": Logistic(63, 10)}, rounds=1)
    with pytest.raises(
        fedref.ConfigError, match="model logistic has all its values and takes no more, got l2"
    ):
        fedref.run(table, **{"model.l2": 0.1})
    for words, head in (("split rule is Logistic", "split"), ("data is a Logistic", "data")):
        with pytest.raises(fedref.ConfigError, match=words):
            fedref.run(document(), **{head: Logistic(64, 10)})
    with pytest.raises(fedref.ConfigError, match=r"split rule is .*, expected a string"):
        fedref.run(document(), split={"rule": {"X": X, "y": Y}})


def test_what_has_no_name_is_not_written(here):
    class Local(names.ALGORITHMS["fedavg"]):
        pass

    for name, how in {
        "data given as arrays": {"data": (X, Y, CLIENT), **FEW},
        "Local": {"algorithm": Local, "rounds": 1},
        "Made": {"algorithm": type("Made", (Local,), {}), "rounds": 1},
    }.items():
        with pytest.raises(fedref.ConfigError, match=f"{name} cannot be imported again"):
            fedref.run(**how, out="a")
    assert not list(here.iterdir())


def test_entry_points_of_packages_are_names_and_a_file_names_all(mine, monkeypatch, capsys):
    made = {"fedref.algorithms": ("ditto", "stacked:Ditto"), "fedref.models": ("poisson", "mine:Poisson"),
            "fedref.data": ("counts", "mine:load")}  # fmt: skip
    points = {group: [EntryPoint(*names, group)] for group, names in made.items()}
    monkeypatch.setattr(names, "entry_points", lambda group: points[group])
    words = ["run", "ditto", "--data", "counts", "--model", "poisson", "--rounds", "1", "--quiet"]
    assert main(*words, "--out", "a") == 0
    assert toml(mine / "a" / "config.toml")["algorithms"]["ditto"]["lam"] == 0.1
    assert main("resume", "a", "--quiet") == 0
    assert "did you mean 'ditto'?" in refused(capsys, "run", "dito")
    assert main("run", "a/config.toml", "--out", "b", "--quiet") == 0
    assert contents(mine / "a") == contents(mine / "b")


def test_a_network_of_torchs_runs_as_printed():
    pytest.importorskip("torch", reason="pip install torch")
    scope = {"__name__": "printed"}
    exec(NET, scope)
    how = {**FEW, "algorithm": ["fedavg", "per-fedavg"]}
    run = fedref.run(**how, data=(X, Y, CLIENT), model=scope["Net"])
    assert [len(record.rows) for record in run.records] == [3, 3]
    assert NET.count("\n") <= 13


def test_a_module_is_not_asked_for_names_that_it_makes_up(monkeypatch):
    def answer(name):
        raise RuntimeError(name)

    odd = ModuleType("odd")
    odd.__getattr__ = answer
    monkeypatch.setitem(sys.modules, "odd", odd)
    assert own_modules(["odd"]) == {}


# ---- real targets, end to end: linear least squares as the page prints it ------------------------

RNG = np.random.default_rng(0)
REAL_X = RNG.normal(size=(200, 3))
REAL_Y = REAL_X @ np.array([1.0, -2.0, 0.5]) + 0.3 + 0.1 * RNG.normal(size=200)
REAL = REAL_X, REAL_Y, np.repeat(np.arange(10), 20)


def test_full_batches_of_all_clients_reach_the_least_squares_of_all_rows(mine):
    how = {"rounds": 60, "clients_per_round": 10, "steps": 1, "batch_size": 0, "lr": 0.5}
    run = fedref.run(algorithm="fedavg", data=REAL, model="mine:LeastSquares", **how)
    federation = split("natural", Source(*REAL))
    rows = federation.train.rows
    A, y = np.column_stack([REAL[0], np.ones(200)]), REAL[1]
    w = np.linalg.lstsq(A[rows], y[rows], rcond=None)[0]
    np.testing.assert_allclose(run.records[0].state.server.w, w, rtol=1e-12)
    _, loss = run.curve("fedavg", "test_loss")
    rows = federation.test.rows
    assert loss[0, -1] == pytest.approx(((A[rows] @ w - y[rows]) ** 2).mean() / 2, rel=1e-10)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_algorithm_has_a_loss_of_real_targets(mine, dtype):
    how = {"algorithm": [*names.ALGORITHMS], "data": REAL, "model": "mine:LeastSquares"}
    run = fedref.run(**{**FEW, **how}, dtype=dtype, unseen=0.5)
    for record in run.records:
        row, parameters = record.rows[-1], next(tree.leaves(record.state.server))
        assert np.isfinite([row["test_loss"], row["test_loss_mean"], row["train_loss"]]).all()
        assert np.isnan([row["accuracy"], row["accuracy_mean"], row["unseen_accuracy"]]).all()
        assert parameters.dtype == dtype


def test_whole_numbers_are_targets_too(mine):
    X, y, client = REAL
    ways = [(X, np.round(3 * y).astype(kind), client) for kind in (float, int)]
    runs = [fedref.run(data=data, model="mine:LeastSquares", **FEW) for data in ways]
    for one, other in zip(*(run.records[0].rows for run in runs)):
        assert one == pytest.approx(other, nan_ok=True)


def test_the_command_says_the_loss_and_draws_it(mine):
    np.savez(mine / "a.npz", **dict(zip(("X", "y", "client"), REAL)))
    words = "--data a.npz --model mine:LeastSquares --rounds 4 --clients-per-round 3 --quiet"
    assert main("run", "fedavg", "apfl", *words.split(), "--out", "a") == 0
    run = fedref.load_run("a")
    assert results.heading(run).startswith("Test loss, over 5 evaluated rounds")
    header, first, _ = run.summary().cells()
    losses = run.curve("fedavg", "test_loss")[1][0]
    assert header[1:4] == ["average", "minimum", "final"]
    assert first[1:4] == [f"{x:#.4g}" for x in (losses.mean(), losses.min(), losses[-1])]
    assert "minimum (clients)" in (mine / "a" / "summary.md").read_text()
    assert ",,," in (mine / "a" / "metrics.csv").read_text().splitlines()[1]
    axes = curves(run.table()).axes
    assert [one.get_ylabel() for one in axes] == ["training loss", "test loss"]
    before = contents(mine / "a")
    assert main("resume", "a", "--quiet") == 0
    assert contents(mine / "a") == before


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_models_of_labels_refuse_them(here, capsys, model):
    np.savez("a.npz", X=REAL[0], y=np.where(np.arange(200) == 7, 0.5, np.arange(200) % 2))
    words = f"--data a.npz --split iid --set split.users=4 --model {model}"
    line = refused(capsys, "run", "fedavg", *words.split())
    assert f"a.npz: y is 0.5 in row 7, and model {model} takes labels; expected whole" in line
    assert "a model of real targets, whose labels are ()" in line
