"""APFL: decomposition, penalty, importance, and when it is renewed."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    EXACT,
    KINDS,
    LAYOUTS,
    MODELS,
    SIZES,
    cases,
    make_algorithm,
    make_federation,
    play,
    same,
    units_by_loops,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref.algorithms.apfl import (
    APFL,
    ClientState,
    PlateauDetector,
    compose,
    gradients,
    importance_update,
    objective,
    penalty_gradient,
    unit_of_parameter,
)
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.importance import ESTIMATES
from fedref.checks import complex_step_gradient, relative_error
from fedref.models.numerics import sigmoid
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_client
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(3, epochs=2, batch_size=4)
EVERYONE = replace(CONFIG, clients_per_round=len(SIZES))


# -- the objective and its gradients


def drawn(data, kind, leads=None):
    """A case with w_S, a, w_k, F, w_ref of fitting shapes."""
    case = data.draw(cases(kind, **({"leads": leads} if leads else {})))
    U = max(units_by_loops(case.model)) + 1
    return case, case.vector(), case.vector(U), case.vector(), case.flat() ** 2, case.flat()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_apfl_eq_3_composition_unit_by_unit(kind, data):
    case, w_s, a, w_k, _, _ = drawn(data, kind, (((), ()), ((2,), (2,))))
    expected = np.empty_like(w_s)
    for j, unit in enumerate(units_by_loops(case.model)):
        expected[..., j] = w_s[..., j] / (1 + np.exp(-a[..., unit])) + w_k[..., j]
    np.testing.assert_allclose(compose(case.model, w_s, a, w_k), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data(), st.sampled_from([0.0, 0.4, 3.0]))
def test_apfl_eq_4_the_penalty_of_the_objective(kind, data, mu):
    """[apfl eq.4] weighs the squared way from wᵗ_S by F; [apfl eq.6] puts μ/2 in front."""
    case, w_s, a, w_k, F, w_ref = drawn(data, kind, (((), ()),))
    D = case.batch()
    got = objective(case.model, w_s, a, w_k, D, F=F, w_ref=w_ref, mu=mu)
    penalty = sum(F[j] * (w_s[j] - w_ref[j]) ** 2 for j in range(case.model.d))
    expected = case.model.loss(compose(case.model, w_s, a, w_k), D) + mu / 2 * penalty
    assert float(got) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(st.data(), st.sampled_from([0.0, 0.4, 3.0]))
def test_apfl_eq_6_gradients_in_three_blocks_are_those_of_the_objective(kind, data, mu):
    case, w_s, a, w_k, F, w_ref = drawn(data, kind)
    model, D = case.model, case.batch()

    def f(w_s, a, w_k):
        return objective(model, w_s, a, w_k, D, F=F, w_ref=w_ref, mu=mu)

    g_s, g_a, g_k = gradients(model, w_s, a, w_k, D)
    g_s = g_s + penalty_gradient(w_s, F=F, w_ref=w_ref, mu=mu)
    assert relative_error(g_s, complex_step_gradient(lambda x: f(x, a, w_k), w_s)) <= EXACT
    assert relative_error(g_a, complex_step_gradient(lambda x: f(w_s, x, w_k), a)) <= EXACT
    assert relative_error(g_k, complex_step_gradient(lambda x: f(w_s, a, x), w_k)) <= EXACT


def test_apfl_eq_5_importance_update_by_hand():
    F, I = np.array([1.0, 4.0]), np.array([[10.0, 0.0], [2.0, 8.0]])
    p = np.array([0.25, 0.75])
    np.testing.assert_array_equal(importance_update(F, I, p, lam=0.5), [4.5, 8.0])
    np.testing.assert_array_equal(importance_update(F, I, p, lam=0.0), [4.0, 6.0])
    np.testing.assert_array_equal(importance_update(F, I, p, lam=1.0), [5.0, 10.0])


# -- when F is renewed


def sent_in_round(t, model, w):
    """What APFL sends in round t, with F = 0."""
    algorithm = APFL()
    return algorithm.download(algorithm.initial(model, w)._replace(t=t))


def importance_of(server):
    """F as an array; the server keeps the number 0 while it is 0."""
    return np.broadcast_to(server.F, server.w.shape)


def test_apfl_alg_1_lines_9_16_the_flag_asks_for_one_renewal_in_the_next_round():
    """z far away: only the detector renews. Its flag is raised after a round, used in the next."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    losses = [4.0, 4.0, 0.2, 0.2, 0.2, 0.2]
    algorithm = APFL(lr=0.1, z=100, delta_mu=1.0, delta_sigma=0.1, window=2)
    states, logs = play(algorithm, model, federated, CONFIG, rounds=6, loss=losses.__getitem__)
    assert [s.server.renew for s in states] == [False] * 4 + [True] + [False] * 2
    assert [log.floats_up // model.d for log in logs] == [3, 3, 3, 3, 6, 3]
    assert [bool(importance_of(s.server).any()) for s in states] == [False] * 5 + [True] * 2
    assert same(states[6].server.F, states[5].server.F)  # kept while it is not renewed
    assert [algorithm.log(s.server)["renewed"] for s in states] == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(("z", "rounds"), [(2, [1, 2, 3]), (0, [0, 1]), (1, [0, 1, 2])])
def test_apfl_4_1_3_f_is_renewed_around_the_start_whatever_the_loss(z, rounds):
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    algorithm = APFL(lr=0.1, z=z, delta_mu=0.0)
    states, _ = play(algorithm, model, federated, CONFIG, rounds=6)
    assert [t for t, s in enumerate(states) if s.server.renew] == rounds


# -- limits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_lambda_and_mu_0_without_decomposition_is_fedavg_to_the_bit(kind, weighting):
    model, federated = MODELS[kind], make_federation(MODELS[kind])
    algorithm = APFL(lr=0.05, mu=0.0, lam=0.0, z=10**6, weighting=weighting)
    got, _ = play(algorithm, model, federated, CONFIG, rounds=4)
    expected, _ = play(FedAvg(lr=0.05, weighting=weighting), model, federated, CONFIG, rounds=4)
    assert all(same(a.server.w, b.server.w) for a, b in zip(got, expected, strict=True))
    assert not got[-1].clients or all(own is None for own in got[-1].clients.values())


@pytest.mark.parametrize("model", LAYOUTS, ids=str)
def test_apfl_alg_1_line_21_the_start_of_the_decomposition(model):
    """Literally w_k = w_S, a = 1: the composite is σ(1)w_S + w_S. Continuous: it is w_S."""
    w = np.random.default_rng(0).normal(size=model.d)
    sent = sent_in_round(2, model, w)
    paper, continuous = (
        APFL(init=init).start(model, sent, None) for init in ("paper", "continuous")
    )
    for local in (paper, continuous):
        assert (local.own.a == 1).all()
        assert local.w_s is w
    assert same(paper.own.w_k, w)
    sigma = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(compose(model, w, *paper.own), (1 + sigma) * w, rtol=1e-14)
    np.testing.assert_allclose(compose(model, w, *continuous.own), w, rtol=1e-14)
    assert APFL().start(model, sent._replace(t=1), None).own is None  # z = 2
    client_state = ClientState(paper.own.a * 0.5, w * 3)
    assert APFL().start(model, sent, client_state).own is client_state


@pytest.mark.parametrize("kind", KINDS)
def test_a_continuous_start_continues_with_the_gradient_of_w_s(kind):
    """Before the first step composite, loss and G are those of w_S alone."""
    model, rng = MODELS[kind], np.random.default_rng(0)
    federated = make_federation(model)
    D, w = federated.batch(federated.train.of(0)), rng.normal(size=model.d)
    own = APFL(init="continuous").start(model, sent_in_round(2, model, w), None).own
    g_s, _, g_k = gradients(model, w, *own, D)
    assert relative_error(g_k, model.grad(w, D)) <= EXACT
    assert relative_error(g_s, sigmoid(np.array(1.0)) * model.grad(w, D)) <= EXACT


# -- a run against the algorithm written out


@pytest.mark.parametrize("importance", [*ESTIMATES, "si"])
@pytest.mark.parametrize(("init", "z"), [("paper", 2), ("continuous", 2), ("paper", 100)])
def test_apfl_alg_1_a_run_written_out(importance, init, z):
    """Eight rounds of plain loops, every gradient by complex step of [apfl eq.6]. With z = 100 the
    decomposition never starts: the penalty pulls while w_S alone is the model."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    d, U, lr, mu, lam, T = model.d, 3, 0.05, 0.6, 0.9, 8
    losses = [3.0, 2.5, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    algorithm = APFL(
        lr=lr, mu=mu, lam=lam, z=z, init=init, importance=importance,
        delta_mu=1.0, delta_sigma=0.1, window=2,
    )  # fmt: skip
    states, logs = play(algorithm, model, federated, CONFIG, rounds=T, loss=losses.__getitem__)
    w, F, own, detector, flag = (
        states[0].server.w,
        np.zeros(d),
        {},
        PlateauDetector(1, 0.1, 2),
        False,
    )

    def loss(client, D, w_s):
        return model.loss(compose(model, w_s, *own[client]) if client in own else w_s, D)

    pulled = 0
    for t in range(T):
        plan = make_plan(CONFIG, federated.train.sizes, t, 0)
        renew = abs(t - z) <= 1 or flag
        ends, importances, penalties = [], [], []
        for k, client in enumerate(plan.clients.tolist()):
            if client not in own and t >= z:
                share = 1.0 if init == "paper" else 1 - 1 / (1 + np.exp(-1.0))
                own[client] = np.ones(U), share * w
            w_s, path = w, np.zeros(d)
            for rows in plan.rows["D"][k, : plan.steps[k]]:
                D = federated.batch(federated.train.of(client)[rows[rows >= 0]])
                loss_alone = complex_step_gradient(
                    lambda x, D=D, client=client: loss(client, D, x), w_s
                )
                g_s = loss_alone + mu * F * (w_s - w)
                if client in own:
                    a, w_k = own[client]
                    g_a = complex_step_gradient(
                        lambda x, D=D, w_s=w_s, w_k=w_k: model.loss(compose(model, w_s, x, w_k), D),
                        a,
                    )
                    g_k = complex_step_gradient(
                        lambda x, D=D, w_s=w_s, a=a: model.loss(compose(model, w_s, a, x), D), w_k
                    )
                    own[client] = a - lr * g_a, w_k - lr * g_k
                moved = -lr * g_s
                path = path - loss_alone * moved
                w_s = w_s + moved
            ends.append(w_s)
            penalties.append(mu / 2 * sum(F[j] * (w_s[j] - w[j]) ** 2 for j in range(d)))
            if importance == "si":
                importances.append(np.maximum(path, 0) / ((w_s - w) ** 2 + 0.1))
            else:
                everything = federated.batch(federated.train.of(client))
                importances.append(ESTIMATES[importance](model, w, everything))
        assert logs[t].measured["penalty"] == pytest.approx(np.mean(penalties), rel=1e-9)
        pulled += np.mean(penalties) > 1e-5
        p = plan.sizes / plan.sizes.sum()
        if renew:
            F = lam * F + p @ np.array(importances)
        w = p @ np.array(ends)
        detector, flag = detector.push(losses[t])
        server = states[t + 1].server
        assert relative_error(server.w, w) <= 1e-11
        assert relative_error(importance_of(server), F) <= 1e-10
        assert server.renew == (abs(t + 1 - z) <= 1 or flag)
        for client, (a, w_k) in own.items():
            assert relative_error(states[t + 1].clients[client].a, a) <= 1e-11
            assert relative_error(states[t + 1].clients[client].w_k, w_k) <= 1e-11
    assert pulled >= 3
    near = [False, True, True, True] if z == 2 else [False] * 4
    assert [s.server.renew for s in states] == [*near, True, *[False] * 4]


def test_a_client_s_own_state_is_kept_while_it_is_away():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    states, _ = play(make_algorithm("apfl", z=0), model, federated, CONFIG, rounds=5)
    away = 0
    for t in range(5):
        plan = make_plan(CONFIG, federated.train.sizes, t, 0)
        for k, client_state in states[t].clients.items():
            if k not in plan.clients:
                assert states[t + 1].clients[k] is client_state
                away += 1
            else:
                assert not same(states[t + 1].clients[k], client_state)
    assert away > 2


def test_personal_models():
    """Own m_k and w_k on today's w_S; a client that was never selected uses w_S."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = APFL()
    w, w_k = rng.normal(size=(2, model.d))
    own = ClientState(rng.normal(size=4 + 3), w_k)
    sent = sent_in_round(4, model, w)
    assert same(algorithm.personal(model, sent, None, None), w)
    expected = w * sigmoid(own.a)[unit_of_parameter(model)] + w_k
    np.testing.assert_allclose(algorithm.personal(model, sent, own, None), expected, rtol=1e-14)
    assert algorithm.adapts_on is None
    assert algorithm.personalised


def test_the_penalty_is_logged():
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    states, logs = play(make_algorithm("apfl", mu=0.6, z=0), model, federated, EVERYONE, rounds=2)
    assert logs[0].measured == {"penalty": 0.0}  # F is still 0
    before, plan = states[1].server, make_plan(EVERYONE, federated.train.sizes, 1, 0)
    assert before.F.all()
    data = gather(plan, federated, np.float64, np.arange(len(SIZES)))
    algorithm, sent = make_algorithm("apfl", mu=0.6, z=0), before._replace(detector=None)
    by_hand = []
    for k in range(len(SIZES)):
        local = run_client(algorithm, model, sent, states[1].clients[k], data, k)
        by_hand.append(
            0.3 * sum(f * (a - b) ** 2 for f, a, b in zip(before.F, local.w_s, before.w))
        )
    assert logs[1].measured == {"penalty": pytest.approx(np.mean(by_hand), rel=1e-12)}


def test_the_detector_gets_the_thresholds_that_were_set():
    algorithm = APFL(delta_mu=0.7, delta_sigma=0.2, window=3)
    server = algorithm.initial(MODELS["svm"], np.zeros(4))
    assert server.detector == PlateauDetector(0.7, 0.2, 3)
    assert APFL().initial(MODELS["svm"], np.zeros(4)).detector == PlateauDetector(1.0, 0.5, 5)


def test_the_document_s_defaults():
    algorithm = APFL()
    assert (algorithm.mu, algorithm.lam, algorithm.z, algorithm.window) == (1.0, 1.0, 2, 5)
    assert (algorithm.weighting, algorithm.importance, algorithm.init) == (
        "samples",
        "gradient-square",
        "paper",
    )


def test_importance_travels_down_in_every_round_after_its_first_renewal():
    """d down before, 2d from then on; up it goes in the rounds around the start only."""
    model = MODELS["mlp"]
    _, logs = play(make_algorithm("apfl", z=2), model, make_federation(model), CONFIG, rounds=7)
    K = CONFIG.clients_per_round
    assert [log.floats_down / (K * model.d) for log in logs] == [1, 1, 2, 2, 2, 2, 2]
    assert [log.floats_up / (K * model.d) for log in logs] == [1, 2, 2, 2, 1, 1, 1]
