"""LSTM over rows of codes, with softmax cross-entropy [fedmeta §experiments].

Value, gradient and R-operator of each piece stand beside each other, and go through time alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import check_fields
from fedref.models import base
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.numerics import Array

CACHE_BYTES = 1 << 26  # a forward pass keeps no more: larger batches are done in chunks


class Steps(NamedTuple):
    """The values that one layer's forward pass over T steps keeps for the backward pass."""

    x: Array  # (..., T, B, n) the layer's input
    a: Array  # (..., T, B, 4H) the gates i, f, g, o
    c: Array  # (..., T+1, B, H) the cell; c[t] is the one before step t, c[0] = 0
    s: Array  # (..., T, B, H) tanh of the new cell
    h: Array  # (..., T+1, B, H) the output; h[t] is the one before step t


class Adjoint(NamedTuple):
    """The values that one layer's backward pass keeps for its R-operator."""

    delta: Array  # (..., T, B, 4H) ∂ℓ/∂z
    dh: Array  # (..., T, B, H) ∂ℓ/∂h_t
    e: Array  # (..., T, B, H) ∂ℓ/∂c_t


class Activations(NamedTuple):
    """The values that a forward pass keeps."""

    codes: Array  # (..., T, B), padding as code 0
    skip: Array | None  # (..., T, B, 1) where padding is; None: nowhere
    layers: list[Steps]
    r: Array  # (..., B, H) what the dense layer reads
    z: Array  # (..., B, classes)


