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
)

from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.algorithms.fedavg import FedAvg
from fedref.checks import relative_error
from fedref.sampling import Sampling


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


def test_every_hyperparameter_is_explained_and_exists():
    options = {option.name for cls in ALGORITHMS.values() for option in fields(cls)}
    assert options == set(HYPERPARAMETERS)
