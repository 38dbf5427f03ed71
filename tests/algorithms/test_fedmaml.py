"""FedMAML: several inner steps, a sum over clients, and two server states."""

import numpy as np
import pytest
from helpers import (
    EXACT,
    KINDS,
    MODELS,
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

from fedref import Batch
from fedref.algorithms.fedmaml import FedMAML, MetaState, adapt, meta_gradient, meta_objective
from fedref.algorithms.fedmeta import maml_gradient
from fedref.checks import complex_step_gradient, relative_error
from fedref.models import BinaryLogistic
from fedref.models.numerics import sigmoid
from fedref.rounds.cost import floats
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(4, epochs=1, support=0.6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 5])
@settings(max_examples=8)
@given(st.data())
def test_fedmaml_3_2_the_gradient_of_the_sum_over_clients(kind, steps, data):
    """[fedmaml §3.2] Σ_k ∇_θ L_k(θ*_k; D_val) through all s steps, one θ for all clients."""
    case = data.draw(cases(kind, (((), (3,)), ((), ()))))
    model, tr, val = case.model, case.batch(), case.batch()

    def objective(theta):
        return np.sum(meta_objective(model, theta, tr, val, alpha=0.15, steps=steps))

    g, _ = meta_gradient(model, case.w, tr, val, alpha=0.15, steps=steps)
    total = g.reshape(-1, model.d).sum(0)
    assert relative_error(total, complex_step_gradient(objective, case.w)) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 3])
@settings(max_examples=8)
@given(st.data())
def test_fedmaml_4_2_adaptation(kind, steps, data):
    """[fedmaml §4.2] θ*_k after s steps on D_tr, with gradients by complex step."""
    case = data.draw(cases(kind))
    model, tr, val = case.model, case.batch(), case.batch()
    theta = case.w
    for _ in range(steps):
        theta = theta - 0.15 * complex_step_gradient(lambda w: model.loss(w, tr), theta)
    assert relative_error(adapt(model, case.w, tr, alpha=0.15, steps=steps), theta) <= EXACT
    _, star = meta_gradient(model, case.w, tr, val, alpha=0.15, steps=steps)
    assert relative_error(star, theta) <= EXACT


def test_fedmaml_4_2_the_worked_example_by_hand():
    """Binary logistic regression in one dimension: θ* = θ − α(σ(θx) − y)x, dθ*/dθ = 1 − ασ′x²."""
    model, theta, alpha = BinaryLogistic(1, bias=False), np.array([0.3]), 0.5
    tr, val = Batch(np.array([[2.0]]), np.array([1])), Batch(np.array([[-1.0]]), np.array([1]))
    p = sigmoid(np.array(0.6))
    star = 0.3 - 0.5 * (p - 1) * 2
    slope = 1 - 0.5 * p * (1 - p) * 4
    g = (sigmoid(np.array(-star)) - 1) * -1 * slope
    got, got_star = meta_gradient(model, theta, tr, val, alpha=alpha, steps=1)
    np.testing.assert_allclose(got_star, [star], rtol=1e-14)
    np.testing.assert_allclose(got, [g], rtol=1e-13)


@pytest.mark.parametrize("steps", [1, 4])
def test_one_client_s_gradient_is_maml_s(steps):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    tr, val = make_batch(model, rng, 4), make_batch(model, rng, 3)
    theta = rng.normal(size=model.d)
    g, _ = meta_gradient(model, theta, tr, val, alpha=0.2, steps=steps)
    expected = maml_gradient(model, theta, tr, val, alpha=0.2, steps=steps)
    assert relative_error(g, expected) <= EXACT


@pytest.mark.parametrize("steps", [1, 3])
def test_fedmaml_4_3_both_server_states_of_a_round(steps):
    """[fedmaml §4.3] θ′ is the mean of the θ*_k; θ takes the *sum* of the meta-gradients."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm("fedmaml", inner_steps=steps)
    plan = make_plan(CONFIG, federated.train.sizes, 0, 0, algorithm.roles)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated)
    theta, stars = begin.server.theta, []

    def objective(theta):
        total = 0
        for k, client in enumerate(plan.clients):
            tr, val = (
                federated.batch(federated.train.of(client)[rows[rows >= 0]])
                for rows in (plan.rows["S"][k, 0], plan.rows["Q"][k, 0])
            )
            star = adapt(model, theta, tr, alpha=algorithm.alpha, steps=steps)
            stars.append(star)
            total = total + model.loss(star, val)
        return total

    g = complex_step_gradient(objective, theta)
    assert relative_error(state.server.theta, theta - algorithm.beta * g) <= EXACT
    stars.clear()
    objective(theta)
    assert relative_error(state.server.theta1, np.mean(stars, 0)) <= EXACT


def test_a_client_drawn_twice_counts_twice():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm("fedmaml", beta=1.0)
    plan = make_plan(CONFIG, federated.train.sizes, 0, 0, algorithm.roles)
    begin = start(algorithm, model)
    alone = []
    for k in range(4):
        one = plan._replace(straggler=np.arange(4) != k)
        alone.append(run_round(algorithm, model, begin, one, federated)[0].server)
    twice = plan._replace(counts=np.array([1, 2, 1, 1]))
    state, _ = run_round(algorithm, model, begin, twice, federated)
    theta = begin.server.theta
    total = sum(c * (s.theta - theta) for c, s in zip([1, 2, 1, 1], alone))
    assert relative_error(state.server.theta - theta, total) <= 1e-11
    mean = sum(c * s.theta1 for c, s in zip([1, 2, 1, 1], alone)) / 5
    assert relative_error(state.server.theta1, mean) <= EXACT


def test_what_is_evaluated():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, (theta, theta1) = make_batch(model, rng, 4), rng.normal(size=(2, model.d))
    state = MetaState(theta, theta1)
    meta, mean = FedMAML(alpha=0.1, inner_steps=3), FedMAML(evaluate="theta1")
    got = meta.personal(model, meta.download(state), None, D)
    assert same(got, adapt(model, theta, D, alpha=0.1, steps=3))
    assert same(meta.personal(model, meta.download(state), None, None), theta)
    assert same(mean.personal(model, mean.download(state), None, D), theta1)


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
    assert floats(algorithm.download(algorithm.initial(model, np.zeros(model.d)))) == down * model.d


def test_before_its_step_a_client_has_no_gradient_to_send():
    model, algorithm = MODELS["mlp"], FedMAML()
    sent = algorithm.download(algorithm.initial(model, np.ones(model.d)))
    local = algorithm.start(model, sent, None)
    assert not local.g.any()
    assert local.theta_star is sent.theta
