"""FedProx: the proximal term, γ-inexactness, stragglers, adaptive μ, dissimilarity."""

from dataclasses import replace
from itertools import pairwise

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
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import (
    FedProx,
    ProxSent,
    adapt_mu,
    dissimilarity,
    inexactness,
    objective,
    prox_gradient,
)
from fedref.checks import complex_step_gradient, relative_error
from fedref.models import BinaryLogistic
from fedref.rounds.cost import floats
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_client, run_round
from fedref.sampling import Sampling, make_plan

EVERYONE = Sampling(len(SIZES), epochs=3, batch_size=4)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(st.data(), st.sampled_from([0.0, 0.1, 5.0]))
def test_fedprox_alg_2_gradient_is_that_of_the_objective(kind, data, mu):
    case = data.draw(cases(kind))
    model, w, w0, D = case.model, case.w, case.flat(), case.batch()
    exact = complex_step_gradient(lambda w: objective(model, w, w0, D, mu=mu), w)
    assert relative_error(prox_gradient(model, w, w0, D, mu=mu), exact) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data(), st.sampled_from([0.0, 0.1, 5.0]))
def test_fedprox_alg_2_objective_by_a_plain_sum(kind, data, mu):
    case = data.draw(cases(kind, (((), ()),)))
    model, w, w0, D = case.model, case.w, case.flat(), case.batch()
    square = sum((a - b) ** 2 for a, b in zip(w.tolist(), w0.tolist()))
    expected = float(model.loss(w, D)) + mu / 2 * square
    assert float(objective(model, w, w0, D, mu=mu)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"weighting": "uniform"}, {"drop": True}])
def test_mu_0_is_fedavg_to_the_bit(kind, options):
    """With the same weighting and the same treatment of stragglers."""
    model, federated = MODELS[kind], make_federation(MODELS[kind])
    config = replace(EVERYONE, clients_per_round=4, stragglers=0.5)
    options = {"drop": False, **options}
    prox, _ = play(FedProx(lr=0.1, mu=0.0, **options), model, federated, config)
    avg, _ = play(FedAvg(lr=0.1, **options), model, federated, config)
    assert [same(a.server.w, b.server.w) for a, b in zip(prox, avg)] == [True] * 4
    assert FedProx().weighting == FedAvg().weighting
    assert (FedProx().drop, FedAvg().drop) == (False, True)


def test_mu_pulls_towards_the_model_that_was_sent():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    moved = []
    for mu in (0.0, 0.5, 2.0):
        states, _ = play(FedProx(lr=0.1, mu=mu), model, federated, EVERYONE, rounds=1)
        moved.append(np.linalg.norm(states[1].server.w - states[0].server.w))
    assert moved[0] > moved[1] > moved[2] > 0


# -- γ


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data(), st.sampled_from([0.0, 0.7]))
def test_fedprox_gamma_is_the_ratio_of_gradient_norms(kind, data, mu):
    """[fedprox γ], the gradients taken by complex step of the objective."""
    case = data.draw(cases(kind, (((), ()),)))
    model, w, w0, D = case.model, case.w, case.flat(), case.batch()
    now, begin = (
        np.linalg.norm(complex_step_gradient(lambda x: objective(model, x, w0, D, mu=mu), x))
        for x in (w, w0)
    )
    got = float(inexactness(model, w, w0, D, mu=mu))
    if begin == 0:
        assert got == (0 if now == 0 else np.inf)
    else:
        assert got == pytest.approx(now / begin, rel=1e-11)


def test_fedprox_gamma_by_hand():
    """θ = 0: p = ½, gradient (½ − 1)·2 = −1. θ = log 3 / 2 → z = log 3, p = ¾, gradient −½."""
    model, D = BinaryLogistic(1, bias=False), Batch(np.array([[2.0]]), np.array([1]))
    w, w0 = np.array([np.log(3) / 2]), np.zeros(1)
    assert float(inexactness(model, w, w0, D, mu=0.0)) == pytest.approx(0.5, rel=1e-14)
    pulled = abs(-0.5 + 2 * np.log(3) / 2)
    assert float(inexactness(model, w, w0, D, mu=2.0)) == pytest.approx(pulled, rel=1e-14)
    assert float(inexactness(model, w0, w0, D, mu=2.0)) == 1.0
    nothing = Batch(np.array([[0.0]]), np.array([1]))  # stationary everywhere
    assert float(inexactness(model, w0, w0, nothing, mu=1.0)) == 0.0
    assert float(inexactness(model, w, w0, nothing, mu=1.0)) == np.inf


