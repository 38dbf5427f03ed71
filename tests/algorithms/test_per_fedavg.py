"""Per-FedAvg: exact, first order, Hessian free."""

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
    start,
)
from hypothesis import strategies as st

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
ALPHAS = st.sampled_from([0.0, 0.01, 0.1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_inner_step_is_the_default_and_the_paper_s(variant):
    roles = {"per-fedavg-fo": ("D", "D1")}.get(variant, ("D", "D1", "D2"))
    assert VARIANTS[variant]() == VARIANTS[variant](inner_steps=1)
    assert VARIANTS[variant]().roles == roles


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_beta_0_changes_nothing(variant):
    """Four clients with weight ¼ each: even the average is exact."""
    model = MODELS["mlp"]
    algorithm = make_algorithm(variant, beta=0.0)
    states, _ = play(
        algorithm, model, make_federation(model), Sampling(4, epochs=2, batch_size=4), rounds=2
    )
    assert same(states[-1], states[0])
