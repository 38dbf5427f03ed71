"""What a round costs: bytes that travel, gradients, Hessian-vector products, and their FLOPs."""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.batch import Batch
from fedref.models.base import Model
from fedref.numerics import Array


def floats(message: tree.Tree) -> int:
    """How many floating-point numbers travel in a message; counters and flags are free."""
    leaves = tree.leaves(message)
    return sum(np.size(x) for x in leaves if np.issubdtype(np.asarray(x).dtype, np.inexact))


class Counts(NamedTuple):
    """Gradients and Hessian-vector products, one a client and batch, and the samples in them."""

    grads: int = 0
    hvps: int = 0
    grad_samples: int = 0
    hvp_samples: int = 0


def total(counts: Iterable[Counts]) -> Counts:
    """Their sum, field by field."""
    return Counts(*(sum(column) for column in zip(Counts(), *counts)))


class Counter:
    """A model that counts what is asked of it."""

    def __init__(self, model: Model) -> None:
        self.model, self.counts = model, Counts()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    @staticmethod
    def _evaluations(D: Batch, *vectors: Array) -> tuple[int, int]:
        """(evaluations, samples): one evaluation for each of the leading axes; padding is free."""
        lead = np.broadcast_shapes(D.y.shape[:-1], *(v.shape[:-1] for v in vectors))
        real = D.y.size if D.s is None else int(np.count_nonzero(D.s))
        n = prod(lead)
        return n, n * real // max(prod(D.y.shape[:-1]), 1)

    def grad(self, w: Array, D: Batch) -> Array:
        n, samples = self._evaluations(D, w)
        self.counts = total([self.counts, Counts(grads=n, grad_samples=samples)])
        return self.model.grad(w, D)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        n, samples = self._evaluations(D, w, v)
        self.counts = total([self.counts, Counts(hvps=n, hvp_samples=samples)])
        return self.model.hvp(w, v, D)


class RoundLog(NamedTuple):
    """What one round cost and what was measured in it."""

    floats_down: int = 0
    floats_up: int = 0
    counts: Counts = Counts()
    stragglers: int = 0
    dropped: int = 0
    failed: int = 0
    measured: Mapping[str, float] = {}


def forward_products(model: Model) -> int:
    """Multiplications of one sample's forward pass: the model's own count, or its weights."""
    own = getattr(model, "products", None)
    if own is not None:
        return int(own)
    views = model.unpack(np.empty(model.d))
    return sum(view.size for view in views if view.ndim > 1)


def flops(model: Model, counts: Counts) -> int:
    """Floating-point operations of these derivatives, matrix products only: a gradient is 3 forward
    passes of 2 operations a product, a Hessian-vector product 8."""
    products = 2 * forward_products(model)
    return products * (3 * counts.grad_samples + 8 * counts.hvp_samples)


def columns(model: Model, log: RoundLog, dtype: Any) -> dict[str, int]:
    """A round's cost as metrics.csv has it, where each is a total since round 0."""
    size = np.dtype(dtype).itemsize
    return {
        "bytes_down": log.floats_down * size,
        "bytes_up": log.floats_up * size,
        "grads": log.counts.grads,
        "hvps": log.counts.hvps,
        "flops": flops(model, log.counts),
        "stragglers": log.stragglers,
        "dropped": log.dropped,
        "failed": log.failed,
    }
