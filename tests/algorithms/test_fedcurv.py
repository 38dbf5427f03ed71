"""FedCurv: the penalty towards the other clients' last solutions."""

import numpy as np
import pytest
from helpers import (
    EXACT,
    KINDS,
    MODELS,
    SIZES,
    cases,
    make_algorithm,
    make_federation,
    play,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedcurv import ClientState, CurvServer, FedCurv, penalty, penalty_gradient
from fedref.algorithms.importance import fisher
from fedref.checks import complex_step_gradient, relative_error
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(3, epochs=1, batch_size=4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("present", [True, False])
@settings(max_examples=8)
@given(st.data(), st.sampled_from([0.1, 1.0]))
def test_fedcurv_penalty_gradient_is_that_of_the_penalty(kind, present, data, lam):
    """[fedcurv penalty] by its u and v sums against Σ_{j≠s}, with s among the others or not."""
    case = data.draw(cases(kind))
    D, others = case.batch(), [(case.flat() ** 2, case.flat()) for _ in range(3)]
    own = (case.flat() ** 2, case.flat())
    cohort = [*others, own] if present else others
    u, v = sum(I for I, _ in cohort), sum(I * theta for I, theta in cohort)
    own_u, own_v = (own[0], own[0] * own[1]) if present else (0.0, 0.0)

    def objective(theta):
        return case.model.loss(theta, D) + penalty(theta, others, lam=lam)

    got = case.model.grad(case.w, D) + penalty_gradient(case.w, u, v, own_u, own_v, lam=lam)
    assert relative_error(got, complex_step_gradient(objective, case.w)) <= EXACT


def test_fedcurv_penalty_by_hand():
    """λ[2(3 − 1)² + 5(3 − 4)²] = ½·13, gradient 2·½·(2·2 − 5·1) = −1."""
    others = [(np.array([2.0]), np.array([1.0])), (np.array([5.0]), np.array([4.0]))]
    theta = np.array([3.0])
    assert float(penalty(theta, others, lam=0.5)) == 6.5
    got = penalty_gradient(theta, np.array([7.0]), np.array([22.0]), 0.0, 0.0, lam=0.5)
    assert got.tolist() == [-1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_apfl_4_1_2_fedcurv_s_first_round_is_fedavg_to_the_bit(kind):
    model, federated = MODELS[kind], make_federation(MODELS[kind])
    config = Sampling(4, epochs=2, batch_size=4)
    curv, _ = play(FedCurv(lr=0.05), model, federated, config, rounds=1)
    avg, _ = play(FedAvg(lr=0.05), model, federated, config, rounds=1)
    assert same(curv[1].server.w, avg[1].server.w)


def test_lambda_0_is_fedavg_to_the_bit():
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    curv, _ = play(FedCurv(lr=0.05, lam=0.0), model, federated, CONFIG, rounds=4)
    avg, _ = play(FedAvg(lr=0.05), model, federated, CONFIG, rounds=4)
    assert all(same(a.server.w, b.server.w) for a, b in zip(curv, avg, strict=True))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_a_run_against_the_penalty_written_out(weighting):
    """Five rounds, each client's objective with the explicit sum over the previous cohort j ≠ s."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    algorithm = FedCurv(lr=0.05, lam=0.3, weighting=weighting)
    states, _ = play(algorithm, model, federated, CONFIG, rounds=5)
    w, previous, repeats = states[0].server.w, {}, 0
    for t in range(5):
        plan = make_plan(CONFIG, federated.train.sizes, t, 0)
        now, ends = {}, []
        for k, client in enumerate(plan.clients.tolist()):
            others = [pair for j, pair in previous.items() if j != client]
            repeats += client in previous
            theta = w
            for rows in plan.rows["D"][k, : plan.steps[k]]:
                D = federated.batch(federated.train.of(client)[rows[rows >= 0]])

                def objective(theta, D=D, others=others):
                    return model.loss(theta, D) + penalty(theta, others, lam=0.3)

                theta = theta - 0.05 * complex_step_gradient(objective, theta)
            everything = federated.batch(federated.train.of(client))
            now[client] = fisher(model, theta, everything), theta
            ends.append(theta)
        p = plan.sizes if weighting == "samples" else np.ones(len(ends))
        w, previous = (p / p.sum()) @ np.array(ends), now
        server = states[t + 1].server
        assert relative_error(server.w, w) <= 1e-11
        assert relative_error(server.u, sum(I for I, _ in now.values())) <= 1e-10
        assert relative_error(server.v, sum(I * x for I, x in now.values())) <= 1e-10
    assert repeats >= 3  # the own term was there to be left out


def test_own_terms_only_of_the_round_before():
    model = MODELS["logistic"]
    d, algorithm = model.d, FedCurv()
    sent = CurvServer(np.ones(d), np.full(d, 2.0), np.full(d, 3.0), t=5)
    for t, present in ((4, True), (3, False), (0, False)):
        local = algorithm.start(model, sent, ClientState(np.full(d, 0.5), np.full(d, 0.7), t))
        assert local.own_u.tolist() == [0.5 * present] * d
        assert local.own_v.tolist() == [0.7 * present] * d
    local = algorithm.start(model, sent, None)
    assert not local.own_u.any()
    assert not local.own_v.any()


def test_the_penalty_is_never_negative_curvature():
    """u − I_s ≥ 0 in every entry for every client of every round."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm("fedcurv")
    states, _ = play(algorithm, model, federated, CONFIG, rounds=8)
    for state in states:
        for k in range(len(SIZES)):
            local = algorithm.start(model, state.server, state.clients.get(k))
            assert (state.server.u - local.own_u >= -1e-15 * state.server.u.max()).all()


def test_a_client_drawn_twice_adds_its_importance_once():
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    algorithm = FedCurv(lr=0.05, weighting="uniform")
    plan = make_plan(CONFIG, federated.train.sizes, 0, 0)
    begin, _ = play(algorithm, model, federated, CONFIG, rounds=0)
    once, _ = run_round(algorithm, model, begin[0], plan, federated)
    twice, _ = run_round(
        algorithm, model, begin[0], plan._replace(counts=np.array([1, 2, 1])), federated
    )
    assert same(twice.server.u, once.server.u)
    assert same(twice.server.v, once.server.v)
    assert not same(twice.server.w, once.server.w)


def test_fedcurv_fisher_of_a_client_is_at_its_last_solution_on_all_its_data():
    """[fedcurv Fisher], whatever the batch size."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"], (7,))
    for batch_size in (0, 2):
        algorithm = FedCurv(lr=0.1)
        states, _ = play(
            algorithm, model, federated, Sampling(1, epochs=1, batch_size=batch_size), rounds=1
        )
        I = fisher(model, states[1].server.w, federated.batch(federated.train.of(0)))
        assert relative_error(states[1].server.u, I) <= EXACT
        assert relative_error(states[1].clients[0].I, I) <= EXACT
