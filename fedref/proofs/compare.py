"""How things are compared, and the slow ways to the same number: complex steps and plain loops."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedref.checks import (
    BOUND,
    H,
    Report,
    complex_step_hvp,
    relative_error,
)
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    """The relative error; True is 1."""
    return Report(relative_error(np.add(got, 0), np.add(expected, 0)), bound=bound)


def slow_gradient(f: Callable[[Array], Any], x: Array) -> Array:
    """∇f(x) of f : (..., d) → (...), the complex steps of all coordinates as one stack: (d,)."""
    return np.asarray(np.imag(f(x + 1j * H * np.eye(len(x)))) / H)


def slow_grad(model: Model, w: Array, D: Batch) -> Array:
    """∇f(w; D) by complex step of the loss."""
    return slow_gradient(lambda w: model.loss(w, D), w)


def slow_hvp(model: Model, w: Array, v: Array, D: Batch) -> Array:
    """H(w; D)v by complex step of the gradient."""
    return complex_step_hvp(lambda w: model.grad(w, D), w, v)


def slow_steps(model: Model, w: Array, D: Batch, alpha: Any, steps: int) -> Array:
    """w after some steps w ← w − α ⊙ ∇f(w; D)."""
    for _ in range(steps):
        w = w - alpha * slow_grad(model, w, D)
    return w


def with_block(at: Sequence[Any], block: int, x: Any) -> list[Any]:
    """`at` with x in one place: to look at a function of several arguments as one of that one."""
    return [*at[:block], x, *at[block + 1 :]]


def loop_sum(c: Any, xs: Any) -> Array:
    """Σ_k c_k x_k, number by number."""
    return np.array([math.fsum(c_k * x_j for c_k, x_j in zip(c, column)) for column in zip(*xs)])


def order_in(error: Callable[[float], float], steps: Array) -> float:
    """p where the error goes as step^p."""
    return float(np.polyfit(np.log(steps), np.log([error(h) for h in steps]), 1)[0])


def slow_gradients(f: Callable[..., Any], at: Sequence[Array]) -> list[Array]:
    """∇f in each of its arguments by complex step."""

    def along(block: int) -> Array:
        return slow_gradient(lambda x: f(*with_block(at, block, x)), at[block])

    return [along(block) for block in range(len(at))]
