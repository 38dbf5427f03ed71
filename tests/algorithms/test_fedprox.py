"""FedProx: the proximal term, γ-inexactness, stragglers, adaptive μ, dissimilarity."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    SIZES,
    make_batch,
    make_federation,
    play,
    same,
)

from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import (
    FedProx,
    inexactness,
)
from fedref.sampling import Sampling

EVERYONE = Sampling(len(SIZES), epochs=3, batch_size=4)


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


# -- γ


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


# -- systems heterogeneity


# -- adaptive μ


# -- dissimilarity
