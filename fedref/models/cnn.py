"""Convolutional network with softmax cross-entropy [apfl §4.1.1]."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, prod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import check_fields
from fedref.models import base
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.numerics import Array

CHUNK = 64  # samples scored at once: the unfolded windows of a whole test set would fill the memory


class Grid(NamedTuple):
    """The sizes of an image before and after a convolutional layer with its pool."""

    before: tuple[int, int, int]  # H, W, c
    after: tuple[int, int, int]  # h = ⌊(H−k+1)/2⌋, w likewise, C


class Activations(NamedTuple):
    """The values that a forward pass keeps for the backward pass: one list entry per layer."""

    A: list[Array]  # (..., rows, in) the input, unfolded
    masks: list[Array | None]  # (..., 4, n, C) where the maxima are, n = B·h·w
    f: list[Array]  # (..., rows, out) φ(u); none for the last layer
    z: Array  # (..., B, classes) u of the last layer


@dataclass(frozen=True)
class CNN(base.SoftmaxLogits, stacks=True):
    """[convolution – φ – 2×2 pool] × len(channels), dense – φ, dense,  ℓ = −log softmax(z_L)_y.

    image : (H, W) or (H, W, c).
    channels : c_out of each convolution.
    kernel : k, for k×k windows.
    hidden : width of the first dense layer, ≥ 1.
    classes : the number of classes, ≥ 1.
    activation : φ, "relu", "elu" (α = 1) or "tanh".
    pool : "max" or "mean" (an odd last row or column is dropped).
    l2 : the weight of the L2 term, ≥ 0.
    initialisation : "fan-in" (default), "glorot" or "he", see `base.INITIALISATIONS`.

    X is flat (..., B, H·W·c), row-major (H, W, c), and so is the flattening before the first dense
    layer. Convolutions are valid cross-correlations of stride 1. Layout: for each layer its weight,
    then its bias (out,); kernels (k, k, c_in, c_out), dense weights (in, out).
    L2: (l2/2)‖w‖² over everything.

    One formula for all layers. E, P and Q are linear maps, the identity in layers not named here:

        A_l = E a_{l−1}     convolution: the k×k windows, one a row;  first dense layer: flatten
        u_l = P(A_l W_l) + b_l      P: the first maximum of each window, for "max"
        a_l = Q φ(u_l)              Q: the mean of each window, for "mean"

    Backward, δ_l = ∂ℓ/∂u_l:
        δ_L = p − 1_y,  δ_l = φ′(u_l) ⊙ QᵀEᵀ((Pᵀδ_{l+1})W_{l+1}ᵀ),  ∂W_l = A_lᵀ Pᵀδ_l,  ∂b_l = Σ δ_l.
    R-operator, R{·} = d/dε at w + εv: the product rule; the maxima stay where they are. In the
    formulae beside the lines A = E Q φ(u) is the input of a layer W, b; Y has n rows 1_y (one-hot).

    The first dense layer (800 units) has φ, as the convolutions do; the paper does not mention it.

    The maximum is taken before bias and φ, which gives the same value as after them (both are
    monotone) with a quarter of the work. At ties it is the first in row-major order. At the kinks
    of φ: ELU″(0) = 0, ReLU′(0) = 0.

    >>> model = CNN()
    >>> model.d, model.shapes[4]
    (1034380, (1250, 800))
    """

    image: tuple[int, ...] = (32, 32)
    channels: tuple[int, ...] = (20, 50)
    kernel: int = 5
    hidden: int = 800
    classes: int = 10
    activation: str = "relu"
    pool: str = "max"
    l2: float = 0.0
    initialisation: str = "fan-in"

    bounds: ClassVar = dict.fromkeys(("image", "channels", "kernel", "hidden", "classes"), (1, inf))
    choices: ClassVar = {**base.WORDS, "pool": ("max", "mean")}

    def __post_init__(self) -> None:
        check_fields(self, "CNN")
        if len(self.image) not in (2, 3):
            raise ConfigError(f"CNN image {self.image}: expected (H, W) or (H, W, c), all ≥ 1")
        least = 1
        for _ in self.channels:
            least = 2 * least + self.kernel - 1  # the input of a layer whose output is `least`
        if min(self.image[:2]) < least:
            raise ConfigError(
                f"CNN image {self.image} is too small for {len(self.channels)} layers of "
                f"{self.kernel}×{self.kernel} convolution and 2×2 pool: "
                f"expected {least}×{least} or more"
            )

    @property
    def pixels(self) -> tuple[int, int, int]:
        """H, W, c of the input."""
        H, W, *c = self.image
        return H, W, (c[0] if c else 1)

    @cached_property
    def grids(self) -> list[Grid]:
        """The sizes of each convolutional layer."""
        H, W, c = self.pixels
        grids = []
        for out in self.channels:
            h, w = (H - self.kernel + 1) // 2, (W - self.kernel + 1) // 2
            grids.append(Grid((H, W, c), (h, w, out)))
            H, W, c = h, w, out
        return grids

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        k, grids = self.kernel, self.grids
        H, W, c = grids[-1].after if grids else self.pixels
        weights = [(k, k, grid.before[2], grid.after[2]) for grid in grids]
        dense = list(pairwise((H * W * c, self.hidden, self.classes)))
        return tuple(shape for weight in (*weights, *dense) for shape in (weight, weight[-1:]))

    @property
    def products(self) -> tuple[int, ...]:
        """Multiplications of one sample's forward pass: a kernel's weights are used in every window."""
        windows = [4 * grid.after[0] * grid.after[1] for grid in self.grids] + [1, 1]
        return tuple(n * prod(shape) for n, shape in zip(windows, self.shapes[::2]))

    @property
    def features(self) -> int:
        H, W, c = self.pixels
        return H * W * c

    def init(self, rng: np.random.Generator) -> Array:
        return base.initial(self.initialisation, rng, self.shapes[::2])

    def layers(self, w: Array) -> list[tuple[Array, Array]]:
        """Return views W_l (..., in, out) and b_l (..., out) of every layer, kernels as matrices."""
        views = self.unpack(w)
        lead = w.shape[:-1]
        return [
            (W.reshape(*lead, prod(shape[:-1]), shape[-1]), b)
            for W, b, shape in zip(views[::2], views[1::2], self.shapes[::2])
        ]

    # E, P, Q and their transposes. Between layers everything is a matrix: rows are samples ×
    # positions, columns are channels. n = B·h·w counts the pixels after the pool.

    def E(self, l: int, a: Array) -> Array:
        if l < len(self.channels):  # (..., B·H·W, c) → (..., 4·n, k·k·c)
            return windows(a, self.grids[l], self.kernel)
        fan_in = self.shapes[2 * l][0]  # the first dense layer: (..., n, C) → (..., B, h·w·C)
        return a.reshape(*a.shape[:-2], a.shape[-2] * a.shape[-1] // fan_in, fan_in)

    def Et(self, l: int, dA: Array) -> Array:
        if l < len(self.channels):
            return add_windows(dA, self.grids[l], self.kernel)
        fan_out = self.shapes[2 * l - 2][-1]
        return dA.reshape(*dA.shape[:-2], dA.shape[-2] * dA.shape[-1] // fan_out, fan_out)

    def argmax_mask(self, l: int, z: Array) -> Array | None:
        """Return where the maxima of P are: (..., 4, n, C) of bool; None where P is the identity."""
        return (
            nx.argmax_mask(windows_first(z))
            if l < len(self.channels) and self.pool == "max"
            else None
        )

    def P(self, z: Array, mask: Array | None) -> Array:  # (..., 4·n, C) → (..., n, C)
        if mask is None or nx.carries_slope(z):
            return self.R_P(z, mask)
        return windows_first(z).max(-3)  # the same, in a third of the time

    def R_P(self, Rz: Array, mask: Array | None) -> Array:
        """R{P(z)}, the R-operator of max-pooling: R{z} where the maxima of z are."""
        return Rz if mask is None else (mask * windows_first(Rz)).sum(-3)

    def Pt(self, du: Array, mask: Array | None) -> Array:
        return du if mask is None else windows_last(mask * du[..., None, :, :])

    def Q(self, l: int, f: Array) -> Array:  # (..., 4·n, C) → (..., n, C)
        return windows_first(f).mean(-3) if l < len(self.channels) and self.pool == "mean" else f

    def Qt(self, l: int, da: Array) -> Array:
        if l < len(self.channels) and self.pool == "mean":
            return np.concatenate([da / 4] * 4, -2)
        return da

    def forward(self, w: Array, X: Array) -> Activations:
        phi = nx.ACTIVATIONS[self.activation]
        c = self.pixels[2]
        a = X.reshape(*X.shape[:-2], X.shape[-2] * (self.features // c), c)  # (..., B·H·W, c)
        A: list[Array] = []
        masks: list[Array | None] = []
        f: list[Array] = []
        layers = self.layers(w)
        for l, (W, b) in enumerate(layers):
            A.append(self.E(l, a))  # [A] E a
            z = A[l] @ W  # (..., rows, in) @ (..., in, out)
            masks.append(self.argmax_mask(l, z))
            u = self.P(z, masks[l])
            u += b[..., None, :]  # [next u] P(AW) + b
            if l < len(layers) - 1:
                f.append(phi.value(u))
                a = self.Q(l, f[l])
        return Activations(A, masks, f, u)

    def logits(self, w: Array, X: Array) -> Array:
        """z_L, (..., B, classes), a few samples at a time."""
        starts = range(0, max(X.shape[-2], 1), CHUNK)
        return np.concatenate([self.forward(w, X[..., i : i + CHUNK, :]).z for i in starts], -2)

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        kept = self.forward(w, D.X)
        c = base.mean_weights(D, kept.z.dtype)
        delta = nx.cross_entropy_slope(kept.z, D.y, c)  # [δ_L] (p − Y) / n
        g = self.backward(w, kept, delta)
        return g + self.l2 * w if self.l2 else g

    def backward(self, w: Array, kept: Activations, delta: Array) -> Array:
        """Σ_j ∂(δ_j · z_j)/∂w for δ (..., B, classes): (..., d)."""
        phi = nx.ACTIVATIONS[self.activation]
        A, masks, f, _ = kept
        g = np.empty((*delta.shape[:-2], self.d), delta.dtype)
        layers, out = self.layers(w), self.layers(g)
        for l in reversed(range(len(A))):
            e = self.Pt(delta, masks[l])  # [∂(AW)] Pᵀδ
            np.matmul(A[l].mT, e, out=out[l][0])  # [∂W] AᵀPᵀδ
            np.sum(delta, -2, out=out[l][1])  # [∂b] Σ_j δ_j
            if l:
                delta = self.Qt(l - 1, self.Et(l, e @ layers[l][0].mT))  # [∂f] QᵀEᵀ((Pᵀδ)Wᵀ)
                delta *= phi.slope(f[l - 1])  # [next δ] φ′(u) ⊙ QᵀEᵀ((Pᵀδ)Wᵀ)
        return g

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        return self.backward(w, self.forward(w, X), r)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        phi = nx.ACTIVATIONS[self.activation]
        A, masks, f, z = self.forward(w, D.X)
        W, V = ([matrices for matrices, _ in self.layers(x)] for x in (w, v))
        v_b = [b for _, b in self.layers(v)]

        # [first R{u}] P(AV) + v_b
        Ru = [self.R_P(A[0] @ V[0], masks[0]) + v_b[0][..., None, :]]
        RA = [np.zeros(0)]  # not used: R{A₀} = 0
        for l in range(1, len(A)):
            # [R{A}] E Q(φ′(u) ⊙ R{u})
            RA.append(self.E(l, self.Q(l - 1, phi.slope(f[l - 1]) * Ru[l - 1])))
            # [next R{u}] P(R{A}W + AV) + v_b
            Ru.append(self.R_P(RA[l] @ W[l] + A[l] @ V[l], masks[l]) + v_b[l][..., None, :])

        c = base.mean_weights(D, z.dtype)
        delta = nx.cross_entropy_slope(z, D.y, c)  # [δ_L] (p − Y) / n
        # [R{δ_L}] p ⊙ (R{u} − Σ_c p_c ⊙ R{u}_c) / n
        Rdelta = nx.cross_entropy_curvature(z, Ru[-1], c)

        h = np.empty((*Rdelta.shape[:-2], self.d), Rdelta.dtype)
        out = self.layers(h)
        for l in reversed(range(len(A))):
            e, Re = self.Pt(delta, masks[l]), self.Pt(Rdelta, masks[l])
            np.matmul(A[l].mT, Re, out=out[l][0])  # [R{∂W}, first term] AᵀPᵀR{δ}
            if l:
                out[l][0][...] += RA[l].mT @ e  # [R{∂W}] AᵀPᵀR{δ} + R{A}ᵀPᵀδ
            np.sum(Rdelta, -2, out=out[l][1])  # [R{∂b}] Σ_j R{δ}_j
            if l:
                da = self.Qt(l - 1, self.Et(l, e @ W[l].mT))  # [∂f] QᵀEᵀ((Pᵀδ)Wᵀ)
                # [R{∂f}] QᵀEᵀ((PᵀR{δ})Wᵀ + (Pᵀδ)Vᵀ)
                Rda = self.Qt(l - 1, self.Et(l, Re @ W[l].mT + e @ V[l].mT))
                slope = phi.slope(f[l - 1])
                # [next R{δ}] φ″(u) ⊙ R{u} ⊙ ∂f + φ′(u) ⊙ R{∂f}
                Rdelta = phi.curvature(f[l - 1]) * Ru[l - 1] * da + slope * Rda
                delta = slope * da  # [next δ] φ′(u) ⊙ ∂f
        return h + self.l2 * v if self.l2 else h


def windows_first(z: Array) -> Array:
    """(..., 4·n, C) → (..., 4, n, C): split by the place in the pool's 2×2 window."""
    return z.reshape(*z.shape[:-2], 4, z.shape[-2] // 4, z.shape[-1])


def windows_last(z: Array) -> Array:
    """(..., 4, n, C) → (..., 4·n, C)."""
    return z.reshape(*z.shape[:-3], 4 * z.shape[-2], z.shape[-1])


def windows(a: Array, grid: Grid, k: int) -> Array:
    """Unfold every k×k window into a row: (..., B·H·W, c) → (..., 4·n, k·k·c), n = B·h·w.

    A convolution is then one matrix product: windows(a) @ kernel (k·k·c, C). Rows are ordered
    (p, q, B, h, w) with p, q the place in the pool's 2×2 window, so that pooling is a sum over the
    axis of length 4. Windows whose result the pool would drop are left out.
    """
    (H, W, c), (h, w, _) = grid
    *lead, pixels, _ = a.shape
    B = pixels // (H * W)
    view = sliding_window_view(a.reshape(*lead, B, H, W, c), (k, k), (-3, -2))
    view = view[..., : 2 * h, : 2 * w, :, :, :].reshape(*lead, B, h, 2, w, 2, c, k, k)
    if c == 1:  # stored transposed, which costs the product nothing: copies runs of w, not of k
        taps_first: Array = np.einsum("...bhpwqcij->...ijcpqbhw", view)
        return taps_first.reshape(*lead, k * k * c, 4 * B * h * w).mT
    rows_first: Array = np.einsum("...bhpwqcij->...pqbhwijc", view)
    return rows_first.reshape(*lead, 4 * B * h * w, k * k * c)


def add_windows(dA: Array, grid: Grid, k: int) -> Array:
    """Add every row back to the pixels it came from: the transpose of `windows`.

    First along H, then along W: 2k slices to add instead of k².
    """
    (H, W, c), (h, w, _) = grid
    *lead, rows, _ = dA.shape
    B = rows // (4 * h * w)
    dA = dA.reshape(*lead, 2, 2, B, h, w, k, k, c)
    dA = np.einsum("...pqbhwijc->...bhpwqijc", dA)  # a view
    tall = np.zeros((*lead, B, H, w, 2, k, c), dA.dtype)
    for i in range(k):
        part = tall[..., i : i + 2 * h, :, :, :, :].reshape(*lead, B, h, 2, w, 2, k, c)  # a view
        part += dA[..., i, :, :]
    a = np.zeros((*lead, B, H, W, c), dA.dtype)
    for j in range(k):
        part = a[..., j : j + 2 * w, :].reshape(*lead, B, H, w, 2, c)
        part += tall[..., j, :]
    return a.reshape(*lead, B * H * W, c)
