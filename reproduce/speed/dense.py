"""A workload as the peers take it: dense arrays, clients side by side."""

from typing import Any, NamedTuple

import numpy as np
from workloads import workload

from fedref.models.numerics import Array


class Dense(NamedTuple):
    """X (K, N, p), y (K, N), w (d,), p_k (K,), steps (K,); role → rows and weights (K, S, W)."""

    algorithm: Any
    model: Any
    X: Array
    y: Array
    w: Array
    share: Array
    steps: Array
    rows: dict[str, Array]
    weights: dict[str, Array]


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
    weights = {role: (r >= 0).astype(dtype) for role, r in plan.rows.items()}
    w = model.init(np.random.default_rng(0)).astype(dtype)
    return Dense(algorithm, model, X, y, w, share.astype(dtype), plan.steps, rows, weights)
