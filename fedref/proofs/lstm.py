"""The LSTM's part of the oracle: its scores one number at a time, straight from its docstring."""

import math
from typing import Any

from fedref.models import LSTM
from fedref.models.numerics import Array

#: The LSTMs that are proved.
MODELS: dict[str, Any] = {
    "LSTM": LSTM(3, 3, 4, 2, (3,), l2=0.1),
    "LSTM deep": LSTM(3, 2, 3, 2, (2, 3, 2)),
    "LSTM mean": LSTM(3, 2, 4, 2, (3,), "mean"),
}


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def scores(model: LSTM, w: Array, x: Array) -> list[float]:
    """z of one row of codes; padding is left out of it before anything is done."""
    numbers = iter(w.tolist())

    def take(rows: int, columns: int) -> list[list[float]]:
        return [[next(numbers) for _ in range(columns)] for _ in range(rows)]

    def affine(a: list[float], weight: list[list[float]], b: list[float]) -> list[float]:
        return [sum(a_i * row[o] for a_i, row in zip(a, weight)) + b[o] for o in range(len(b))]

    E = take(model.vocabulary, model.embedding)
    steps = [E[code] for code in x.tolist() if code < model.vocabulary]
    n = model.embedding
    for H in model.hidden:
        W, (b,) = take(n + H, 4 * H), take(1, 4 * H)
        h, c, n = [0.0] * H, [0.0] * H, H
        outputs = []
        for a in steps:
            z = affine(a + h, W, b)
            i, f, o = (list(map(sigmoid, z[k * H : (k + 1) * H])) for k in (0, 1, 3))
            g = list(map(math.tanh, z[2 * H : 3 * H]))
            c = [f[j] * c[j] + i[j] * g[j] for j in range(H)]
            h = [o[j] * math.tanh(c[j]) for j in range(H)]
            outputs.append(h)
        steps = outputs
    if not steps:
        read = [0.0] * n
    elif model.output == "last":
        read = steps[-1]
    else:
        read = [sum(column) / len(steps) for column in zip(*steps)]
    weight, (b,) = take(n, model.classes), take(1, model.classes)
    return affine(read, weight, b)
