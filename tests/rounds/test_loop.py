"""The round loop: sizes that no case has, what is kept, other ways to gather, data that do not fit.

Cases and drawn rounds are held to the specification, one by one, stacked and on threads, by `fedref check`
(tests/proofs), by the suite (tests/conformance) and in tests/test_strategies.py; none writes to its inputs.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import MODELS, SIZES, make_federation, play, same

from fedref import tree
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.apfl import APFL
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.per_fedavg import PerFedAvg
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.rounds import local_data
from fedref.rounds import loop as rounds
from fedref.rounds.loop import run_clients, run_round
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
    model, shift, scale = (
        MODELS["logistic"],
        np.array([3.0, 100.0, 30.0]),
        np.array([255.0, 10.0, 7.0]),
    )
    plain = make_federation(model)
    X = np.random.default_rng(0).integers(0, 256, plain.source.X.shape).astype(np.uint8)
    pixels = replace(plain, source=replace(plain.source, X=X), shift=shift, scale=scale)
    ready = replace(plain, source=replace(plain.source, X=(X.astype(float) - shift) / scale))
    expected = play(ALGORITHMS[name](), model, ready, EVERYONE)
    for _ in range(2):
        assert same(play(ALGORITHMS[name](), model, pixels, EVERYONE), expected)
        monkeypatch.setattr(local_data, "GATHER_BYTES", 0)


def test_large_models_are_run_one_by_one_with_the_same_result(monkeypatch):
    model, ran = MODELS["mlp"], set()

    def noted(name):
        function = getattr(rounds, name)
        monkeypatch.setattr(rounds, name, lambda *what: ran.add(name) or function(*what))

    noted("run_client")
    noted("run_stacked")
    found = []
    for limit, way in ((model.d, "run_stacked"), (model.d - 1, "run_client")):
        ran.clear()
        monkeypatch.setattr(rounds, "STACK_UP_TO", limit)
        found.append(play(FedAvg(), model, make_federation(model), EVERYONE))
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
        play(FedAvg(), model, unfit, EVERYONE, rounds=1, work=work)
