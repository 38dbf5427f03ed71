"""The round loop: the stack is the loop, and nothing but the plan decides the result."""

import multiprocessing
import os
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers import (
    MODELS,
    SIZES,
    VARIANTS,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    refusing,
    same,
    start,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import Batch, ConfigError, rounds, tree
from fedref.algorithm import Cohort, State, weighted_mean, weighted_sum
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.cost import Counter
from fedref.experiments.workers import ClientError, Processes, Workers
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.numerics import Array
from fedref.rounds import gather, pool, run_client, run_round, run_stacked
from fedref.sampling import Sampling, make_plan, stream

CONFIG = Sampling(4, epochs=2, batch_size=4)
EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)


@st.composite
def plans(draw):
    """(sizes, how rounds are drawn): ragged n_k with 1 and n_k < B, epochs or steps, B = 0."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    amount = draw(st.integers(1, 3))
    epochs = draw(st.booleans())
    config = Sampling(
        draw(st.integers(1, len(sizes))),
        epochs=amount if epochs else None,
        steps=None if epochs else amount,
        batch_size=draw(st.sampled_from([0, 1, 2, 4, 10])),
        sampling=draw(st.sampled_from(["uniform", "by-samples"])),
        stragglers=draw(st.sampled_from([0.0, 0.5])),
    )
    return sizes, config


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "fedprox-until-gamma"])
@settings(max_examples=12)
@given(plans(), st.integers(0, 99))
def test_stack_equals_loop_to_the_bit(variant, kind, drawn, seed):
    sizes, config = drawn
    model, algorithm = MODELS[kind], make_algorithm(variant)
    federated = make_federation(model, sizes, seed=seed)
    stacked = play(algorithm, model, federated, config, seed=seed, stack=True)
    looped = play(algorithm, model, federated, config, seed=seed, stack=False)
    assert same(stacked[0], looped[0])
    assert same(stacked[1], looped[1])


@pytest.mark.parametrize(
    "model",
    [BinaryLogistic(100), Logistic(64, 10), LinearSVM(100, squared=True), MLP(64, (80, 60), 10),
     CNN((14, 14), (6, 8), 3, 40, 10)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
@pytest.mark.parametrize("variant", ["fedcurv", "per-fedavg", "apfl-si"])
def test_stack_equals_loop_at_the_sizes_of_the_papers(variant, model):
    """The matrix products of large batches take other routes through BLAS than tiny ones."""
    options = {"beta": 0.001} if variant == "per-fedavg" else {"lr": 1e-4}
    algorithm = make_algorithm(variant, **options)
    federated = make_federation(model, (100, 41, 40, 39, 20, 1))
    config = Sampling(6, epochs=1, batch_size=40)
    expected = play(algorithm, model, federated, config, rounds=2, stack=False)
    assert same(play(algorithm, model, federated, config, rounds=2, stack=True), expected)


@pytest.mark.parametrize("kind", MODELS)
def test_run_stack_equals_run_client(kind):
    """The two functions themselves, on a cohort whose clients end at different steps."""
    model, algorithm = MODELS[kind], make_algorithm("per-fedavg")
    federated = make_federation(model)
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0, algorithm.roles)
    assert len(set(plan.steps.tolist())) > 1
    data = gather(plan, federated, np.float64, np.arange(len(SIZES)))
    sent = algorithm.download(start(algorithm, model).server)
    ended = run_stacked(algorithm, model, sent, [None] * len(SIZES), data)
    for k, local in enumerate(ended):
        assert same(local, run_client(algorithm, model, sent, None, data, k))
        assert not np.array_equal(local, sent.w)  # n_k = 1 and n_k < B move too


def test_one_client_is_the_plain_loop_over_its_batches():
    """run_client against steps written out by hand, and short last batches hold real rows only."""
    model = MODELS["logistic"]
    federated = make_federation(model, (7,))
    algorithm = FedAvg(lr=0.3)
    plan = make_plan(Sampling(1, epochs=2, batch_size=4), federated.train.sizes, 0, 0)
    state, _ = run_round(algorithm, model, start(algorithm, model), plan, federated)
    w = start(algorithm, model).server.w
    for rows in plan.rows["D"][0]:
        rows = rows[rows >= 0]
        w = w - 0.3 * model.grad(w, federated.batch(federated.train.of(0)[rows]))
    np.testing.assert_allclose(state.server.w, w, rtol=1e-13)


class Backwards(Executor):
    """Runs what it is given from the last to the first, when the first result is asked for."""

    def __init__(self):
        self.tasks = []

    def submit(self, f, /, *args, **kwargs):
        executor = self

        class Late(Future):
            def result(self, timeout=None):
                while executor.tasks:
                    future, f, args, kwargs = executor.tasks.pop()
                    try:
                        future.set_result(f(*args, **kwargs))
                    except Exception as error:
                        future.set_exception(error)
                return super().result(timeout)

        future = Late()
        self.tasks.append((future, f, args, kwargs))
        return future


@pytest.mark.parametrize("variant", VARIANTS)
def test_executor_workers_and_grouping_do_not_matter(variant):
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    config = replace(EVERYONE, stragglers=0.4)
    expected = play(algorithm, model, federated, config)
    for workers in (2, 3, 9):
        for stack in (True, False):
            with ThreadPoolExecutor(workers) as executor:
                got = play(
                    algorithm, model, federated, config,
                    executor=executor, workers=workers, stack=stack,
                )  # fmt: skip
            assert same(got, expected)
    assert same(
        play(algorithm, model, federated, config, executor=Backwards(), workers=3), expected
    )


def test_processes_give_the_same_bytes_and_a_dead_worker_is_reported():
    model = MODELS["mlp"]
    federated = make_federation(model)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        for variant in ("fedavg", "apfl-si", "fedmeta-sgd"):
            algorithm = make_algorithm(variant)
            got = play(algorithm, model, federated, CONFIG, executor=executor, workers=2)
            assert same(got, play(algorithm, model, federated, CONFIG))
        with pytest.raises(ClientError, match=r"round 1: the worker with clients .* died"):
            play(Dies(), model, federated, CONFIG, rounds=1, executor=executor, workers=2)


def test_a_dead_worker_can_be_dropped_as_a_client_that_fails():
    model, algorithm = MODELS["logistic"], Dies()
    federated = make_federation(model)
    plan = make_plan(CONFIG, federated.train.sizes, 0, 0)
    state = State(algorithm.initial(model, model.init(np.random.default_rng(0))), {})
    with Processes(2) as executor:
        after, log = run_round(
            algorithm, model, state, plan, federated,
            work=Workers(executor, workers=2, on_failure="drop"),
        )  # fmt: skip
    assert after is state
    assert log.failed == len(plan.clients)


@dataclass(frozen=True)
class Dies(FedAvg):
    """Ends the process that works for it."""

    def step(self, model, sent, local, *batches):
        os._exit(1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_runs_are_the_same_and_another_seed_is_not(variant):
    model = MODELS["logistic"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    once = play(algorithm, model, federated, CONFIG, seed=3)
    assert same(once, play(algorithm, model, federated, CONFIG, seed=3))
    other, _ = play(algorithm, model, federated, CONFIG, seed=4)
    assert not same(once[0][0], other[0])  # another start
    state = once[0][0]
    other, _ = play(algorithm, model, federated, CONFIG, seed=4, state=state)
    assert not same(once[0][-1].server, other[-1].server)  # from the same start, other rounds


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_input_is_written_to(variant):
    """All arrays are read-only in `play`; here also their bytes are compared."""
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    states, _ = play(algorithm, model, federated, EVERYONE, rounds=3)
    before = states[-1]
    copy = tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, before.server)
    copies = {
        k: tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, client_state)
        for k, client_state in before.clients.items()
    }
    plan = make_plan(EVERYONE, federated.train.sizes, 3, 0, algorithm.roles)
    X, y = federated.source.X.copy(), federated.source.y.copy()
    for array in tree.leaves((before.server, *before.clients.values())):
        if isinstance(array, np.ndarray) and array.base is None:
            array.setflags(write=True)  # so that a write would go unnoticed but for the copies
    after, _ = run_round(algorithm, model, before, plan, federated)
    assert same(before, State(copy, copies))
    assert same((federated.source.X, federated.source.y), (X, y))
    assert not same(after.server, before.server)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_order_in_which_a_cohort_is_drawn_does_not_matter(variant, monkeypatch):
    """Clients are summed in ascending order, however they were drawn."""
    from fedref import sampling

    model = MODELS["logistic"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    expected = play(algorithm, model, federated, CONFIG)
    draw = sampling.COHORTS["uniform"]
    monkeypatch.setitem(sampling.COHORTS, "uniform", lambda *args: draw(*args)[::-1])
    assert same(play(algorithm, model, federated, CONFIG), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_stays_float32(variant):
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    w = start(FedAvg(), model).server.w.astype(np.float32)
    state = State(algorithm.initial(model, w), {})
    states, _ = play(algorithm, model, federated, CONFIG, state=state, dtype=np.float32)
    exact = State(algorithm.initial(model, w.astype(np.float64)), {})
    doubles, _ = play(algorithm, model, federated, CONFIG, state=exact)
    for state, double in zip(states, doubles):
        arrays = [
            x
            for x in tree.leaves((state.server, *state.clients.values()))
            if isinstance(x, np.ndarray)
        ]
        assert {x.dtype for x in arrays} == {np.dtype(np.float32)}
        first, expected = (next(tree.leaves(s.server)) for s in (state, double))
        np.testing.assert_allclose(first, expected, rtol=1e-3, atol=1e-4)


def test_features_are_scaled_alike_at_once_and_batch_by_batch(monkeypatch):
    """uint8 pixels with shift and scale give what floating-point features made from them give."""
    model = MODELS["logistic"]
    plain = make_federation(model)
    X = np.random.default_rng(0).integers(0, 256, plain.source.X.shape).astype(np.uint8)
    shift, scale = np.array([3.0, 100.0, 30.0]), np.array([255.0, 10.0, 7.0])
    pixels = replace(
        plain, source=replace(plain.source, X=tree.freeze(X)), shift=shift, scale=scale
    )
    ready = replace(plain, source=replace(plain.source, X=(X.astype(float) - shift) / scale))
    for variant in ("fedavg", "fedcurv", "fedmeta-maml"):
        algorithm = make_algorithm(variant)
        expected = play(algorithm, model, ready, CONFIG)
        assert same(play(algorithm, model, pixels, CONFIG), expected)
        with monkeypatch.context() as patch:
            patch.setattr(rounds, "GATHER_BYTES", 0)
            assert same(play(algorithm, model, pixels, CONFIG), expected)


def test_large_models_are_run_one_by_one_with_the_same_result(monkeypatch):
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm("fedavg"), make_federation(model)
    with refusing((rounds, "run_client")):
        expected = play(algorithm, model, federated, CONFIG)
    monkeypatch.setattr(rounds, "STACK_UP_TO", model.d)
    with refusing((rounds, "run_client")):
        assert same(play(algorithm, model, federated, CONFIG), expected)
    monkeypatch.setattr(rounds, "STACK_UP_TO", model.d - 1)
    with refusing((rounds, "run_stacked")):
        assert same(play(algorithm, model, federated, CONFIG), expected)


def test_what_must_not_run_is_noticed():
    """That `play` tells the stack from the loop, and a part from its clients tried again."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    with pytest.raises(AssertionError, match="run_client was called"):
        play(FailsOnce(), model, federated, CONFIG, stack=True)
    with ThreadPoolExecutor(2) as executor, pytest.raises(AssertionError, match="one_by_one"):
        play(FailsInStep(), model, poisoned(model), EVERYONE, executor=executor, workers=2)


