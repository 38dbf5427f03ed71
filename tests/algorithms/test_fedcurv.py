"""FedCurv: the penalty towards the other clients' last solutions."""

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    SIZES,
    make_algorithm,
    make_federation,
    play,
    same,
)

from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedcurv import ClientState, CurvServer, FedCurv
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(3, epochs=1, batch_size=4)


@pytest.mark.parametrize("kind", KINDS)
def test_apfl_4_1_2_fedcurv_s_first_round_is_fedavg_to_the_bit(kind):
    model, federated = MODELS[kind], make_federation(MODELS[kind])
    config = Sampling(4, epochs=2, batch_size=4)
    curv, _ = play(FedCurv(lr=0.05), model, federated, config, rounds=1)
    avg, _ = play(FedAvg(lr=0.05), model, federated, config, rounds=1)
    assert same(curv[1].server.w, avg[1].server.w)


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
