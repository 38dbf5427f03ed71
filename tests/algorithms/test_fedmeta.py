"""FedMeta: MAML, its first order, Meta-SGD; the server's SGD and Adam."""

from dataclasses import replace

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

from fedref.algorithms.fedmeta import (
    FOMAML,
    MAML,
    Adam,
    Learner,
    MetaSGD,
    inner_steps,
    maml_gradient,
    maml_objective,
    meta_sgd_gradient,
    server_step,
)
from fedref.checks import complex_step_gradient, relative_error
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(4, epochs=1, support=0.6)
META = ["fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@settings(max_examples=8)
@given(st.data())
def test_fedmeta_maml_gradient_is_that_of_the_objective(kind, steps, data):
    """[fedmeta MAML], through all inner steps."""
    case = data.draw(cases(kind))
    model, S, Q = case.model, case.batch(), case.batch()
    exact = complex_step_gradient(
        lambda w: maml_objective(model, w, S, Q, alpha=0.15, steps=steps), case.w
    )
    got = maml_gradient(model, case.w, S, Q, alpha=0.15, steps=steps)
    assert relative_error(got, exact) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_fedmeta_maml_objective_by_hand_and_first_order(kind, data):
    case = data.draw(cases(kind))
    model, S, Q = case.model, case.batch(), case.batch()
    theta = case.w
    for _ in range(2):
        theta = theta - 0.15 * complex_step_gradient(lambda w: model.loss(w, S), theta)
    got = maml_objective(model, case.w, S, Q, alpha=0.15, steps=2)
    assert relative_error(got, model.loss(theta, Q)) <= EXACT
    first = maml_gradient(model, case.w, S, Q, alpha=0.15, steps=2, second_order=False)
    exact = complex_step_gradient(lambda w: model.loss(w, Q), theta)
    assert relative_error(first, exact) <= 1e-11  # θ itself is only that exact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 3])
@settings(max_examples=8)
@given(st.data())
def test_fedmeta_meta_sgd_gradients_are_those_of_the_objective(kind, steps, data):
    """[fedmeta Meta-SGD] θ and α, one step size a parameter (and a client, with leading axes)."""
    case = data.draw(cases(kind))
    model, S, Q = case.model, case.batch(), case.batch()
    theta, alpha = case.w, 0.1 + 0.05 * case.vector()

    def objective(theta, alpha):
        return maml_objective(model, theta, S, Q, alpha=alpha, steps=steps)

    g_theta, g_alpha = meta_sgd_gradient(model, theta, alpha, S, Q, steps=steps)
    exact = complex_step_gradient(lambda theta: objective(theta, alpha), theta)
    assert relative_error(g_theta, exact) <= EXACT
    exact = complex_step_gradient(lambda alpha: objective(theta, alpha), alpha)
    assert relative_error(g_alpha, exact) <= EXACT


def test_meta_sgd_of_one_step_is_the_printed_formula():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    S, Q = make_batch(model, rng, 4), make_batch(model, rng, 5)
    theta, alpha = rng.normal(size=(2, model.d))
    q = model.grad(theta - alpha * model.grad(theta, S), Q)
    g_theta, g_alpha = meta_sgd_gradient(model, theta, alpha, S, Q)
    np.testing.assert_allclose(g_theta, q - model.hvp(theta, alpha * q, S), rtol=1e-13)
    np.testing.assert_array_equal(g_alpha, -q * model.grad(theta, S))


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


def test_fedmeta_server_sgd_by_hand():
    x, g = Learner(np.array([1.0, 2.0]), np.array([0.1, 0.1])), Learner(
        np.array([4.0, -2.0]), np.array([1.0, 0.0])
    )  # fmt: skip
    (theta, alpha), adam = server_step(x, g, None, beta=0.5)
    np.testing.assert_array_equal(theta, [-1.0, 3.0])
    np.testing.assert_array_equal(alpha, [-0.4, 0.1])
    assert adam is None


def test_fedmeta_server_adam_against_its_definition_over_rounds():
    """Kingma & Ba, algorithm 1, with plain floats; the moments go on from round to round."""
    rng = np.random.default_rng(0)
    x, adam = rng.normal(size=3), Adam(np.zeros(3), np.zeros(3), 0)
    plain, m, v = x.tolist(), [0.0] * 3, [0.0] * 3
    for t in range(1, 6):
        g = rng.normal(size=3)
        x, adam = server_step(x, g, adam, beta=0.1)
        for j in range(3):
            m[j] = 0.9 * m[j] + 0.1 * g[j]
            v[j] = 0.999 * v[j] + 0.001 * g[j] ** 2
            m_hat, v_hat = m[j] / (1 - 0.9**t), v[j] / (1 - 0.999**t)
            plain[j] -= 0.1 * m_hat / (v_hat**0.5 + 1e-8)
        np.testing.assert_allclose(x, plain, rtol=1e-13)
        assert adam.t == t


def test_adam_keeps_its_moments_across_rounds_of_a_run():
    """Replayed from the gradients of plain SGD rounds; a rebuilt Adam would go ±β each round."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm("fedmeta-maml", server="adam", beta=0.05)
    states, _ = play(algorithm, model, federated, CONFIG, rounds=4)
    assert [s.server.adam.t for s in states] == [0, 1, 2, 3, 4]
    x, adam = states[0].server.learner, states[0].server.adam
    for t in range(4):
        plan = make_plan(CONFIG, federated.train.sizes, t, 0, algorithm.roles)
        gradient = make_algorithm("fedmeta-maml", beta=1.0)  # θ − g
        begin = states[t]._replace(server=states[t].server._replace(adam=None))
        after, _ = run_round(gradient, model, begin, plan, federated)
        g = Learner(x.theta - after.server.learner.theta)
        x, adam = server_step(x, g, adam, beta=0.05)
        np.testing.assert_allclose(states[t + 1].server.learner.theta, x.theta, rtol=1e-7)
    last = states[4].server.learner.theta - states[3].server.learner.theta
    assert np.ptp(np.abs(last)) > 1e-3  # not sign descent


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("variant", META)
def test_fedmeta_server_step_of_a_round_by_hand(variant, weighting):
    """[fedmeta server] θ ← θ − (β/m) Σ g_u, or weighted by n_u: neither batches nor |S|, |Q|."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm(variant, weighting=weighting, inner_steps=2)
    plan = make_plan(CONFIG, federated.train.sizes, 0, 0, algorithm.roles)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, federated)
    theta = begin.server.learner.theta
    alphas = np.full(model.d, algorithm.alpha)
    g_theta, g_alpha = [], []
    for k, client in enumerate(plan.clients):
        S, Q = (
            federated.batch(federated.train.of(client)[rows[rows >= 0]])
            for rows in (plan.rows["S"][k, 0], plan.rows["Q"][k, 0])
        )
        if variant == "fedmeta-fomaml":
            theta_u = inner_steps(model, theta, S, alpha=algorithm.alpha, steps=2)[0][-1]
            g_theta.append(model.grad(theta_u, Q))
            continue
        g_theta.append(
            complex_step_gradient(
                lambda w, S=S, Q=Q: maml_objective(model, w, S, Q, alpha=alphas, steps=2), theta
            )
        )
        g_alpha.append(
            complex_step_gradient(
                lambda a, S=S, Q=Q: maml_objective(model, theta, S, Q, alpha=a, steps=2), alphas
            )
        )
    n = plan.sizes if weighting == "samples" else np.ones(len(plan.clients))
    got, p = state.server.learner, n / n.sum()
    assert relative_error(got.theta, theta - algorithm.beta * p @ np.array(g_theta)) <= EXACT
    if variant == "fedmeta-sgd":
        assert relative_error(got.alpha, alphas - algorithm.beta * p @ np.array(g_alpha)) <= EXACT
    else:
        assert got.alpha is None