# -- failures


BAD = 2


@dataclass(frozen=True)
class FailsOnce(FedAvg):
    """Runs its clients alone where the stack is asked for."""

    def start(self, model, sent, client_state):
        rounds.run_client(self, model, sent, client_state, None, 0)


@dataclass(frozen=True)
class FailsInStep(FedAvg):
    """Divides by zero where a feature is huge."""

    def step(self, model, sent, local, *batches):
        if batches[0].X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().step(model, sent, local, *batches)


@dataclass(frozen=True)
class FailsInFinish(FedAvg):
    """Fails after its steps on the client that has a huge feature."""

    def finish(self, model, sent, local, client_state, data):
        if data().X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().finish(model, sent, local, client_state, data)


def poisoned(model, clients=(BAD,)):
    """A federation in which some clients have huge features."""
    federated = make_federation(model)
    X = federated.source.X.copy()
    for k in clients:
        X[federated.train.of(k)] = 1e7
    return replace(federated, source=replace(federated.source, X=tree.freeze(X)))


@pytest.mark.parametrize("cls", [FailsInStep, FailsInFinish])
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_failing_client_is_named_or_dropped(cls, stack, workers):
    model = MODELS["mlp"]
    federated, algorithm = poisoned(model), cls()
    plan = make_plan(EVERYONE, federated.train.sizes, 6, 0)
    with ThreadPoolExecutor(workers) as pool:
        how = {"stack": stack, "executor": pool if workers > 1 else None, "workers": workers}
        begin = start(algorithm, model)
        with pytest.raises(
            ClientError, match=r"^client 2 failed in round 7: ZeroDivisionError: huge feature$"
        ):
            run_round(algorithm, model, begin, plan, federated, work=Workers(**how))
        state, log = run_round(
            algorithm, model, begin, plan, federated, work=Workers(on_failure="drop", **how)
        )
    # a client that never answered is one that was dropped, except for what it was sent
    late = plan._replace(straggler=np.arange(len(SIZES)) == BAD)
    expected, other = run_round(FedAvg(), model, begin, late, federated)
    assert same(state, expected)
    assert (log.failed, log.dropped, other.failed, other.dropped) == (1, 0, 0, 1)
    assert log.floats_up == other.floats_up == 4 * model.d
    assert log.floats_down == other.floats_down == 5 * model.d


