"""Weights, the server's average, and options that are refused."""

import numpy as np
import pytest

from fedref import ConfigError
from fedref.algorithm import Cohort, weighted_mean, weighted_sum
from fedref.algorithms import ALGORITHMS


def test_weighted_sum_adds_in_client_order():
    """In float32, (10⁸ + 1) − 10⁸ is 0 from the left and 1 from the right."""
    w = np.array([[1e8], [1.0], [-1e8]], np.float32)
    assert weighted_sum(np.ones(3, np.float32), w) == 0
    assert weighted_mean(np.array([0.25, 0.75]), np.array([[4.0], [8.0]])) == 7.0


def test_cohort_weights():
    cohort = Cohort(np.array([0, 3, 4]), np.array([1, 2, 1]), np.array([10, 5, 20]))
    np.testing.assert_array_equal(cohort.weights("samples"), [0.25, 0.25, 0.5])
    np.testing.assert_array_equal(cohort.weights("uniform"), [0.25, 0.5, 0.25])
    with pytest.raises(ConfigError, match="did you mean 'samples'"):
        cohort.weights("sample")


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    ("options", "message"),
    [({"weighting": "sampels"}, "did you mean 'samples'"), ({"lr": -1.0}, "expected a finite")],
)
def test_wrong_options_are_refused(name, options, message):
    cls = ALGORITHMS[name]
    if not all(hasattr(cls, option) for option in options):
        options = {"alpha": float("nan")}
    with pytest.raises(ConfigError, match=message):
        cls(**options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("per-fedavg-hf", {"delta": 0.0}, "delta is 0"),
        ("fedmeta-maml", {"server": "adm"}, "did you mean 'adam'"),
        ("fedmeta-sgd", {"inner_steps": -1}, "inner-steps is -1"),
        ("fedmaml", {"inner_steps": 0}, "inner-steps is 0"),
        ("fedmaml", {"evaluate": "theta2"}, "did you mean 'theta"),
        ("apfl", {"init": "papr"}, "did you mean 'paper'"),
        ("apfl", {"importance": "fischer"}, "did you mean 'fisher'"),
        ("apfl", {"lam": 1.5}, "lam is 1.5"),
        ("apfl", {"window": 0}, "window is 0"),
        ("apfl", {"z": -1}, "z is -1"),
    ],
)
def test_wrong_options_of_one_algorithm_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        ALGORITHMS[name](**options)
