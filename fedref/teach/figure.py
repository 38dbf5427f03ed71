"""The figure with sliders: fedref's own functions run for every place of the sliders, and the page's
script only looks their numbers up.

Two clients, two parameters: f(w) = ½ xᵀAx + (κ/4)‖x‖⁴ with x = w − c. The quartic term makes the
Hessian change from place to place, so that exact, first order and Hessian free differ.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import Cohort
from fedref.algorithms import apfl, fedprox, per_fedavg
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid

KAPPA = 0.3
W0 = np.array([0.2, 1.6])


#: What a slider is called, and its places. The last one of an algorithm, τ or rounds, counts along
#: the paths that the others lead to.
SLIDERS: dict[str, tuple[str, list[float]]] = {
    "alpha": ("α, inner step", [0, 0.1, 0.2, 0.3, 0.5]),
    "beta": ("β (η), local step", [0.05, 0.15, 0.25, 0.4]),
    "mu": ("μ, penalty", [0, 0.25, 0.5, 1, 2, 4]),
    "delta": ("δ, half-width", [0.01, 0.3, 0.7, 1.5]),
    "lam": ("λ, forgetting", [0.5, 1]),
    "steps": ("τ, local steps", [2, 6]),
    "tau": ("τ, local steps", list(range(1, 16))),
    "rounds": ("rounds", list(range(1, 13))),
}
START = {
    "alpha": 0.1, "beta": 0.15, "mu": 0.5, "delta": 0.3, "lam": 1, "steps": 6, "tau": 6, "rounds": 8,
}  # fmt: skip


class Variant(NamedTuple):
    """An algorithm in the figure. sliders : their names, in order."""

    label: str
    sliders: tuple[str, ...]


PER_FEDAVG = ("alpha", "beta", "tau")
APFL = ("beta", "mu", "lam", "steps", "rounds")
VARIANTS = {
    "exact": Variant("Per-FedAvg, exact", PER_FEDAVG),
    "fo": Variant("Per-FedAvg, first order", PER_FEDAVG),
    "hf": Variant("Per-FedAvg, Hessian free", ("alpha", "beta", "delta", "tau")),
    "fedprox": Variant("FedProx (μ = 0: FedAvg)", ("beta", "mu", "tau")),
    "paper": Variant("APFL, W_k = W_S at the start, as printed", APFL),
    "continuous": Variant("APFL, started without a jump", APFL),
}
#: The files whose page has the figure, and the algorithms that it offers there.
FIGURES = {
    "per_fedavg": ("exact", "fo", "hf", "fedprox"),
    "fedprox": ("fedprox",),
    "apfl": ("paper", "continuous"),
}
#: What stands below the figure; the numbers are those of `Course.numbers`.
ONE_ROUND = (
    "Average of the clients after one round ({0}, {1}). Their losses there: {2} and {3}; after one "
    "gradient step of size α each: {4} and {5}."
)
ROUNDS = (
    "The clients' losses with w_S alone: {0} and {1}; with their own models w_S ⊙ m_k + w_k: {2} and {3}. "
    "The masks m_k: {4} and {5}."
)


class Course(NamedTuple):
    """What the last slider counts along: arrays whose first axis is its places, and the start before.

    paths : of the two clients, (2, T + 1, 2); mean : the average of the clients, or the shared w_S,
    (T + 1, 2); numbers : what the text below the figure says, (T + 1, 6).
    """

    paths: Array
    mean: Array
    numbers: Array


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


def one_round(variant: str, values: dict[str, float]) -> Course:
    """Return the clients' local steps from W0, and the average after each number of them."""
    alpha = values.get("alpha", START["alpha"])
    paths = np.empty((2, len(SLIDERS["tau"][1]) + 1, 2))
    for path, client in zip(paths, CLIENTS):
        path[0] = W0
        for t in range(1, len(path)):
            path[t] = local_step(variant, client, path[t - 1], values)
    mean = paths.mean(0)
    now = [client.loss(mean) for client in CLIENTS]
    after = [client.loss(mean - alpha * client.grad(mean)) for client in CLIENTS]
    return Course(paths, mean, np.stack([*mean.T, *now, *after], 1))


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


