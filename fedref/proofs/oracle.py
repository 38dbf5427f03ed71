"""The oracle: losses by plain loops over Python numbers, sharing no code with the models."""

import math
from typing import Any

from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs import lstm


def scores(model: Any, w: Array, x: Array) -> tuple[list[float], list[Any]]:
    """(z, on which side of each kink it is) of one sample, straight from the class docstrings."""
    if isinstance(model, LSTM):
        return lstm.scores(model, w, x), []
    numbers, sides = iter(w.tolist()), list[Any]()
    kind = getattr(model, "activation", None)

    def take(*shape: int) -> Any:
        """The next numbers of w, row-major."""
        if not shape:
            return next(numbers)
        return [take(*shape[1:]) for _ in range(shape[0])]

    def phi(z: float) -> float:
        if kind == "tanh":
            return math.tanh(z)
        sides.append(z > 0)
        return max(z, 0.0) if kind == "relu" else (z if z > 0 else math.expm1(z))

    def pool(window: list[float]) -> float:
        if model.pool == "mean":
            return sum(window) / 4
        sides.append(max(range(4), key=window.__getitem__))
        return max(window)

    widths: tuple[int, ...]
    a = x.tolist()
    if isinstance(model, CNN):
        H, W, c = (*model.image, 1)[:3]
        a = [[[a[(i * W + j) * c + k] for k in range(c)] for j in range(W)] for i in range(H)]
        k, r = model.kernel, range(model.kernel)
        for out in model.channels:
            kernel, b = take(k, k, c, out), take(out)

            def conv(i: int, j: int, o: int, a: Any = a, K: Any = kernel, c: int = c) -> float:
                taps = ((p, q, m) for p in r for q in r for m in range(c))
                return float(sum(a[i + p][j + q][m] * K[p][q][m][o] for p, q, m in taps))

            H, W, c = (H - k + 1) // 2, (W - k + 1) // 2, out
            square = [(p, q) for p in (0, 1) for q in (0, 1)]
            a = [
                [
                    [pool([phi(conv(2 * i + p, 2 * j + q, o) + b[o]) for p, q in square])
                     for o in range(out)]
                    for j in range(W)
                ]
                for i in range(H)
            ]  # fmt: skip
        a = [value for row in a for pixel in row for value in pixel]
        widths = (model.hidden, model.classes)
    elif isinstance(model, MLP):
        widths = model.sizes[1:]
    else:
        widths = (getattr(model, "classes", 1),)

    for l, out in enumerate(widths):
        weight = take(len(a), out)
        b = take(out) if getattr(model, "bias", True) else [0.0] * out
        z = [sum(a_i * row[o] for a_i, row in zip(a, weight)) + b[o] for o in range(out)]
        a = [phi(z_o) for z_o in z] if l < len(widths) - 1 else z
    return a, sides


def sample_loss(model: Any, z: list[float], y: int) -> tuple[float, list[Any]]:
    """(ℓ, sides) of one sample from its scores."""
    if isinstance(model, BinaryLogistic):
        from scipy import special  # an import that not every command waits for

        return float(-special.log_expit(z[0] if y == 1 else -z[0])), []
    if isinstance(model, LinearSVM):
        margin = 1 - y * z[0]
        return max(margin, 0.0) ** (2 if model.squared else 1), [margin > 0]
    return math.log(sum(math.exp(z_c) for z_c in z)) - z[y], []


def label(model: Any, z: list[float]) -> int:
    """The label of highest score, the first of equals."""
    if len(z) == 1:
        return int(model.labels[z[0] > 0])
    return z.index(max(z))


def loss_and_sides(model: Any, w: Array, D: Batch) -> tuple[float, list[Any]]:
    """(f(w; D), on which side of each kink each sample is)."""
    s = [1.0] * len(D.y) if D.s is None else D.s.tolist()
    f, sides = 0.0, list[Any]()
    for x, y, s_j in zip(D.X, D.y.tolist(), s):
        z, inside = scores(model, w, x)
        loss, outside = sample_loss(model, z, y)
        f += s_j * loss / sum(s)
        sides += inside + outside
    return f + model.l2 / 2 * sum(w_j * w_j for w_j in w.tolist()), sides


def loss(model: Any, w: Array, D: Batch) -> float:
    """f(w; D)."""
    return loss_and_sides(model, w, D)[0]


def sides(model: Any, w: Array, D: Batch) -> list[Any]:
    """On which side of each kink each sample is; empty for a model without kinks."""
    return loss_and_sides(model, w, D)[1]
