"""A torch.nn.Module runs as a model: fedref's MLP in torch gives fedref's numbers in every algorithm."""

import copy
import inspect
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedref
from fedref import checks, strategies, tree
from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.lab.experiments import torch_model
from fedref.models import MLP
from fedref.models.batch import Batch
from fedref.rounds.evaluation import evaluate
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import pool, run_clients, run_round
from fedref.sampling import Sampling, make_plan

torch = pytest.importorskip("torch", reason="pip install torch")
nn = torch.nn

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
CLIENT = np.repeat(["a", "b", "c", "d"], 10)
HOW = {"data": (X, Y, CLIENT), "rounds": 2, "clients_per_round": 3, "batch_size": 4}


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


def federation():
    rows = np.arange(40)
    train = Part(rows[:30], np.array([0, 8, 15, 24, 30]))
    return Federation(Source(X, Y), train, Part(rows[30:], np.array([0, 3, 5, 8, 10])))


def rounds(it, model, dtype=np.float64, **how):
    """Return the state after three rounds, and the scores."""
    whole, sampling = federation(), Sampling(3, epochs=2, batch_size=3, support=0.5)
    trained = pool(whole, np.random.default_rng(0)) if it.pooled else whole
    w = np.random.default_rng(1).normal(size=model.d).astype(dtype)
    state = State(it.initial(model, w), {})
    for t in range(3):
        drawn = replace(sampling, clients_per_round=1) if it.pooled else sampling
        plan = make_plan(drawn, trained.train.sizes, t, 0, it.roles)
        state, _ = run_round(it, model, state, plan, trained, dtype=dtype,
                             work=lambda *a: run_clients(*a, **how))  # fmt: skip
        if it.watches_loss:
            state = state._replace(server=it.observe_loss(state.server, 1.0 - t))
    return state, evaluate(it, model, state, whole, sampling, round=3, seed=0, dtype=dtype)


def numbers(*trees):
    parts = (tuple(x.values()) if isinstance(x, dict) else x for x in trees)
    return [np.asarray(x, float) for x in tree.leaves(tuple(parts)) if x is not None]


def values(after):
    state, scores = after
    return numbers(state.server, state.clients, scores)


@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - {"apfl"}))  # whose units are MLP's
def test_every_algorithm_gives_fedrefs_numbers(name):
    it = ALGORITHMS[name]()
    for x, y in zip(values(rounds(it, SAME)), values(rounds(it, MODEL)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_bit_depends_on_stacks_or_threads(dtype):
    it = ALGORITHMS["per-fedavg"]()
    alone = values(rounds(it, SAME, dtype, stack=False, threads=1))
    for how in ({"stack": True}, {"stack": False, "threads": 3}, {"stack": True, "threads": 2}):
        for x, y in zip(values(rounds(it, SAME, dtype, **how)), alone, strict=True):
            np.testing.assert_array_equal(x, y)


def test_check_model_holds_it_to_taylor_slopes():
    w, v = np.random.default_rng(0).normal(size=(2, SAME.d))
    p = strategies.Problem(SAME, w, v, Batch(X[:5], Y[:5], np.array([1, 0.5, 0, 2, 1])))
    reports = checks.check_model(p)
    assert all(report.ok for report in reports.values()), reports
    assert reports["hvp"].slope == pytest.approx(3, abs=0.3)


@pytest.mark.parametrize("model", [Net, Net(3, 3)], ids=["class", "object"])
def test_it_runs_from_python_as_a_model_does(model):
    said = [fedref.run(algorithm=["fedavg", "fedmeta-maml"], model=model, **HOW) for _ in range(2)]
    one, other = (numbers(*(record.state.server for record in run.records)) for run in said)
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, y)
    seeds = fedref.run(algorithm="fedavg", model=model, seeds=[1, 2], **HOW).records
    assert not np.array_equal(seeds[0].state.server.w, seeds[1].state.server.w)


def test_a_file_names_the_class_and_its_arguments(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(f"from torch import nn\n\n{inspect.getsource(Net)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_net", raising=False)  # another test's
    from fedref.lab.commands import main

    words = "run fedavg --model own_net:Net --set model.width=3 --rounds 2 -q --out"
    assert main([*words.split(), "o"]) == 0
    assert 'name = "own_net:Net"\nwidth = 3\n' in (tmp_path / "o" / "config.toml").read_text()
    assert main(["resume", "o"]) == 0
    whole = (tmp_path / "o" / "metrics.csv").read_bytes()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of this process, not of its workers
    try:
        assert main([*words.split(), "double"]) == 0
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(usual)
    assert (tmp_path / "double" / "metrics.csv").read_bytes() == whole
    assert main([*words.split(), "two", "--workers", "2"]) == 0
    assert (tmp_path / "two" / "metrics.csv").read_bytes() == whole


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