def apfl_rounds(init: str, values: dict[str, float]) -> Course:
    """Return APFL's rounds: what each client tests with, the way of w_S, and the masks."""
    it = apfl.APFL(
        lr=values["beta"], mu=values["mu"], lam=values["lam"], z=1, init=init, weighting="uniform"
    )
    server, own = it.initial(CLIENTS[0], W0), [None, None]
    cohort, D = Cohort(np.arange(2), np.ones(2, int), np.ones(2, int), 2), Batch(W0, W0)
    models, shared, masks = [[W0, W0]], [W0], [[1.0, 1.0]]
    for _ in SLIDERS["rounds"][1]:
        sent, results = it.download(server), []
        for client, state in zip(CLIENTS, own):
            local = it.start(client, sent, state)
            for _ in range(int(values["steps"])):
                local = it.step(client, sent, local, D)
            results.append(it.finish(client, sent, local, state, lambda: D))
        server = it.combine(CLIENTS[0], server, tree.stack([r.upload for r in results]), cohort)
        own = [result.client_state for result in results]
        shared.append(server.w)
        sent = it.download(server)
        models.append(
            [it.personalised_params(c, sent, state, None) for c, state in zip(CLIENTS, own)]
        )
        masks.append([1.0 if state is None else float(sigmoid(state.a)[0]) for state in own])
    paths, mean = np.swapaxes(models, 0, 1), np.array(shared)
    now = [client.loss(mean) for client in CLIENTS]
    with_own = [client.loss(path) for client, path in zip(CLIENTS, paths)]
    return Course(paths, mean, np.stack([*now, *with_own, *np.transpose(masks)], 1))


def run_variant(variant: str, values: dict[str, float]) -> Course:
    """Return what the figure shows of an algorithm with these values of its sliders."""
    with np.errstate(all="ignore"):  # a step that is too long diverges
        return (apfl_rounds if variant in FIGURES["apfl"] else one_round)(variant, values)


@cache
def minimum(alpha: float = 0.0) -> Array:
    """Return where the mean of the meta-objectives is smallest; with α = 0 that of the losses."""
    w, D = np.zeros(2), Batch(W0, W0)
    for _ in range(300):
        g = [per_fedavg.meta_gradient(client, w, D, D, D, alpha=alpha) for client in CLIENTS]
        w = w - 0.2 * np.mean(g, 0)
    return w


def ring(client: Any, level: float) -> Array:
    """Return the points (73, 2) about a client's minimum at which its loss is `level`."""
    angles = np.linspace(0, 2 * np.pi, 73)
    rays = np.stack([np.cos(angles), np.sin(angles)], 1)
    low, high = np.zeros((73, 1)), np.full((73, 1), 8.0)
    for _ in range(40):  # along each ray the loss rises
        middle = (low + high) / 2
        below = (client.loss(client.c + middle * rays) < level)[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.array(client.c + low * rays)


def figure_data(name: str) -> dict[str, Any]:
    """Return all that the figure on the page of a file needs, as plain JSON."""
    return {
        "start": W0.tolist(),
        "least": plain(minimum()),
        "rings": [[plain(ring(c, level)) for level in (0.1, 0.4, 1, 2)] for c in CLIENTS],
        "variants": [variant_data(variant) for variant in FIGURES[name]],
    }


@cache
def variant_data(variant: str) -> dict[str, Any]:
    """Return an algorithm's sliders, and its courses in the order of all places of all but the last."""
    label, sliders = VARIANTS[variant]
    courses = []
    for places in product(*(SLIDERS[name][1] for name in sliders[:-1])):
        values = dict(zip(sliders, places))
        course = {key: plain(x) for key, x in run_variant(variant, values)._asdict().items()}
        if variant in ("exact", "fo", "hf"):
            course["meta"] = plain(minimum(values["alpha"]))
        courses.append(course)
    return {
        "label": label,
        "text": ROUNDS if sliders is APFL else ONE_ROUND,
        "mean": "shared w_S; dashed: its way" if sliders is APFL else "average after one round",
        "way": sliders is APFL,
        "sliders": [(*SLIDERS[name], SLIDERS[name][1].index(START[name])) for name in sliders],
        "courses": courses,
    }


def plain(values: Array) -> Any:
    """Three decimals are as fine as the picture; what has diverged is far outside of it."""
    return np.round(np.nan_to_num(np.clip(values, -99, 99), nan=99.0), 3).tolist()
