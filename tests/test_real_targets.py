"""Real targets, end to end: linear least squares by hand, as anybody's model."""

from dataclasses import dataclass

import numpy as np
import pytest
from running import contents, main, refused

import fedref
from fedref import tree
from fedref.algorithms import ALGORITHMS
from fedref.lab.datasets import Source, split
from fedref.lab.experiments import results
from fedref.lab.plots.runs import curves
from fedref.models import base
from fedref.models.linear import LinearLogit

pytestmark = pytest.mark.usefixtures("here")


@dataclass(frozen=True)
class LeastSquares(LinearLogit):
    """ℓ = ½ (xᵀθ + b − y)², y any number."""

    features: int
    l2: float = 0.0
    bias: bool = True
    labels = ()

    def loss_of(self, z, y):
        return (z - y) ** 2 / 2

    def label_of(self, z):
        return z.real

    def grad(self, w, D):
        z = self.logits(w, D.X)
        return self.vjp(w, D.X, (z - D.y) * base.mean_weights(D, z.dtype)) + self.l2 * w


RNG = np.random.default_rng(0)
X, CLIENT = RNG.normal(size=(200, 3)), np.repeat(np.arange(10), 20)
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 + 0.1 * RNG.normal(size=200)
FEW = {"model": LeastSquares, "rounds": 2, "clients_per_round": 3}
WORDS = ["--model", f"{__name__}:LeastSquares", "--clients-per-round", "3", "--quiet"]


def test_full_batches_of_all_clients_reach_the_least_squares_of_all_rows():
    how = {"rounds": 60, "clients_per_round": 10, "steps": 1, "batch_size": 0, "lr": 0.5}
    run = fedref.run(algorithm="fedavg", data=(X, Y, CLIENT), model=LeastSquares, **how)
    federation = split("natural", Source(X, Y, CLIENT))
    rows = federation.train.rows
    A = np.column_stack([X, np.ones(len(X))])
    w = np.linalg.lstsq(A[rows], Y[rows], rcond=None)[0]
    np.testing.assert_allclose(run.records[0].state.server.w, w, rtol=1e-12)
    _, loss = run.curve("fedavg", "test_loss")
    rows = federation.test.rows
    assert loss[0, -1] == pytest.approx(((A[rows] @ w - Y[rows]) ** 2).mean() / 2, rel=1e-10)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_algorithm_has_a_loss_and_no_accuracy(dtype):
    run = fedref.run(algorithm=[*ALGORITHMS], data=(X, Y, CLIENT), dtype=dtype, unseen=0.5, **FEW)
    for record in run.records:
        row, parameters = record.rows[-1], next(tree.leaves(record.state.server))
        assert np.isfinite([row["test_loss"], row["test_loss_mean"], row["train_loss"]]).all()
        assert np.isnan([row["accuracy"], row["accuracy_mean"], row["unseen_accuracy"]]).all()
        assert parameters.dtype == dtype


def test_whole_numbers_are_targets_too():
    pair = (np.round(3 * Y), np.round(3 * Y).astype(int))
    runs = [fedref.run(algorithm="fedavg", data=(X, y, CLIENT), **FEW) for y in pair]
    for one, other in zip(*(run.records[0].rows for run in runs)):
        assert one == pytest.approx(other, nan_ok=True)


def test_the_command_says_the_loss_and_draws_it(here):
    np.savez(here / "a.npz", X=X, y=Y, client=CLIENT)
    words = ["run", "fedavg", "apfl", "--data", "a.npz", "--rounds", "4", *WORDS]
    assert main(*words, "--out", "a") == 0
    run = fedref.load_run("a")
    assert results.heading(run).startswith("Test loss, over 5 evaluated rounds")
    header, first, _ = run.summary().cells()
    losses = run.curve("fedavg", "test_loss")[1][0]
    assert header[1:4] == ["average", "minimum", "final"]
    assert first[1:4] == [f"{x:#.4g}" for x in (losses.mean(), losses.min(), losses[-1])]
    assert "minimum (clients)" in (here / "a" / "summary.md").read_text()
    assert ",,," in (here / "a" / "metrics.csv").read_text().splitlines()[1]
    axes = curves(run.table()).axes
    assert [one.get_ylabel() for one in axes] == ["training loss", "test loss"]
    before = contents(here / "a")
    assert main("resume", "a", "--quiet") == 0
    assert contents(here / "a") == before


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_models_of_labels_refuse_them(here, capsys, model):
    np.savez(here / "a.npz", X=X, y=np.where(np.arange(200) == 7, 0.5, np.arange(200) % 2))
    words = f"--data a.npz --split iid --set split.users=4 --model {model}"
    line = refused(capsys, "run", "fedavg", *words.split())
    assert f"a.npz: y is 0.5 in row 7, and model {model} takes labels; expected whole" in line
    assert "a model of real targets, whose labels are ()" in line
