"""Output units: one value per unit and its spread over the parameters, against plain loops."""

import numpy as np
import pytest
from helpers import LAYOUTS, units_by_loops

from fedref.algorithms.apfl import expand_units, sum_over_units, unit_of_parameter
from fedref.models import CNN, BinaryLogistic, LinearSVM, Logistic


@pytest.mark.parametrize("model", LAYOUTS, ids=str)
def test_units_against_loops_over_the_layers(model):
    assert unit_of_parameter(model).tolist() == units_by_loops(model)


def test_units_by_hand():
    assert unit_of_parameter(Logistic(2, 3)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert unit_of_parameter(LinearSVM(2)).tolist() == [0, 0, 0]
    assert unit_of_parameter(BinaryLogistic(2, bias=False)).tolist() == [0, 0]
    cnn = CNN((3, 3), (2,), 2, 1, 2)  # kernel 2·2·1·2, bias 2; (1·1·2) × 1, bias 1; 1 × 2, bias 2
    assert unit_of_parameter(cnn).tolist() == [0, 1] * 4 + [0, 1] + [2] * 2 + [2] + [3, 4] + [3, 4]


@pytest.mark.parametrize("model", LAYOUTS, ids=str)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_spread_and_sum_by_unit_are_transposes(model, lead):
    """⟨expand_units(m), x⟩ = ⟨m, sum_over_units(x)⟩, exactly: with whole numbers nothing is rounded."""
    rng = np.random.default_rng(0)
    U = max(units_by_loops(model)) + 1
    m = rng.integers(-50, 50, (*lead, U)).astype(float)
    x = rng.integers(-50, 50, (*lead, model.d)).astype(float)
    assert expand_units(model, m).shape == x.shape
    assert sum_over_units(model, x).shape == m.shape
    left, right = (expand_units(model, m) * x).sum(-1), (m * sum_over_units(model, x)).sum(-1)
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(expand_units(model, m), m[..., units_by_loops(model)])