@dataclass(frozen=True)
class LSTM(base.SoftmaxLogits, stacks=True):
    """Embedding, an LSTM layer for each width in `hidden`, dense layer,  ℓ = −log softmax(z)_y.

    X (..., B, length) holds whole numbers, 0 to vocabulary − 1; the code `vocabulary` is padding.
    vocabulary : how many codes there are; this number itself is padding.
    classes : the number of classes, ≥ 1.
    length : T, the characters or words of a sample.
    embedding : e, the numbers for each code.
    hidden : H, the width of each LSTM layer.
    output : the input of the dense layer, from the last LSTM layer: h after the "last" step, or its
    "mean" over all steps without padding (0 for a row that is all padding).
    l2 : the weight of the L2 term, ≥ 0.
    initialisation : "fan-in" (default), "glorot" or "he" for each gate by itself (n + H in, H out) and
    for a row of E (1 in, e out); then b_f = 1.

        x_t = E[code_t];  for each layer, x_t being what the layer below gives at step t:
        (z_i, z_f, z_g, z_o) = [x_t, h_{t−1}] W + b      i, f, o = σ(z),  g = tanh(z_g)
        c_t = f ⊙ c_{t−1} + i ⊙ g,  s_t = tanh(c_t),  h_t = o ⊙ s_t      c, h = 0 before step 1
        z = r D + b_D,  r = h_T or the mean of all h_t

    Padding is a step that is not taken: c_t = c_{t−1} and h_t = h_{t−1} in every layer, so that a
    short text, wherever it is padded, has the scores of the short text alone.

    Layout: E (vocabulary, e); for each layer W (n + H, 4H), rows of x first, then b (4H,); D and
    b_D. L2: (l2/2)‖w‖² over everything.

    All four gates are one formula, a = k tanh(kz) + 1 − k with k = ½ for σ and 1 for tanh:
        da/dz = (1 − a)(a + 2k − 1),  d²a/dz² = 2(1 − k − a) da/dz.       No kinks anywhere.

    Backward through time, δ_t = ∂ℓ/∂z_t (..., 4H), e_t = ∂ℓ/∂c_t:
        dh_t = ∂ℓ/∂h_t from above + δ_{t+1} W_hᵀ
        e_t = e_{t+1} ⊙ f_{t+1} + dh_t ⊙ o ⊙ (1 − s²)
        δ_t = (e ⊙ g, e ⊙ c_{t−1}, e ⊙ i, dh ⊙ s) ⊙ da/dz
        ∂W = Σ_t [x_t, h_{t−1}]ᵀ δ_t,  ∂b = Σ_t δ_t,  ∂ℓ/∂x_t = δ_t W_xᵀ,  ∂E[v] = Σ ∂ℓ/∂x where code = v.
    R-operator (Pearlmutter 1994), R{·} = d/dε at w + εv, beside each line: the product rule.

    Memory. A gradient keeps 13 H + n numbers for each step, sample and layer (a, c, s, h, x; δ, dh,
    e): with H = 256, length 80 and float64, 2.1 MB a sample. An HVP keeps twice as many. `CACHE_BYTES`
    bounds what is kept at once to 64 MiB (an HVP: 128 MiB): larger batches are computed in chunks,
    larger stacks one part after the other.

    Speed. Nearly all of a gradient's time goes into three products, two of them once a step. On one
    core (B = 10, length 80, H = 256) it takes as long as torch.nn.LSTM's in float64; in float32, for
    which torch has a kernel that does all steps at once, 2.4 times as long.

    >>> model = LSTM(vocabulary=81, classes=80, length=80)
    >>> model.d, model.shapes[1], model.rows
    (292568, (264, 1024), 31)
    """

    vocabulary: int
    classes: int
    length: int
    embedding: int = 8
    hidden: tuple[int, ...] = (256,)
    output: str = "last"
    l2: float = 0.0
    initialisation: str = "fan-in"

    inputs: ClassVar[str] = "codes"
    bounds: ClassVar = dict.fromkeys(
        ("vocabulary", "classes", "length", "embedding", "hidden"), (1, inf)
    )
    choices: ClassVar = {"output": ("last", "mean"), "initialisation": tuple(base.INITIALISATIONS)}

    def __post_init__(self) -> None:
        check_fields(self, "LSTM")
        if not self.hidden:
            raise ConfigError("LSTM hidden is (), expected a width for each layer, at least one")

    @property
    def features(self) -> int:
        return self.length

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(n, H) of each LSTM layer."""
        return list(pairwise((self.embedding, *self.hidden)))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        layers = (shape for n, H in self.sizes for shape in ((n + H, 4 * H), (4 * H,)))
        dense = ((self.hidden[-1], self.classes), (self.classes,))
        return (self.vocabulary, self.embedding), *layers, *dense

    @property
    def products(self) -> tuple[int, ...]:
        """Multiplications of one sample's forward pass: an LSTM's weights are used in every step.

        The embedding is a look-up: 0.
        """
        layers = (self.length * (n + H) * 4 * H for n, H in self.sizes)
        return 0, *layers, self.hidden[-1] * self.classes

    @property
    def work(self) -> tuple[int, int]:
        """Multiplications of (a gradient, an HVP): step 0 has no predecessor to send δW_hᵀ to.

        An HVP does the whole gradient, and the two terms of the product rule for each of its products.
        """
        grad, _ = super().work
        grad -= sum(4 * H * H for _, H in self.sizes)
        return grad, 3 * grad

    @property
    def rows(self) -> int:
        """The number of samples that are computed at once."""
        return max(1, CACHE_BYTES // (8 * self.length * sum(13 * H + n for n, H in self.sizes)))

    def init(self, rng: np.random.Generator) -> Array:
        start = base.INITIALISATIONS[self.initialisation]
        E, dense = (self.vocabulary, self.embedding), (self.hidden[-1], self.classes)
        parts = [start(rng, E, 1, self.embedding)[: prod(E)]]
        for n, H in self.sizes:
            gates = [np.split(start(rng, (n + H, H), n + H, H), [(n + H) * H]) for _ in "ifgo"]
            gates[1][1][:] = 1.0  # b_f: the cell remembers at first
            parts += [np.hstack([W.reshape(n + H, H) for W, _ in gates]).ravel()]
            parts += [b for _, b in gates]
        return np.concatenate([*parts, start(rng, dense, *dense)])

    # ---- derivatives, in chunks that `CACHE_BYTES` allows -----------------------------------------

    def logits(self, w: Array, X: Array) -> Array:
        base.check_codes(X, self.vocabulary)
        return in_chunks(lambda w, X: self.forward(w, X).z, [w], [X], self.rows, add=False)

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        def chunk(w: Array, X: Array, r: Array) -> Array:
            return self.backward(w, self.forward(w, X), r)[0]

        return in_chunks(chunk, [w], [X, r], self.rows)

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)

        def chunk(w: Array, X: Array, y: Array, c: Array) -> Array:
            kept = self.forward(w, X)
            delta = nx.cross_entropy_slope(kept.z, y[..., 0], c[..., 0])  # (..., B, C)
            return self.backward(w, kept, delta)[0]

        g = in_chunks(chunk, [w], [D.X, *columns(D, w)], self.rows)
        return g + self.l2 * w if self.l2 else g

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)

        def chunk(w: Array, v: Array, X: Array, y: Array, c: Array) -> Array:
            kept = self.forward(w, X)
            R = self.R_forward(w, v, kept)
            # δ = (p − 1_y) c,  R{δ} = (diag(p) − ppᵀ) R{z} c
            delta = nx.cross_entropy_slope(kept.z, y[..., 0], c[..., 0])
            Rdelta = nx.cross_entropy_curvature(kept.z, R.z, c[..., 0])
            adjoints = self.backward(w, kept, delta)[1]
            return self.R_backward(w, v, kept, R, adjoints, delta, Rdelta)

        h = in_chunks(chunk, [w, v], [D.X, *columns(D, w)], self.rows)
        return h + self.l2 * v if self.l2 else h

    # ---- the four passes, layer by layer ---------------------------------------------------------

    def forward(self, w: Array, X: Array) -> Activations:
        E, *W, D, b = self.unpack(w)
        padding = X.mT == self.vocabulary
        skip = padding[..., None] if padding.any() else None
        codes = np.where(padding, 0, X.mT)  # padding may look up any code: its step is not taken
        layers: list[Steps] = []
        x = look_up(E, codes)  # (..., T, B, e)
        for W_l, b_l in zip(W[::2], W[1::2]):
            layers.append(forward(x, W_l, b_l, skip))
            x = layers[-1].h[..., 1:, :, :]
        r = self.read(x, skip)
        return Activations(codes, skip, layers, r, r @ D + b[..., None, :])

    def R_forward(self, w: Array, v: Array, kept: Activations) -> Activations:
        """R{·} of everything that a forward pass keeps."""
        _, *W, D, _ = self.unpack(w)
        V_E, *V, V_D, v_b = self.unpack(v)
        layers: list[Steps] = []
        Rx = look_up(V_E, kept.codes)
        for l, steps in enumerate(kept.layers):
            layers.append(R_forward(steps, Rx, W[2 * l], V[2 * l], V[2 * l + 1], kept.skip))
            Rx = layers[-1].h[..., 1:, :, :]
        Rr = self.read(Rx, kept.skip)
        Rz = Rr @ D + kept.r @ V_D + v_b[..., None, :]
        return Activations(kept.codes, kept.skip, layers, Rr, Rz)

    def backward(self, w: Array, kept: Activations, delta: Array) -> tuple[Array, list[Adjoint]]:
        """(Σ_j ∂(δ_j · z_j)/∂w (..., d), the adjoints of each layer) for δ (..., B, classes)."""
        _, *W, D, _ = self.unpack(w)
        g = np.empty((*delta.shape[:-2], self.d), delta.dtype)
        dE, *dW, dD, db = self.unpack(g)
        np.matmul(kept.r.mT, delta, out=dD)
        np.sum(delta, -2, out=db)
        dh = self.transpose_read(delta @ D.mT, kept.skip)
        adjoints: list[Adjoint] = []
        for l in reversed(range(len(kept.layers))):
            n, steps = self.sizes[l][0], kept.layers[l]
            adjoints.insert(0, backward(steps, W[2 * l], dh, kept.skip))
            d_l = flatten_time(adjoints[0].delta)  # (..., T·B, 4H)
            np.matmul(flatten_time(steps.x).mT, d_l, out=dW[2 * l][..., :n, :])
            np.matmul(flatten_time(previous(steps.h)).mT, d_l, out=dW[2 * l][..., n:, :])
            np.sum(d_l, -2, out=dW[2 * l + 1])
            # ∂ℓ/∂x, which is the layer below's ∂ℓ/∂h
            dh = unflatten_time(d_l @ W[2 * l][..., :n, :].mT, self.length)
        scatter_add(dh, kept.codes, out=dE)
        return g, adjoints

    def R_backward(
        self,
        w: Array,
        v: Array,
        kept: Activations,
        R: Activations,
        adjoints: list[Adjoint],
        delta: Array,
        Rdelta: Array,
    ) -> Array:
        """R{·} of the gradient: (..., d)."""
        _, *W, D, _ = self.unpack(w)
        _, *V, V_D, _ = self.unpack(v)
        h = np.empty((*Rdelta.shape[:-2], self.d), Rdelta.dtype)
        RdE, *RdW, RdD, Rdb = self.unpack(h)
        np.matmul(kept.r.mT, Rdelta, out=RdD)  # R{rᵀδ} = rᵀ R{δ} + R{r}ᵀ δ
        RdD += R.r.mT @ delta
        np.sum(Rdelta, -2, out=Rdb)
        Rdh = self.transpose_read(Rdelta @ D.mT + delta @ V_D.mT, kept.skip)
        for l in reversed(range(len(kept.layers))):
            n, steps, Rsteps, adjoint = self.sizes[l][0], kept.layers[l], R.layers[l], adjoints[l]
            Rd_l = flatten_time(
                R_backward(steps, Rsteps, adjoint, W[2 * l], V[2 * l], Rdh, kept.skip)
            )
            d_l = flatten_time(adjoint.delta)
            for rows, x, Rx in (
                (slice(n), steps.x, Rsteps.x),
                (slice(n, None), previous(steps.h), previous(Rsteps.h)),
            ):
                RdW_x = RdW[2 * l][..., rows, :]
                np.matmul(flatten_time(x).mT, Rd_l, out=RdW_x)
                RdW_x += flatten_time(Rx).mT @ d_l
            np.sum(Rd_l, -2, out=RdW[2 * l + 1])
            W_x, V_x = W[2 * l][..., :n, :], V[2 * l][..., :n, :]
            Rdh = unflatten_time(Rd_l @ W_x.mT + d_l @ V_x.mT, self.length)
        scatter_add(Rdh, kept.codes, out=RdE)
        return h

    def read(self, h: Array, skip: Array | None) -> Array:
        """Return r, the part of h (..., T, B, H) that the dense layer reads: (..., B, H)."""
        return h[..., -1, :, :] if self.output == "last" else (h * self.share(h, skip)).sum(-3)

    def transpose_read(self, dr: Array, skip: Array | None) -> Array:
        """Return ∂ℓ/∂h_t (..., T, B, H) of ∂ℓ/∂r (..., B, H): the transpose of `read`."""
        dr = dr[..., None, :, :]
        if self.output == "mean":
            return dr * self.share(dr, skip)
        dh = np.zeros((*dr.shape[:-3], self.length, *dr.shape[-2:]), dr.dtype)
        dh[..., -1:, :, :] = dr
        return dh

    def share(self, like: Array, skip: Array | None) -> Array:
        """1/n for each of the n steps that are taken, 0 for padding: (..., T, B, 1)."""
        is_real = np.ones((self.length, 1, 1), bool) if skip is None else ~skip
        is_real = is_real.astype(like.real.dtype)
        return is_real / np.maximum(is_real.sum(-3, keepdims=True), 1)


# ---- one layer through time -----------------------------------------------------------------------
#
# t runs from 0. `step(a, t)` is a view: writing to it writes to a. In the formulae W_x and W_h are
# W's rows for x and for h; a letter without a time index belongs to step t.


def forward(x: Array, W: Array, b: Array, skip: Array | None) -> Steps:
    """Take all steps of one layer, from x (..., T, B, n), W (..., n + H, 4H) and b (..., 4H)."""
    T, B, n = x.shape[-3:]
    H = b.shape[-1] // 4
    W_h = W[..., n:, :]
    z = flatten_time(x) @ W[..., :n, :]  # the input's part of all steps at once: (..., T·B, 4H)
    z += b[..., None, :]
    a, lead = unflatten_time(z, T), z.shape[:-2]
    c, h = (np.zeros_like(z, shape=(*lead, T + 1, B, H)) for _ in range(2))
    s = np.empty_like(z, shape=(*lead, T, B, H))
    k, one_k = gate_scales(H, z.dtype)
    z_h = np.empty_like(z, shape=(*lead, B, 4 * H))
    for t in range(T):
        a_t, c_t, s_t = step(a, t), step(c, t + 1), step(s, t)
        a_t += np.matmul(step(h, t), W_h, out=z_h)  # [z] xW_x + h_{t−1}W_h + b
        a_t *= k
        np.tanh(a_t, out=a_t)
        a_t *= k
        a_t += one_k  # [a] k ⊙ tanh(kz) + 1 − k
        i, f, g, o = split_gates(a_t)
        np.multiply(f, step(c, t), out=c_t)
        c_t += i * g  # [c] f ⊙ c_{t−1} + i ⊙ g
        np.tanh(c_t, out=s_t)  # [s] tanh(c)
        np.multiply(o, s_t, out=step(h, t + 1))  # [h] o ⊙ s
        copy_where_padding(t, skip, c, h)
    return Steps(x, a, c, s, h)


def backward(steps: Steps, W: Array, dh: Array, skip: Array | None) -> Adjoint:
    """Return the adjoints of all steps. dh (..., T, B, H) : ∂ℓ/∂h_t from the layer above.

    dh is changed in place: afterwards it holds ∂ℓ/∂h_t from above and from the next step.
    """
    _, a, c, s, _ = steps
    H = s.shape[-1]
    W_h = W[..., -H:, :]
    k, one_k = gate_scales(H, a.dtype)
    delta, e = np.empty((*dh.shape[:-1], 4 * H), dh.dtype), np.empty_like(dh)
    dc = np.zeros_like(step(dh, 0))
    for t in reversed(range(s.shape[-3])):
        a_t, s_t, dh_t, e_t, d_t = (step(x, t) for x in (a, s, dh, e, delta))
        i, f, g, o = split_gates(a_t)
        e_t[...] = dc + dh_t * o * (1 - s_t * s_t)  # [e] ∂c + ∂h ⊙ o ⊙ (1 − s²)
        for d, x, y in zip(split_gates(d_t), (e_t, e_t, e_t, dh_t), (g, step(c, t), i, s_t)):
            np.multiply(x, y, out=d)
        d_t *= (1 - a_t) * (a_t + (k - one_k))  # da/dz
        previous_dc, dc = dc, e_t * f
        if skip is not None:  # c_t = c_{t−1}, h_t = h_{t−1}
            d_t[...] = np.where(step(skip, t), 0, d_t)
            dc = np.where(step(skip, t), previous_dc, dc)
        if t:
            step(dh, t - 1)[...] += d_t @ W_h.mT  # [∂h_{t−1}] ∂h_{t−1} + δW_hᵀ
            if skip is not None:
                step(dh, t - 1)[...] += np.where(step(skip, t), dh_t, 0)
    return Adjoint(delta, dh, e)


def R_forward(steps: Steps, Rx: Array, W: Array, V: Array, v_b: Array, skip: Array | None) -> Steps:
    """R{·} of all steps."""
    x, a, c, s, h = steps
    T, B, n = Rx.shape[-3:]
    H = s.shape[-1]
    W_h, V_h = W[..., n:, :], V[..., n:, :]
    k, one_k = gate_scales(H, a.dtype)
    z = flatten_time(Rx) @ W[..., :n, :] + flatten_time(x) @ V[..., :n, :] + v_b[..., None, :]
    Ra, lead = unflatten_time(z, T), z.shape[:-2]
    Rc, Rh = (np.zeros((*lead, T + 1, B, H), z.dtype) for _ in range(2))
    Rs = np.empty((*lead, T, B, H), z.dtype)
    for t in range(T):
        a_t, s_t, Ra_t = step(a, t), step(s, t), step(Ra, t)
        # [R{z}] R{x}W_x + xV_x + R{h}_{t−1}W_h + h_{t−1}V_h + v_b
        Ra_t += step(Rh, t) @ W_h + step(h, t) @ V_h
        Ra_t *= (1 - a_t) * (a_t + (k - one_k))  # [R{a}] (1 − a) ⊙ (a + 2k − 1) ⊙ R{z}
        (i, f, g, o), (Ri, Rf, Rg, Ro) = split_gates(a_t), split_gates(Ra_t)
        # [R{c}] R{f} ⊙ c_{t−1} + f ⊙ R{c}_{t−1} + R{i} ⊙ g + i ⊙ R{g}
        step(Rc, t + 1)[...] = Rf * step(c, t) + f * step(Rc, t) + Ri * g + i * Rg
        step(Rs, t)[...] = (1 - s_t * s_t) * step(Rc, t + 1)  # [R{s}] (1 − s²) ⊙ R{c}
        step(Rh, t + 1)[...] = Ro * s_t + o * step(Rs, t)  # [R{h}] R{o} ⊙ s + o ⊙ R{s}
        copy_where_padding(t, skip, Rc, Rh)
    return Steps(Rx, Ra, Rc, Rs, Rh)


def R_backward(
    steps: Steps, R: Steps, adjoint: Adjoint, W: Array, V: Array, Rdh: Array, skip: Array | None
) -> Array:
    """R{δ} of all steps: (..., T, B, 4H). Rdh (..., T, B, H) : R{∂ℓ/∂h_t}, as dh in `backward`."""
    _, a, c, s, _ = steps
    _, Ra, Rc, Rs, _ = R
    H = s.shape[-1]
    W_h, V_h = W[..., -H:, :], V[..., -H:, :]
    k, one_k = gate_scales(H, a.dtype)
    Rdelta, Rdc = np.empty((*Rdh.shape[:-1], 4 * H), Rdh.dtype), np.zeros_like(step(Rdh, 0))
    for t in reversed(range(s.shape[-3])):
        a_t, Ra_t, s_t, Rs_t, Rdh_t = (step(x, t) for x in (a, Ra, s, Rs, Rdh))
        d_t, dh_t, e_t = (step(x, t) for x in adjoint)
        (i, f, g, o), (Ri, Rf, Rg, Ro) = split_gates(a_t), split_gates(Ra_t)
        slope = 1 - s_t * s_t  # of tanh(c)
        # [R{e}] R{∂c} + (R{∂h} ⊙ o + ∂h ⊙ R{o}) ⊙ (1 − s²) − 2∂h ⊙ o ⊙ s ⊙ R{s}
        Re = Rdc + (Rdh_t * o + dh_t * Ro) * slope - dh_t * o * 2 * s_t * Rs_t
        Rda = [Re * g + e_t * Rg, Re * step(c, t) + e_t * step(Rc, t), Re * i + e_t * Ri]
        Rda += [Rdh_t * s_t + dh_t * Rs_t]
        # R{da ⊙ a′} = R{da} a′ + da a″ R{z}, where a″ R{z} = 2(1 − k − a) R{a}
        da = [e_t * g, e_t * step(c, t), e_t * i, dh_t * s_t]
        Rd_t = np.concatenate(Rda, -1) * ((1 - a_t) * (a_t + (k - one_k)))
        Rd_t += np.concatenate(da, -1) * (2 * (one_k - a_t) * Ra_t)
        previous_Rdc, Rdc = Rdc, Re * f + e_t * Rf
        if skip is not None:
            Rd_t = np.where(step(skip, t), 0, Rd_t)
            Rdc = np.where(step(skip, t), previous_Rdc, Rdc)
        step(Rdelta, t)[...] = Rd_t
        if t:
            # [R{∂h}_{t−1}] R{∂h}_{t−1} + R{δ}W_hᵀ + δV_hᵀ
            step(Rdh, t - 1)[...] += Rd_t @ W_h.mT + d_t @ V_h.mT
            if skip is not None:
                step(Rdh, t - 1)[...] += np.where(step(skip, t), Rdh_t, 0)
    return Rdelta


# ---- views and maps -----------------------------------------------------------------------------


def step(a: Array, t: int) -> Array:
    """Return step t: (..., T, B, m) → (..., B, m), a view."""
    return a[..., t, :, :]


def previous(h: Array) -> Array:
    """h_{t−1} for every t: (..., T+1, B, H) → (..., T, B, H), a view."""
    return h[..., :-1, :, :]


def split_gates(a: Array) -> list[Array]:
    """(..., 4H) → i, f, g, o, each (..., H), views."""
    H = a.shape[-1] // 4
    return [a[..., j * H : (j + 1) * H] for j in range(4)]


def flatten_time(a: Array) -> Array:
    """Steps and samples as one axis: (..., T, B, m) → (..., T·B, m)."""
    return a.reshape(*a.shape[:-3], a.shape[-3] * a.shape[-2], a.shape[-1])


def unflatten_time(a: Array, T: int) -> Array:
    """(..., T·B, m) → (..., T, B, m)."""
    return a.reshape(*a.shape[:-2], T, a.shape[-2] // T, a.shape[-1])


def gate_scales(H: int, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    """(k, 1 − k) of each gate: (4H,) both, real."""
    real = np.zeros(0, dtype).real.dtype
    k = np.repeat(np.array([0.5, 0.5, 1, 0.5], real), H)
    return k, 1 - k


def copy_where_padding(t: int, skip: Array | None, *states: Array) -> None:
    """Keep each state (..., T+1, B, H) unchanged over step t where that step is padding."""
    if skip is not None:
        for state in states:
            np.copyto(step(state, t + 1), step(state, t), where=step(skip, t))


def look_up(E: Array, codes: Array) -> Array:
    """E[code]: E (..., V, e) and codes (..., T, B) → (..., T, B, e)."""
    *lead, V, e = E.shape
    first = V * np.arange(prod(lead)).reshape(*lead, 1, 1)
    return E.reshape(prod(lead) * V, e)[first + codes]


def scatter_add(dx: Array, codes: Array, out: Array) -> None:
    """Write the sum of dx (..., T, B, e) over each code to out (..., V, e): `look_up` transposed."""
    *lead, V, e = out.shape
    first = V * np.arange(prod(lead)).reshape(*lead, 1, 1)
    place = np.broadcast_to(first + codes, dx.shape[:-1]).ravel()
    order = np.argsort(place, kind="stable")
    present, start = np.unique(place[order], return_index=True)
    sums = np.zeros((prod(lead) * V, e), dx.dtype)
    if place.size:
        sums[present] = np.add.reduceat(dx.reshape(-1, e)[order], start, 0)
    out[...] = sums.reshape(out.shape)


def columns(D: Batch, w: Array) -> tuple[Array, Array]:
    """Return the labels and the weights c of the mean as columns, each (..., B, 1)."""
    c = np.broadcast_to(base.mean_weights(D, w.dtype), D.y.shape)
    return D.y[..., None], c[..., None]


def in_chunks(
    f: Callable[..., Array],
    vectors: Sequence[Array],
    rows: Sequence[Array],
    most: int,
    add: bool = True,
) -> Array:
    """Return f(*vectors, *rows) for vectors (..., d) and rows (..., B, m), `most` samples at once.

    add : the chunks of a batch are summed, (..., d); else they are laid side by side, (..., B, m).
    """
    B = rows[0].shape[-2]
    lead = np.broadcast_shapes(*(x.shape[:-1] for x in vectors), *(x.shape[:-2] for x in rows))
    if prod(lead) * min(B, most) > most:  # cut the first leading axis; drop it if its length is 1
        vectors = [np.broadcast_to(x, (*lead, *x.shape[-1:])) for x in vectors]
        rows = [np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in rows]
        if lead[0] == 1:
            return in_chunks(f, [x[0] for x in vectors], [x[0] for x in rows], most, add)[None]
        size = max(1, most // (min(B, most) * prod(lead[1:])))
        parts = [slice(i, i + size) for i in range(0, lead[0], size)]
        outputs = [
            in_chunks(f, [x[s] for x in vectors], [x[s] for x in rows], most, add) for s in parts
        ]
        return np.concatenate(outputs)
    starts = range(0, max(B, 1), most)
    chunks = [f(*vectors, *(x[..., i : i + most, :] for x in rows)) for i in starts]
    return sum(chunks[1:], start=chunks[0]) if add else np.concatenate(chunks, -2)
