"""Per-FedAvg: exact, first order, Hessian free."""

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    make_algorithm,
    make_batch,
    make_federation,
    same,
    start,
)

from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.per_fedavg import (
    PerFedAvg,
    PerFedAvgFO,
    PerFedAvgHF,
    meta_gradient_steps,
)
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

VARIANTS = {"per-fedavg": PerFedAvg, "per-fedavg-fo": PerFedAvgFO, "per-fedavg-hf": PerFedAvgHF}


@pytest.mark.parametrize("variant", VARIANTS)
def test_several_steps_of_one_are_the_printed_one_to_the_bit(variant):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = make_algorithm(variant)
    w, batches = rng.normal(size=model.d), [make_batch(model, rng, 6) for _ in algorithm.roles]
    got = algorithm.gradient_steps(model, w, *batches)
    assert same(got, algorithm.gradient(model, w, *batches))
    assert same(
        meta_gradient_steps(model, w, [], batches[1], [], alpha=0.2), model.grad(w, batches[1])
    )


# -- rounds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_alpha_0_is_sgd_on_the_second_batch_to_the_bit(variant, kind):
    model = MODELS[kind]
    federated = make_federation(model)
    config = Sampling(4, epochs=2, batch_size=4)
    algorithm = make_algorithm(variant, alpha=0.0, beta=0.2)
    plan = make_plan(config, federated.train.sizes, 0, 0, algorithm.roles)
    sgd = plan._replace(rows={"D": plan.rows["D1"]})
    begin = start(algorithm, model)
    got, _ = run_round(algorithm, model, begin, plan, federated)
    expected, _ = run_round(FedAvg(weighting="uniform", lr=0.2), model, begin, sgd, federated)
    assert same(got, expected)
