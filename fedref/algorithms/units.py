"""Output units of a model: one value per unit of every layer, as APFL's m_k has [apfl eq.3].

A layer's weight (..., out) and its bias (out,) belong to the same `out` units; units are counted
through all layers in the order of `model.unpack`. U is their number.
"""

import numpy as np

from fedref.models.base import Model
from fedref.models.numerics import Array


def spread(model: Model, m: Array) -> Array:
    """One value per unit (..., U) → one per parameter (..., d)."""
    x, end = np.empty((*m.shape[:-1], model.d), m.dtype), 0
    for view in model.unpack(x):
        inside = view.ndim - m.ndim  # axes between the leading ones and the units
        out = view.shape[-1]
        end += out if inside else 0  # a weight opens a layer; its bias has the same units
        view[...] = m[..., end - out : end].reshape(*m.shape[:-1], *[1] * inside, out)
    return x


def sum_by_unit(model: Model, x: Array) -> Array:
    """Σ of x (..., d) over the entries of each unit: (..., U). The transpose of `spread`."""
    lead, sums = x.ndim - 1, list[Array]()
    for view in model.unpack(x):
        total = view.sum(tuple(range(lead, view.ndim - 1)))
        if view.ndim == lead + 1:  # a bias
            total = sums.pop() + total
        sums.append(total)
    return np.concatenate(sums, -1)


def units(model: Model) -> Array:
    """For each of the d parameters its output unit, counted through all layers: (d,).

    >>> from fedref.models.mlp import MLP
    >>> units(MLP(2, (3,), 2)).tolist()      # W₁ (2, 3), b₁ (3,), W₂ (3, 2), b₂ (2,)
    [0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4]
    """
    return spread(model, np.arange(len(sum_by_unit(model, np.zeros(model.d)))))
