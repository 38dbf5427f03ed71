"""Two parameters: what an algorithm does, as points, paths, arrows and rings in the plane."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref import checks
from fedref.algorithms import fedavg, fedcurv, fedprox, importance, per_fedavg
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach.figure import CLIENTS
from fedref.teach.svg import Picture, colour, halo, line_style, panel, plane


def grid(reach: tuple[float, float, float, float], n: int = 60) -> tuple[Array, Array, Array]:
    """(x, y, points (n, n, 2)) over a part of the plane."""
    x, y = np.meshgrid(np.linspace(*reach[:2], n), np.linspace(*reach[2:], n))
    return x, y, np.stack([x, y], -1)


def rings(
    axes: Any, k: int, reach: Any, value: Callable[[Array], Array], levels: Any, **more: Any
) -> None:
    """Contours of a function of the plane, in the k-th client's colour."""
    x, y, w = grid(reach)
    more = {"linewidths": 0.9, "linestyles": "-", **more}
    axes.contour(x, y, value(w), levels, colors=[colour(f"c{k}")], **more)


def marked(axes: Any, w: Array, text: str, place: tuple[float, float], marker: str = "o") -> None:
    """A point with its name beside it."""
    axes.plot(*w, marker=marker, color=colour("ink"), markersize=5, linestyle="none", zorder=5)
    axes.annotate(text, w, place, textcoords="offset points", fontsize=9, zorder=6, **halo())


# ---- FedAvg: where many local steps lead ---------------------------------------------------------

STEPS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
DRIFT_LR = 0.15


def path_of(client: Any, w: Array, tau: int, lr: float = DRIFT_LR) -> Array:
    """τ local steps of FedAvg from w: (τ + 1, 2)."""
    path = [w]
    for _ in range(tau):
        path.append(fedavg.local_step(client, path[-1], NOTHING, lr=lr))
    return np.array(path)


@cache
def limit(tau: int) -> Array:
    """Where FedAvg with τ local steps comes to rest. With τ = 1 it is gradient descent on the mean
    loss, and rests at its minimum."""
    w = np.zeros(2)
    for _ in range(2 + 1500 // tau):
        w = np.mean([path_of(client, w, tau)[-1] for client in CLIENTS], 0)
    return w


def drift() -> Picture:
    """Client drift against the number of local steps."""
    far = [float(np.linalg.norm(limit(tau) - limit(1))) for tau in STEPS]
    figure, axes = panel(
        xlabel="local steps τ (epochs E, with one full batch each)",
        ylabel="distance from the minimum", xscale="log", xticks=STEPS, xticklabels=STEPS,
    )  # fmt: skip
    axes.minorticks_off()
    axes.plot(STEPS, far, **line_style(0))
    caption = (
        "Client drift: two clients whose losses differ, full batches, nothing random. FedAvg comes to "
        f"rest {far[STEPS.index(5)]:.2f} from the minimum of the mean loss with τ = 5, and {far[-1]:.2f} "
        f"from it with τ = {STEPS[-1]}; only τ = 1 finds it. η = {DRIFT_LR}."
    )
    alt = f"The distance grows from 0 at τ = 1 to {far[-1]:.2f} at τ = {STEPS[-1]}."
    return Picture(figure, alt, caption)


def drift_plane(tau: int = 20) -> Picture:
    """The same in the plane: one round, and the points of rest."""
    reach = (-1.7, 1.9, -1.35, 1.35)
    figure, axes = plane(reach)
    rest = limit(tau)
    for k, client in enumerate(CLIENTS):
        rings(axes, k, reach, client.loss, [0.1, 0.4, 1, 2], alpha=0.5)
        axes.plot(*path_of(client, rest, tau).T, **line_style(k, markersize=3))
        marked(
            axes,
            np.array(client.c),
            f"minimum of client {k + 1}",
            (-52, -14) if k else (-40, 7),
            "x",
        )
    trail = np.array([limit(t) for t in STEPS])
    axes.plot(*trail.T, color=colour("ink"), linewidth=1, marker=".", markersize=4)
    marked(axes, limit(1), "minimum of\nthe mean loss", (4, -24), "*")
    marked(axes, rest, f"rest, τ = {tau}", (-58, 4))
    caption = (
        f"One round of FedAvg from where it rests with τ = {tau}: each client walks towards its own "
        "minimum, and the average of both ends is where they began. The dotted trail: the points of "
        f"rest for τ = {STEPS[0]} … {STEPS[-1]}."
    )
    alt = (
        "Contours of two losses; two paths from one point to either minimum. The point is "
        f"{np.linalg.norm(rest - limit(1)):.2f} from the minimum of the mean loss."
    )
    return Picture(figure, alt, caption)


#: A bowl looks at no batch.
NOTHING = Batch(np.zeros((1, 2)), np.zeros(1, np.int64))


# ---- Per-FedAvg: the Hessian's part ---------------------------------------------------------------

ARROW_ALPHA, ARROW_AT = 0.3, np.array([1.2, 1.4])


def arrows() -> tuple[Array, Array]:
    """(u, ∇F) of the first client at ARROW_AT."""
    same = (NOTHING, NOTHING)
    u = per_fedavg.meta_gradient_fo(CLIENTS[0], ARROW_AT, *same, alpha=ARROW_ALPHA)
    exact = per_fedavg.meta_gradient(CLIENTS[0], ARROW_AT, *same, NOTHING, alpha=ARROW_ALPHA)
    return u, exact


def angle(a: Array, b: Array) -> float:
    """Degrees between two vectors."""
    return float(np.degrees(np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))))


