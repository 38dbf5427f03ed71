"""FedAvg, FedAvg with update, and FedAvg(Meta)."""

from dataclasses import fields, replace

import numpy as np
import pytest
from helpers import (
    EXACT,
    KINDS,
    MODELS,
    SIZES,
    cases,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
    start,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import Batch, tree
from fedref.algorithm import Cohort, Server
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.algorithms.fedavg import FedAvg, FedAvgMeta, FedAvgUpdate, adapt, local_step
from fedref.checks import complex_step_gradient, relative_error
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_apfl_eq_2_a_local_step_descends_along_the_gradient(kind, data):
    case = data.draw(cases(kind))
    D = case.batch()
    g = complex_step_gradient(lambda w: case.model.loss(w, D), case.w)
    moved = local_step(case.model, case.w, D, lr=1.0) - case.w
    assert relative_error(moved, -g) <= EXACT


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_apfl_eq_1_the_server_averages(weighting):
    w = np.array([[1.0, 2.0], [3.0, -2.0], [5.0, 0.0]])
    cohort = Cohort(np.array([1, 4, 5]), np.array([1, 1, 1]), np.array([10, 30, 60]))
    p = {"samples": [0.1, 0.3, 0.6], "uniform": [1 / 3] * 3}[weighting]
    algorithm = FedAvg(weighting=weighting)
    got = algorithm.combine(MODELS["mlp"], Server(np.zeros(2)), w, cohort)
    np.testing.assert_allclose(got.w, p @ w, rtol=1e-15)


def test_fedprox_alg_2_clients_drawn_by_samples_count_as_often_as_drawn():
    """Sampling by p_k with replacement, then 1/K: a client drawn twice has 2/K."""
    model = MODELS["logistic"]
    federated, algorithm = make_federation(model), FedAvg(weighting="uniform")
    config = Sampling(6, epochs=1, batch_size=4, sampling="by-samples")
    config = replace(config, clients_per_round=5)
    plan = make_plan(config, federated.train.sizes, 0, 0)
    assert plan.counts.max() > 1
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated)
    total = 0
    for k, count in enumerate(plan.counts):
        w = begin.server.w
        for rows in plan.rows["D"][k, : plan.steps[k]]:
            D = federated.batch(federated.train.of(plan.clients[k])[rows[rows >= 0]])
            w = local_step(model, w, D, lr=algorithm.lr)
        total = total + count / 5 * w
    np.testing.assert_allclose(state.server.w, total, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_full_batch_step_of_one_client_is_gradient_descent_to_the_bit(kind):
    model = MODELS[kind]
    federated, algorithm = make_federation(model, (6,)), FedAvg(lr=0.2)
    plan = make_plan(Sampling(1, steps=1, batch_size=0), federated.train.sizes, 0, 0)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated)
    D = federated.batch(federated.train.of(0)[plan.rows["D"][0, 0]])
    assert same(state.server.w, begin.server.w - 0.2 * model.grad(begin.server.w, D))


@pytest.mark.parametrize("kind", KINDS)
def test_one_full_batch_step_of_all_clients_is_gradient_descent_on_all_rows(kind):
    """With weights n_k, Σ p_k (w − η∇f_k) = w − η∇f on the pooled data."""
    model = MODELS[kind]
    federated, algorithm = make_federation(model), FedAvg(lr=0.2)
    states, _ = play(
        algorithm, model, federated, Sampling(len(SIZES), epochs=1, batch_size=0), rounds=3
    )
    w = states[0].server.w
    for _ in range(3):
        w = w - 0.2 * model.grad(w, federated.batch(federated.train.rows))
    assert relative_error(states[-1].server.w, w) <= EXACT


@pytest.mark.parametrize("variant", ["fedavg-update", "fedavg-meta"])
def test_the_adapted_baselines_are_trained_exactly_as_fedavg(variant):
    model = MODELS["mlp"]
    federated, config = make_federation(model), Sampling(3, epochs=2, batch_size=4)
    states, _ = play(make_algorithm(variant), model, federated, config)
    expected, _ = play(make_algorithm("fedavg"), model, federated, config)
    assert same(states, expected)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_adaptation_at_test_time(steps):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, w = make_batch(model, rng, 5), tree.freeze(rng.normal(size=model.d))
    expected = w
    for _ in range(steps):
        expected = expected - 0.3 * model.grad(expected, D)
    assert same(adapt(model, w, D, alpha=0.3, steps=steps), expected)
    meta = FedAvgMeta(alpha=0.3, inner_steps=steps)
    assert same(meta.personal(model, Server(w), None, D), expected)
    assert same(meta.personal(model, Server(w), None, None), w)
    update = FedAvgUpdate(lr=0.7, alpha=0.3)  # α, not η
    assert same(update.personal(model, Server(w), None, D), w - 0.3 * model.grad(w, D))
    update = FedAvgUpdate(lr=0.7, alpha=0.3, inner_steps=steps)
    assert same(update.personal(model, Server(w), None, D), expected)
    assert same(FedAvg().personal(model, Server(w), None, D), w)


def test_what_each_adapts_on():
    assert (FedAvg.personalised, FedAvg.adapts_on) == (False, None)
    assert (FedAvgUpdate.personalised, FedAvgUpdate.adapts_on) == (True, "D")
    assert (FedAvgMeta.personalised, FedAvgMeta.adapts_on) == (True, "S")


def test_small_clients_move_and_vote():
    """n_k = 1 and n_k < B: one batch of all rows, neither skipped nor repeated."""
    model = MODELS["logistic"]
    federated, algorithm = make_federation(model, (1, 3)), FedAvg(lr=0.4)
    states, _ = play(algorithm, model, federated, Sampling(2, epochs=1, batch_size=10), rounds=1)
    w = states[0].server.w
    ends = [
        w - 0.4 * model.grad(w, federated.batch(np.sort(federated.train.of(k)))) for k in (0, 1)
    ]
    assert relative_error(states[1].server.w, 0.25 * ends[0] + 0.75 * ends[1]) <= EXACT


def test_padding_counts_for_nothing():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, w = make_batch(model, rng, 3), rng.normal(size=model.d)
    padded = Batch(
        np.concatenate([D.X, 1e3 * np.ones((2, 3))]), np.append(D.y, [0, 0]), np.repeat([1.0, 0], [3, 2])
    )  # fmt: skip
    short, long = (local_step(model, w, B, lr=0.1) for B in (D, padded))
    assert relative_error(long, short) <= EXACT


def test_every_hyperparameter_is_explained_and_exists():
    options = {option.name for cls in ALGORITHMS.values() for option in fields(cls)}
    assert options == set(HYPERPARAMETERS)
