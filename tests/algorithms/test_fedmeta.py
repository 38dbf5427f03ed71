"""FedMeta: MAML, its first order, Meta-SGD; the server's SGD and Adam."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    cases,
    make_algorithm,
    make_federation,
    play,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref.algorithms.fedmeta import (
    MAML,
    maml_gradient,
    meta_sgd_gradient,
)
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(4, epochs=1, support=0.6)
META = ["fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 3])
@settings(max_examples=6)
@given(st.data())
def test_a_constant_alpha_makes_meta_sgd_maml_to_the_bit(kind, steps, data):
    case = data.draw(cases(kind))
    model, S, Q = case.model, case.batch(), case.batch()
    alpha = np.full(model.d, 0.2)
    g_theta, _ = meta_sgd_gradient(model, case.w, alpha, S, Q, steps=steps)
    assert same(g_theta, maml_gradient(model, case.w, S, Q, alpha=0.2, steps=steps))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2])
@settings(max_examples=6)
@given(st.data())
def test_alpha_0_is_the_gradient_on_the_query_to_the_bit(kind, steps, data):
    case = data.draw(cases(kind))
    model, S, Q = case.model, case.batch(), case.batch()
    expected = np.broadcast_to(model.grad(case.w, Q), np.shape(model.grad(case.w, Q)))
    for second_order in (True, False):
        got = maml_gradient(model, case.w, S, Q, alpha=0.0, steps=steps, second_order=second_order)
        np.testing.assert_array_equal(got, expected)


# -- the server


def test_stragglers_that_are_not_dropped_do_part_of_the_epochs_and_one_episode_whole():
    sizes, config = (
        np.array([20, 20, 20, 20]),
        replace(CONFIG, epochs=9, batch_size=4, stragglers=1.0),
    )
    one, many = (
        make_plan(config, sizes, 0, 0, MAML(drop=False, episodes=episodes).roles)
        for episodes in ("one", "epochs")
    )
    assert one.steps.tolist() == [1] * 4
    assert many.steps.tolist() == (5 * many.amount).tolist()
    assert many.amount.min() < 9


def test_the_first_round_of_meta_sgd_moves_theta_as_maml_to_the_bit():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    thetas = []
    for variant in ("fedmeta-sgd", "fedmeta-maml"):
        states, _ = play(make_algorithm(variant), model, federated, CONFIG, rounds=2)
        thetas.append([s.server.learner.theta for s in states])
    (_, a1, a2), (_, b1, b2) = thetas
    assert same(a1, b1)
    assert not np.array_equal(a2, b2)  # by then α has been learnt


@pytest.mark.parametrize("variant", META)
def test_beta_0_changes_nothing(variant):
    model = MODELS["mlp"]
    algorithm = make_algorithm(variant, beta=0.0)
    states, _ = play(algorithm, model, make_federation(model), CONFIG)
    assert same(states[-1], states[0])


def test_an_episode_is_one_step_whatever_the_epochs():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    few, many = (
        play(make_algorithm("fedmeta-maml"), model, federated, replace(CONFIG, epochs=epochs))[0]
        for epochs in (1, 7)
    )
    assert same(few, many)


def test_a_client_with_one_row_has_no_support_and_sends_the_gradient_of_its_row():
    model = MODELS["mlp"]
    federated = make_federation(model, (1,))
    algorithm = make_algorithm("fedmeta-maml", beta=1.0)
    states, _ = play(algorithm, model, federated, Sampling(1, epochs=1), rounds=1)
    theta = states[0].server.learner.theta
    g = model.grad(theta, federated.batch(federated.train.rows))
    np.testing.assert_array_equal(states[1].server.learner.theta, theta - g)