def correction() -> Picture:
    """The Hessian's correction as an arrow."""
    client, w = CLIENTS[0], ARROW_AT
    reach = (0.6, 1.5, 0.75, 1.5)
    figure, axes = plane(reach)

    def F(points: Array) -> Array:
        return per_fedavg.meta_objective(client, points, NOTHING, alpha=ARROW_ALPHA)

    here = float(F(w))
    rings(axes, 2, reach, F, here * np.array([0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]), alpha=0.8)
    u, exact = arrows()
    first, right = w - u, w - exact

    def arrow(a: Array, b: Array, k: int, dashes: Any = "-") -> None:
        axes.annotate(
            "", b, a, arrowprops={"arrowstyle": "->", "color": colour(f"c{k}"), "linewidth": 2,
            "linestyle": dashes, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip

    arrow(w, first, 1, (0, (5, 2)))
    arrow(w, right, 0)
    arrow(first, right, 3)
    marked(axes, w, "w", (6, 3))
    for text, at, place in (
        ("−u: first order", first, (-40, -14)),
        ("−∇F = −u + αHu", right, (-112, 2)),
        ("αHu", (first + right) / 2, (-30, -4)),
    ):
        axes.annotate(text, at, place, textcoords="offset points", fontsize=9, **halo())
    caption = (
        f"One client, α = {ARROW_ALPHA}. The rings are the meta-objective F(w) = f(w − αg(w)). "
        f"Steepest descent on it is −∇F; first order leaves out αHu and goes {angle(u, exact):.0f}° "
        f"astray here, {np.linalg.norm(u) / np.linalg.norm(exact):.1f} times as far."
    )
    alt = "Two arrows from one point, and a third, the Hessian's correction, from tip to tip."
    return Picture(figure, alt, caption)


def relative_errors(dtype: Any, deltas: Array) -> tuple[Array, float]:
    """(the relative error of the Hessian-free meta-gradient in dtype, for every δ; of first order)."""
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


def hessian_free() -> Picture:
    """HF's error against δ."""
    figure, axes = panel(
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


# ---- FedCurv: which way is held --------------------------------------------------------------------


class Held(NamedTuple):
    """Two clients' data, their solutions and their Fisher information."""

    data: list[Batch]
    theta: Array  # (2, 2)
    fisher: Array  # (2, 2)


PENALTIES = [0.005, 0.02, 0.05]
PLANE_MODEL = BinaryLogistic(2, l2=0.05, bias=False)


@cache
def held() -> Held:
    """Two clients with two features of different scale, each solved to the end."""
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
    return Held(data, np.array(theta), np.array(I))


def ellipses() -> Picture:
    """EWC's ellipses against FedProx's circle, as FedCurv has them."""
    reach = (-1.0, 2.4, -0.4, 1.9)
    figure, axes = plane(reach)
    found = held()
    w0 = found.theta.mean(0)
    for k in (0, 1):
        other = [(found.fisher[k], found.theta[k])]
        rings(axes, k, reach, partial(fedcurv.penalty, others=other, lam=1.0), PENALTIES)
        marked(
            axes, found.theta[k], f"solution of client {k + 1}", (-8, 62) if k else (10, -14), "x"
        )

    def circle(w: Array) -> Array:
        D = found.data[0]
        return fedprox.objective(PLANE_MODEL, w, w0, D, mu=1.0) - PLANE_MODEL.loss(w, D)

    rings(axes, 2, reach, circle, PENALTIES, linestyles="--")
    marked(axes, w0, "$w^t$", (-4, 22))
    long = np.sqrt(found.fisher.max(1) / found.fisher.min(1))
    caption = (
        "What holds a client back. FedProx (dashed): the same in all directions, about wᵗ. FedCurv: "
        "about each other client's solution, and only where it matters to that client; the ellipses "
        f"are {long[0]:.1f} and {long[1]:.1f} times as long as wide. Each set of rings: penalties "
        f"{PENALTIES[0]}, {PENALTIES[1]} and {PENALTIES[2]}."
    )
    alt = "Concentric circles about one point, narrow ellipses about two others."
    return Picture(figure, alt, caption)
