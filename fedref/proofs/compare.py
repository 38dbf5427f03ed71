"""How things are compared."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import BOUND, Report, complex_step_hvp, relative_error
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    """Return the relative error; True is 1."""
    return Report(relative_error(np.add(got, 0), np.add(expected, 0)), bound=bound)


def complex_grad(model: Model, w: Array, D: Batch) -> Array:
    """∇f(w; D) by complex step of the model's loss."""
    return spec.gradient(lambda w: model.loss(w, D), w)


def complex_hvp(model: Model, w: Array, v: Array, D: Batch) -> Array:
    """H(w; D)v by complex step of the model's gradient."""
    return complex_step_hvp(lambda w: model.grad(w, D), w, v)


def with_block(at: Sequence[Any], block: int, x: Any) -> list[Any]:
    """`at` with x in one place: to look at a function of several arguments as one of that one."""
    return [*at[:block], x, *at[block + 1 :]]


def order_in(error: Callable[[float], float], steps: Array) -> float:
    """p where the error goes as step^p."""
    return float(np.polyfit(np.log(steps), np.log([error(h) for h in steps]), 1)[0])
