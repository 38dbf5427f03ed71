"""The losses behind the figure with sliders, in Python: what the page's script must agree with.

Two clients, two parameters: f(w) = ½ xᵀAx + (κ/4)‖x‖⁴ with x = w − c. The quartic term makes the
Hessian change from place to place, so that exact, first order and Hessian free differ.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedref import tree
from fedref.algorithm import Cohort
from fedref.algorithms import apfl, fedprox, per_fedavg
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid

KAPPA = 0.3
START = {
    "alpha": 0.1, "beta": 0.15, "mu": 0.5, "tau": 6, "delta": 0.3, "lam": 1.0, "rounds": 8,
}  # fmt: skip
W0 = np.array([0.2, 1.6])


@dataclass(frozen=True)
class Bowl:
    """One client's loss; it takes a batch as every model does, and looks at none."""

    A: tuple[tuple[float, float], tuple[float, float]]
    c: tuple[float, float]
    d: int = 2

    def loss(self, w: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        return 0.5 * np.sum(x * (x @ np.array(self.A)), -1) + KAPPA / 4 * np.sum(x * x, -1) ** 2

    def grad(self, w: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        return x @ np.array(self.A) + KAPPA * np.sum(x * x, -1, keepdims=True) * x

    def hvp(self, w: Array, v: Array, D: Any = None) -> Array:
        x = w - np.array(self.c)
        square, along = (np.sum(x * y, -1, keepdims=True) for y in (x, v))
        return v @ np.array(self.A) + KAPPA * (square * v + 2 * along * x)

    def unpack(self, w: Array) -> tuple[Array, ...]:
        """One layer of two inputs and one output unit: APFL has one m for it."""
        return (w[..., None],)


#: A Bowl has of `Model` what the algorithms ask for.
CLIENTS: tuple[Any, Any] = (
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


def apfl_rounds(init: str, values: dict[str, float]) -> dict[str, list[Any]]:
    """APFL's rounds: what each client tests with, the way of w_S, and the masks."""
    it = apfl.APFL(
        lr=values["beta"], mu=values["mu"], lam=values["lam"], z=1, init=init, weighting="uniform"
    )
    server, own = it.initial(CLIENTS[0], W0), [None, None]
    cohort = Cohort(np.arange(2), np.ones(2, int), np.ones(2, int))
    paths, shared = [[W0], [W0]], [W0]
    for _ in range(int(values["rounds"])):
        sent, results = it.download(server), []
        for client, state in zip(CLIENTS, own):
            local = it.start(client, sent, state)
            for _ in range(int(values["tau"])):
                local = it.step(client, sent, local, Batch(W0, W0))
            results.append(it.finish(client, sent, local, state, lambda: Batch(W0, W0)))
        server = it.combine(CLIENTS[0], server, tree.stack([r.upload for r in results]), cohort)
        own = [result.client_state for result in results]
        shared.append(server.w)
        for path, client, state in zip(paths, CLIENTS, own):
            path.append(it.personal(client, it.download(server), state, None))
    return {
        "paths": [np.array(path).tolist() for path in paths],
        "mean": server.w.tolist(),
        "shared": np.array(shared).tolist(),
        "masks": [1.0 if state is None else float(sigmoid(state.a)[0]) for state in own],
    }


#: The figure's names for APFL, and how its clients start.
APFL_STARTS = {"apfl": "paper", "apfl-continuous": "continuous"}


def round_of(algorithm: str, values: dict[str, float]) -> dict[str, list[Any]]:
    """The clients' paths of τ steps from W0, and the average of where they end; APFL's rounds."""
    if algorithm in APFL_STARTS:
        return apfl_rounds(APFL_STARTS[algorithm], values)
    paths = []
    for client in CLIENTS:
        path = [W0]
        for _ in range(int(values["tau"])):
            path.append(local(algorithm, client, path[-1], values))
        paths.append(path)
    mean = np.mean([path[-1] for path in paths], 0)
    return {"paths": [[w.tolist() for w in path] for path in paths], "mean": mean.tolist()}
