"""The pictures of the pages, by name: rounds of two clients, FedCurv's ellipses, two of the proofs."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.style import context

from fedref.algorithms import ALGORITHMS, fedavg, fedcurv, fedprox, importance
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.plots.style import COLOURS, STYLE
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach.plane import draw_rounds

# ---- FedCurv: the directions in which a client is held ---------------------------------------------


class TwoClients(NamedTuple):
    """Two clients' data, their solutions and their Fisher information."""

    data: list[Batch]
    theta: Array  # (2, 2)
    fisher: Array  # (2, 2)


PENALTIES = [0.005, 0.02, 0.05]
PLANE_MODEL = BinaryLogistic(2, l2=0.05, bias=False)


@cache
def solve_two_clients() -> TwoClients:
    """Make two clients with two features of different scale, and solve each to the end."""
    rng, data, theta = stream(0, "ellipses"), [], []
    for spread, truth in (((0.5, 3.0), (2.0, 1.0)), ((2.5, 0.6), (-0.4, 2.0))):
        X = rng.normal(size=(60, 2)) * spread
        y = (rng.random(60) < sigmoid(X @ np.array(truth))).astype(np.int64)
        data.append(Batch(X, y))
        w = np.zeros(2)
        for _ in range(2000):
            w = fedavg.local_step(PLANE_MODEL, w, data[-1], lr=0.5)
        theta.append(w)
    I = [importance.fisher(PLANE_MODEL, w, D) for w, D in zip(theta, data)]
    return TwoClients(data, np.array(theta), np.array(I))


def draw_ellipses() -> Figure:
    """Draw the ellipses of FedCurv's penalties and the circle of FedProx's."""
    figure = Figure((5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(aspect="equal", xlabel="$w_1$", ylabel="$w_2$")
    x, y = np.meshgrid(np.linspace(-1.0, 2.4, 60), np.linspace(-0.4, 1.9, 60))
    data, theta, fisher = solve_two_clients()
    w0 = theta.mean(0)

    def circle(w: Array) -> Array:
        D = data[0]
        return fedprox.objective(PLANE_MODEL, w, w0, D, mu=1.0) - PLANE_MODEL.loss(w, D)

    penalties: list[Callable[[Array], Array]] = [
        partial(fedcurv.penalty, others=[each], lam=1.0) for each in zip(fisher, theta)
    ]
    for colour, penalty in zip(COLOURS[1:], (*penalties, circle)):
        look: dict[str, Any] = {"linewidths": 0.9, "linestyles": "--" if penalty is circle else "-"}
        axes.contour(x, y, penalty(np.stack([x, y], -1)), PENALTIES, colors=[colour], **look)
    for w, text, shift in (
        (theta[0], "solution of client 1", (10, -14)),
        (theta[1], "solution of client 2", (-8, 62)),
        (w0, "$w^t$", (-4, 22)),
    ):
        axes.plot(*w, "kx", markersize=5)
        axes.annotate(text, w, shift, textcoords="offset points", fontsize=9)
    return figure


# ---- proofs ---------------------------------------------------------------------------------------


def draw_proof(draw_half: Callable[..., None]) -> Figure:
    """Draw one half of the picture of `fedref check --plot`."""
    case = Case(MODELS["MLP tanh"], stream(0, "check picture"))
    case.vs = case.draw_vectors(12)
    figure = Figure((5.6, 4.6), layout="constrained")
    draw_half(figure.subplots(), case)
    return figure


PICTURES: Mapping[str, Callable[[], Figure]] = {
    **{f"rounds-{name}": partial(draw_rounds, name) for name in ALGORITHMS},
    "ellipses": draw_ellipses,
    "complex-step": partial(draw_proof, picture.draw_errors),
    "taylor-slope": partial(draw_proof, picture.draw_remainders),
}


def draw(make: Callable[..., Figure], *arguments: Any) -> Figure:
    """Make a picture in the style of all of fedref's."""
    with context(STYLE):
        return make(*arguments)
