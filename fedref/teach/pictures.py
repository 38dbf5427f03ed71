"""The pictures that belong to one paper or to the proofs; `plane` draws the one that all papers have."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref import checks
from fedref.algorithms import fedavg, fedcurv, fedprox, importance, per_fedavg
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach import plane
from fedref.teach.style import INK, LINE_COLOURS, Picture, halo, line_style, make_panel

# ---- every algorithm: two clients ----------------------------------------------------------------


def draw_plane(algorithm: str) -> Picture:
    """Draw rounds 1, 2 and 5 of two clients."""
    caption = plane.caption_of(algorithm)
    alt = f"Three panels of two clients' contours with their local steps: {algorithm}, rounds 1, 2, 5."
    return Picture(plane.draw_rounds(algorithm), alt, caption)


# ---- Per-FedAvg: two errors of the Hessian-free gradient -------------------------------------------


def relative_errors(dtype: Any, deltas: Array) -> tuple[Array, float]:
    """Return the relative errors of the Hessian-free meta-gradient in dtype, for every δ, and of FO."""
    case = Case(MODELS["MLP tanh"], stream(0, "picture"))
    D, D1, D2 = case.D, case.D1, case.D2
    exact = per_fedavg.meta_gradient(case.model, case.w, D, D1, D2, alpha=0.1)
    first = per_fedavg.meta_gradient_fo(case.model, case.w, D, D1, alpha=0.1)
    low = [
        Batch(D.X.astype(dtype), D.y, None if D.s is None else D.s.astype(dtype))
        for D in (D, D1, D2)
    ]
    w = case.w.astype(dtype)
    free = [
        per_fedavg.meta_gradient_hf(case.model, w, *low, alpha=0.1, delta=float(delta))
        for delta in deltas
    ]
    errors = np.array([checks.relative_error(g, exact) for g in free])
    return errors, checks.relative_error(first, exact)


DELTAS = np.logspace(-13, 0, 40)


def draw_hessian_free() -> Picture:
    """Draw the error of Hessian-free gradients against δ."""
    figure, axes = make_panel(
        xlabel="half-width δ", ylabel="relative error of the meta-gradient",
        xscale="log", yscale="log", xlim=(DELTAS[0], DELTAS[-1]),
    )  # fmt: skip
    best = []
    for k, dtype in enumerate((np.float64, np.float32)):
        errors, first_order = relative_errors(dtype, DELTAS)
        axes.plot(DELTAS, errors, label=np.dtype(dtype).name, markevery=3, **line_style(k))
        best.append((DELTAS[np.argmin(errors)], errors.min()))
    (at_six,), _ = relative_errors(np.float32, np.array([1e-6]))
    axes.axhline(first_order, label="first order", **line_style(2, marker="none"))
    axes.legend(loc="lower left")
    (at64, error64), (at32, error32) = best
    caption = (
        f"Two ways to be wrong: truncation grows as δ², rounding as ε/δ. float64 is best at δ = {at64:.0e} "
        f"(error {error64:.0e}), float32 at {at32:.0e} ({error32:.0e}); with δ = 10⁻⁶ float32 keeps an error "
        f"of {at_six:.0e}, where first order has {first_order:.0e}. A small MLP, three batches, α = 0.1."
    )
    alt = f"Two curves with a least error each: {error64:.0e} in float64, {error32:.0e} in float32."
    return Picture(figure, alt, caption)


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
    "per_fedavg": {"hessian-free": draw_hessian_free},
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
