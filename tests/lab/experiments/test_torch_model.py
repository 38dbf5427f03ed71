"""A torch.nn.Module runs as a model: fedref's MLP in torch gives fedref's numbers."""

import copy
import inspect
import pickle
import sys

import numpy as np
import pytest
from helpers import same
from running import main

import fedref
from fedref import checks, strategies
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.lab.experiments import own_code, torch_model
from fedref.models import MLP
from fedref.models.batch import Batch
from fedref.rounds import threads

torch = pytest.importorskip("torch", reason="pip install torch")
nn = torch.nn

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
CLIENT = np.repeat(["a", "b", "c", "d"], 10)
HOW = {"data": (X, Y, CLIENT), "rounds": 2, "clients_per_round": 3, "batch_size": 4}


@pytest.fixture(autouse=True)
def usual_numbers():
    """torch's own default, which a test may change, as its backend does."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float32)


class Layers(nn.Module):
    """fedref's MLP: its parameters in its order, weights (in, out)."""

    def __init__(self, features: int, classes: int, width: int = 4):
        super().__init__()
        shapes = {"W1": (features, width), "b1": width, "W2": (width, classes), "b2": classes}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, X):
        return torch.tanh(X @ self.W1 + self.b1) @ self.W2 + self.b2


class Net(nn.Module):
    def __init__(self, features, classes, width: int = 5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.ELU(), nn.Linear(width, classes))

    def forward(self, X):
        return self.body(X)


MODEL = MLP(3, (4,), 3, "tanh", l2=0.1)
SAME = torch_model.model_class(Layers)(features=3, classes=3, l2=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_function_gives_fedrefs_numbers_and_no_bit_depends_on_a_stack(dtype):
    """All that a round and an evaluation ask of a model."""
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, 3, SAME.d)).astype(dtype)
    D = Batch(
        X[:12].reshape(3, 4, 3).astype(dtype), Y[:12].reshape(3, 4), np.array([[0, 1, 2, 1]] * 3)
    )
    asked = dict.fromkeys(("loss", "grad", "sample_losses"), (w, D))
    asked |= {"logits": (w, D.X), "predict": (w, D.X), "hvp": (w, v, D)}
    asked["vjp"] = w, D.X, rng.normal(size=(3, 4, 3)).astype(dtype)
    for name, inputs in asked.items():
        stacked = getattr(SAME, name)(*inputs)
        for k in range(3):
            own = [Batch(*(x[k] for x in i)) if isinstance(i, Batch) else i[k] for i in inputs]
            np.testing.assert_array_equal(stacked[k], getattr(SAME, name)(*own))
        if dtype == np.float64:
            expected = getattr(MODEL, name)(*inputs)
            np.testing.assert_allclose(stacked, expected, rtol=1e-12, atol=1e-13)


def test_check_model_holds_it_to_taylor_slopes():
    w, v = np.random.default_rng(0).normal(size=(2, SAME.d))
    p = strategies.Problem(SAME, w, v, Batch(X[:5], Y[:5], np.array([1, 0.5, 0, 2, 1])))
    reports = checks.check_model(p)
    assert all(report.ok for report in reports.values()), reports
    assert reports["hvp"].slope == pytest.approx(3, abs=0.3)


def test_it_runs_from_python_as_a_model_does(monkeypatch):
    """An object as its class, and on threads, as if the model were large, as on one."""
    how = {**HOW, "algorithm": [*ALGORITHMS], "model": Net}
    run = fedref.run(threads=1, **how)
    rows = [record.rows[-1] for record in run.records]
    assert all(np.isfinite(x) for row in rows for x in row.values() if isinstance(x, float))
    monkeypatch.setattr(threads, "STEP", 1)
    monkeypatch.setattr(threads, "ROUND", 1)
    few = {**how, "algorithm": ["fedavg", "per-fedavg"], "model": Net(3, 3)}
    other = fedref.run(threads=2, **few)
    for label in few["algorithm"]:
        (one,), (two,) = run.records_of(label), other.records_of(label)
        assert one.rows == two.rows
        assert same(one.state, two.state)
    seeds = fedref.run(**{**how, "algorithm": "fedavg"}, seeds=[1, 2]).records
    assert not np.array_equal(seeds[0].state.server.w, seeds[1].state.server.w)


def test_a_file_names_the_class_and_its_arguments(here, monkeypatch):
    (here / "own_net.py").write_text(f"from torch import nn\n\n{inspect.getsource(Net)}")
    monkeypatch.delitem(sys.modules, "own_net", raising=False)  # another test's
    words = "run fedavg --model own_net:Net --set model.width=3 --rounds 2 -q --out"
    assert main(*words.split(), "o") == 0
    assert 'name = "own_net:Net"\nwidth = 3\n' in (here / "o" / "config.toml").read_text()
    assert main("resume", "o") == 0
    torch.set_default_dtype(torch.float64)  # of this process, not of its workers
    assert main(*words.split(), "double") == 0
    assert torch.get_default_dtype() == torch.float64
    assert main(*words.split(), "workers", "--workers", "2") == 0
    whole = (here / "o" / "metrics.csv").read_bytes()
    for other in ("double", "workers"):
        assert (here / other / "metrics.csv").read_bytes() == whole


def with_layer(layer):
    class Longer(Net):
        def __init__(self, features, classes):
            super().__init__(features, classes)
            self.body.append(layer)

    return Longer


class OneScore(Net):
    def forward(self, X):
        return self.body(X)[:, 0]


@pytest.mark.parametrize(
    ("model", "words"),
    [(with_layer(nn.Dropout(0.5)), "draws at random"), (with_layer(nn.BatchNorm1d(3)), "GroupNorm"),
     (with_layer(nn.Linear(3, 3).requires_grad_(False)), "is not trained"),
     (OneScore, r"forward returns \(\d+,\), expected")],
)  # fmt: skip
def test_what_no_client_can_have_alone_is_refused(model, words):
    with pytest.raises(ConfigError, match=words):
        fedref.run(algorithm="fedavg", model=model, **HOW)


def test_it_is_the_users_own_code():
    """So that it is examined, and its file is part of what a run is sealed with."""
    assert type(SAME).__module__ == __name__
    assert own_code.is_own(SAME)


def test_an_object_cannot_be_resumed_and_complex_w_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"an object of .*Net cannot be imported again"):
        fedref.run(algorithm="fedavg", model=Net(3, 3), out=tmp_path / "o", **HOW)
    with pytest.raises(TypeError, match="real w"):
        SAME.logits(np.zeros(SAME.d, complex), X)


def test_it_is_copied_and_pickled():
    w = np.random.default_rng(0).normal(size=SAME.d)
    for other in (copy.copy(SAME), pickle.loads(pickle.dumps(SAME))):
        np.testing.assert_array_equal(other.logits(w, X), SAME.logits(w, X))
    state = torch.random.get_rng_state()
    torch_model.model_class(Net)(features=3, classes=3).init(np.random.default_rng(0))
    assert torch.equal(state, torch.random.get_rng_state())
