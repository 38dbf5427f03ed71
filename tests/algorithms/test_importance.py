"""Importances against loops over samples."""

import numpy as np
import pytest
from helpers import EXACT, KINDS, MODELS, make_batch

from fedref import Batch
from fedref.algorithms import importance
from fedref.algorithms.apfl import APFL, compose
from fedref.algorithms.importance import (
    ESTIMATES,
    synaptic_intelligence,
)
from fedref.checks import relative_error

FLAT = (((), ()),)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ESTIMATES)
def test_neither_order_nor_blocks_nor_weight_0_matter(name, kind, monkeypatch):
    model, rng = MODELS[kind], np.random.default_rng(0)
    D, w = make_batch(model, rng, 7), rng.normal(size=model.d)
    expected = ESTIMATES[name](model, w, D)
    assert (expected >= 0).all()
    assert expected.max() > 0
    order = rng.permutation(7)
    shuffled = ESTIMATES[name](model, w, Batch(D.X[order], D.y[order]))
    assert relative_error(shuffled, expected) <= EXACT

    more = make_batch(model, rng, 2)
    padded = Batch(
        np.concatenate([D.X, more.X]), np.concatenate([D.y, more.y]), np.repeat([2.0, 0.0], [7, 2])
    )
    assert relative_error(ESTIMATES[name](model, w, padded), expected) <= EXACT

    monkeypatch.setattr(importance, "BLOCK_NUMBERS", 3 * model.d)  # blocks of 3, 3 and 1 samples
    assert relative_error(ESTIMATES[name](model, w, D), expected) <= EXACT


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