@dataclass(frozen=True)
class Remembers(FailsInFinish):
    """Keeps the sum of its own features, and how often it was there."""

    def finish(self, model, sent, local, client_state, data):
        result = super().finish(model, sent, local, client_state, data)
        times = client_state[1] + 1 if client_state else 1
        return result._replace(client_state=(float(data().X.sum()), times))


@pytest.mark.parametrize("away", [[0], [1, 3], [4], [0, 1, 2, 3]])
@pytest.mark.parametrize("why", ["straggles", "fails"])
def test_a_client_s_own_state_stays_its_own_whoever_is_missing(away, why):
    model, algorithm = MODELS["logistic"], Remembers()
    federated = make_federation(model) if why == "straggles" else poisoned(model, away)
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0)
    if why == "straggles":
        plan = plan._replace(straggler=np.isin(plan.clients, away))
    work = Workers(on_failure="drop")
    once, _ = run_round(algorithm, model, start(algorithm, model), plan, federated, work=work)
    twice, _ = run_round(algorithm, model, once, plan, federated, work=work)
    here = [k for k in range(len(SIZES)) if k not in away]
    for times, state in ((1, once), (2, twice)):
        assert sorted(state.clients) == here
        for k in here:
            features = federated.batch(federated.train.of(k)).X
            assert state.clients[k] == (pytest.approx(features.sum(), rel=1e-12), times)
            assert type(next(iter(state.clients))) is int


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("bad", [0, 2, 4])
def test_who_is_left_is_weighed_by_its_own_count_and_size(bad, weighting):
    """Clients that were drawn up to three times, and one that fails: the mean by a plain loop."""
    model, algorithm = MODELS["logistic"], FailsInStep(lr=0.2, weighting=weighting)
    federated = poisoned(model, (bad,))
    counts = np.array([2, 1, 3, 1, 2])
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0)._replace(counts=counts)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated, work=Workers(on_failure="drop"))
    total, weight = 0.0, 0
    for k in range(len(SIZES)):
        if k == bad:
            continue
        w = begin.server.w
        for rows in plan.rows["D"][k, : plan.steps[k]]:
            D = federated.batch(federated.train.of(k)[rows[rows >= 0]])
            w = w - 0.2 * model.grad(w, D)
        share = counts[k] * (SIZES[k] if weighting == "samples" else 1)
        total, weight = total + share * w, weight + share
    np.testing.assert_allclose(state.server.w, total / weight, rtol=1e-12)