def test_fedprox_gamma_of_a_stack_is_each_one_s_own():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, w0, D = rng.normal(size=(3, model.d)), rng.normal(size=model.d), make_batch(model, rng, 5)
    got = inexactness(model, w, w0, D, mu=0.5)
    expected = [inexactness(model, one, w0, D, mu=0.5) for one in w]
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    starts = rng.normal(size=w.shape)
    got = inexactness(model, w, starts, D, mu=0.5)
    expected = [inexactness(model, *pair, D, mu=0.5) for pair in zip(w, starts)]
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_fedprox_gamma_that_is_just_reached_is_reached():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, sent, D = (
        rng.normal(size=model.d),
        ProxSent(np.ones(model.d), 0.5),
        make_batch(model, rng, 5),
    )
    gamma = float(inexactness(model, w, sent.w, D, mu=0.5))
    for until, stops in ((gamma, True), (0.999 * gamma, False)):
        assert FedProx(until_gamma=until).stop(model, sent, w, lambda: D) is stops


def test_gamma_is_measured_on_the_full_data_after_every_local_solve():
    model, federated, algorithm = MODELS["mlp"], make_federation(MODELS["mlp"]), FedProx(mu=0.5)
    config = replace(EVERYONE, stragglers=0.5)
    plan = make_plan(config, federated.train.sizes, 0, 0)
    begin = start(algorithm, model)
    _, log = run_round(algorithm, model, begin, plan, federated)
    data = gather(plan, federated, np.float64, np.arange(len(SIZES)))
    sent, gammas, penalties = algorithm.download(begin.server), [], []
    for k in range(len(SIZES)):
        w = run_client(algorithm, model, sent, None, data, k)
        D = federated.batch(federated.train.of(k))
        gammas.append(inexactness(model, w, sent.w, D, mu=0.5))
        penalties.append(
            objective(model, w, sent.w, D, mu=0.5) - objective(model, w, sent.w, D, mu=0.0)
        )
    assert log.measured["gamma"] == pytest.approx(np.mean(gammas), rel=1e-13)
    assert log.measured["penalty"] == pytest.approx(np.mean(penalties), rel=1e-9)
    _, log = run_round(FedProx(mu=0.5, measure_gamma=False), model, begin, plan, federated)
    assert list(log.measured) == ["penalty"]
    assert log.measured["penalty"] == pytest.approx(np.mean(penalties), rel=1e-9)


def test_until_gamma_ends_the_local_solve_after_the_first_epoch_that_reaches_it():
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    config = replace(EVERYONE, epochs=30)
    plan = make_plan(config, federated.train.sizes, 0, 0)
    data = gather(plan, federated, np.float64, np.arange(len(SIZES)))
    begin = start(FedProx(), model)
    stopped = 0
    for gamma in (0.3, 1e-9):
        algorithm = FedProx(lr=0.2, mu=1.0, until_gamma=gamma)
        free = replace(algorithm, until_gamma=0.0)
        sent = algorithm.download(begin.server)
        for k in range(len(SIZES)):
            D = federated.batch(federated.train.of(k))
            path = [sent.w]
            for t in range(plan.steps[k]):
                path.append(free.step(model, sent, path[-1], data.batch("D", k, t)))
            epochs = path[:: plan.per_epoch[k]][1:]
            reached = [bool(inexactness(model, w, sent.w, D, mu=1.0) <= gamma) for w in epochs]
            expected = epochs[reached.index(True)] if any(reached) else epochs[-1]
            stopped += any(reached[:-1])
            assert same(run_client(algorithm, model, sent, None, data, k), expected)
            assert same(run_client(free, model, sent, None, data, k), epochs[-1])
    assert stopped >= 3


# -- systems heterogeneity


