"""FedAvg, FedAvg with update, and FedAvg(Meta)."""

from dataclasses import fields

import pytest
from helpers import (
    EXACT,
    KINDS,
    MODELS,
    SIZES,
    make_algorithm,
    make_federation,
    play,
    same,
    start,
)

from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.algorithms.fedavg import FedAvg, FedAvgMeta, FedAvgUpdate
from fedref.checks import relative_error
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan


@pytest.mark.parametrize("kind", KINDS)
def test_one_full_batch_step_of_one_client_is_gradient_descent_to_the_bit(kind):
    model = MODELS[kind]
    federated, algorithm = make_federation(model, (6,)), FedAvg(lr=0.2)
    plan = make_plan(Sampling(1, steps=1, batch_size=0), federated.train.sizes, 0, 0)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated)
    D = federated.batch(federated.train.rows_of(0)[plan.rows["D"][0, 0]])
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


def test_what_each_adapts_on():
    assert (FedAvg.personalised, FedAvg.adapts_on) == (False, None)
    assert (FedAvgUpdate.personalised, FedAvgUpdate.adapts_on) == (True, "D")
    assert (FedAvgMeta.personalised, FedAvgMeta.adapts_on) == (True, "S")


def test_every_hyperparameter_is_explained_and_exists():
    options = {option.name for cls in ALGORITHMS.values() for option in fields(cls)}
    assert options == set(HYPERPARAMETERS)
