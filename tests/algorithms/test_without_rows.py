"""What is asked of an algorithm beside a round: weighted batches, and a test without adaptation."""

import numpy as np

from fedref.algorithm import Server
from fedref.algorithms.fedprox import dissimilarity
from fedref.algorithms.pfedme import PFedMe
from fedref.models import Logistic
from fedref.models.batch import Batch

RNG = np.random.default_rng(0)
MODEL = Logistic(2, 2)
W, X, Y = RNG.normal(size=MODEL.d), RNG.normal(size=(5, 2)), RNG.integers(0, 2, 5)


def test_a_row_of_weight_0_is_no_row_of_a_clients_share():
    padded = [Batch(X, Y, np.array([1.0, 1, 0, 0, 0])), Batch(X[2:], Y[2:], np.ones(3))]
    plain = [Batch(X[:2], Y[:2]), Batch(X[2:], Y[2:])]
    for got, expected in zip(
        dissimilarity(MODEL, W, padded), dissimilarity(MODEL, W, plain), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_pfedme_without_rows_to_adapt_to_is_the_servers_w():
    assert PFedMe().personalised_params(MODEL, Server(W), None, None) is W