@pytest.mark.parametrize("variant", META)
def test_epochs_of_episodes_end_in_the_mean_of_the_clients(variant):
    """Each client walks θ ← θ − βg over its mini-batches; the server takes the weighted mean."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm(variant, weighting="samples", episodes="epochs")
    config = replace(CONFIG, epochs=2, batch_size=4)
    plan = make_plan(config, federated.train.sizes, 0, 0, algorithm.roles)
    assert plan.steps.max() > 2
    begin = start(algorithm, model)
    state, log = run_round(algorithm, model, begin, plan, federated)
    ends = []
    for k, client in enumerate(plan.clients):
        theta, alpha = begin.server.learner.theta, np.full(model.d, algorithm.alpha)
        for t in range(plan.steps[k]):
            S, Q = (
                federated.batch(federated.train.of(client)[rows[rows >= 0]])
                for rows in (plan.rows[role][k, t] for role in ("S of D", "Q of D"))
            )
            theta_u = theta - alpha * model.grad(theta, S)
            q = model.grad(theta_u, Q)
            g_alpha = -q * model.grad(theta, S)
            if variant != "fedmeta-fomaml":
                q = q - model.hvp(theta, alpha * q, S)
            theta = theta - algorithm.beta * q
            if variant == "fedmeta-sgd":
                alpha = alpha - algorithm.beta * g_alpha
        ends.append((theta, alpha))
    p = plan.sizes / plan.sizes.sum()
    thetas, alphas = map(np.array, zip(*ends))
    assert relative_error(state.server.learner.theta, p @ thetas) <= EXACT
    if variant == "fedmeta-sgd":
        assert relative_error(state.server.learner.alpha, p @ alphas) <= EXACT
    assert log.floats_up == len(ends) * (1 + (variant == "fedmeta-sgd")) * model.d


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


@pytest.mark.parametrize("variant", META)
def test_clients_adapt_on_the_support_before_they_are_tested(variant):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm, S = make_algorithm(variant, inner_steps=3), make_batch(model, rng, 4)
    theta, alpha = rng.normal(size=(2, model.d))
    learned = variant == "fedmeta-sgd"
    sent = Learner(theta, alpha if learned else None)
    w = theta
    for _ in range(3):
        w = w - (alpha if learned else algorithm.alpha) * model.grad(w, S)
    assert same(algorithm.personal(model, sent, None, S), w)
    assert same(algorithm.personal(model, sent, None, None), theta)
    assert algorithm.adapts_on == "S"


def test_where_no_steps_are_named_there_is_one():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    theta, alpha = rng.normal(size=(2, model.d))
    batches = make_batch(model, rng, 3), make_batch(model, rng, 4)
    for f in (maml_objective, maml_gradient):
        usual, once = (f(model, theta, *batches, alpha=0.1, **s) for s in ({}, {"steps": 1}))
        assert same(usual, once)
    usual, once = (
        meta_sgd_gradient(model, theta, alpha, *batches, **s) for s in ({}, {"steps": 1})
    )
    assert same(usual, once)


def test_defaults_are_the_document_s():
    assert {cls().weighting for cls in (MAML, FOMAML, MetaSGD)} == {"uniform"}
    assert {cls().server for cls in (MAML, FOMAML, MetaSGD)} == {"sgd"}
    assert len(SIZES) > CONFIG.clients_per_round
