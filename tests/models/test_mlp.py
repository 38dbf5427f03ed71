"""The MLP by hand numbers, at the kinks, and what it refuses."""

import numpy as np

from fedref.models import MLP, Logistic
from fedref.models.batch import Batch


def test_without_hidden_layers_it_is_logistic_regression():
    rng = np.random.default_rng(0)
    mlp, logistic = MLP(4, (), 3, l2=0.1), Logistic(4, 3, l2=0.1)
    w, v = rng.standard_normal((2, mlp.d))
    D = Batch(rng.standard_normal((7, 4)), rng.integers(0, 3, 7))
    assert mlp.loss(w, D) == logistic.loss(w, D)
    np.testing.assert_array_equal(mlp.grad(w, D), logistic.grad(w, D))
    np.testing.assert_allclose(mlp.hvp(w, v, D), logistic.hvp(w, v, D), rtol=1e-13)
