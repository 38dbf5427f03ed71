"""The picture of `fedref check --plot`: why the complex step, and what a Taylor slope says."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import checks, sampling
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS

EPS = float(np.finfo(float).eps)

#: Told apart without colour: line, marker, and the text beside the line.
FORWARD: dict[str, Any] = {"color": "#0072B2", "linestyle": (0, (5, 2)), "marker": "o"}
CENTRAL: dict[str, Any] = {"color": "#D55E00", "linestyle": (0, (6, 2, 1, 2)), "marker": "s"}
COMPLEX: dict[str, Any] = {"color": "black", "linestyle": "-", "marker": "^"}
FAINT: dict[str, Any] = {"color": "0.45", "linestyle": (0, (1, 1.5)), "linewidth": 1.2}


def derivative_errors(case: Case, h: Array) -> dict[str, Array]:
    """method → the error of the derivative along some directions, relative to the largest of them.

    The worst of several directions: along a single one rounding is sometimes lucky.
    """
    m, D, w = case.model, case.D, case.w

    def f(t: complex, v: Array) -> Any:
        return m.loss(w + t * v, D)

    methods: dict[str, Any] = {
        "forward": lambda h, v: (f(h, v) - f(0, v)) / h,
        "central": lambda h, v: (f(h, v) - f(-h, v)) / (2 * h),
        "complex": lambda h, v: f(1j * h, v).imag / h,
    }
    exact = m.grad(w, D) @ case.vs.T

    def error(method: Any, h: float) -> float:
        got = np.array([method(h, v) for v in case.vs])
        return max(checks.relative_error(got, exact), EPS / 2)  # 0 has no place on a log axis

    return {name: np.array([error(method, x) for x in h]) for name, method in methods.items()}


class Remainder(NamedTuple):
    values: Array  # |remainder| at every step
    slope: float  # as `taylor_slope` measures it


def taylor_remainders(case: Case, t: Array) -> dict[str, Remainder]:
    """What is taken for the derivatives → what Taylor's formula leaves over at every step t."""
    m, D, w, v = case.model, case.D, case.w, case.vs[0]
    g, hv = m.grad(w, D), m.hvp(w, v, D)
    off = 1 - 0.1 * np.sign((g @ v) * (v @ hv))  # so that both parts of the remainder add up

    def left(*derivatives: Array) -> Remainder:
        first, *second = derivatives

        def f(w: Array) -> Any:
            return m.loss(w, D)

        r = checks.taylor_remainders(f, first, w, v, t, *second)
        return Remainder(np.maximum(r, EPS / 8), checks.taylor_slope(f, first, w, v, *second))

    return {"wrong": left(off * g), "gradient": left(g), "hvp": left(g, hv)}