def test_stragglers_partial_work_is_aggregated():
    """drop = False: a client that does E′ < E epochs sends what it has."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    config = replace(EVERYONE, stragglers=0.5)
    plan = make_plan(config, federated.train.sizes, 0, 0)
    assert (plan.amount < 3).any()
    algorithm = FedProx(lr=0.1, mu=0.3)
    begin = start(algorithm, model)
    state, log = run_round(algorithm, model, begin, plan, federated)
    w0, total = begin.server.w, 0
    for k, n in enumerate(SIZES):
        w = w0
        for rows in plan.rows["D"][k, : plan.steps[k]]:
            D = federated.batch(federated.train.of(k)[rows[rows >= 0]])
            w = w - 0.1 * (model.grad(w, D) + 0.3 * (w - w0))
        total = total + n / sum(SIZES) * w
    assert relative_error(state.server.w, total) <= EXACT
    assert (log.stragglers, log.dropped) == (plan.straggler.sum(), 0)


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_one_epoch_with_stragglers_is_defined(drop, unit):
    """E = 1: every straggler does that one epoch."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    config = Sampling(len(SIZES), **{unit: 1}, batch_size=4, stragglers=0.9)
    algorithm = FedProx(drop=drop)
    states, logs = play(algorithm, model, federated, config, rounds=2)
    if drop:
        assert [(log.stragglers, log.dropped) for log in logs] == [(5, 5)] * 2
        assert same(states[-1], states[0])  # all dropped: nothing changes
    else:
        full, _ = play(algorithm, model, federated, replace(config, stragglers=0.0), rounds=2)
        assert same(states, full)


# -- adaptive μ


