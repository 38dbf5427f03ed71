"""The round loop: nothing but the plan decides the result (tests/test_strategies.py: stack, threads).

Long because each test is short and they share one small federation.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    MODELS,
    SIZES,
    VARIANTS,
    make_algorithm,
    make_federation,
    play,
    refusing,
    same,
    start,
)

from fedref import tree
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments.unit import careful_clients
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.rounds import local_data
from fedref.rounds import loop as rounds
from fedref.rounds.local_data import gather
from fedref.rounds.loop import pool, run_client, run_round
from fedref.rounds.stack import stack_shared, steps
from fedref.sampling import Sampling, make_plan, stream

CONFIG = Sampling(4, epochs=2, batch_size=4)
EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)


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


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_order_of_the_roles_in_a_plan_does_not_matter(variant, stack):
    """A dictionary that travelled may come back sorted; `step` takes its batches by their names."""
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0, algorithm.roles)
    turned = plan._replace(rows=dict(reversed(plan.rows.items())))
    work = careful_clients(stack=stack)
    begin = start(algorithm, model)
    expected = run_round(algorithm, model, begin, plan, federated, work=work)
    assert same(run_round(algorithm, model, begin, turned, federated, work=work), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_client_keeps_does_not_keep_the_whole_cohort_alive(variant):
    model = MODELS["mlp"]
    states, _ = play(make_algorithm(variant), model, make_federation(model), EVERYONE, rounds=3)
    kept = [x for x in tree.leaves(tuple(states[-1].clients.values())) if isinstance(x, np.ndarray)]
    assert all(x.base is None for x in kept)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_input_is_written_to(variant):
    """All arrays are read-only in `play`; here they are not, and compared."""
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    states, _ = play(algorithm, model, federated, EVERYONE, rounds=3)
    plan = make_plan(EVERYONE, federated.train.sizes, 3, 0, algorithm.roles)
    writable = deepcopy((states[-1], plan, federated.source.X, federated.source.y))
    before, own_plan, X, y = writable
    own = replace(federated, source=replace(federated.source, X=X, y=y))
    after, _ = run_round(algorithm, model, before, own_plan, own)
    assert same(writable, (states[-1], plan, federated.source.X, federated.source.y))
    assert not same(after.server, before.server)


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
            patch.setattr(local_data, "GATHER_BYTES", 0)
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
    # a dropped straggler was sent the model, and sends nothing back
    assert log.floats_down == partial.floats_down > 0
    assert log.floats_up * len(SIZES) == partial.floats_up * (len(SIZES) - 2)
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


def test_pool_shuffles_every_training_row_into_one_client():
    federated = make_federation(MODELS["mlp"])
    pooled = pool(federated, stream(0, "pool"))
    assert pooled.clients == 1
    assert sorted(pooled.train.rows) == sorted(federated.train.rows)
    assert not np.array_equal(pooled.train.rows, federated.train.rows)
    assert pooled.test is federated.test


@pytest.mark.parametrize("stack", [True, False])
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
def test_data_that_do_not_fit_are_refused_before_the_first_step(kind, part, spoil, message, stack):
    model = MODELS[kind]
    fitting = make_federation(model)
    values = {part: spoil(getattr(fitting.source, part))}
    unfit = replace(fitting, source=replace(fitting.source, **values))
    with pytest.raises(ValueError, match=message):
        play(make_algorithm("fedavg"), model, unfit, EVERYONE, rounds=1, stack=stack)


@pytest.mark.parametrize("some", ["subset", "subset_rows"])
def test_the_data_of_some_clients_are_theirs(some):
    federated = make_federation(MODELS["mlp"])
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0)
    data = gather(plan, federated, np.float64, np.arange(len(SIZES)))
    ks = np.array([2, 0, 4])
    few = getattr(data, some)(ks)
    for name in ("clients", "steps", "per_epoch"):
        np.testing.assert_array_equal(getattr(few, name), getattr(data, name)[ks])
    for i, k in enumerate(ks):
        assert same(few.all_rows(i), data.all_rows(k))
        for t in range(data.steps[k]):
            assert same(few.batch("D", i, t), data.batch("D", k, t))
    if some == "subset_rows":
        assert len(few.X) == len(few.y) == sum(SIZES[k] for k in ks)


def test_together_is_the_stack_whether_or_not_all_are_the_same_array():
    a, b = np.arange(3.0), np.arange(3.0) + 1
    for trees in ([(a, b)] * 3, [(a, a), (a, b), (b, a)], [(a, 0.5)]):
        assert same(stack_shared(trees), tree.stack(trees))


def test_the_support_of_a_client_with_one_row_is_a_batch_of_no_rows():
    federated = make_federation(MODELS["mlp"], (1,))
    plan = make_plan(Sampling(1, epochs=1), federated.train.sizes, 0, 0, ("S",))
    data = gather(plan, federated, np.float64, np.array([0]))
    ((active, (S,)),) = steps(data, np.array([0]), ("S",))
    assert (active, S.X.shape, S.y.shape) == (1, (1, 0, 3), (1, 0))
    assert data.batch("S", 0, 0).X.shape == (0, 3)


# -- early stop


class StopsAfter(FedAvg):
    """A local step adds 1; a client stops when it has made `enough` steps."""

    stops_early, enough = True, 0

    def step(self, model, sent, local, *batches):
        return local + 1

    def stop(self, model, sent, local, data):
        return local[0] - sent.w[0] >= self.enough - 0.5


@pytest.mark.parametrize(("enough", "steps_done"), [(0, 3), (3, 3), (4, 6), (6, 6), (99, 12)])
def test_a_client_may_stop_after_each_of_its_epochs(enough, steps_done, monkeypatch):
    """n = 12 and B = 4: three steps an epoch, four epochs at most."""
    monkeypatch.setattr(StopsAfter, "enough", enough)
    model = MODELS["logistic"]
    federated, algorithm = make_federation(model, (12,)), StopsAfter()
    plan = make_plan(Sampling(1, epochs=4, batch_size=4), np.array([12]), 0, 0)
    sent = algorithm.download(start(algorithm, model).server)
    data = gather(plan, federated, np.float64, np.array([0]))
    local = run_client(algorithm, model, sent, None, data, 0)
    np.testing.assert_allclose(local - sent.w, steps_done)
