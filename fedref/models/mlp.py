"""Multi-layer perceptron with softmax cross-entropy [per-fedavg §3.2]."""

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import ClassVar

import numpy as np

from fedref.boundary.values import check_fields
from fedref.models import base
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.numerics import Array


@dataclass(frozen=True)
class MLP(base.SoftmaxLogits, stacks=True):
    """a₀ = x,  z_l = a_{l−1} W_l + b_l,  a_l = φ(z_l),  ℓ = −log softmax(z_L)_y  (no φ on z_L).

    features : p, the features of a sample, ≥ 1.
    hidden : widths of the hidden layers, each ≥ 1.
    classes : the number of classes, ≥ 1.
    activation : φ, "elu" (α = 1), "relu" or "tanh".
    l2 : the weight of the L2 term, ≥ 0.
    initialisation : "fan-in" (default), "glorot" or "he", see `base.INITIALISATIONS`.

    Layout: W₁ (in, out), b₁ (out,), W₂, b₂, ... . L2: (l2/2)‖w‖² over everything.
    At the kinks: ELU″(0) = 0, ReLU′(0) = 0.

    Backward, δ_l = ∂ℓ/∂z_l:
        δ_L = p − 1_y,  δ_l = φ′(z_l) ⊙ (δ_{l+1} W_{l+1}ᵀ),  ∂W_l = a_{l−1}ᵀ δ_l,  ∂b_l = Σ δ_l.
    R-operator (Pearlmutter 1994), R{·} = d/dε at w + εv: the product rule, beside each line.
    In those formulae a, of n rows, is the input of a layer W, b, and δ is ∂ℓ/∂(aW + b); Y has the
    rows 1_y (one-hot).

    >>> model = MLP(784, (80, 60), 10)
    >>> model.d
    68270
    """

    features: int
    hidden: tuple[int, ...] = (80, 60)
    classes: int = 10
    activation: str = "elu"
    l2: float = 0.0
    initialisation: str = "fan-in"

    bounds: ClassVar = dict.fromkeys(("features", "hidden", "classes"), (1, inf))
    choices: ClassVar = base.WORDS

    def __post_init__(self) -> None:
        check_fields(self, "MLP")

    @property
    def sizes(self) -> tuple[int, ...]:
        """(features, width₁, ..., classes)."""
        return self.features, *self.hidden, self.classes

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(shape for p, q in pairwise(self.sizes) for shape in ((p, q), (q,)))

    def init(self, rng: np.random.Generator) -> Array:
        return base.initial(self.initialisation, rng, self.shapes[::2])

    def forward(self, w: Array, X: Array) -> list[Array]:
        """[a₀ = X, a₁, ..., a_{L−1}, z_L], each (..., B, width)."""
        layers = self.unpack(w)
        outputs = [X]
        for W, b in zip(layers[::2], layers[1::2]):
            z = outputs[-1] @ W  # (..., B, in) @ (..., in, out)
            z += b[..., None, :]  # [next z] aW + b
            outputs.append(z if W is layers[-2] else nx.ACTIVATIONS[self.activation].value(z))
        return outputs

    def logits(self, w: Array, X: Array) -> Array:
        return self.forward(w, X)[-1]

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        *a, z = self.forward(w, D.X)
        # [δ_L] (p − Y) / n
        delta = nx.cross_entropy_slope(z, D.y, base.mean_weights(D, z.dtype))  # (..., B, C)
        g = self.backward(w, a, delta)
        return g + self.l2 * w if self.l2 else g

    def backward(self, w: Array, a: list[Array], delta: Array) -> Array:
        """Σ_j ∂(δ_j · z_j)/∂w for δ (..., B, C), a = [a₀, ..., a_{L−1}]: (..., d)."""
        phi = nx.ACTIVATIONS[self.activation]
        g = np.empty((*delta.shape[:-2], self.d), delta.dtype)
        W, out = self.unpack(w), self.unpack(g)
        for l in reversed(range(len(a))):
            np.matmul(a[l].mT, delta, out=out[2 * l])  # [∂W] aᵀδ
            np.add.reduce(delta, -2, out=out[2 * l + 1])  # [∂b] Σ_j δ_j
            if l:
                delta = delta @ W[2 * l].mT
                delta *= phi.slope(a[l])  # [next δ] φ′(z) ⊙ δWᵀ
        return g

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        return self.backward(w, self.forward(w, X)[:-1], r)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        phi = nx.ACTIVATIONS[self.activation]
        *a, z = self.forward(w, D.X)
        W, V = self.unpack(w), self.unpack(v)

        Rz = [a[0] @ V[0] + V[1][..., None, :]]  # [first R{z}] aV + v_b
        Ra = [np.zeros(0)]  # not used: R{a₀} = 0
        for l in range(1, len(a)):
            Ra.append(phi.slope(a[l]) * Rz[-1])  # [R{a}] φ′(z) ⊙ R{z}
            # [next R{z}] R{a}W + aV + v_b
            Rz.append(Ra[l] @ W[2 * l] + a[l] @ V[2 * l] + V[2 * l + 1][..., None, :])

        c = base.mean_weights(D, z.dtype)
        delta = nx.cross_entropy_slope(z, D.y, c)  # [δ_L] (p − Y) / n
        # [R{δ_L}] p ⊙ (R{z} − Σ_c p_c ⊙ R{z}_c) / n
        Rdelta = nx.cross_entropy_curvature(z, Rz[-1], c)

        h = np.empty((*Rdelta.shape[:-2], self.d), Rdelta.dtype)
        out = self.unpack(h)
        for l in reversed(range(len(a))):
            np.matmul(a[l].mT, Rdelta, out=out[2 * l])  # [R{∂W}, first term] aᵀR{δ}
            if l:
                out[2 * l][...] += Ra[l].mT @ delta  # [R{∂W}] aᵀR{δ} + R{a}ᵀδ
            np.add.reduce(Rdelta, -2, out=out[2 * l + 1])  # [R{∂b}] Σ_j R{δ}_j
            if l:
                slope, e = phi.slope(a[l]), delta @ W[2 * l].mT
                # [next R{δ}] φ″(z) ⊙ R{z} ⊙ δWᵀ + φ′(z) ⊙ (R{δ}Wᵀ + δVᵀ)
                Rdelta = (
                    phi.curvature(a[l]) * Rz[l - 1] * e
                    + slope * (Rdelta @ W[2 * l].mT + delta @ V[2 * l].mT)
                )  # fmt: skip
                delta = slope * e  # [next δ] φ′(z) ⊙ δWᵀ
        return h + self.l2 * v if self.l2 else h
