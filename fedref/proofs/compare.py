"""Comparisons: errors, complex steps of a model, orders of convergence."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import BOUND, Report, complex_step_hvp, relative_error
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    """Report the relative error; True counts as 1."""
    return Report(relative_error(np.add(got, 0), np.add(expected, 0)), bound=bound)


def complex_grad(model: Model, w: Array, D: Batch) -> Array:
    """Return ∇f(w; D) by complex steps of the model's loss."""
    return spec.gradient(lambda w: model.loss(w, D), w)


def complex_hvp(model: Model, w: Array, v: Array, D: Batch) -> Array:
    """Return H(w; D)v by a complex step of the model's gradient."""
    return complex_step_hvp(lambda w: model.grad(w, D), w, v)


def replace_block(at: Sequence[Any], block: int, x: Any) -> list[Any]:
    """Return `at` with x in the place `block`: so a function of several arguments becomes one of x."""
    return [*at[:block], x, *at[block + 1 :]]


def measure_order(error: Callable[[float], float], steps: Array) -> float:
    """Return p where the error goes as step^p."""
    return float(np.polyfit(np.log(steps), np.log([error(h) for h in steps]), 1)[0])
