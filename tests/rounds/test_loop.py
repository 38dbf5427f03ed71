"""The round loop: what a plan alone decides, and what a round leaves as it was.

Stack, threads, stragglers and early stops are held to the specification in tests/test_strategies.py.
"""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import MODELS, SIZES, VARIANTS, make_algorithm, make_federation, play, same

from fedref import tree
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.rounds import local_data
from fedref.rounds import loop as rounds
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(4, epochs=2, batch_size=4)
EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)
ALONE, STACKED = (partial(run_clients, stack=stack) for stack in (False, True))


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
    expected = play(algorithm, model, federated, config, rounds=2, work=ALONE)
    assert same(play(algorithm, model, federated, config, rounds=2, work=STACKED), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_round_writes_to_no_input_and_depends_on_no_order_of_roles(variant):
    """All arrays are read-only in `play`; here they are not, and compared. A dictionary of roles that
    travelled may come back sorted. What a client keeps does not keep the whole cohort alive."""
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    states, _ = play(algorithm, model, federated, EVERYONE, rounds=3)
    kept = [x for x in tree.leaves(tuple(states[-1].clients.values())) if isinstance(x, np.ndarray)]
    assert all(x.base is None for x in kept)
    plan = make_plan(EVERYONE, federated.train.sizes, 3, 0, algorithm.roles)
    writable = deepcopy((states[-1], plan, federated.source.X, federated.source.y))
    before, own_plan, X, y = writable
    own = replace(federated, source=replace(federated.source, X=X, y=y))
    expected = run_round(algorithm, model, before, own_plan, own)
    assert same(writable, (states[-1], plan, federated.source.X, federated.source.y))
    assert not same(expected[0].server, before.server)
    turned = plan._replace(rows=dict(reversed(plan.rows.items())))
    for work in (ALONE, STACKED):
        if not (algorithm.stops_early and work is STACKED):
            assert same(run_round(algorithm, model, before, turned, own, work=work), expected)


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
    model, algorithm, ran = MODELS["mlp"], make_algorithm("fedavg"), set()

    def noted(name):
        function = getattr(rounds, name)
        monkeypatch.setattr(rounds, name, lambda *what: ran.add(name) or function(*what))

    noted("run_client")
    noted("run_stacked")
    found = []
    for limit, way in ((model.d, "run_stacked"), (model.d - 1, "run_client")):
        ran.clear()
        monkeypatch.setattr(rounds, "STACK_UP_TO", limit)
        found.append(play(algorithm, model, make_federation(model), CONFIG))
        assert ran == {way}
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
        play(make_algorithm("fedavg"), model, unfit, EVERYONE, rounds=1, work=work)
