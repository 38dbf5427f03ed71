"""How things are compared, and the slow ways to the same number: complex steps and plain loops."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, Cohort
from fedref.batch import Batch
from fedref.checks import (
    BOUND,
    Report,
    complex_step_gradient,
    complex_step_hvp,
    relative_error,
)
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.proofs.case import Case


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    return Report(relative_error(got, expected), bound=bound)


def slow_grad(model: Model, w: Array, D: Batch) -> Array:
    """∇f(w; D) by complex step of the loss."""
    return complex_step_gradient(lambda w: model.loss(w, D), w)


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


def one_round(
    algorithm: AnyAlgorithm,
    c: Case,
    clients: Sequence[Sequence[Sequence[Batch]]],
    server: Any = None,
    client_states: Any = None,
) -> tuple[Any, list[Any]]:
    """(the server, what each client keeps) after a round from c.w, or from another server state.

    clients[k][t] are the batches of client k's step t; the first is all of its data.
    """
    server = algorithm.initial(c.model, c.w) if server is None else server
    sent, done = algorithm.download(server), []
    for steps, client_state in zip(clients, client_states or [None] * len(clients)):
        local = algorithm.start(c.model, sent, client_state)
        for batches in steps:
            local = algorithm.step(c.model, sent, local, *batches)
        everything = partial(steps[0].__getitem__, 0)
        done.append(algorithm.finish(c.model, sent, local, client_state, everything))
    n = np.array([len(steps[0][0].y) for steps in clients])
    cohort = Cohort(np.arange(len(n)), np.ones_like(n), n)
    uploads = tree.stack([one.upload for one in done])
    return algorithm.combine(c.model, server, uploads, cohort), [one.client_state for one in done]
