"""Synthetic(α, β) of FedProx: every client has its own linear model and its own distribution of x.

u_k ~ N(0, α),  W_k, b_k ~ N(u_k, 1),  B_k ~ N(0, β),  v_k ~ N(B_k, 1),
x ~ N(v_k, diag(j^−1.2)),  y = argmax(W_k x + b_k),  n_k = 50 + ⌊lognormal(4, 2)⌋.
IID variant: one W, b ~ N(0, 1) for all clients and x ~ N(0, diag(j^−1.2)).

*Decision.* α and β are standard deviations, as in the published generator, not variances. (For 0 and
1 both are the same.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedref.lab.datasets.formats.arrays import Raw
from fedref.models.numerics import Array


@dataclass(frozen=True)
class Synthetic:
    """Parameters: alpha, how much clients' models differ; beta, how much their inputs do; sizes."""

    alpha: float = 0.5
    beta: float = 0.5
    users: int = 30
    features: int = 60
    classes: int = 10
    seed: int = 0

    bounds: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "alpha": (0, 1e6), "beta": (0, 1e6), "users": (1,), "features": (1,), "classes": (2,), "seed": (0,),
    }  # fmt: skip


@dataclass(frozen=True)
class SyntheticIID(Synthetic):
    """Parameters of the IID variant: all clients have one distribution, so there is no α and no β."""

    alpha: float = field(default=0.0, init=False)
    beta: float = field(default=0.0, init=False)


def sizes(users: int, rng: np.random.Generator) -> Array:
    """Draw the clients' sizes n_k = 50 + ⌊lognormal(4, 2)⌋: (users,)."""
    return 50 + rng.lognormal(4.0, 2.0, users).astype(np.int64)


def generate(
    given: Synthetic, iid: bool = False, n: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return X (rows, features) float64, y (rows,), client (rows,); n : sizes (None: lognormal)."""
    rng_n, rng_model, rng_mean, rng_x = np.random.default_rng(given.seed).spawn(4)
    users, features = given.users, given.features
    n = sizes(users, rng_n) if n is None else n
    client = np.repeat(np.arange(users), n)
    u = rng_model.normal(0.0, given.alpha, users)
    v = rng_mean.normal(rng_mean.normal(0.0, given.beta, users)[:, None], 1.0, (users, features))
    if iid:
        u, v = np.zeros(users), np.zeros_like(v)
    std = np.arange(1, features + 1) ** -0.6
    X = rng_x.standard_normal((len(client), features))
    X *= std
    y = np.empty(len(client), np.int64)
    start = 0
    for k, size in enumerate(n.tolist()):
        if k == 0 or not iid:
            W = rng_model.normal(u[k], 1.0, (features, given.classes))
            b = rng_model.normal(u[k], 1.0, given.classes)
        rows = slice(start, start + size)
        X[rows] += v[k]
        y[rows] = (X[rows] @ W + b).argmax(1)
        start += size
    return X, y, client


def read(path: object, iid: bool = False, **parameters: Any) -> Raw:
    """Return the generated data with natural clients."""
    X, y, client = generate(Synthetic(**parameters), iid)
    return Raw({"X": X, "y": y, "client": client}, {"client_names": None})
