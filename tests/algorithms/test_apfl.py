"""APFL: when importance is renewed, its estimate along the path, the output units.

The detector's windows and thresholds are the specification's (`fedref check --only "apfl alg.1"`).
"""

import numpy as np
import pytest
from helpers import MODELS, make_batch, make_federation, play, same

from fedref import spec
from fedref.algorithm import Participant
from fedref.algorithms.apfl import APFL, compose, expand_units, sum_over_units
from fedref.algorithms.importance import synaptic_intelligence
from fedref.models import CNN, BinaryLogistic, LinearSVM, Logistic
from fedref.proofs.models import MODELS as PROOF_MODELS
from fedref.sampling import Sampling


def test_apfl_alg_1_lines_9_16_the_flag_asks_for_one_renewal_in_the_next_round():
    """z far away: only the detector renews. Its flag is raised after a round, used in the next."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    losses, sampling = [4.0, 4.0, 0.2, 0.2, 0.2, 0.2], Sampling(3, epochs=2, batch_size=4)
    algorithm = APFL(lr=0.1, z=100, delta_mu=1.0, delta_sigma=0.1, window=2)
    states, logs = play(algorithm, model, federated, sampling, rounds=6, loss=losses.__getitem__)
    assert [s.server.renew for s in states] == [False] * 4 + [True] + [False] * 2
    assert [log.floats_up // model.d for log in logs] == [3, 3, 3, 3, 6, 3]
    assert [bool(np.any(s.server.F)) for s in states] == [False] * 5 + [True] * 2
    assert same(states[6].server.F, states[5].server.F)  # kept while it is not renewed
    assert [algorithm.server_metrics(s.server)["renewed"] for s in states] == [0, 0, 0, 0, 1, 0, 0]


ALONE = Participant(0, 9, 1.0)


@pytest.mark.parametrize("t", [0, 2])
def test_si_path_sums_to_the_fall_of_the_loss(t):
    """For small steps −Σ_j ω_j is the change of the loss along w_S's path (the point of SI), here of
    APFL's own steps, before (t = 0) and after (t = 2) the decomposition starts."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = APFL(importance="si", lr=1e-4, mu=0.0, init="continuous")
    D, w = make_batch(model, rng, 9), rng.normal(size=model.d)
    sent = algorithm.download(algorithm.initial(model, w)._replace(t=t, renew=True))
    local, fall = algorithm.start(model, sent, None, ALONE), 0.0
    for _ in range(500):
        after = algorithm.step(model, sent, local, D)
        own = local.personal or (np.full(7, 40.0), np.zeros(model.d))  # σ(40) = 1
        fall += model.loss(compose(model, local.w_s, *own), D)
        fall -= model.loss(compose(model, after.w_s, *own), D)  # by the move of w_S alone
        local = after
    assert fall > 1e-4
    np.testing.assert_allclose(local.si_path.sum(), fall, rtol=1e-3)
    result = algorithm.finish(model, sent, local, None, lambda: D)
    expected = synaptic_intelligence(local.si_path, local.w_s - w)
    np.testing.assert_array_equal(result.upload.importance, expected)
    assert algorithm.start(model, sent._replace(renew=False), None, ALONE).si_path is None


# -- output units


def units_of(model):
    """The specification's unit of each parameter."""
    return spec.unit_of_parameter(view.shape for view in model.unpack(np.zeros(model.d)))


def unit_of_parameter(model):
    """The output unit of each of the d parameters, counted through all layers: (d,)."""
    return expand_units(model, np.arange(len(sum_over_units(model, np.zeros(model.d)))))


def test_units_by_hand():
    assert unit_of_parameter(Logistic(2, 3)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert unit_of_parameter(LinearSVM(2)).tolist() == [0, 0, 0]
    assert unit_of_parameter(BinaryLogistic(2, bias=False)).tolist() == [0, 0]
    cnn = CNN((3, 3), (2,), 2, 1, 2)  # kernel 2·2·1·2, bias 2; (1·1·2) × 1, bias 1; 1 × 2, bias 2
    assert unit_of_parameter(cnn).tolist() == [0, 1] * 4 + [0, 1] + [2] * 2 + [2] + [3, 4] + [3, 4]


@pytest.mark.parametrize("name", PROOF_MODELS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_expand_and_sum_over_units_are_transposes(name, lead):
    """⟨expand(m), x⟩ = ⟨m, sum(x)⟩, exactly: with whole numbers nothing is rounded."""
    model = PROOF_MODELS[name]
    rng, units = np.random.default_rng(0), units_of(model).tolist()
    assert unit_of_parameter(model).tolist() == units
    m = rng.integers(-50, 50, (*lead, max(units) + 1)).astype(float)
    x = rng.integers(-50, 50, (*lead, model.d)).astype(float)
    np.testing.assert_array_equal(expand_units(model, m), m[..., units])
    left, right = (expand_units(model, m) * x).sum(-1), (m * sum_over_units(model, x)).sum(-1)
    np.testing.assert_array_equal(left, right)