def test_a_round_in_which_all_fail_changes_nothing():
    model = MODELS["mlp"]
    federated, algorithm = poisoned(model, range(len(SIZES))), FailsInFinish()
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0)
    begin = start(algorithm, model)
    work = Workers(on_failure="drop")
    state, log = run_round(algorithm, model, begin, plan, federated, work=work)
    assert state is begin
    assert (log.failed, log.floats_up) == (5, 0)


# -- stragglers


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_round_in_which_all_are_dropped_changes_nothing_and_says_so(variant):
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant, drop=True), make_federation(model)
    config = replace(CONFIG, stragglers=1.0)
    begin = start(algorithm, model)
    plan = make_plan(config, federated.train.sizes, 0, 0, algorithm.roles)
    state, log = run_round(algorithm, model, begin, plan, federated)
    assert state is begin
    assert (log.stragglers, log.dropped, log.floats_up, log.counts.grads) == (4, 4, 0, 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_dropping_stragglers_is_the_round_of_the_others(variant):
    """drop=True: only the others vote; drop=False: partial work counts, and differs."""
    model = MODELS["logistic"]
    federated = make_federation(model)
    config = replace(EVERYONE, epochs=3, stragglers=0.4)
    drops, keeps = (make_algorithm(variant, drop=drop) for drop in (True, False))
    plan = make_plan(config, federated.train.sizes, 1, 0, drops.roles)
    begin = start(drops, model)
    dropped, log = run_round(drops, model, begin, plan, federated)
    kept, partial = run_round(keeps, model, begin, plan, federated)
    assert (log.stragglers, log.dropped) == (2, 2)
    assert (partial.stragglers, partial.dropped) == (2, 0)
    assert not same(dropped.server, kept.server)

    here = ~plan.straggler
    fewer = plan._replace(
        **{
            name: getattr(plan, name)[here]
            for name in ("clients", "counts", "sizes", "amount", "straggler", "steps", "per_epoch")
        },
        rows={role: rows[here] for role, rows in plan.rows.items()},
    )
    alone, _ = run_round(drops, model, begin, fewer, federated)
    assert same(alone, dropped)


# -- costs


SAMPLES, PER_EPOCH, K = sum(SIZES), 2 + 1 + 3 + 1 + 2, len(SIZES)  # ⌈n_k/4⌉ of (7, 1, 12, 3, 5)
SUPPORT = round(0.8 * 7) + 0 + round(0.8 * 12) + round(0.8 * 3) + round(0.8 * 5)
QUERY = SAMPLES - SUPPORT

#: (options, down and up in units of K·d, grads, hvps, grad samples, hvp samples) of a first round;
#: FedProx also sends its μ down, one number a client.
COSTS = {
    "fedavg": ({}, 1, 1, 2 * PER_EPOCH, 0, 2 * SAMPLES, 0),
    "fedavg-update": ({}, 1, 1, 2 * PER_EPOCH, 0, 2 * SAMPLES, 0),
    "fedavg-meta": ({}, 1, 1, 2 * PER_EPOCH, 0, 2 * SAMPLES, 0),
    "fedprox": ({}, 1, 1, 2 * PER_EPOCH, 0, 2 * SAMPLES, 0),
    # one epoch, then γ is asked for once: two full gradients a client
    "fedprox-until-gamma": (
        {"until_gamma": 1e9}, 1, 1, PER_EPOCH + 2 * K, 0, SAMPLES + 2 * SAMPLES, 0,
    ),
    "per-fedavg": ({}, 1, 1, 4 * PER_EPOCH, 2 * PER_EPOCH, 4 * SAMPLES, 2 * SAMPLES),
    "per-fedavg-fo": ({}, 1, 1, 4 * PER_EPOCH, 0, 4 * SAMPLES, 0),
    "per-fedavg-hf": ({}, 1, 1, 8 * PER_EPOCH, 0, 8 * SAMPLES, 0),
    "fedmeta-maml": ({}, 1, 1, 2 * K, K, SUPPORT + QUERY, SUPPORT),
    "maml-adam": ({}, 1, 1, 3 * K, 2 * K, 2 * SUPPORT + QUERY, 2 * SUPPORT),
    "fedmeta-fomaml": ({}, 1, 1, 2 * K, 0, SUPPORT + QUERY, 0),
    # θ and α both ways; the gradient on S is needed again on the way back
    "fedmeta-sgd": ({}, 2, 2, 2 * K, K, SUPPORT + QUERY, SUPPORT),
    "fedmaml": ({}, 1, 2, 2 * K, K, SUPPORT + QUERY, SUPPORT),
    "fedmaml-3": ({}, 1, 2, 4 * K, 3 * K, 3 * SUPPORT + QUERY, 3 * SUPPORT),
    "fedmaml theta1": ({"evaluate": "theta1"}, 2, 2, 2 * K, K, SUPPORT + QUERY, SUPPORT),
    # w, u, v down, θ̂ and I up; one gradient a sample for the Fisher
    "fedcurv": ({}, 3, 2, 2 * PER_EPOCH + SAMPLES, 0, 3 * SAMPLES, 0),
    "apfl": ({}, 1, 1, 2 * PER_EPOCH, 0, 2 * SAMPLES, 0),
}  # fmt: skip


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("name", COSTS)
def test_costs_of_one_round_by_hand(name, stack):
    model = MODELS["mlp"]
    options, down, up, grads, hvps, grad_samples, hvp_samples = COSTS[name]
    algorithm = make_algorithm(name.split()[0], **options)
    _, (log,) = play(algorithm, model, make_federation(model), EVERYONE, rounds=1, stack=stack)
    numbers = K if name.startswith("fedprox") else 0
    assert log.floats_down == down * K * model.d + numbers
    assert log.floats_up == up * K * model.d
    assert (log.counts.grads, log.counts.hvps) == (grads, hvps)
    assert (log.counts.grad_samples, log.counts.hvp_samples) == (grad_samples, hvp_samples)


def test_every_algorithm_has_its_costs_counted():
    assert set(ALGORITHMS) - {"centralised"} <= COSTS.keys()


@pytest.mark.parametrize(
    ("importance", "grads", "samples"),
    [("gradient-square", K, SAMPLES), ("fisher", SAMPLES, SAMPLES), ("mas", 0, 0), ("si", 0, 0)],
)
def test_costs_of_apfl_while_importance_is_renewed(importance, grads, samples):
    """z = 2: rounds 1, 2, 3 send importance up; F travels down once it is not 0."""
    model = MODELS["mlp"]
    algorithm = make_algorithm("apfl", importance=importance, z=2, delta_mu=0.0)
    _, logs = play(algorithm, model, make_federation(model), EVERYONE, rounds=5)
    unit = K * model.d
    assert [log.floats_up // unit for log in logs] == [1, 2, 2, 2, 1]
    assert [log.floats_down // unit for log in logs] == [1, 1, 2, 2, 2]
    extra = np.array([0, 1, 1, 1, 0])
    assert [log.counts.grads for log in logs] == (2 * PER_EPOCH + grads * extra).tolist()
    assert [log.counts.grad_samples for log in logs] == (2 * SAMPLES + samples * extra).tolist()


def test_nothing_travels_in_centralised_training():
    model = MODELS["mlp"]
    algorithm = make_algorithm("centralised")
    pooled = pool(make_federation(model), np.random.default_rng(0))
    config = Sampling(1, epochs=1, batch_size=4)
    _, (log,) = play(algorithm, model, pooled, config, rounds=1)
    assert (log.floats_down, log.floats_up) == (0, 0)
    assert (log.counts.grads, log.counts.hvps, log.counts.grad_samples) == (7, 0, SAMPLES)


def test_counter_counts_leading_axes_and_leaves_padding_out():
    model = MODELS["logistic"]
    rng = np.random.default_rng(0)
    counter = Counter(model)
    D = make_batch(model, rng, 5, lead=(2,))
    s = np.array([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    w = rng.normal(size=(2, model.d))
    counter.grad(w, Batch(D.X, D.y, s))
    counter.hvp(w, w, D)
    counter.grad(w[0], D)  # one w, two batches
    assert counter.counts == (4, 2, 17, 10)
    assert counter.d == model.d  # everything else is the model's


# -- the server's average


def test_weighted_sum_adds_in_client_order():
    """In float32, (10⁸ + 1) − 10⁸ is 0 from the left and 1 from the right."""
    w = np.array([[1e8], [1.0], [-1e8]], np.float32)
    assert weighted_sum(np.ones(3, np.float32), w) == 0
    assert weighted_mean(np.array([0.25, 0.75]), np.array([[4.0], [8.0]])) == 7.0


def test_cohort_weights():
    cohort = Cohort(np.array([0, 3, 4]), np.array([1, 2, 1]), np.array([10, 5, 20]))
    np.testing.assert_array_equal(cohort.weights("samples"), [0.25, 0.25, 0.5])
    np.testing.assert_array_equal(cohort.weights("uniform"), [0.25, 0.5, 0.25])
    with pytest.raises(ConfigError, match="did you mean 'samples'"):
        cohort.weights("sample")


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    ("options", "message"),
    [({"weighting": "sampels"}, "did you mean 'samples'"), ({"lr": -1.0}, "expected a finite")],
)
def test_wrong_options_are_refused(name, options, message):
    cls = ALGORITHMS[name]
    if not all(hasattr(cls, option) for option in options):
        options = {"alpha": float("nan")}
    with pytest.raises(ConfigError, match=message):
        cls(**options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("per-fedavg-hf", {"delta": 0.0}, "delta is 0"),
        ("fedmeta-maml", {"server": "adm"}, "did you mean 'adam'"),
        ("fedmeta-sgd", {"inner_steps": -1}, "inner-steps is -1"),
        ("fedmaml", {"inner_steps": 0}, "inner-steps is 0"),
        ("fedmaml", {"evaluate": "theta2"}, "did you mean 'theta"),
        ("apfl", {"init": "papr"}, "did you mean 'paper'"),
        ("apfl", {"importance": "fischer"}, "did you mean 'fisher'"),
        ("apfl", {"lam": 1.5}, "lam is 1.5"),
        ("apfl", {"window": 0}, "window is 0"),
        ("apfl", {"z": -1}, "z is -1"),
    ],
)
def test_wrong_options_of_one_algorithm_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        ALGORITHMS[name](**options)


def test_pool_shuffles_every_training_row_into_one_client():
    federated = make_federation(MODELS["mlp"])
    pooled = pool(federated, stream(0, "pool"))
    assert pooled.clients == 1
    assert sorted(pooled.train.rows) == sorted(federated.train.rows)
    assert not np.array_equal(pooled.train.rows, federated.train.rows)
    assert pooled.test is federated.test


def test_measurements_are_the_mean_over_clients():
    """A diagnosis is neither counted nor sent."""

    @dataclass(frozen=True)
    class Measures(FedAvg):
        def diagnose(self, model, sent, local, data) -> dict[str, float]:
            X: Array = data().X
            model.grad(sent.w, data())
            return {"n": float(len(X))}

    model = MODELS["mlp"]
    _, (log,) = play(Measures(), model, make_federation(model), EVERYONE, rounds=1)
    assert log.measured == {"n": SAMPLES / K}
    assert log.counts.grads == 2 * PER_EPOCH
