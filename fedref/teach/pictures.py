"""The pictures of the site: what they show is computed by fedref's own functions, with a fixed seed.

Each `draw_...` function returns a `Picture`; the numbers in it come from a function of their own, so
that a test can look at them. The colours are those of style.css, which inverts them on a dark page.
"""

import io
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fedref import checks
from fedref.algorithm import State
from fedref.algorithms import apfl, fedavg, fedcurv, fedmeta, fedprox, importance, per_fedavg
from fedref.experiments import config, unit
from fedref.experiments.loading import load_experiment
from fedref.experiments.unit import LoadedExperiment, Unit
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.plots.style import LINES, MARKERS, STYLE
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.sampling import stream
from fedref.teach.figure import CLIENTS

#: The colours of lines c0 to c3, of text, of thin rules and of the page, as in style.css.
LINE_COLOURS = ("#0072b2", "#d55e00", "#00805c", "#a8508a")
INK, RULE, PAPER = "#1a1a1a", "#c9c9c4", "#ffffff"
#: Matplotlib's settings for a picture of the site.
PAGE_STYLE: list[Any] = [
    *STYLE,
    {
        "font.size": 10, "axes.titlesize": 10, "figure.facecolor": "none", "axes.facecolor": "none",
        "grid.color": RULE, "grid.linewidth": 0.5, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "patch.edgecolor": INK,
        "legend.handlelength": 2.6, "svg.fonttype": "path", "savefig.facecolor": "none",
        "legend.facecolor": PAPER, "legend.framealpha": 0.85, "legend.frameon": True,
        "legend.edgecolor": PAPER,
    },
]  # fmt: skip


class Picture(NamedTuple):
    """A figure; alt : a description for people who cannot see it; caption : the text below it."""

    figure: Figure
    alt: str
    caption: str


def draw(make: Callable[..., Picture], *arguments: Any) -> Picture:
    """Make a picture in the site's style."""
    with style.context(PAGE_STYLE):
        return make(*arguments)


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG file without a date."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with style.context(PAGE_STYLE):
        figure.savefig(buffer, format="svg", metadata=nothing, dpi=72)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def make_panel(width: float = 4.8, height: float = 3.1, **options: Any) -> tuple[Figure, Any]:
    """Return (figure, axes), inches of 96 pixels."""
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set(**options)
    return figure, axes


def line_style(k: int, **more: Any) -> dict[str, Any]:
    """Return the k-th line's colour, dashes and marker: no line is told apart by colour alone."""
    look = {"color": LINE_COLOURS[k], "linestyle": LINES[k], "marker": MARKERS[k]}
    return {"markersize": 4, **look, **more}


def halo() -> dict[str, Any]:
    """Return the option that makes a text stand out from the lines behind it."""
    return {"path_effects": [withStroke(linewidth=3, foreground=PAPER)]}


# ---- FedAvg: where many local steps lead ---------------------------------------------------------

#: A batch for a Bowl, which ignores it.
NOTHING = Batch(np.zeros((1, 2)), np.zeros(1, np.int64))
STEPS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
DRIFT_LR = 0.15


def fedavg_path(client: Any, w: Array, tau: int) -> Array:
    """Return τ local steps of FedAvg from w: (τ + 1, 2)."""
    path = [w]
    for _ in range(tau):
        path.append(fedavg.local_step(client, path[-1], NOTHING, lr=DRIFT_LR))
    return np.array(path)


