"""The losses behind the figure with sliders, in Python: what the page's script must agree with.

Two clients, two parameters: f(w) = ½ xᵀAx + (κ/4)‖x‖⁴ with x = w − c. The quartic term makes the
Hessian change from place to place, so that exact, first order and Hessian free differ.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedref.algorithms import fedprox, per_fedavg
from fedref.numerics import Array

KAPPA = 0.3
START = {"alpha": 0.1, "beta": 0.15, "mu": 0.0, "tau": 6, "delta": 0.3}
W0 = np.array([0.2, 1.6])


@dataclass(frozen=True)
class Bowl:
    """One client's loss; it takes a batch as every model does, and looks at none."""

    A: tuple[tuple[float, float], tuple[float, float]]
    c: tuple[float, float]
    d: int = 2

    def loss(self, w: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        return 0.5 * x @ np.array(self.A) @ x + KAPPA / 4 * (x @ x) ** 2

    def grad(self, w: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        return np.array(self.A) @ x + KAPPA * (x @ x) * x

    def hvp(self, w: Array, v: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        return np.array(self.A) @ v + KAPPA * ((x @ x) * v + 2 * (x @ v) * x)


CLIENTS = (
    Bowl(((2.0, 0.5), (0.5, 0.5)), (1.0, 0.5)),
    Bowl(((0.5, -0.3), (-0.3, 1.5)), (-1.0, -0.5)),
)


def local(algorithm: str, client: Any, w: Array, values: dict[str, float]) -> Array:
    """One local step of a client, by fedref's own functions."""
    alpha, beta, delta = values["alpha"], values["beta"], values["delta"]
    D: Any = None
    if algorithm == "fedprox":
        return w - beta * fedprox.prox_gradient(client, w, W0, D, mu=values["mu"])
    if algorithm == "exact":
        g = per_fedavg.meta_gradient(client, w, D, D, D, alpha=alpha)
    elif algorithm == "fo":
        g = per_fedavg.meta_gradient_fo(client, w, D, D, alpha=alpha)
    else:
        g = per_fedavg.meta_gradient_hf(client, w, D, D, D, alpha=alpha, delta=delta)
    return per_fedavg.local_step(w, g, beta=beta)


def round_of(algorithm: str, values: dict[str, float]) -> dict[str, list[Any]]:
    """The clients' paths of τ steps from W0, and the average of where they end."""
    paths = []
    for client in CLIENTS:
        path = [W0]
        for _ in range(int(values["tau"])):
            path.append(local(algorithm, client, path[-1], values))
        paths.append(path)
    mean = np.mean([path[-1] for path in paths], 0)
    return {"paths": [[w.tolist() for w in path] for path in paths], "mean": mean.tolist()}
