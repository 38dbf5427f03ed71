"""Linear support vector machine [apfl §4.1], with hinge or squared hinge."""

from dataclasses import dataclass

import numpy as np

from fedref.models import base
from fedref.models.batch import Batch
from fedref.models.linear import LinearLogit
from fedref.models.numerics import Array, positive_part


@dataclass(frozen=True)
class LinearSVM(LinearLogit, stacks=True):
    """z = xᵀθ + b,  m = 1 − yz,  ℓ = max(0, m) or, with `squared`, max(0, m)²,  y ∈ {−1, +1}.

    Layout: θ (features, 1), then b (1,) unless `bias=False`. L2: (l2/2)‖w‖² over everything.
    A sample is active where m > 0. At the kink m = 0 it is not: the subgradient there is 0.

    hinge:    ∂ℓ/∂z = −y where active,     ∂²ℓ/∂z² = 0: the HVP is that of the L2 term alone.
    squared:  ∂ℓ/∂z = −2ym where active,   ∂²ℓ/∂z² = 2 where active (generalised Hessian).
    In the formulae beside the lines A has the n rows (x_j, 1), a is 1 where active, else 0; l2 = 0.

    features : p, the features of a sample, ≥ 1.
    l2 : the weight of the L2 term, ≥ 0.
    squared : whether the loss is the squared hinge.
    bias : whether the score has a bias b.

    >>> model = LinearSVM(2)
    >>> D = Batch(np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([+1, -1]))
    >>> w = np.array([1.0, 1.0, 0.0])
    >>> float(model.loss(w, D))          # margins −2 and 4: (0 + 4)/2
    2.0
    >>> model.grad(w, D)                 # (0 + (3, 0, 1))/2
    array([1.5, 0. , 0.5])
    """

    features: int
    l2: float = 0.0
    squared: bool = False
    bias: bool = True

    @property
    def labels(self) -> tuple[int, ...]:
        return (-1, 1)

    def margins(self, z: Array, y: Array) -> tuple[Array, Array]:
        """max(0, m), and y in the dtype of m: an integer y would turn float32 into float64."""
        y = y.astype(z.real.dtype, copy=False)
        return positive_part(1 - y * z), y

    def loss_of(self, z: Array, y: Array) -> Array:
        m, _ = self.margins(z, y)
        # [loss, hinge] max(0, 1 − yz)
        # [loss, squared hinge] max(0, 1 − yz)²
        return m * m if self.squared else m

    def label_of(self, z: Array) -> Array:
        """+1 where z > 0, else −1."""
        return np.where(z.real > 0, 1, -1)

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        m, y = self.margins(self.logits(w, D.X), D.y)
        r = -y * (2 * m if self.squared else np.sign(m.real)) * base.mean_weights(D, m.dtype)
        # [gradient, hinge] −Aᵀ(y ⊙ a) / n
        # [gradient, squared hinge] −2Aᵀ(y ⊙ max(0, 1 − yz)) / n
        g = self.vjp(w, D.X, r)
        return g + self.l2 * w if self.l2 else g

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        m, _ = self.margins(self.logits(w, D.X), D.y)
        has_curvature = (m.real > 0) & self.squared
        r = np.where(has_curvature, 2 * self.logits(v, D.X), 0) * base.mean_weights(
            D, m.dtype
        )  # y² = 1
        # [HVP, squared hinge] 2Aᵀ(a ⊙ (Av)) / n
        h = self.vjp(w, D.X, r)
        return h + self.l2 * v if self.l2 else h
