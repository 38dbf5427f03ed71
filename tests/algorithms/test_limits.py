"""Settings in which one algorithm is another, or plain gradient descent."""

import numpy as np
import pytest
from helpers import (
    EXACT,
    MODELS,
    SIZES,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
)

from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedmaml import meta_gradient
from fedref.algorithms.fedmeta import maml_gradient, meta_sgd_gradient
from fedref.algorithms.per_fedavg import meta_gradient_steps
from fedref.checks import relative_error
from fedref.sampling import Sampling

CONFIG = Sampling(4, epochs=2, batch_size=4, stragglers=0.5)
PER_FEDAVG = ("per-fedavg", "per-fedavg-fo", "per-fedavg-hf")


@pytest.mark.parametrize("kind", MODELS)
def test_one_full_batch_step_of_all_clients_is_gradient_descent_on_all_rows(kind):
    """With weights n_k, Σ p_k (w − η∇f_k) = w − η∇f on the pooled data."""
    model = MODELS[kind]
    federated, config = make_federation(model), Sampling(len(SIZES), epochs=1, batch_size=0)
    states, _ = play(FedAvg(lr=0.2), model, federated, config)
    w = states[0].server.w
    for _ in range(3):
        w = w - 0.2 * model.grad(w, federated.batch(federated.train.rows))
    assert relative_error(states[-1].server.w, w) <= EXACT


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("steps", [1, 3])
def test_meta_gradients_are_each_other_s_to_the_bit(kind, lead, steps):
    """FedMAML's is MAML's, and so is Meta-SGD's with a constant α; α = 0 leaves the query's."""
    model, rng = MODELS[kind], np.random.default_rng(0)
    theta = rng.normal(size=(*lead, model.d))
    S, Q = (make_batch(model, rng, n, lead, weights=True) for n in (4, 3))
    maml = maml_gradient(model, theta, S, Q, alpha=0.2, steps=steps)
    g_theta, _ = meta_sgd_gradient(model, theta, np.full(model.d, 0.2), S, Q, steps=steps)
    assert same(g_theta, maml)
    g, _ = meta_gradient(model, theta, S, Q, alpha=0.2, steps=steps)
    assert relative_error(g, maml) <= EXACT
    for second_order in (True, False):
        how = {"alpha": 0.0, "steps": steps, "second_order": second_order}
        got = maml_gradient(model, theta, S, Q, **how)
        np.testing.assert_array_equal(got, model.grad(theta, Q))


def test_fedmaml_with_beta_0_leaves_theta_and_with_alpha_0_leaves_theta1():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    states, _ = play(make_algorithm("fedmaml", beta=0.0), model, federated, CONFIG)
    assert same(states[-1].server.theta, states[0].server.theta)
    assert not same(states[-1].server.theta1, states[0].server.theta1)
    everyone, four = make_algorithm("fedmaml", alpha=0.0, drop=False), Sampling(4, epochs=1)
    states, _ = play(everyone, model, federated, four, rounds=1)
    assert same(states[1].server.theta1, states[0].server.theta)  # ¼ + ¼ + ¼ + ¼ is exact


@pytest.mark.parametrize("variant", PER_FEDAVG)
def test_several_steps_of_one_are_the_printed_one_to_the_bit(variant):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = make_algorithm(variant)
    w, batches = rng.normal(size=model.d), [make_batch(model, rng, 6) for _ in algorithm.roles]
    got = algorithm.gradient_steps(model, w, *batches)
    assert same(got, algorithm.gradient(model, w, *batches))
    none = meta_gradient_steps(model, w, [], batches[1], [], alpha=0.2)
    assert same(none, model.grad(w, batches[1]))
