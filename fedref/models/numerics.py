"""Primitives that every model is built from.

Each is generic in dtype (float32, float64, longdouble, complex128) and *complex-safe*: for
z + ih with a tiny h the imaginary part is h times the derivative, so that a complex step through
any of them is exact. Comparisons therefore look at real parts only, and nothing here takes an
absolute value of a parameter. Dual numbers (`fedref.checks.dual_gradient`) pass through what a loss needs.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def complex_step(*arrays: Any) -> Any:
    """Return the h of a complex step for arrays of these types: a power of 2 whose square is 0.

    Beside a number of any size h² is lost in rounding; at a kink of an inner layer the number is 0, and
    an h² would decide on which side of the kink the step lands.
    """
    info = np.finfo(np.result_type(*arrays, 0.0))
    return np.ldexp(info.dtype.type(1), int(0.65 * info.minexp))  # 1e-200 in float64


def weighted_sum(c: Array, w: Array) -> Array:
    """Σ_k c_k w_k, added in client order, in the dtype of w, one w_k at a time.

    Raises ValueError if there is not one c_k for each w_k.
    """
    if len(c) != len(w):
        raise ValueError(f"weighted sum: {len(c)} weights and {len(w)} vectors, expected one each")
    terms = (c_k * w_k for c_k, w_k in zip(c.astype(w.dtype), w))
    total = next(terms)
    for term in terms:
        total += term
    return total


@cache
def constant(x: float, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a read-only array filled with x: one number in memory, the same array at each call."""
    return np.broadcast_to(np.asarray(x, dtype), shape)


def real_values(z: Array) -> Array:
    """Return z's real parts, for comparisons and for shifts that cancel: of dual numbers without slopes."""
    real: Array = getattr(z, "a", z).real
    return real


def carries_slope(z: Array) -> bool:
    """Return whether z is complex, or of dual numbers: then no maximum may choose between slopes."""
    return not isinstance(z, np.ndarray | np.generic) or np.iscomplexobj(z)


def exp_neg_abs(z: Array) -> Array:
    """e^(−|z|), which cannot overflow. The real part's sign tells whether |z| is z or −z."""
    return np.exp(np.where(z.real >= 0, -z, z))


def sigmoid(z: Array) -> Array:
    """σ(z) = 1/(1+e^(−z)), with a small relative error for z of either sign."""
    e = exp_neg_abs(z)
    return np.where(z.real >= 0, 1, e) / (1 + e)


def softplus(z: Array) -> Array:
    """log(1+e^z) = max(z, 0) + log(1+e^(−|z|)); its derivative is σ(z)."""
    return np.where(z.real >= 0, z, 0) + np.log1p(exp_neg_abs(z))


def logsumexp(z: Array) -> Array:
    """log Σ_c e^(z_c) over the last axis: (..., C) → (...)."""
    top = real_values(z).max(-1, keepdims=True)
    return np.log(np.exp(z - top).sum(-1)) + top[..., 0]


def softmax(z: Array) -> Array:
    """e^(z_c) / Σ_c e^(z_c) over the last axis, shape kept."""
    e = np.exp(z - z.real.max(-1, keepdims=True))
    e /= np.add.reduce(e, -1, keepdims=True)
    return e


@cache
def identity(classes: int, dtype: Any) -> Array:
    """Return the rows 1_y of all labels y: (C, C)."""
    return np.eye(classes, dtype=dtype)


def one_hot(y: Array, classes: int, dtype: Any) -> Array:
    """(...) labels → (..., C), of bool if there are too many classes to keep all rows."""
    if classes > 256:
        return y[..., None] == np.arange(classes)
    return identity(classes, dtype).take(y.astype(np.intp, copy=False), 0)


def cross_entropy(z: Array, y: Array) -> Array:
    """−log softmax(z)_y per sample: logits (..., C) and labels (...) → (...).

    Its gradient in z is softmax(z) − one_hot(y). Leading axes of y broadcast against those of z.
    """
    index = np.broadcast_to(y, z.shape[:-1]).astype(np.intp, copy=False)
    z_y = np.take_along_axis(z, index[..., None], -1)[..., 0]
    return logsumexp(z) - z_y


def cross_entropy_slope(z: Array, y: Array, c: Array) -> Array:
    """∂/∂z of Σ_j c_j ℓ_j: (p − 1_y) c with p = softmax(z): (..., B, C), c (..., B) or ()."""
    r = softmax(z)
    r -= one_hot(y, z.shape[-1], z.dtype)
    r *= c[..., None]
    return r


def cross_entropy_curvature(z: Array, Rz: Array, c: Array) -> Array:
    """R{(p − 1_y) c} = (diag(p) − ppᵀ) R{z} c, with R{·} = d/dε at w + εv: (..., B, C)."""
    p = softmax(z)
    r = p * (Rz - (p * Rz).sum(-1, keepdims=True))
    return r * c[..., None]


def positive_part(z: Array) -> Array:
    """max(z, 0) by the real part; NaN stays NaN. At the kink it is 0, with the slope 0.

    NumPy's maximum is many times as fast as a mask, but of complex numbers it breaks a tie of the
    real parts by the imaginary ones: at the kink the slope would depend on the direction.
    """
    if type(z) is np.ndarray and z.dtype.kind == "f":  # without a call: it is in every step
        return np.maximum(z, 0)
    return np.where(z.real <= 0, 0, z) if carries_slope(z) else np.maximum(z, 0)


def negative_part(z: Array) -> Array:
    """min(z, 0), as `positive_part`."""
    return np.where(z.real >= 0, 0, z) if carries_slope(z) else np.minimum(z, 0)


def elu(z: Array) -> Array:
    """z where z > 0, else e^z − 1."""
    negative = np.exp(negative_part(z)) - 1
    return np.where(z.real >= 0, z, negative) if carries_slope(z) else np.maximum(z, negative)


class Activation(NamedTuple):
    """φ with its first two derivatives, both as functions of the *output* a = φ(z)."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


#: At the kinks the choice is: ELU″(0) = 0 (ELU′ is 1 from both sides), ReLU′(0) = 0.
ACTIVATIONS: dict[str, Activation] = {
    "elu": Activation(
        elu,
        slope=lambda a: negative_part(a) + 1,
        curvature=lambda a: (a + 1) * (a.real < 0),
    ),
    "relu": Activation(
        positive_part,
        slope=lambda a: (a.real > 0).astype(a.dtype),
        curvature=lambda a: np.zeros_like(a),
    ),
    "tanh": Activation(
        lambda z: np.tanh(z),
        slope=lambda a: 1 - a * a,
        curvature=lambda a: -2 * a * (1 - a * a),
    ),
}


def argmax_mask(z: Array) -> Array:
    """Return where along axis −3 the first largest element is: (..., m, n, C) → bool, same shape.

    "Largest" by the real part. Exactly one of the m is True. The maximum is therefore a masked sum,
    Σ_m argmax_mask(z)·z, and its transpose is a masked copy.
    """
    real = real_values(z)
    first: Array = real == real.max(-3, keepdims=True)
    earlier = first[..., 0, :, :].copy()
    for i in range(1, z.shape[-3]):
        first[..., i, :, :] &= ~earlier
        earlier |= first[..., i, :, :]
    return first
