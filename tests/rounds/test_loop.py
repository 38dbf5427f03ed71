"""The round loop: sizes that no case has, what is kept, other ways to gather, data that do not fit.

Cases and drawn rounds are held to the specification, one by one, stacked and on threads, by `fedref check`
(tests/proofs), by the suite and by tests/conformance/test_sources.py; none writes to its inputs.
"""

import cProfile
import gc
import platform
import pstats
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from helpers import MODELS, SIZES, make_federation, play, same, start

from fedref.algorithms import ALGORITHMS
from fedref.algorithms.apfl import APFL
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.per_fedavg import PerFedAvg
from fedref.algorithms.scaffold import Scaffold
from fedref.lab.experiments.own_code import CarefulClients, ClientError
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic, base, tree
from fedref.rounds import local_data
from fedref.rounds import loop as rounds
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_clients, run_round
from fedref.rounds.stack import stack_shared
from fedref.sampling import Sampling, make_plan

EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)
ALONE, STACKED = (partial(run_clients, stack=stack) for stack in (False, True))


@pytest.mark.parametrize(
    "model",
    [BinaryLogistic(100), Logistic(64, 10), LinearSVM(100, squared=True), MLP(64, (80, 60), 10),
     CNN((14, 14), (6, 8), 3, 40, 10)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
@pytest.mark.parametrize(
    "algorithm",
    [FedCurv(lam=0.001, lr=1e-4), PerFedAvg(beta=0.001), APFL(lr=1e-4, importance="si", z=1)],
)
def test_stack_equals_loop_at_the_sizes_of_the_papers(algorithm, model):
    """The matrix products of large batches take other routes through BLAS than tiny ones."""
    federated = make_federation(model, (100, 41, 40, 39, 20, 1))
    config = Sampling(6, epochs=1, batch_size=40)
    expected = play(algorithm, model, federated, config, rounds=2, work=ALONE)
    assert same(play(algorithm, model, federated, config, rounds=2, work=STACKED), expected)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_a_client_keeps_holds_no_cohort_and_a_round_asks_for_no_order_of_roles(name):
    """Roles that travelled may come back sorted. A view would keep all that it is a view of."""
    model, algorithm = MODELS["mlp"], ALGORITHMS[name]()
    federated = make_federation(model)
    states, _ = play(algorithm, model, federated, EVERYONE)
    kept = [x for x in tree.leaves(tuple(states[-1].clients.values())) if isinstance(x, np.ndarray)]
    assert all(x.base is None for x in kept)
    plan = make_plan(EVERYONE, federated.train.sizes, 3, 0, algorithm.roles)
    turned = plan._replace(rows=dict(reversed(plan.rows.items())))
    for work in (ALONE, STACKED):
        one, other = (
            run_round(algorithm, model, states[-1], it, federated, work=work)
            for it in (plan, turned)
        )
        assert same(one, other)


@pytest.mark.parametrize("name", ["fedavg", "fedcurv", "fedmeta-maml"])
def test_features_are_scaled_alike_at_once_and_batch_by_batch(name, monkeypatch):
    """uint8 pixels with shift and scale give what floating-point features made from them give."""
    model, shift, scale = MODELS["logistic"], np.array([3.0, 100.0, 30.0]), np.array([255.0, 10, 7])
    plain = make_federation(model)
    X = np.random.default_rng(0).integers(0, 256, plain.source.X.shape).astype(np.uint8)
    pixels = replace(plain, source=replace(plain.source, X=X), shift=shift, scale=scale)
    ready = replace(plain, source=replace(plain.source, X=(X.astype(float) - shift) / scale))
    expected = play(ALGORITHMS[name](), model, ready, EVERYONE)
    for _ in range(2):
        assert same(play(ALGORITHMS[name](), model, pixels, EVERYONE), expected)
        monkeypatch.setattr(local_data, "GATHER_BYTES", 0)


def test_large_models_are_run_one_by_one_with_the_same_result(monkeypatch):
    model, found = MODELS["mlp"], []
    for limit, unused in ((model.d, "run_client"), (model.d - 1, "run_stacked")):
        with monkeypatch.context() as patch:
            patch.setattr(rounds, "STACK_UP_TO", limit)
            patch.delattr(rounds, unused)
            found.append(play(FedAvg(), model, make_federation(model), EVERYONE))
    assert same(*found)


@pytest.mark.parametrize("work", [ALONE, STACKED], ids=["alone", "stacked"])
@pytest.mark.parametrize(
    ("kind", "part", "spoil", "message"),
    [
        # a code out of range would look up what is another client's
        ("lstm", "X", lambda X: np.where(X.max() == X, 7, X), "codes run from"),
        ("mlp", "X", lambda X: X[:, :-1], r"expected \(..., B, 3\)"),
        # where only 1 is told from the others, a 2 would count as a 0
        ("binary-logistic", "y", lambda y: y + 1, "labels run from 1 to 2"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_the_first_step(kind, part, spoil, message, work):
    model = MODELS[kind]
    fitting = make_federation(model)
    values = {part: spoil(getattr(fitting.source, part))}
    unfit = replace(fitting, source=replace(fitting.source, **values))
    with pytest.raises(ValueError, match=message):
        play(FedAvg(), model, unfit, EVERYONE, rounds=1, work=work)


# ---- clients that fail or never answer: who is named, who is left, whose state is whose ------------

BAD = 2


@dataclass(frozen=True)
class Fails(Scaffold):
    """Divides by zero where a feature is huge: in a step or after the steps."""

    where: str = "finish"

    def step(self, model, sent, local, D):
        if self.where == "step" and D.X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().step(model, sent, local, D)

    def finish(self, model, sent, local, client_state, data):
        if self.where == "finish" and data().X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().finish(model, sent, local, client_state, data)


def poisoned(model):
    """A federation in which a client has huge features."""
    federated = make_federation(model)
    X = federated.source.X.copy()
    X[federated.train.rows_of(BAD)] = 1e7
    return replace(federated, source=replace(federated.source, X=X))


@pytest.mark.parametrize("where", ["step", "finish"])
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_failing_client_is_named_or_dropped(where, stack, threads, monkeypatch):
    monkeypatch.setattr(rounds, "threads_for", lambda step, total: threads)
    said, model = [], MODELS["mlp"]
    federated, algorithm = poisoned(model), Fails(where=where)
    plan = make_plan(EVERYONE, federated.train.sizes, 6, 0)
    plan = plan._replace(counts=np.array([2, 1, 3, 1, 2]))  # who is left is weighed by its own
    begin = start(algorithm, model)
    told = r"^client 2 failed in round 7: \S+test_loop.py, line \d+: ZeroDivisionError: huge"
    with pytest.raises(ClientError, match=told):
        run_round(algorithm, model, begin, plan, federated, work=CarefulClients(stack=stack))
    work = CarefulClients("drop", said.append, stack=stack)
    state, log = run_round(algorithm, model, begin, plan, federated, work=work)
    assert said[0].startswith("client 2 failed in round 7: ")
    assert said[0].endswith("ZeroDivisionError: huge feature; it is dropped")
    # a client that never answered is one that was dropped, except for what it was sent
    late = plan._replace(straggler=np.arange(len(SIZES)) == BAD)
    expected, other = run_round(Scaffold(drop=True), model, begin, late, federated)
    assert same(state, expected)
    assert (log.failed, log.dropped, other.failed, other.dropped) == (1, 0, 0, 1)
    assert log.floats_up == other.floats_up == 4 * 2 * model.d
    assert log.floats_down == other.floats_down == 5 * 2 * model.d


@pytest.mark.parametrize("fails", [True, False], ids=["on-failure=drop", "straggler"])
def test_a_client_whose_reply_did_not_count_keeps_its_old_state(fails):
    """So SCAFFOLD's c stays the mean of all c_i; a client that is lost in its first round has none."""
    model = MODELS["mlp"]
    healthy, broken = make_federation(model), poisoned(model)
    state, algorithm = start(Scaffold(), model), Fails()
    for t, lost in enumerate([True, False, True, True, False]):
        plan = make_plan(EVERYONE, healthy.train.sizes, t, 0)
        before, given = state.clients.get(BAD), broken if lost and fails else healthy
        if lost and not fails:
            plan = plan._replace(straggler=np.arange(len(SIZES)) == BAD)
        work = CarefulClients("drop", lambda _: None)
        state, log = run_round(algorithm, model, state, plan, given, work=work)
        assert (log.failed, log.dropped) == (lost and fails, lost and not fails)
        assert (state.clients.get(BAD) is before) == lost
        mean = sum(kept.c_i for kept in state.clients.values()) / len(SIZES)
        np.testing.assert_allclose(state.server.c, mean, rtol=1e-12, atol=1e-15)


# ---- what a round does beside its arithmetic, by counting -----------------------------------------

SIXTY = (60, 60, 60)
STEPS = 30  # 5 epochs of 6 batches


def round_of(model, epochs=5):
    """(the work of a FedAvg round of 6 steps an epoch, its data), with a stack of three clients."""
    federated, algorithm = make_federation(model, SIXTY), FedAvg(lr=0.01)
    plan = make_plan(Sampling(3, epochs=epochs, batch_size=10), federated.train.sizes, 0, 0)
    sent = algorithm.download(start(algorithm, model).server)
    data = gather(plan, federated, np.float64, np.arange(3), np.full(3, 1 / 3))
    return (algorithm, model, sent, [None] * 3, data), federated


@pytest.mark.parametrize(("model", "most"), [(LinearSVM(3), 22), (Logistic(3, 4), 40)])
def test_calls_of_a_step(model, most):
    """Python's and NumPy's functions and methods, operators not among them."""
    calls = []
    for epochs in (5, 5, 10):  # the first makes what is made once
        work, _ = round_of(model, epochs)
        profile = cProfile.Profile()
        gc.disable()  # Hypothesis has the collector call it
        profile.runcall(run_clients, *work)
        gc.enable()
        calls.append(pstats.Stats(profile).total_calls)
    assert calls[2] - calls[1] <= most * STEPS


@pytest.mark.parametrize("kind", [LinearSVM(3), Logistic(3, 4)])
def test_a_round_gathers_every_batch_once(kind, monkeypatch):
    """Labels and weights of the data are looked at once."""
    monkeypatch.setattr(local_data, "GATHER_BYTES", 0)
    gathered, looked = [], []
    affine, check_labels = local_data.affine, base.check_labels
    monkeypatch.setattr(local_data, "affine", lambda X, *how: gathered.append(X) or affine(X, *how))
    monkeypatch.setattr(base, "check_labels", lambda *it: looked.append(it) or check_labels(*it))
    work, _ = round_of(kind)
    _, counts = run_clients(*work)
    assert counts == (3 * STEPS, 0, 5 * sum(SIXTY), 0)
    assert sum(X.nbytes for X in gathered) == 5 * sum(SIXTY) * 3 * 8
    assert len(gathered) == STEPS
    assert len(looked) == 1


def test_a_start_that_all_share_is_not_copied():
    w = np.zeros(5)
    assert np.shares_memory(stack_shared([w, w, w]), w)
    two = stack_shared([(w, 1), (w.copy(), 1)])
    assert not np.shares_memory(two[0], w)
    np.testing.assert_array_equal(two[1], [1, 1])
    np.testing.assert_array_equal(stack_shared([w, w, w + 1]), [w, w, w + 1])


FAULTS = """
import resource
from reproduce.speed.ours import prepare
play = prepare("fedref", "float32", "W3")
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    play()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc's malloc keeps")
def test_a_round_in_a_script_takes_the_memory_of_the_round_before():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000  # pages; 4 400 where each array is mapped anew
