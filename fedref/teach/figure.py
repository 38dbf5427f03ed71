"""The figure with sliders: its numbers, for every position of the sliders.

fedref's own functions compute them here; the script of the page only looks them up.

Two clients, two parameters: f(w) = ½ xᵀAx + (κ/4)‖x‖⁴ with x = w − c. The quartic term makes the
Hessian change from place to place, so that exact, first order and Hessian free differ.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import contourpy  # part of every Matplotlib
import numpy as np

from fedref.algorithms import fedprox, per_fedavg
from fedref.models.batch import Batch
from fedref.models.numerics import Array

KAPPA = 0.3
W0 = np.array([0.2, 1.6])
#: Half the width of the plane that is shown.
REACH = 2.2


#: Slider → its label, its positions, and the position it starts at. An algorithm's last slider, τ, moves
#: along the paths that the other sliders determine.
SLIDERS: dict[str, tuple[str, list[float], float]] = {
    "alpha": ("α, inner step", [0, 0.1, 0.2, 0.3, 0.5], 0.1),
    "beta": ("β (η), local step", [0.05, 0.15, 0.25, 0.4], 0.15),
    "mu": ("μ, penalty", [0, 0.25, 0.5, 1, 2, 4], 0.5),
    "delta": ("δ, half-width", [0.01, 0.3, 0.7, 1.5], 0.3),
    "tau": ("τ, local steps", list(range(1, 16)), 6),
}
PER_FEDAVG = ("alpha", "beta", "tau")
#: An algorithm in the figure → its label, and its sliders in order.
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "exact": ("Per-FedAvg, exact", PER_FEDAVG),
    "fo": ("Per-FedAvg, first order", PER_FEDAVG),
    "hf": ("Per-FedAvg, Hessian free", ("alpha", "beta", "delta", "tau")),
    "fedprox": ("FedProx (μ = 0: FedAvg)", ("beta", "mu", "tau")),
}
#: The files whose page has the figure, and the algorithms that it offers there.
FIGURES = {
    "fedavg": ("fedprox",),
    "fedprox": ("fedprox",),
    "per_fedavg": ("exact", "fo", "hf", "fedprox"),
}


class Course(NamedTuple):
    """The arrays that the last slider moves along; index 0 is the start.

    paths : of the two clients, (2, T + 1, 2); mean : the average of the clients, (T + 1, 2);
    numbers : the average again, and both losses there before and after a step of size α, (T + 1, 6).
    """

    paths: Array
    mean: Array
    numbers: Array


@dataclass(frozen=True)
class Bowl:
    """One client's loss; it takes a batch as every model does, and does not use it."""

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


#: A Bowl has those methods of `Model` that the algorithms call.
CLIENTS: tuple[Any, Any] = (
    Bowl(((2.0, 0.5), (0.5, 0.5)), (1.0, 0.5)),
    Bowl(((0.5, -0.3), (-0.3, 1.5)), (-1.0, -0.5)),
)


def run_variant(variant: str, values: dict[str, float]) -> Course:
    """Return the clients' local steps from W0, and the average after each number of them."""
    alpha = values.get("alpha", SLIDERS["alpha"][2])
    paths = np.empty((2, len(SLIDERS["tau"][1]) + 1, 2))
    with np.errstate(all="ignore"):  # a step that is too long diverges
        for path, client in zip(paths, CLIENTS):
            path[0] = W0
            for t in range(1, len(path)):
                path[t] = local_step(variant, client, path[t - 1], values)
        mean = paths.mean(0)
        before = [client.loss(mean) for client in CLIENTS]
        after = [client.loss(mean - alpha * client.grad(mean)) for client in CLIENTS]
    return Course(paths, mean, np.stack([*mean.T, *before, *after], 1))


def local_step(variant: str, client: Any, w: Array, values: dict[str, float]) -> Array:
    """Take one local step of a client."""
    D: Any = None
    if variant == "fedprox":
        return w - values["beta"] * fedprox.prox_gradient(client, w, W0, D, mu=values["mu"])
    if variant == "exact":
        g = per_fedavg.meta_gradient(client, w, D, D, D, alpha=values["alpha"])
    elif variant == "fo":
        g = per_fedavg.meta_gradient_fo(client, w, D, D, alpha=values["alpha"])
    else:
        both = {"alpha": values["alpha"], "delta": values["delta"]}
        g = per_fedavg.meta_gradient_hf(client, w, D, D, D, **both)
    return per_fedavg.local_step(w, g, beta=values["beta"])


@cache
def minimum(alpha: float = 0.0) -> Array:
    """Return where the mean of the meta-objectives is smallest; with α = 0 that of the losses."""
    w, D = np.zeros(2), Batch(W0, W0)
    for _ in range(300):
        g = [per_fedavg.meta_gradient(client, w, D, D, D, alpha=alpha) for client in CLIENTS]
        w = w - 0.2 * np.mean(g, 0)
    return w


def loss_rings(client: Any) -> list[Array]:
    """Return the contours (points, 2) of a client's loss at some levels."""
    x, y = np.meshgrid(*2 * [np.linspace(-2 * REACH, 2 * REACH, 121)])
    contours: Any = contourpy.contour_generator(x, y, client.loss(np.stack([x, y], -1)))
    return [line for level in (0.1, 0.4, 1, 2) for line in contours.lines(level)]


def figure_data(name: str) -> dict[str, Any]:
    """Return everything that the figure on the page of a file needs, as plain JSON."""
    return {
        "start": W0.tolist(),
        "least": as_json(minimum()),
        "rings": [[as_json(ring) for ring in loss_rings(client)] for client in CLIENTS],
        "variants": [variant_data(variant) for variant in FIGURES[name]],
    }


@cache
def variant_data(variant: str) -> dict[str, Any]:
    """Return an algorithm's sliders, and a course for every position of all sliders but the last."""
    label, names = VARIANTS[variant]
    courses = []
    for places in product(*(SLIDERS[name][1] for name in names[:-1])):
        values = dict(zip(names, places))
        course = {key: as_json(x) for key, x in run_variant(variant, values)._asdict().items()}
        if "alpha" in values:
            course["meta"] = as_json(minimum(values["alpha"]))
        courses.append(course)
    sliders = [
        (title, values, values.index(first))
        for title, values, first in (SLIDERS[name] for name in names)
    ]
    return {"label": label, "sliders": sliders, "courses": courses}


def as_json(values: Array) -> Any:
    """Round to three decimals, which the picture can show, and clip paths that have diverged."""
    return np.round(np.nan_to_num(np.clip(values, -99, 99), nan=99.0), 3).tolist()
