"""A workload as the peers take it: dense arrays, clients side by side."""

from typing import Any, NamedTuple

import numpy as np

from fedref.models import LinearSVM
from fedref.models.numerics import Array
from reproduce.speed.workloads import workload


class Dense(NamedTuple):
    """X (K, N, p), y (K, N), w a list of arrays, p_k (K,), steps (K,); role → rows (K, S, W).

    weights (K, S, W) sum to 1 over each batch; None where no batch is shorter than the others.
    """

    algorithm: Any
    model: Any
    X: Array
    y: Array
    w: list[Array]
    share: Array
    steps: Array
    rows: dict[str, Array]
    weights: dict[str, Array | None]


def dense(name: str, dtype: str) -> Dense:
    algorithm, model, federation, plan = workload(name)
    K, most = len(plan.clients), int(plan.sizes.max())
    X = np.zeros((K, most, model.features), dtype)
    y = np.zeros((K, most), np.int64)
    for k in range(K):
        X[k, : plan.sizes[k]], y[k, : plan.sizes[k]], _ = federation.batch(
            federation.train.rows_of(k), np.dtype(dtype)
        )
    samples = algorithm.weighting == "samples"
    share = plan.sizes / plan.sizes.sum() if samples else np.full(K, 1 / K)
    rows = {role: np.maximum(r, 0) for role, r in plan.rows.items()}
    weights = {role: shares(r, dtype) for role, r in plan.rows.items()}
    w = [x.copy() for x in model.unpack(model.init(np.random.default_rng(0)).astype(dtype))]
    # the dtype of the run: labels of an SVM are numbers, others are codes
    y = y.astype(dtype) if isinstance(model, LinearSVM) else y
    return Dense(algorithm, model, X, y, w, share.astype(dtype), plan.steps, rows, weights)


def shares(rows: Array, dtype: str) -> Array | None:
    """1/B for the B rows of a batch, 0 for padding; None where batches of steps are full."""
    real = rows >= 0
    count = real.sum(-1, keepdims=True)
    if ((count == rows.shape[-1]) | (count == 0)).all():
        return None
    return (real / np.maximum(count, 1)).astype(dtype)