def test_fedprox_mu_adapts_to_the_loss():
    """[fedprox μ] +0.1 on a rise; −0.1 after 5 consecutive falls, then the count starts anew."""
    losses = [5, 4, 3, 2, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.6, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    mu, falls, seen = 1.0, 0, []
    for before, loss in pairwise(losses):
        mu, falls = adapt_mu(mu, falls, before, loss)
        seen.append(mu)
    # falls 1–5 → 0.9; falls 6–10 → 0.8; a rise → 0.9; an equal loss ends the series; 5 falls → 0.8
    tenths = [10, 10, 10, 10, 9, 9, 9, 9, 9, 8, 9, 9, 9, 9, 9, 9, 9, 8]
    np.testing.assert_allclose(seen, np.array(tenths) / 10, rtol=1e-14)


def test_mu_does_not_fall_below_0():
    assert adapt_mu(0.05, 4, 2.0, 1.0) == (0.0, 0)
    assert adapt_mu(0.0, 4, 2.0, 1.0) == (0.0, 0)
    assert adapt_mu(0.0, 3, 2.0, 1.0) == (0.0, 4)
    assert adapt_mu(0.0, 4, 1.0, 2.0) == (0.1, 0)
    assert adapt_mu(0.3, 4, 1.0, 1.0) == (0.3, 0)


def test_the_adapted_mu_is_used_and_logged():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    losses = [1.0, 2.0, 3.0]
    algorithm = FedProx(lr=0.1, mu=0.0, adaptive_mu=True)
    states, _ = play(algorithm, model, federated, EVERYONE, loss=losses.__getitem__)
    np.testing.assert_allclose([s.server.mu for s in states], [0, 0, 0.1, 0.2], rtol=1e-14)
    assert algorithm.log(states[-1].server) == {"mu": states[-1].server.mu}
    assert algorithm.watches_loss
    assert not FedProx().watches_loss
    fixed = FedProx(lr=0.1, mu=0.1)
    plan = make_plan(EVERYONE, federated.train.sizes, 2, 0)
    w = states[2].server.w
    again = states[2]._replace(server=fixed.initial(model, w))
    expected, _ = run_round(fixed, model, again, plan, federated)
    assert same(states[3].server.w, expected.server.w)


def test_fedprox_mu_is_adapted_to_the_loss_of_the_round_before():
    """Through the class: the first loss is compared with itself, each later one with the last."""
    algorithm = FedProx(mu=1.0, adaptive_mu=True)

    def mus(*losses):
        server, seen = algorithm.initial(MODELS["svm"], np.zeros(4)), []
        for loss in losses:
            server = algorithm.observe(server, loss)
            seen.append(round(server.mu, 12))
        return seen

    assert mus(9.0, 2.0, 2.5, 1.0, 1.5) == [1.0, 1.0, 1.1, 1.1, 1.2]  # 2.5 < 9, and yet a rise
    assert mus(7, 6, 5, 4, 3, 2, 1) == [1.0] * 5 + [0.9] * 2  # five falls need six losses
    assert mus(*range(12, 0, -1)) == [1.0] * 5 + [0.9] * 5 + [0.8] * 2
    still = algorithm.initial(MODELS["svm"], np.zeros(4))
    assert still[1:] == (1.0, 0, None)  # no fall yet, no loss to compare with
    assert FedProx(mu=1.0).observe(still, 3.0) is still


def test_fedprox_b_weighs_a_client_by_its_sample_weights():
    """Weights 1, 0, 2 are the samples 1, 3, 3: counts and gradients alike."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, D, other = rng.normal(size=model.d), make_batch(model, rng, 3), make_batch(model, rng, 4)
    weighted = Batch(D.X, D.y, np.array([1.0, 0.0, 2.0]))
    repeated = Batch(D.X[[0, 2, 2]], D.y[[0, 2, 2]])
    heavy = Batch(other.X, other.y, np.full(4, 3.0))
    twelve = Batch(np.repeat(other.X, 3, 0), np.repeat(other.y, 3))
    got = dissimilarity(model, w, [weighted, heavy])
    np.testing.assert_allclose(got, dissimilarity(model, w, [repeated, twelve]), rtol=1e-12)


# -- dissimilarity


def test_fedprox_b_by_hand():
    """[fedprox B] Gradients −½·2 = −1 (n = 1) and ½·4 = 2 (n = 3): ∇f = ¼·(−1) + ¾·2 = 1.25."""
    model = BinaryLogistic(1, bias=False)
    clients = [
        Batch(np.array([[2.0]]), np.array([1])),
        Batch(np.array([[4.0]] * 3), np.array([0] * 3)),
    ]
    got = dissimilarity(model, np.zeros(1), clients)
    mean_square = 0.25 * 1 + 0.75 * 4
    np.testing.assert_allclose(got.B, np.sqrt(mean_square / 1.25**2), rtol=1e-14)
    assert got.variance == pytest.approx(0.25 * 2.25**2 + 0.75 * 0.75**2, rel=1e-14)
    assert got.variance == pytest.approx(mean_square - 1.25**2, rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_fedprox_b_of_equal_and_opposite_clients(kind):
    model, rng = MODELS[kind], np.random.default_rng(0)
    D, w = make_batch(model, rng, 5), rng.normal(size=model.d)
    B, variance = dissimilarity(model, w, [D, D, D])
    np.testing.assert_allclose(B, 1, rtol=1e-14)
    assert variance == pytest.approx(0, abs=1e-24)
    clients = [make_batch(model, rng, n) for n in (3, 5, 1)]
    apart, p = dissimilarity(model, w, clients), np.array([3, 5, 1]) / 9
    gradients = np.stack([model.grad(w, D) for D in clients])
    spread = p @ (gradients**2).sum(1) - ((p @ gradients) ** 2).sum()
    assert apart.B > 1
    assert apart.variance == pytest.approx(spread, rel=1e-9)


def test_fedprox_b_where_f_is_stationary():
    model = BinaryLogistic(1, bias=False)
    one, other = (Batch(np.array([[x]]), np.array([1])) for x in (2.0, -2.0))
    assert dissimilarity(model, np.zeros(1), [one, other]) == (np.inf, 1.0)
    nothing = Batch(np.zeros((1, 1)), np.array([1]))
    assert dissimilarity(model, np.zeros(1), [nothing]) == (1.0, 0.0)


def test_no_input_of_the_functions_is_written_to():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    D, w, w0 = tree.freeze((make_batch(model, rng, 4), *rng.normal(size=(2, model.d))))
    for f in (objective, prox_gradient, inexactness):
        f(model, w, w0, D, mu=0.3)
    dissimilarity(model, w, [D, D])
    assert make_algorithm("fedprox").until_gamma == 0


def test_mu_travels_down_as_one_float():
    model, algorithm = MODELS["mlp"], FedProx()
    assert floats(algorithm.download(algorithm.initial(model, np.zeros(model.d)))) == model.d + 1