def draw(path: Path, seed: int) -> None:
    """Left: why differences cannot prove a gradient, and the complex step can. Right: the slopes."""
    from matplotlib import style
    from matplotlib.figure import Figure

    from fedref import plots

    case = Case(MODELS["MLP tanh"], sampling.stream(seed, "check picture"))
    case.vs = case.vectors(12)
    with style.context(plots.STYLE):
        figure = Figure((12, 5.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_errors(left, case)
        draw_remainders(right, case)
        plots.save(figure, path)


def draw_errors(axes: Any, case: Case) -> None:
    h = np.logspace(-20, 0, 81)
    errors = derivative_errors(case, h)
    axes.set(
        title="A derivative by a step: how exact can it be?",
        xlabel="step size $h$",
        ylabel="relative error of the derivative",
        xscale="log", yscale="log", xlim=(1e-20, 1), ylim=(1e-17, 1e3),
    )  # fmt: skip
    rounding(axes, 2e-6, EPS)
    looks = {"forward": FORWARD, "central": CENTRAL, "complex": COMPLEX}
    labels = {
        "forward": "forward difference  $(f(w+hv)-f(w))/h$",
        "central": "central difference  $(f(w+hv)-f(w-hv))/2h$",
        "complex": r"complex step  $\mathrm{Im}\,f(w+ihv)/h$",
    }
    for i, (name, error) in enumerate(errors.items()):
        axes.plot(h, error, label=labels[name], markevery=(2 * (i > 1), 4), **looks[name])

    for name, place in (("forward", (-185, -14)), ("central", (-185, -16))):
        i = int(np.argmin(errors[name]))
        text = f"{name}: at best {power(errors[name][i])}, at $h$ ≈ {power(h[i])}"
        pointer(axes, text.replace(": ", ":\n"), (h[i], errors[name][i]), place)
    floor = float(np.median(errors["complex"][h < 1e-9]))
    text = f"complex step: {power(floor)} for every small $h$\n(nothing is subtracted)"
    axes.text(3e-20, 6 * floor, text, fontsize=9, va="bottom")
    axes.legend(loc="upper right", borderaxespad=0.1)
    along(axes, r"rounding $\propto 1/h$", h, errors["forward"], 1e-14)
    along(axes, r"truncation $\propto h$", h, errors["forward"], 1e-6)
    along(axes, r"truncation $\propto h^2$", h, errors["complex"], 1e-5, side=-1)


def draw_remainders(axes: Any, case: Case) -> None:
    t = np.logspace(-8, 0, 33)
    axes.set(
        title="Is my gradient right? The slope of what Taylor’s formula leaves over",
        xlabel="step size $t$",
        ylabel="remainder",
        xscale="log", yscale="log", xlim=(1e-8, 1), ylim=(1e-17, 1e3),
    )  # fmt: skip
    rounding(axes, 2e-3, EPS * float(case.model.loss(case.w, case.D)))
    looks = {"wrong": FORWARD, "gradient": CENTRAL, "hvp": COMPLEX}
    labels = {
        "wrong": r"$g$ wrong by 10 %",
        "gradient": r"$g$ right:  $|f(w+tv)-f(w)-t\,g\cdot v|$",
        "hvp": r"$Hv$ right:  $|\ldots-\frac{1}{2}t^2\,v\cdot Hv|$",
    }
    remainders = taylor_remainders(case, t)
    for name, (r, _) in remainders.items():
        axes.plot(t, r, label=labels[name], markevery=2, **looks[name])
    axes.legend(loc="upper left", borderaxespad=0.1)

    for (r, slope), near in zip(remainders.values(), (1e-6, 1e-5, 3e-4)):
        along(axes, f"slope {slope:.2f}", t, r, near)


def along(axes: Any, text: str, x: Array, y: Array, near: float, side: int = 1) -> None:
    """The text above the line (x, y), or below it (side −1), in its direction on paper."""
    axes.figure.draw_without_rendering()  # only now is a decade's length on paper known
    i = int(np.argmin(np.abs(np.log(x / near))))
    here, there = axes.transData.transform(np.transpose([x[[i, i + 4]], y[[i, i + 4]]]))
    angle = np.arctan2(*(there - here)[::-1])
    axes.annotate(
        text, (x[i], y[i]), 5 * side * np.array([-np.sin(angle), np.cos(angle)]), textcoords="offset points",
        rotation=np.degrees(angle), rotation_mode="anchor", fontsize=10,
        va="bottom" if side > 0 else "top",
    )  # fmt: skip


def rounding(axes: Any, x: float, y: float) -> None:
    """The line below which no difference of numbers of that size can see."""
    axes.axhline(y, **FAINT)
    axes.text(x, y / 1.6, "rounding", color="0.35", fontsize=9, va="top")


def pointer(axes: Any, text: str, to: tuple[float, float], place: tuple[float, float]) -> None:
    axes.annotate(
        text, to, place, textcoords="offset points", fontsize=9, va="center",
        arrowprops={"arrowstyle": "->", "shrinkB": 5},
    )  # fmt: skip


def power(x: float) -> str:
    """1.3e-08 as mathematics, to one digit."""
    digit, exponent = f"{x:.0e}".split("e")
    return rf"${digit}\cdot10^{{{int(exponent)}}}$"
