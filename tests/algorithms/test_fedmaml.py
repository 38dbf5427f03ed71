"""FedMAML: several inner steps, a sum over clients, and two server states."""

import numpy as np
import pytest
from helpers import (
    EXACT,
    MODELS,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
)

from fedref.algorithms.fedmaml import meta_gradient
from fedref.algorithms.fedmeta import maml_gradient
from fedref.checks import relative_error
from fedref.sampling import Sampling

CONFIG = Sampling(4, epochs=1, support=0.6)


@pytest.mark.parametrize("steps", [1, 4])
def test_one_client_s_gradient_is_maml_s(steps):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    tr, val = make_batch(model, rng, 4), make_batch(model, rng, 3)
    theta = rng.normal(size=model.d)
    g, _ = meta_gradient(model, theta, tr, val, alpha=0.2, steps=steps)
    expected = maml_gradient(model, theta, tr, val, alpha=0.2, steps=steps)
    assert relative_error(g, expected) <= EXACT


def test_beta_0_leaves_theta_and_alpha_0_leaves_theta1():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    states, _ = play(make_algorithm("fedmaml", beta=0.0), model, federated, CONFIG)
    assert same(states[-1].server.theta, states[0].server.theta)
    assert not same(states[-1].server.theta1, states[0].server.theta1)
    states, _ = play(make_algorithm("fedmaml", alpha=0.0), model, federated, CONFIG, rounds=1)
    assert same(states[1].server.theta1, states[0].server.theta)  # ¼ + ¼ + ¼ + ¼ is exact
