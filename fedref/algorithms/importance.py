"""Estimates of how important each parameter is to a client: diagonals, all (d,) ≥ 0.

Elastic weight consolidation (Kirkpatrick et al. 2017, https://doi.org/10.1073/pnas.1611835114)
penalises a change of parameter j by its importance. Each estimate but
synaptic intelligence takes (model, w, D), with w (d,) and D all of a client's data. It averages over
*samples*, by their weights s_j, so that it depends on neither batch size nor order.
"""

from collections.abc import Callable, Iterator

import numpy as np

from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array

BLOCK_NUMBERS = 1 << 22  # numbers in one block of per-sample gradients


def _blocks(model: Model, D: Batch) -> Iterator[tuple[Batch, Array]]:
    """Yield the samples as stacked batches of one, in blocks that fit the memory, with c_j = s_j/Σs."""
    s = np.ones(len(D.y)) if D.s is None else D.s
    c = s / (s.sum() or 1.0)
    rows = max(BLOCK_NUMBERS // model.d, 1)
    for start in range(0, len(D.y), rows):
        block = slice(start, start + rows)
        yield Batch(D.X[block], D.y[block]).per_sample(), c[block]


def gradient_square(model: Model, w: Array, D: Batch) -> Array:
    """(∇L_k(w; D))²: the square of the full local gradient, as [apfl eq.5] prints it."""
    return model.grad(w, D) ** 2


def fisher(model: Model, w: Array, D: Batch) -> Array:
    """Σ_j c_j g_j², g_j the gradient on sample j alone: the diagonal empirical Fisher."""
    total = np.zeros(model.d, w.dtype)
    for sample, c in _blocks(model, D):
        total += c.astype(w.dtype) @ model.grad(w, sample) ** 2  # (rows,) @ (rows, d)
    return total


def mas(model: Model, w: Array, D: Batch) -> Array:
    """Σ_j c_j |∂‖z(x_j)‖²/∂w| with z the logits: memory aware synapses (Aljundi et al. 2018,
    https://arxiv.org/abs/1711.09601)."""
    total = np.zeros(model.d, w.dtype)
    for sample, c in _blocks(model, D):
        total += c.astype(w.dtype) @ np.abs(model.vjp(w, sample.X, 2 * model.logits(w, sample.X)))
    return total


def synaptic_intelligence(path: Array, change: Array) -> Array:
    """max(ω, 0) / (Δ² + ξ), ω = −Σ g ⊙ Δw along the path, Δ = Σ Δw, ξ = 0.1 (Zenke et al. 2017,
    https://arxiv.org/abs/1703.04200)."""
    return np.maximum(path, 0) / (change**2 + 0.1)


#: The estimates that need only the data; synaptic intelligence also needs the path.
ESTIMATES: dict[str, Callable[[Model, Array, Batch], Array]] = {
    "gradient-square": gradient_square,
    "fisher": fisher,
    "mas": mas,
}
