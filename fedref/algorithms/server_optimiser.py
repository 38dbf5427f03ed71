"""How a server follows a gradient: plain SGD, or Adam that keeps its moments across rounds.

    symbol  name  shape
    x, g    x, g  trees of one shape: what is learned, and its gradient
    m, v    m, v  trees like x: Adam's first and second moment
    c₁, c₂  c1, c2  numbers that undo the moments' start at 0
    β, t    beta, t  numbers: the server's learning rate, steps of Adam so far

Equations: [Adam m], [Adam v], [Adam c₁], [Adam step] `server_step`, with its paper's constants.
"""

from typing import Any, NamedTuple

import numpy as np

from fedref import tree


class Adam(NamedTuple):
    """Kingma and Ba 2015. The moments (trees like x) live as long as the run."""

    m: Any
    v: Any
    t: int


def adam(x: Any) -> Adam:
    """Before the first step."""
    zeros = tree.map(np.zeros_like, x)
    return Adam(zeros, zeros, 0)


def server_step(x: Any, g: Any, adam: Adam | None, *, beta: float) -> tuple[Any, Adam | None]:
    """x ← x − β g (SGD, adam None), or Adam with β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸; x, g trees."""
    if adam is None:
        return tree.map(lambda x, g: x - beta * g, x, g), None
    t = adam.t + 1
    m = tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam.m, g)  # [Adam m] 0.9m + 0.1g
    v = tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, adam.v, g)  # [Adam v] 0.999v + 0.001g²
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t  # [Adam c₁] 1 − 0.9ᵗ
    # [Adam step] x − βm / (c₁(sqrt(v / c₂) + 10⁻⁸))
    x = tree.map(lambda x, m, v: x - beta * (m / c1) / (np.sqrt(v / c2) + 1e-8), x, m, v)
    return x, Adam(m, v, t)
