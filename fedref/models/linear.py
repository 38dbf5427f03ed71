"""One logit that is linear in x: the part that binary logistic regression and the SVM share."""

import numpy as np

from fedref.models import base
from fedref.models.numerics import Array


class LinearLogit(base.FromLogits, stacks=True):
    """z = xᵀθ + b. Layout: θ (features, 1), then b (1,) unless `bias=False`. Starts at zero."""

    features: int
    bias: bool

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.features, 1), (1,)) if self.bias else ((self.features, 1),)

    def init(self, rng: np.random.Generator) -> Array:
        return np.zeros(self.d)

    def logits(self, w: Array, X: Array) -> Array:
        if w.shape[-1] != self.d:  # as in `unpack`, without its views
            raise ValueError(f"w has shape {w.shape}, expected (..., {self.d})")
        z = np.matvec(X, w[..., : self.features])  # (..., B)
        return z + w[..., -1:] if self.bias else z

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        """Σ_j r_j · (x_j, 1): the transpose of `logits`, (..., B) → (..., d)."""
        out = np.empty((*r.shape[:-1], self.d), r.dtype)
        np.matvec(X.mT, r, out=out[..., : self.features])
        if self.bias:
            np.add.reduce(r, -1, out=out[..., -1])
        return out
