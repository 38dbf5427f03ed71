"""The pictures of the pages, by name: rounds of two clients, ellipses, noise, two of the proofs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.style import context

from fedref.algorithms import ALGORITHMS, fedcurv, importance, per_fedavg
from fedref.boundary.style import COLOURS, STYLE
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
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


#: How often estimates of a meta-gradient are drawn, how many of them are shown, the batch and the inner step.
DRAWN, SHOWN, BATCH, ALPHA = 20000, 300, 4, 0.6


def draw_noise() -> Figure:
    """Draw clouds of estimates of one meta-gradient, and their means against the truth."""
    rng, model = stream(0, "noise picture"), BinaryLogistic(2, bias=False)
    X = rng.normal(size=(40, 2)) * [2.0, 1.0]
    D, w = Batch(X, (X @ [1.5, 1.0] + rng.normal(size=40) > 0).astype(int)), np.array([-1.0, -0.8])
    one, *two = (Batch(X[i], D.y[i]) for i in rng.integers(0, 40, (3, DRAWN, BATCH)))
    ws = np.broadcast_to(w, (DRAWN, 2))
    truth = per_fedavg.meta_gradient(model, w, D, D, D, alpha=ALPHA)
    clouds = {
        "exact, three batches": per_fedavg.meta_gradient(model, ws, one, *two, alpha=ALPHA),
        "exact, one batch": per_fedavg.meta_gradient(model, ws, one, one, one, alpha=ALPHA),
        "first order": per_fedavg.meta_gradient_fo(model, ws, one, two[0], alpha=ALPHA),
        "Hessian free": per_fedavg.meta_gradient_hf(model, ws, one, *two, alpha=ALPHA, delta=1e-3),
    }
    figure = Figure((10.2, 3.4), layout="constrained")
    for axes, (name, points) in zip(
        figure.subplots(1, 4, sharex=True, sharey=True), clouds.items()
    ):
        mean = points.mean(0)
        axes.plot(*points[:SHOWN].T, ".", color=COLOURS[6], markersize=2.5, label="one estimate")
        axes.plot(*mean, "o", color=COLOURS[2], label=f"mean of {DRAWN}")
        axes.plot(*truth, "k+", markersize=12, label="truth, from all rows")
        off, error = np.linalg.norm(mean - truth), np.linalg.norm(points.std(0)) / np.sqrt(DRAWN)
        axes.set(
            title=f"{name}\noff by {off:.3f} ± {error:.3f}", xticks=[], yticks=[], aspect="equal"
        )
        axes.set(xlim=truth[0] + np.array([-2.0, 2.0]), ylim=truth[1] + np.array([-1.6, 1.6]))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
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
    "noise": draw_noise,
    "complex-step": partial(draw_proof, picture.draw_errors),
    "taylor-slope": partial(draw_proof, picture.draw_remainders),
}


def draw(make: Callable[..., Figure], *arguments: Any) -> Figure:
    """Make a picture in the style of all of fedref's."""
    with context(STYLE):
        return make(*arguments)
