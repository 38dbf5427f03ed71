"""The pictures of the pages, by name: rounds of two clients, FedCurv's ellipses, two of the proofs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.style import context

from fedref.algorithms import ALGORITHMS, fedcurv, importance
from fedref.boundary.style import COLOURS, STYLE
from fedref.models.numerics import Array
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach.plane import MODEL, draw_rounds, rows_of_bowl

#: The levels of a penalty, and two clients' rows as in `plane`: solution, and the two directions of rows.
PENALTIES = [0.005, 0.02, 0.05]
BOWLS = (((0.2, 1.2), (0.4, 0.0), (0.0, 2.4)), ((1.6, 0.4), (1.8, 0.0), (0.0, 0.5)))


def draw_ellipses() -> Figure:
    """Draw the ellipses of FedCurv's penalties and the circle of FedProx's."""
    figure = Figure((5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(aspect="equal", xlabel="$w_1$", ylabel="$w_2$")
    x, y = np.meshgrid(np.linspace(-1.0, 2.4, 60), np.linspace(-0.4, 1.9, 60))
    theta = [np.array(solution) for solution, *_ in BOWLS]
    w0, data = np.mean(theta, axis=0), [rows_of_bowl(*bowl) for bowl in BOWLS]
    I = [importance.fisher(MODEL, w, D) for w, D in zip(theta, data)]

    def circle(w: Array) -> Array:
        return np.sum((w - w0) ** 2, -1) / 2

    penalties: list[Callable[[Array], Array]] = [
        partial(fedcurv.penalty, others=[each], lam=1.0) for each in zip(I, theta)
    ]
    for colour, penalty in zip(COLOURS[1:], (*penalties, circle)):
        look: dict[str, Any] = {"linewidths": 0.9, "linestyles": "--" if penalty is circle else "-"}
        axes.contour(x, y, penalty(np.stack([x, y], -1)), PENALTIES, colors=[colour], **look)
    for w, text, shift in (
        (theta[0], "solution of client 1", (-40, 36)),
        (theta[1], "solution of client 2", (-128, -46)),
        (w0, "$w^t$", (-4, -36)),
    ):
        axes.plot(*w, "kx", markersize=5)
        axes.annotate(text, tuple(w), shift, textcoords="offset points", fontsize=9)
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
