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

from fedref.algorithms.fedmaml import FedMAML, MetaState, adapt, meta_gradient
from fedref.algorithms.fedmeta import maml_gradient
from fedref.checks import relative_error
from fedref.rounds.cost import count_floats
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


def test_what_is_evaluated():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, (theta, theta1) = make_batch(model, rng, 4), rng.normal(size=(2, model.d))
    state = MetaState(theta, theta1)
    meta, mean = FedMAML(alpha=0.1, inner_steps=3), FedMAML(evaluate="theta1")
    got = meta.personalised_params(model, meta.download(state), None, D)
    assert same(got, adapt(model, theta, D, alpha=0.1, steps=3))
    assert same(meta.personalised_params(model, meta.download(state), None, None), theta)
    assert same(mean.personalised_params(model, mean.download(state), None, D), theta1)


def test_what_is_evaluated_does_not_change_the_training():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    one, other = (
        play(make_algorithm("fedmaml", evaluate=which), model, federated, CONFIG)[0]
        for which in ("theta", "theta1")
    )
    assert same(one, other)


def test_beta_0_leaves_theta_and_alpha_0_leaves_theta1():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    states, _ = play(make_algorithm("fedmaml", beta=0.0), model, federated, CONFIG)
    assert same(states[-1].server.theta, states[0].server.theta)
    assert not same(states[-1].server.theta1, states[0].server.theta1)
    states, _ = play(make_algorithm("fedmaml", alpha=0.0), model, federated, CONFIG, rounds=1)
    assert same(states[1].server.theta1, states[0].server.theta)  # ¼ + ¼ + ¼ + ¼ is exact


@pytest.mark.parametrize(("evaluate", "down"), [("theta", 1), ("theta1", 2)])
def test_theta_and_theta1_both_travel_down_where_theta1_is_used(evaluate, down):
    model = MODELS["mlp"]
    algorithm = make_algorithm("fedmaml", evaluate=evaluate)
    assert (
        count_floats(algorithm.download(algorithm.initial(model, np.zeros(model.d))))
        == down * model.d
    )


def test_before_its_step_a_client_has_no_gradient_to_send():
    model, algorithm = MODELS["mlp"], FedMAML()
    sent = algorithm.download(algorithm.initial(model, np.ones(model.d)))
    local = algorithm.start(model, sent, None)
    assert not local.g.any()
    assert local.theta_star is sent.theta
