"""The pictures of FedCurv and of the proofs; `plane` draws the one that all papers have."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from fedref.algorithms import fedavg, fedcurv, fedprox, importance
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach.style import INK, LINE_COLOURS, Picture, halo, make_panel

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


def draw_ellipses() -> Picture:
    """Draw the ellipses of FedCurv's penalties and the circle of FedProx's."""
    figure, axes = make_panel(4.8, 3.1, aspect="equal", xlabel="$w_1$", ylabel="$w_2$")
    x, y = np.meshgrid(np.linspace(-1.0, 2.4, 60), np.linspace(-0.4, 1.9, 60))
    data, theta, fisher = solve_two_clients()
    w0 = theta.mean(0)

    def circle(w: Array) -> Array:
        D = data[0]
        return fedprox.objective(PLANE_MODEL, w, w0, D, mu=1.0) - PLANE_MODEL.loss(w, D)

    penalties: list[Callable[[Array], Array]] = [
        partial(fedcurv.penalty, others=[each], lam=1.0) for each in zip(fisher, theta)
    ]
    for k, penalty in enumerate((*penalties, circle)):
        look = {"linewidths": 0.9, "linestyles": "--" if penalty is circle else "-"}
        value = penalty(np.stack([x, y], -1))
        axes.contour(x, y, value, PENALTIES, colors=[LINE_COLOURS[k]], **look)
    for w, text, place in (
        (theta[0], "solution of client 1", (10, -14)),
        (theta[1], "solution of client 2", (-8, 62)),
        (w0, "$w^t$", (-4, 22)),
    ):
        axes.plot(*w, "x", color=INK, markersize=5)
        axes.annotate(text, w, place, textcoords="offset points", fontsize=9, zorder=6, **halo())
    long = np.sqrt(fisher.max(1) / fisher.min(1))
    caption = (
        "What holds a client back. FedProx (dashed) holds it near wᵗ, in all directions alike. FedCurv "
        "holds it near each other client's solution, and only in the directions that matter to that "
        f"client; the ellipses are {long[0]:.1f} and {long[1]:.1f} times as long as wide. Each set of "
        f"rings: penalties {PENALTIES[0]}, {PENALTIES[1]} and {PENALTIES[2]}."
    )
    alt = "Concentric circles about one point, narrow ellipses about two others."
    return Picture(figure, alt, caption)


# ---- proofs ---------------------------------------------------------------------------------------


def draw_proof(draw_half: Callable[..., None], alt: str, caption: str) -> Picture:
    """Draw one half of the picture of `fedref check --plot`."""
    case = Case(MODELS["MLP tanh"], stream(0, "check picture"))
    case.vs = case.draw_vectors(12)
    figure, axes = make_panel(5.6, 4.6)
    draw_half(axes, case)
    return Picture(figure, alt, caption)


#: File of an algorithm, or "proofs" → name of a picture → what draws it, in the order of the page.
PICTURES: Mapping[str, Mapping[str, Callable[[], Picture]]] = {
    "fedcurv": {"ellipses": draw_ellipses},
    "proofs": {
        "complex-step": partial(
            draw_proof, picture.draw_errors,
            "Three curves of the error against the step h: forward and central differences fall and "
            "rise again, the complex step stays at rounding for every small h.",
            "Why differences prove nothing: with a small h, what they subtract is all rounding. The "
            "complex step subtracts nothing. A small MLP; `fedref check --plot` draws the same picture.",
        ),
        "taylor-slope": partial(
            draw_proof, picture.draw_remainders,
            "Three lines of the remainder against the step t, of slope 1, 2 and 3.",
            "A second witness that needs no complex numbers: the remainder of Taylor's formula falls "
            "with slope 2 if the gradient is right, with 3 if the Hessian-vector product is right too, "
            "and with 1 if the gradient is wrong.",
        ),
    },
}  # fmt: skip
