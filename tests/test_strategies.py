"""What is drawn fits, shrinks, and holds fedref to its specification; what is wrong is found."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from fedref import checks, spec, strategies
from fedref.algorithm import Server
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import FedProx
from fedref.boundary.errors import ConfigError
from fedref.models import MLP, BinaryLogistic, LinearSVM, Logistic

# ---- what is wrong is found, and shrinks ---------------------------------------------------------


class Keeps(FedAvg):
    """FedAvg whose clients keep a number."""

    def finish(self, model, sent, local, client_state, data):
        return super().finish(model, sent, local, client_state, data)._replace(client_state=2.0)


def test_what_clients_keep_is_compared():
    def keeps(own):
        def rounds_of(f, w, rounds):
            for after in spec.fedavg(f, w, rounds, 0.05):
                yield after, own

        return rounds_of

    some = strategies.traces(Keeps())
    trace = strategies.smallest(some, lambda t: not t.plans[0].straggler.any(), 50)
    (k,) = trace.plans[0].clients
    assert checks.check_rounds(Keeps(), keeps({k: 2.0}), trace).ok
    assert "client 0 keeps" in checks.check_rounds(Keeps(), keeps({k: 1.0}), trace).where
    assert "clients that keep" in checks.check_rounds(Keeps(), keeps({}), trace).where


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
    ("part", "name", "wrong"),
    [
        ("rows", "step", lambda self, model, sent, local, D: local + D.X[..., 0, :1]),
        ("padding", "step", lambda self, model, sent, local, D: local + D.y.shape[-1]),
        ("stack", "step", lambda self, model, sent, local, D: local + np.mean(D.X)),
        ("clients", "combine", lambda self, model, server, uploads, cohort: Server(uploads[0])),
    ],
)
def test_each_property_of_rounds_can_fail(part, name, wrong):
    some = strategies.traces(
        type("Wrong", (FedAvg,), {name: wrong})(), BinaryLogistic(1), kinks=True
    )
    assert strategies.smallest(
        some, lambda t: not checks.check_invariance(t)[part].ok, 200, seconds=0.0
    )


def test_a_limit_that_is_none_is_found():
    one, other = FedProx(mu=0.5, drop=True), FedAvg()
    assert strategies.smallest(
        strategies.traces(one), lambda t: not checks.check_limit(one, other, t).ok, 200, seconds=0.0
    )


# ---- what is drawn -------------------------------------------------------------------------------


def test_points_on_a_kink_are_drawn_on_request_alone():
    model = MLP(1, (1,), 2, "relu")

    def on_kink(p):
        return (p.model.unpack(p.w)[0] * p.D.X + p.model.unpack(p.w)[1] == 0).any()

    some, hinge = (
        partial(strategies.problems, st.just(it)) for it in (model, LinearSVM(1, bias=False))
    )
    assert strategies.smallest(some(kinks=True), on_kink, 100, seconds=0.0)  # one in five is
    assert strategies.smallest(some(), on_kink, 100) is None
    assert strategies.smallest(hinge(), lambda p: (p.D.y * (p.D.X @ p.w) == 1).any(), 100) is None


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


def test_a_wrong_name_is_named():
    for draw, wrong, right in (
        (strategies.models, "logistik", "logistic"),
        (strategies.algorithms, "fedpox", "fedprox"),
    ):
        with pytest.raises(ConfigError, match=f"unknown .* '{wrong}': did you mean '{right}'"):
            draw(wrong)
    for draw, given in ((strategies.problems, Logistic), (strategies.traces, "fedavg")):
        with pytest.raises(TypeError, match="is given, expected an instance of a class"):
            strategies.smallest(draw(given), bool, 1)


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
        "for words in sys.argv[1:]: assert main(words.split()) == 2\n"
        "for name in ('cnn', 'check_gradient'): assert main(['explain', name]) == 0  # need neither\n"
        "assert 'torch' not in sys.modules"
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
