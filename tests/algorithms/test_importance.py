"""Synaptic intelligence along APFL's steps; the other estimates are proved in tests/proofs."""

import numpy as np
import pytest
from helpers import MODELS, make_batch

from fedref.algorithms.apfl import APFL, compose
from fedref.algorithms.importance import (
    synaptic_intelligence,
)


@pytest.mark.parametrize("t", [0, 2])
def test_si_path_sums_to_the_fall_of_the_loss(t):
    """For small steps −Σ_j ω_j is the change of the loss along w_S's path (the point of SI), here of
    APFL's own steps, before (t = 0) and after (t = 2) the decomposition starts."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = APFL(importance="si", lr=1e-4, mu=0.0, init="continuous")
    D, w = make_batch(model, rng, 9), rng.normal(size=model.d)
    sent = algorithm.download(algorithm.initial(model, w)._replace(t=t, renew=True))
    local, fall = algorithm.start(model, sent, None), 0.0
    for _ in range(500):
        after = algorithm.step(model, sent, local, D)
        own = local.own if local.own else (np.full(4 + 3, 40.0), np.zeros(model.d))  # σ(40) = 1
        fall += model.loss(compose(model, local.w_s, *own), D)
        fall -= model.loss(compose(model, after.w_s, *own), D)  # by the move of w_S alone
        local = after
    assert fall > 1e-4
    np.testing.assert_allclose(local.si_path.sum(), fall, rtol=1e-3)
    result = algorithm.finish(model, sent, local, None, lambda: D)
    expected = synaptic_intelligence(local.si_path, local.w_s - w)
    np.testing.assert_array_equal(result.upload.importance, expected)
    assert algorithm.start(model, sent._replace(renew=False), None).si_path is None
