"""Logistic regression, binary [fedmaml §4.2] and multinomial [apfl §4.1]."""

from dataclasses import dataclass

import numpy as np

from fedref.models import base
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.linear import LinearLogit
from fedref.models.numerics import Array


@dataclass(frozen=True)
class BinaryLogistic(LinearLogit, stacks=True):
    """z = xᵀθ + b,  ℓ = −y log σ(z) − (1−y) log(1−σ(z)) = log(1+e^(∓z)),  y ∈ {1, 0}.

    Layout: θ (features, 1), then b (1,) unless `bias=False`. L2: (l2/2)‖w‖² over everything.
    Derivatives: ∂ℓ/∂z = σ(z) − y = ∓σ(∓z),  ∂²ℓ/∂z² = σ(z)σ(−z). The upper sign is for y = 1.
    In this form nothing is subtracted: a loss of e^(−40) keeps all its digits.
    In the formulae beside the lines A has the n rows (x_j, 1), and l2 = 0.

    features : p, the features of a sample, ≥ 1.
    l2 : the weight of the L2 term, ≥ 0.
    bias : whether the score has a bias b.

    >>> model = BinaryLogistic(2)
    >>> D = Batch(np.array([[1.0, 2.0]]), np.array([1]))
    >>> w = np.zeros(model.d)
    >>> float(model.loss(w, D))          # log 2
    0.6931471805599453
    >>> model.grad(w, D)                 # (σ(0) − 1)·(x, 1)
    array([-0.5, -1. , -0.5])
    """

    features: int
    l2: float = 0.0
    bias: bool = True

    @property
    def labels(self) -> tuple[int, ...]:
        return (0, 1)

    def loss_of(self, z: Array, y: Array) -> Array:
        return nx.softplus(np.where(y == 1, -z, z))  # [loss] log(1 + exp(z)) − yz

    def label_of(self, z: Array) -> Array:
        return (z.real > 0).astype(np.int64)

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        z = self.logits(w, D.X)
        r = np.where(D.y == 1, -nx.sigmoid(-z), nx.sigmoid(z)) * base.mean_weights(D, z.dtype)
        g = self.vjp(w, D.X, r)  # [gradient] Aᵀ(σ(z) − y) / n
        return g + self.l2 * w if self.l2 else g

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        z = self.logits(w, D.X)
        slope = nx.sigmoid(z) * nx.sigmoid(-z)
        r = slope * self.logits(v, D.X) * base.mean_weights(D, z.dtype)  # R{σ(z) − y}
        h = self.vjp(w, D.X, r)  # [HVP] Aᵀ(σ(z) ⊙ σ(−z) ⊙ (Av)) / n
        return h + self.l2 * v if self.l2 else h


@dataclass(frozen=True)
class Logistic(base.SoftmaxLogits, stacks=True):
    """Z = XW + b,  ℓ = −log softmax(z)_y,  y ∈ {0, ..., classes−1}.

    Layout: W (features, classes), then b (classes,). L2: (l2/2)‖w‖² over everything.
    With p = softmax(z): ∂ℓ/∂z = p − 1_y,  ∂²ℓ/∂z² = diag(p) − ppᵀ.
    In the formulae beside the lines A has the n rows (x_j, 1) and Y the rows 1_y (one-hot). A_j v is
    R{z_j}, the derivative of z_j along v, and l2 = 0.

    features : p, the features of a sample, ≥ 1.
    classes : the number of classes, ≥ 1.
    l2 : the weight of the L2 term, ≥ 0.

    >>> model = Logistic(features=2, classes=3)
    >>> model.d, [view.shape for view in model.unpack(np.zeros(model.d))]
    (9, [(2, 3), (3,)])
    """

    features: int
    classes: int
    l2: float = 0.0

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.features, self.classes), (self.classes,)

    def init(self, rng: np.random.Generator) -> Array:
        return np.zeros(self.d)

    def logits(self, w: Array, X: Array) -> Array:
        W, b = self.unpack(w)
        z: Array = X @ W  # (..., B, C)
        z += b[..., None, :]
        return z

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        """(Xᵀr, Σ_j r_j): the transpose of `logits`, (..., B, C) → (..., d)."""
        out = np.empty((*r.shape[:-2], self.d), r.dtype)
        W, b = self.unpack(out)
        np.matmul(X.mT, r, out=W)
        np.add.reduce(r, -2, out=b)
        return out

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        z = self.logits(w, D.X)
        r = nx.cross_entropy_slope(z, D.y, base.mean_weights(D, z.dtype))
        g = self.vjp(w, D.X, r)  # [gradient] Aᵀ(p − Y) / n
        return g + self.l2 * w if self.l2 else g

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        z, Rz = self.logits(w, D.X), self.logits(v, D.X)
        r = nx.cross_entropy_curvature(z, Rz, base.mean_weights(D, z.dtype))
        h = self.vjp(w, D.X, r)  # [HVP] (Σ_j A_jᵀ(p_j ⊙ (A_j v) − p_j p_jᵀ A_j v)) / n
        return h + self.l2 * v if self.l2 else h
