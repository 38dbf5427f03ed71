"""fedref by its public path; its matrix products alone; and a round without derivatives."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedref.algorithm import State
from fedref.models import tree
from fedref.models.numerics import Array
from fedref.rounds.loop import run_round
from fedref.rounds.stack import STACK_UP_TO
from reproduce.speed.workloads import workload

#: role → (gradients, Hessian-vector products) on its batches.
DERIVATIVES = {"D": (1, 0), "D1": (1, 0), "D2": (0, 1), "S": (1, 1), "Q": (1, 0)}


def prepare(how: str, dtype: str, name: str) -> Callable[[], Any]:
    algorithm, model, federation, plan = workload(name)
    w = model.init(np.random.default_rng(0)).astype(dtype)
    state = State(algorithm.initial(model, w), {})
    if how == "floor":
        return products(model, plan, np.dtype(dtype))
    if how == "no-derivatives":
        model = without_derivatives(model)

    def play() -> list[Array]:
        new, _ = run_round(algorithm, model, state, plan, federation, dtype=np.dtype(dtype))
        return list(tree.leaves(new.server))

    return play


def without_derivatives(model: Any) -> Any:
    """Return the model with a gradient and a Hessian-vector product of 0, which cost nothing."""

    zeros = cache(np.zeros)

    def zero(self: Any, w: Array, *others: Any) -> Array:
        return zeros(w.shape, w.dtype)  # with a broadcast 0, an update would run over strides

    other: Any = object.__new__(type("Other", (type(model),), {"grad": zero, "hvp": zero}))
    other.__dict__.update(vars(model))
    return other


def products(model: Any, plan: Any, dtype: Any) -> Callable[[], Any]:
    """Prepare the matrix products of a round with warm operands: all that a BLAS has to do.

    For each layer A W forward, Aᵀδ, and δWᵀ but for the first; in an HVP each with its product rule.
    """
    weights = [(int(np.prod(shape[:-1])), shape[-1]) for shape in model.shapes if len(shape) > 1]
    windows = [n // (a * b) for n, (a, b) in zip(model.products, weights)]
    K = len(plan.clients) if model.d <= STACK_UP_TO else 1  # those of a stack in one call
    rng = np.random.default_rng(0)
    todo = []
    for role, rows in plan.rows.items():
        grads, hvps = DERIVATIVES[role]
        for l, (times, (p, q)) in enumerate(zip(windows, weights)):
            shapes = [(times * rows.shape[-1], p), (p, q), (times * rows.shape[-1], q)]
            arrays = [rng.normal(size=(K, *shape)).astype(dtype) for shape in shapes]
            forward = grads + hvps * (3 if l else 2)
            back = grads + hvps * (2 if l else 1)
            down = (grads + 3 * hvps) if l else 0
            todo.append((arrays, forward, back, down, -(-int((rows >= 0).any(-1).sum()) // K)))

    def play() -> None:
        for (A, W, d), forward, back, down, evaluations in todo:
            for _ in range(evaluations):
                for _ in range(forward):
                    A @ W
                for _ in range(back):
                    A.mT @ d
                for _ in range(down):
                    d @ W.mT

    return play
