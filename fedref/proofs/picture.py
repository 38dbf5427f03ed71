"""The picture of `fedref check --plot`: why the complex step, and what a Taylor slope says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import checks, sampling
from fedref.models.numerics import Array
from fedref.proofs.models import MODELS
from fedref.proofs.setting import Setting

EPS = float(np.finfo(float).eps)

#: Method → its formula, and the same of f(t, v) = f(w + tv).
METHODS: dict[str, tuple[str, Any]] = {
    "forward": ("$(f(w+hv)-f(w))/h$", lambda f, h, v: (f(h, v) - f(0, v)) / h),
    "central": ("$(f(w+hv)-f(w-hv))/2h$", lambda f, h, v: (f(h, v) - f(-h, v)) / (2 * h)),
    "complex": (r"$\mathrm{Im}\,f(w+ihv)/h$, for every small $h$", lambda f, h, v: f(1j * h, v).imag / h),
}  # fmt: skip

#: The looks of the three curves: they differ in line and marker, not in colour alone.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": (0, (5, 2)), "marker": "o"},
    {"color": "#D55E00", "linestyle": (0, (6, 2, 1, 2)), "marker": "s"},
    {"color": "black", "linestyle": "-", "marker": "^"},
)


def derivative_errors(case: Setting, h: Array) -> dict[str, Array]:
    """Return method → its relative error at every step h.

    The error is the worst of several directions: along a single one, rounding errors may cancel by luck.
    """
    m, D, w = case.model, case.D, case.w

    def f(t: complex, v: Array) -> Any:
        return m.loss(w + t * v, D)

    exact = m.grad(w, D) @ case.vs.T

    def error(method: Any, h: float) -> float:
        got = np.array([method(f, h, v) for v in case.vs])
        return max(checks.relative_error(got, exact), EPS / 2)  # 0 has no place on a log axis

    return {name: np.array([error(method, x) for x in h]) for name, (_, method) in METHODS.items()}


class Remainder(NamedTuple):
    values: Array  # |remainder| at every step
    slope: float  # as `taylor_slope` measures it


def taylor_remainders(case: Setting, t: Array) -> dict[str, Remainder]:
    """Return name → the remainder of Taylor's formula at every step t, and its slope.

    The names: "wrong" for a wrong gradient, "gradient" for the right one, "hvp" for the right one with
    the Hessian-vector product.
    """
    m, D, w, v = case.model, case.D, case.w, case.vs[0]
    g, hv = m.grad(w, D), m.hvp(w, v, D)
    off = 1 - 0.1 * np.sign((g @ v) * (v @ hv))  # the terms of first and second order do not cancel

    def remainder(*derivatives: Array) -> Remainder:
        first, *second = derivatives

        def f(w: Array) -> Any:
            return m.loss(w, D)

        r = checks.taylor_remainders(f, first, w, v, t, *second)
        return Remainder(np.maximum(r, EPS / 8), checks.taylor_slope(f, first, w, v, *second))

    return {"wrong": remainder(off * g), "gradient": remainder(g), "hvp": remainder(g, hv)}


def draw(path: Path, seed: int) -> None:
    """Draw the errors of differences and of the complex step (left), and Taylor's remainders (right)."""
    from fedref.boundary.style import save

    save(draw_halves((12, 5.4), seed, draw_errors, draw_remainders), path)


def draw_halves(
    size: tuple[float, float], seed: int, *halves: Callable[[Any, Setting], None]
) -> Any:
    """Return a figure with these halves side by side, about one small MLP."""
    from matplotlib import style
    from matplotlib.figure import Figure

    from fedref.boundary.style import STYLE

    case = Setting(MODELS["MLP tanh"], sampling.stream(seed, "check picture"))
    case.vs = case.draw_vectors(12)
    with style.context(STYLE):
        figure = Figure(size, layout="constrained")
        for axes, half in zip(figure.subplots(1, len(halves), squeeze=False).flat, halves):
            half(axes, case)
    return figure


def draw_errors(axes: Any, case: Setting) -> None:
    h = np.logspace(-20, 0, 81)
    curves = {}
    for name, error in derivative_errors(case, h).items():
        digit, exponent = f"{error.min():.0e}".split("e")
        best = rf"at best ${digit}\cdot10^{{{int(exponent)}}}$"
        curves[f"{name}  {METHODS[name][0]}: {best}"] = error
    draw_curves(axes, h, curves, EPS, "upper right")
    title, label = "How exact is a derivative by a finite step?", "relative error of the derivative"
    axes.set(title=title, xlabel="step size $h$", ylabel=label)


def draw_remainders(axes: Any, case: Setting) -> None:
    t = np.logspace(-8, 0, 33)
    labels = {
        "wrong": r"$g$ wrong by 10 %",
        "gradient": r"$g$ right:  $|f(w+tv)-f(w)-t\,g\cdot v|$",
        "hvp": r"$Hv$ right:  $|\ldots-\frac{1}{2}t^2\,v\cdot Hv|$",
    }
    remainders = taylor_remainders(case, t).items()
    curves = {f"{labels[name]}: slope {x.slope:.2f}": x.values for name, x in remainders}
    draw_curves(axes, t, curves, EPS * float(case.model.loss(case.w, case.D)), "upper left")
    title = "Is my gradient right? The slope of Taylor’s remainder"
    axes.set(title=title, xlabel="step size $t$", ylabel="remainder")


def draw_curves(
    axes: Any, x: Array, curves: dict[str, Array], rounding: float, legend: str
) -> None:
    """Draw curves over x, and the level of rounding: what lies below it means nothing."""
    axes.axhline(rounding, color="0.45", linestyle=(0, (1, 1.5)), linewidth=1.2, label="rounding")
    for (label, y), look in zip(curves.items(), LOOKS):
        axes.plot(x, y, label=label, markevery=len(x) // 20, **look)
    axes.set(xscale="log", yscale="log", xlim=(x[0], 1), ylim=(1e-17, 1e6))
    axes.legend(loc=legend, borderaxespad=0.1)
