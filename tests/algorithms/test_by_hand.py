"""What no round shows: the output units of a model, weighted batches, a test without adaptation."""

import numpy as np

from fedref.algorithm import Server
from fedref.algorithms.apfl import expand_units, sum_over_units
from fedref.algorithms.fedprox import dissimilarity
from fedref.algorithms.pfedme import PFedMe
from fedref.models import CNN, BinaryLogistic, LinearSVM, Logistic
from fedref.models.batch import Batch

RNG = np.random.default_rng(0)
MODEL = Logistic(2, 2)
W, X, Y = RNG.normal(size=MODEL.d), RNG.normal(size=(5, 2)), RNG.integers(0, 2, 5)


def unit_of_parameter(model):
    """The output unit of each of the d parameters, counted through all layers: (d,)."""
    return expand_units(model, np.arange(len(sum_over_units(model, np.zeros(model.d)))))


def test_units_by_hand():
    assert unit_of_parameter(Logistic(2, 3)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert unit_of_parameter(LinearSVM(2)).tolist() == [0, 0, 0]
    assert unit_of_parameter(BinaryLogistic(2, bias=False)).tolist() == [0, 0]
    cnn = CNN((3, 3), (2,), 2, 1, 2)  # kernel 2·2·1·2, bias 2; (1·1·2) × 1, bias 1; 1 × 2, bias 2
    assert unit_of_parameter(cnn).tolist() == [0, 1] * 4 + [0, 1] + [2] * 2 + [2] + [3, 4] + [3, 4]


def test_a_row_of_weight_0_is_no_row_of_a_clients_share():
    padded = [Batch(X, Y, np.array([1.0, 1, 0, 0, 0])), Batch(X[2:], Y[2:], np.ones(3))]
    plain = [Batch(X[:2], Y[:2]), Batch(X[2:], Y[2:])]
    got, expected = (dissimilarity(MODEL, W, batches) for batches in (padded, plain))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_pfedme_without_rows_to_adapt_to_is_the_servers_w():
    assert PFedMe().personalised_params(MODEL, Server(W), None, None) is W
