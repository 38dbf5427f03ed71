"""Centralised SGD on the pooled rows."""

import numpy as np
from helpers import EXACT, MODELS, make_federation, play, start

from fedref.algorithms.fedavg import Centralised
from fedref.checks import complex_step_gradient, relative_error
from fedref.rounds.loop import pool, run_round
from fedref.sampling import PADDING, Sampling, make_plan


def test_apfl_4_1_1_one_round_is_one_epoch_of_sgd_over_all_rows():
    """[apfl §4.1.1], with the gradient of [apfl eq.2] taken by complex step."""
    model = MODELS["mlp"]
    federated = make_federation(model)
    pooled = pool(federated, np.random.default_rng(3))
    algorithm = Centralised(lr=0.2)
    plan = make_plan(Sampling(1, epochs=1, batch_size=5), pooled.train.sizes, 0, 0)
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan, pooled)
    w, seen = begin.server.w, []
    for rows in plan.rows["D"][0]:
        own = pooled.train.of(0)[rows[rows != PADDING]]
        D = pooled.batch(own)
        w = w - 0.2 * complex_step_gradient(lambda w, D=D: model.loss(w, D), w)
        seen += own.tolist()
    assert sorted(seen) == sorted(federated.train.rows)  # every training row once, no test row
    assert relative_error(state.server.w, w) <= EXACT


def test_centralised_full_batches_are_gradient_descent():
    model = MODELS["logistic"]
    pooled = pool(make_federation(model), np.random.default_rng(0))
    states, _ = play(Centralised(lr=0.1), model, pooled, Sampling(1, epochs=1, batch_size=0))
    w = states[0].server.w
    for _ in range(3):
        w = w - 0.1 * model.grad(w, pooled.batch(pooled.train.rows))
    assert relative_error(states[-1].server.w, w) <= EXACT


def test_it_asks_for_pooled_data_and_has_one_model():
    assert Centralised.pooled
    assert not Centralised.personalised
