"""What is drawn fits, shrinks, and holds fedref to its specification; what is wrong is found."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st

from fedref import checks, spec, strategies
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import FedProx
from fedref.boundary.errors import ConfigError
from fedref.models import MLP, BinaryLogistic, LinearSVM, Logistic

# ---- what is wrong is found, and shrinks ---------------------------------------------------------


@dataclass(frozen=True)
class Wrong(FedProx):
    """FedProx with 2μ."""

    def step(self, model, sent, local, *batches):
        return super().step(model, sent._replace(mu=2 * sent.mu), local, *batches)


def fedprox(f, w, rounds):
    for clients in rounds:
        ws = []
        for client in clients:
            w_k = w
            for (D,) in client.steps:
                w_k = w_k - 0.5 * (f.grad(w_k, D) + w_k - w)
            ws.append(w_k)
        w = spec.average(spec.sample_weights(clients), ws)
        yield w


def test_a_wrong_algorithm_shrinks_to_a_few_numbers():
    right, wrong = FedProx(lr=0.5, mu=1.0), Wrong(lr=0.5, mu=1.0)
    assert checks.check_rounds(right, fedprox).ok
    report = checks.check_rounds(wrong, fedprox)
    assert not report.ok
    assert report.where.startswith("round 0, w: got ")
    assert "BinaryLogistic(features=1" in report.where


@dataclass(frozen=True)
class Loses(FedAvg):
    """FedAvg whose clients keep what they should not, or another number."""

    kept: ClassVar[float] = 2.0

    def finish(self, model, sent, local, client_state, data):
        return (
            super().finish(model, sent, local, client_state, data)._replace(client_state=self.kept)
        )


def test_what_clients_keep_is_compared():
    def keeps(own):
        def rounds_of(f, w, rounds):
            for after in spec.fedavg(f, w, rounds, 0.05):
                yield after, own

        return rounds_of

    some = strategies.traces(Loses())
    trace = strategies.smallest(some, lambda t: not t.plans[0].straggler.any(), 50)
    (k,) = trace.plans[0].clients
    assert checks.check_rounds(Loses(), keeps({k: 2.0}), trace).ok
    assert "client 0 keeps" in checks.check_rounds(Loses(), keeps({k: 1.0}), trace).where
    assert "clients that keep" in checks.check_rounds(Loses(), keeps({}), trace).where


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("gradient", {"grad": lambda self, w, D: Logistic.grad(self, w, D) * 2}),
        ("hvp", {"hvp": lambda self, w, v, D: Logistic.hvp(self, w, v, D) + 1e-9}),
        ("symmetric", {"hvp": lambda self, w, v, D: Logistic.hvp(self, w, v, D) + np.roll(v, 1)}),
        ("stack", {"loss": lambda self, w, D: 0 * w[..., 0] + np.max(Logistic.loss(self, w, D))}),
        ("rows", {"grad": lambda self, w, D: Logistic.grad(self, w, D) + D.X[0, 0]}),
        ("padding", {"loss": lambda self, w, D: Logistic.loss(self, w, D) + len(D.y)}),
    ],
)  # fmt: skip
def test_each_property_of_a_model_can_fail(part, change):
    model = type("Wrong", (Logistic,), change)(1, 2)
    found = strategies.smallest(
        strategies.problems(st.just(model), kinks=True),
        lambda p: not checks.check_model(p)[part].ok,
        100,
    )
    assert found is not None
    assert len(found.D.y) <= 2


@pytest.mark.parametrize(
    ("part", "step"),
    [
        ("rows", lambda self, model, sent, local, D: local + D.X[..., 0, :1]),
        ("padding", lambda self, model, sent, local, D: local + D.y.shape[-1]),
        ("stack", lambda self, model, sent, local, D: local + np.mean(D.X)),
    ],
)
def test_each_property_of_rounds_can_fail(part, step):
    wrong = type("Wrong", (FedAvg,), {"step": step})()
    some = strategies.traces(wrong, BinaryLogistic(1), kinks=True)
    found = strategies.smallest(
        some, lambda t: not checks.check_invariance(t)[part].ok, 200, seconds=0.0
    )
    assert found is not None


def test_the_order_of_clients_can_matter():
    def combine(self, model, server, uploads, cohort):
        return server._replace(w=uploads[0])

    wrong = type("First", (FedAvg,), {"combine": combine})()
    some = strategies.traces(wrong, BinaryLogistic(1))
    found = strategies.smallest(some, lambda t: not checks.check_invariance(t)["clients"].ok, 200)
    assert len(found.plans) == 1
    assert len(found.offsets) == 3  # two clients


def test_a_limit_that_is_none_is_found():
    one, other = FedProx(mu=0.5, drop=True), FedAvg()
    some = strategies.traces(one)
    assert strategies.smallest(
        some, lambda t: not checks.check_limit(one, other, t).ok, 200, seconds=0.0
    )


# ---- what is drawn -------------------------------------------------------------------------------


def test_points_on_a_kink_are_drawn_on_request_alone():
    model = MLP(1, (1,), 2, "relu")

    def on_kink(p):
        return (p.model.unpack(p.w)[0] * p.D.X + p.model.unpack(p.w)[1] == 0).any()

    some = strategies.problems(st.just(model))
    assert strategies.smallest(some, on_kink, 300) is None
    assert strategies.smallest(
        strategies.problems(st.just(model), kinks=True), on_kink, 300, seconds=0.0
    )
    hinge = strategies.problems(st.just(LinearSVM(1, bias=False)))
    assert strategies.smallest(hinge, lambda p: (p.D.y * (p.D.X @ p.w) == 1).any(), 300) is None


def test_real_targets_and_weights():
    class Real(BinaryLogistic):
        labels = ()

    found = strategies.smallest(
        strategies.batches(Real(1), weights=True),
        lambda D: D.s is not None and (D.s == 0).any(),
        200,
    )
    assert found.y.dtype == float
    assert found.s.any()
    assert strategies.smallest(strategies.batches(Real(1), empty=True), lambda D: not len(D.y), 50)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strategies.models("logistik"), "unknown family 'logistik': did you mean 'logistic'"),
        (lambda: strategies.algorithms("fedpox"), "unknown algorithm 'fedpox': did you mean 'fedprox'"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_a_failure_is_made_smaller_for_so_long_and_no_longer():
    some = strategies.arrays(8)
    whole = strategies.smallest(some, lambda x: x.sum() > 3, 200)
    assert sorted(whole) == [0, 0, 0, 0, 0, 0, 1.5, 2.0]
    at_once = strategies.smallest(some, lambda x: x.sum() > 3, 200, seconds=0.0)
    assert at_once.sum() > 3
    assert np.count_nonzero(at_once) > np.count_nonzero(whole)


def test_without_hypothesis_it_says_what_to_install():
    code = (
        "import sys; sys.modules['hypothesis'] = None\nfrom fedref.lab.commands import main\n"
        "for words in sys.argv[1:]: assert main(words.split()) == 2"
    )
    commands = ["explain fedprox", "conformance fedref --random 1"]
    done = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True)
    said = done.stderr.splitlines()
    assert ['pip install "fedref[strategies]"' in line for line in said] == [True] * len(commands)


def test_what_fails_now_and_then_is_a_failure():
    calls = []

    def fails(x):
        calls.append(x)
        return len(calls) == 3

    assert strategies.smallest(strategies.arrays(2), fails, 20) is not None