@cache
def resting_point(tau: int) -> Array:
    """Return where FedAvg with τ local steps comes to rest: with τ = 1 at the mean loss's minimum."""
    w = np.zeros(2)
    for _ in range(2 + 1500 // tau):
        w = np.mean([fedavg_path(client, w, tau)[-1] for client in CLIENTS], 0)
    return w


def draw_drift() -> Picture:
    """Draw client drift against the number of local steps."""
    far = [float(np.linalg.norm(resting_point(tau) - resting_point(1))) for tau in STEPS]
    figure, axes = make_panel(
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


# ---- short runs on the shipped digits --------------------------------------------------------------


def digits_unit(algorithm: Any = "fedavg", **changes: Any) -> Unit:
    """Return a run on the shipped digits, 20 clients of two kinds, for logistic regression."""
    table = {
        "name": "picture", "data": {"name": "digits"}, "model": {"name": "logistic"}, "steps": 10,
        "rounds": 1, **changes, "algorithms": algorithm,
    }  # fmt: skip
    return unit.units(config.compose(table, []))[0]


def load_digits(**changes: Any) -> LoadedExperiment:
    return load_experiment(digits_unit(**changes).experiment)


def run_on_digits(algorithm: Any, **changes: Any) -> list[Any]:
    """Return the records of a run, round by round."""
    run = digits_unit(algorithm, **changes)
    return list(unit.iterate_rounds(run, load_experiment(run.experiment)))


# ---- APFL: what the masks become ---------------------------------------------------------------------


class Masks(NamedTuple):
    m: Array  # (clients, 10) each client's mask, one value a class
    has: Array  # (clients, 10) whether the client has rows of that class


@cache
def learn_masks() -> Masks:
    """Run 60 rounds of APFL on the digits, two classes a client."""
    changes = {
        "rounds": 60, "clients_per_round": 10, "eval_every": 60,
        "split": {"rule": "shards", "users": 10, "shards": 2},
    }  # fmt: skip
    it = apfl.APFL(lr=0.5, mu=0.1, init="continuous")
    state: State = run_on_digits(it, **changes)[-1].state
    federation = load_digits(**changes).federation
    clients = sorted(state.clients)
    y = federation.source.y
    has = [[bool(np.any(y[federation.train.rows_of(k)] == c)) for c in range(10)] for k in clients]
    return Masks(sigmoid(np.array([state.clients[k].a for k in clients])), np.array(has))


def draw_masks() -> Picture:
    """Draw the masks of every client as a table."""
    m, has = learn_masks()
    figure, axes = make_panel(
        5.2, 0.34 * len(m) + 0.7, xlim=(0, 10), ylim=(len(m), 0),
        xlabel="output unit (class)", ylabel="client",
        xticks=np.arange(10) + 0.5, xticklabels=range(10),
        yticks=np.arange(len(m)) + 0.5, yticklabels=range(1, len(m) + 1),
    )  # fmt: skip
    axes.grid(visible=False)
    low, high = float(m.min()), float(m.max())
    axes.pcolormesh(m, cmap="Blues", vmin=low, vmax=2 * high - low)
    for (k, c), value in np.ndenumerate(m):
        weight = "bold" if has[k, c] else "normal"
        text = f"{value:.2f}".removeprefix("0")
        axes.text(c + 0.5, k + 0.5, text, ha="center", va="center", fontsize=8.5, fontweight=weight)
    own, others = float(m[has].mean()), float(m[~has].mean())
    caption = (
        "m_k = σ(a) after 60 rounds, one value a class; bold where the client has that class. All began "
        f"at σ(1) = {sigmoid(np.ones(())):.2f}. The mean is {own:.2f} over classes that a client has and "
        f"{others:.2f} over the others."
    )
    alt = f"A table of {len(m)} clients by 10 classes, values from {low:.2f} to {high:.2f}."
    return Picture(figure, alt, caption)


# ---- Meta-SGD: what α becomes -------------------------------------------------------------------------

QUANTILES = (0.5, 0.75, 0.9, 0.99)
META = {"rounds": 100, "clients_per_round": 10, "eval_every": 100}
META_ALPHA = 0.1


@cache
def learn_rates() -> Array:
    """Return Meta-SGD's α on the digits after every round: (rounds + 1, d)."""
    records = run_on_digits(fedmeta.MetaSGD(alpha=META_ALPHA, beta=0.5), **META)
    return np.array([record.state.server.learner.alpha for record in records])


def draw_learnt_rates() -> Picture:
    """Draw what Meta-SGD's α becomes, round by round."""
    alpha = learn_rates()
    figure, axes = make_panel(xlabel="round", ylabel="α of a parameter", xlim=(0, len(alpha) - 1))
    rows = np.quantile(alpha, QUANTILES, axis=1)
    for q, row, k in zip(QUANTILES, rows, (0, 1, 3, 2)):
        axes.plot(row, **line_style(k, marker="none"))
        axes.annotate(
            f"{100 * q:.0f} %", (len(alpha) - 1, row[-1]), (3, 0), textcoords="offset points",
            fontsize=9, va="center",
        )  # fmt: skip
    last = alpha[-1]
    still = float(np.mean(last == META_ALPHA))
    caption = (
        f"A learning rate for each of {alpha.shape[1]} parameters, all {META_ALPHA} at first: quantiles "
        f"over the parameters. After {len(alpha) - 1} rounds they run from {last.min():.2f} to "
        f"{last.max():.2f}, {100 * np.mean(last < 0):.1f} % are negative, and {100 * still:.0f} % have not "
        "moved at all: the gradient there was 0 in support or query. The digits, logistic regression."
    )
    alt = (
        f"Quantiles that fan out from {META_ALPHA}: the 99 % quantile ends at {rows[-1, -1]:.2f}, "
        f"the median at {rows[0, -1]:.2f}."
    )
    return Picture(figure, alt, caption)


#: File of an algorithm → name of a picture → what draws it, in the order of the page.
PICTURES: Mapping[str, Mapping[str, Callable[[], Picture]]] = {
    "fedavg": {"drift": draw_drift},
    "per_fedavg": {"hessian-free": draw_hessian_free},
    "fedcurv": {"ellipses": draw_ellipses},
    "apfl": {"masks": draw_masks},
    "fedmeta": {"meta-sgd-alpha": draw_learnt_rates},
}
