"""The cost of a round: bytes that travel, gradients, Hessian-vector products, and their FLOPs."""

from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import numpy as np

from fedref.models import base, tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def count_floats(message: tree.Tree) -> int:
    """Return how many floating-point numbers travel in a message; counters and flags are free."""
    leaves = tree.leaves(message)
    return sum(np.size(x) for x in leaves if np.issubdtype(np.asarray(x).dtype, np.inexact))


class Counts(NamedTuple):
    """How many gradients and Hessian-vector products were computed, and on how many samples.

    A call on the batches of K clients counts K times.
    """

    grads: int = 0
    hvps: int = 0
    grad_samples: int = 0
    hvp_samples: int = 0


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts, field by field."""
    return Counts(*(sum(column) for column in zip(Counts(), *counts)))


class Counter:
    """A model that counts its evaluations: one for each entry of the leading axes.

    It does not validate its arguments: `run_clients` has done so. stopped : another thread sets it
    to end the work on this one, with CancelledError.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.stopped = base.without_validation(model), False
        self.grads = self.hvps = self.grad_samples = self.hvp_samples = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    @property
    def counts(self) -> Counts:
        return Counts(self.grads, self.hvps, self.grad_samples, self.hvp_samples)

    def grad(self, w: Array, D: Batch) -> Array:
        if self.stopped:
            raise CancelledError
        g = self.model.grad(w, D)
        n = g.size // g.shape[-1]
        self.grads += n
        self.grad_samples += _samples(n, D)
        return g

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        """Count a vector-Jacobian product as one gradient: that of r · z."""
        if self.stopped:
            raise CancelledError
        g = self.model.vjp(w, X, r)
        n = g.size // g.shape[-1]
        self.grads += n
        self.grad_samples += n * X.shape[-2]
        return g

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        h = self.model.hvp(w, v, D)
        n = h.size // h.shape[-1]
        self.hvps += n
        self.hvp_samples += _samples(n, D)
        return h


def _samples(n: int, D: Batch) -> int:
    """Return the number of samples in n evaluations on D, without padding."""
    B = D.y.shape[-1]
    if D.s is None:
        return n * B
    return n * int(np.count_nonzero(D.s)) * B // max(D.s.size, 1)


class RoundLog(NamedTuple):
    """The cost of one round, and the measurements in it."""

    floats_down: int = 0
    floats_up: int = 0
    counts: Counts = Counts()
    stragglers: int = 0
    dropped: int = 0
    failed: int = 0
    measured: Mapping[str, float] = {}


def flops(model: Model, counts: Counts) -> int:
    """Return the floating-point operations of the matrix products: 2 for each multiplication."""
    grad, hvp = model.work
    return 2 * (grad * counts.grad_samples + hvp * counts.hvp_samples)


def columns(model: Model, log: RoundLog, dtype: Any) -> dict[str, int]:
    """Return a round's cost by column of metrics.csv, which holds totals since round 0."""
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
