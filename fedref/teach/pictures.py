"""The pictures of the pages: rounds of two clients, ellipses, noise, two of the proofs.

Each client fits y = wᵀx to four rows of its own. So its loss is a bowl, ½(w − c)ᵀA(w − c) and a constant,
and two things can be chosen: where the bowl has its minimum, and how steep it is. The first client's is
steep and the second's is flat, so that one sees what a method does about clients that differ.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.style import context
from scipy.optimize import minimize

from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS, fedcurv, importance, per_fedavg
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.style import COLOURS, STYLE
from fedref.boundary.values import build, schema
from fedref.models import BinaryLogistic, tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.picture import draw_errors, draw_halves, draw_remainders
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_client, run_clients, run_round
from fedref.sampling import Plan, stream
from fedref.teach.source import text_of

CLIENT_COLOURS, SERVER_COLOUR = COLOURS[1:3], COLOURS[3]
#: The rounds of a still picture, how many are run, and after how many more a server is taken to rest.
ROUNDS, PLAYED, MORE = (1, 2, 5), 12, 88
START = np.array([-0.4, 2.0])
#: Each client's minimum c, and the two directions in which its rows lie: A = (aaᵀ + bbᵀ)/2.
BOWLS = (((1.6, 0.4), (1.75, 0.45), (-0.3, 1.2)), ((-1.5, -0.5), (0.75, -0.3), (0.25, 0.6)))
#: Settings with which the point of a method is seen; every other field has its usual value.
USUAL = {"lr": 0.3, "alpha": 0.5, "beta": 0.4, "mu": 1.0, "lam": 0.5}
SHOWN: dict[str, dict[str, Any]] = {
    "fedmeta-maml": {"beta": 1.0}, "fedmeta-fomaml": {"beta": 1.0}, "fedmeta-sgd": {"beta": 0.1},
    "fedmaml": {"beta": 0.5}, "apfl": {"lr": 0.2, "z": 1, "init": "continuous"},
    "apfl-deng": {"lr": 0.2}, "feddyn": {"lr": 0.2}, "fedadagrad": {"server_lr": 0.4},
    "fedyogi": {"server_lr": 0.2}, "fedadam": {"server_lr": 0.2},
    "fedavgm": {"lr": 0.1, "momentum": 0.5}, "pfedme": {"lr": 0.2, "lam": 1.0, "alpha": 0.4, "beta": 1.0},
}  # fmt: skip
#: Each client's local steps, five but where the method is about clients that take more or fewer.
STEPS, UNEQUAL, MOST = (5, 5), {"fednova": (5, 2)}, 100


@dataclass(frozen=True)
class LeastSquares(Model):
    """f(w; D) = mean of (wᵀx − y)²/2: two parameters, real targets."""

    features: int = 2

    @property
    def d(self) -> int:
        return self.features

    def init(self, rng: np.random.Generator) -> Array:
        return START

    def residuals(self, w: Array, D: Batch) -> Array:
        return np.asarray((D.X @ w[..., None])[..., 0] - D.y)

    def loss(self, w: Array, D: Batch) -> Array:
        return (self.residuals(w, D) ** 2).mean(-1) / 2

    def grad(self, w: Array, D: Batch) -> Array:
        return (D.X.mT @ self.residuals(w, D)[..., None])[..., 0] / D.X.shape[-2]

    def predict(self, w: Array, X: Array) -> Array:
        return np.asarray((X @ w[..., None])[..., 0])


MODEL = LeastSquares()


def rows_of_bowl(c: Any, a: Any, b: Any) -> Batch:
    """Return four rows whose loss is the bowl. A constant error of ½ does not change the gradient."""
    X = np.array([a, np.negative(a), b, np.negative(b)])
    return Batch(X, X @ np.array(c) - 0.5)


DATA = [rows_of_bowl(*bowl) for bowl in BOWLS]


class Round(NamedTuple):
    """One round: before, after : the server's parameters (2,); paths : each client's local steps.

    adapted : the point that each client is tested with after the round, where the method adapts.
    alpha : the step sizes that it has learned, where it learns them.
    rest : where the server comes to rest, or None if it has not within 100 rounds.
    """

    before: Array
    paths: list[Array]
    after: Array
    adapted: list[Array]
    alpha: Array | None
    rest: Array | None = None


def make_algorithm(name: str, settings: dict[str, Any]) -> AnyAlgorithm:
    """Return the algorithm with the settings of its picture, and these instead. Raises ConfigError."""
    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    cls = ALGORITHMS[name]
    usual = {key: USUAL[key] for key in schema(cls) if key in USUAL}
    algorithm: AnyAlgorithm = build(cls, usual | SHOWN.get(name, {}) | settings, name)
    return algorithm


def plan_of(algorithm: AnyAlgorithm, t: int, steps: Sequence[int]) -> Plan:
    """Return a round with all rows of both clients in every batch; the centralised learner is one."""
    K, n = (1, 8) if algorithm.pooled else (2, 4)
    every = np.full(K, 1) if "S" in algorithm.roles else np.array(steps[:K])
    rows = dict.fromkeys(algorithm.roles, np.tile(np.arange(n), (K, every.max(), 1)))
    k, once, sizes, nobody = np.arange(K), np.ones(K, int), np.full(K, n), np.zeros(K, bool)
    return Plan(t, k, once, sizes, every, nobody, every, every, rows)


def federation_of(pooled: bool) -> Federation:
    """Return both clients' rows, or one client that has all."""
    X, y = (np.concatenate(parts) for parts in zip(*((D.X, D.y) for D in DATA)))
    part = Part(np.arange(8), np.array([0, 8] if pooled else [0, 4, 8]))
    return Federation(Source(X, y), part, part)


def play_rounds(
    algorithm: AnyAlgorithm, rounds: int = PLAYED, steps: Sequence[int] = STEPS, more: int = 0
) -> list[Round]:
    """Run rounds of both clients, and note each client's local steps; where it rests after `more`."""
    federation, paths = federation_of(algorithm.pooled), list[Array]()

    def work(_: Any, model: Model, sent: Any, states: Any, data: LocalData) -> Any:
        for k, kept in enumerate(states):
            ends = [
                run_client(algorithm, model, sent, kept, data._replace(steps=np.full(2, s)), k)
                for s in range(data.steps[k] + 1)
            ]
            paths.append(np.array([first_vector(end) for end in ends]))
        return run_clients(algorithm, model, sent, states, data)

    state, played = State(algorithm.initial(MODEL, START), {}), list[Round]()
    for t in range(rounds):
        before, plan = first_vector(state.server), plan_of(algorithm, t, steps)
        paths.clear()
        state, _ = run_round(algorithm, MODEL, state, plan, federation, work=work)
        sent, adapts = algorithm.download(state.server), algorithm.adapts_on
        tested = [
            algorithm.personalised_params(MODEL, sent, state.clients.get(k), D if adapts else None)
            for k, D in enumerate(DATA)
            if algorithm.personalised
        ]
        local = [] if "S" in algorithm.roles else list(paths)  # there a client sends a gradient
        alpha = getattr(getattr(state.server, "learner", None), "alpha", None)
        played.append(Round(before, local, first_vector(state.server), tested, alpha))
    later = range(rounds, rounds + more)
    rest = resting_point(algorithm, state, later, steps) if more else None
    return [r._replace(rest=rest) for r in played]


def resting_point(
    algorithm: AnyAlgorithm, state: State, ts: Sequence[int], steps: Sequence[int]
) -> Array | None:
    """Return where the server is after rounds ts, or None where it still moves, or has diverged."""
    federation = federation_of(algorithm.pooled)
    for t in ts:
        before, plan = first_vector(state.server), plan_of(algorithm, t, steps)
        state, _ = run_round(algorithm, MODEL, state, plan, federation, work=run_clients)
    after = first_vector(state.server)
    return after if np.linalg.norm(after - before) < 1e-4 else None


def first_vector(value: Any) -> Array:
    """Return the first array of a state: w, w_S or θ."""
    return np.asarray(next(iter(tree.leaves(value))))


def best_point(alpha: float = 0.0) -> Array:
    """Return where the mean of f_k(w − α∇f_k(w)) is smallest; with α = 0 that of the losses."""

    def objective(w: Array) -> float:
        return float(np.mean([MODEL.loss(w - alpha * MODEL.grad(w, D), D) for D in DATA]))

    return np.asarray(minimize(objective, np.zeros(2), tol=1e-12).x)


# ---- drawing ---------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """What a panel shows: rounds of an algorithm up to `round`, or the step sizes that it learns."""

    title: str
    algorithm: str
    round: int = 1
    shows: str = "rounds"


class Slider(NamedTuple):
    """What a slider changes, a field of an algorithm or "round", and the panels that it changes."""

    algorithm: str
    key: str
    symbol: str
    values: Sequence[float]
    panels: Sequence[Sequence[Any]]


WORDS = tomllib.loads(text_of("pictures.toml"))
SLIDERS = {page: Slider(**x["slider"]) for page, x in WORDS.items() if "slider" in x}
#: What a line in the legend has of one in a panel.
LOOK = ("color", "marker", "markersize", "linestyle", "linewidth", "fillstyle")
#: A panel of a frame, and the settings of its algorithm in it.
View = tuple[Panel, dict[str, Any]]


def draw_rounds(name: str, settings: dict[str, Any] | None = None) -> Figure:
    """Draw rounds 1, 2 and 5 of an algorithm. Raises ConfigError.

    settings : fields of the algorithm, as `--set` has them, and "steps", each client's local steps.
    """
    algorithm, _ = set_up(name, settings or {})
    figure = draw_frames({"": [(Panel(f"round {t}", name, t), settings or {}) for t in ROUNDS]})
    rates = {key: getattr(algorithm, key, None) for key in USUAL}
    given = [f"{key} = {x:g}" for key, x in rates.items() if isinstance(x, float)]
    figure.suptitle(", ".join([name, *given]), fontsize=10)
    return figure


def draw_slider(page: str) -> Figure:
    """Draw all frames of a slider into one figure."""
    slider, frames = SLIDERS[page], dict[str, list[View]]()
    for x in slider.values:
        text = f"{slider.symbol}{'' if slider.key == 'round' else ' ='} {x:g}"
        frames[text] = [view_at(slider, x, Panel(*panel)) for panel in slider.panels]
    return draw_frames(frames)


def view_at(slider: Slider, x: float, panel: Panel) -> View:
    """Return a panel where the slider stands at x; what it changes may be no setting of the panel's."""
    if slider.key == "round":
        return panel._replace(round=int(x)), {}
    known = schema(ALGORITHMS[panel.algorithm])
    return panel, {slider.key: float(x)} if slider.key in known else {}


def draw_frames(frames: Mapping[str, Sequence[View]]) -> Figure:
    """Draw frames over each other; what belongs to frame i has an id that begins with "fi-".

    frames : what is said of a frame → what its panels show.
    """
    first = [panel for panel, _ in next(iter(frames.values()))]
    figure = Figure((10.2, 4.4 if len(first) > 2 else 5.0), layout="constrained")
    panels = list(figure.subplots(1, len(first)))
    for axes, panel in zip(panels, first):
        axes.set(title=panel.title)
        if panel.shows == "rounds":
            draw_bowls(axes)
    panels[0].annotate("start", START, (6, 4), textcoords="offset points", fontsize=9)
    for i, (text, views) in enumerate(frames.items()):
        before = {id(artist) for axes in panels for artist in axes.get_children()}
        for axes, (panel, settings) in zip(panels, views):
            algorithm, played = play(panel.algorithm, tuple(settings.items()))
            SHOWS[panel.shows](axes, algorithm, played, panel.round)
        panels[0].annotate(text, (0.02, 0.98), xycoords="axes fraction", va="top", fontsize=12)
        new = [x for axes in panels for x in axes.get_children() if id(x) not in before]
        for n, artist in enumerate(new):
            for part in (artist, getattr(artist, "arrow_patch", None)):
                if part is not None:
                    part.set_gid(f"f{i}-{n}{'' if part is artist else 'a'}")
    handles = {text: x for axes in panels for x, text in zip(*axes.get_legend_handles_labels())}
    looks = ({name: getattr(x, f"get_{name}")() for name in LOOK} for x in handles.values())
    signs = [Line2D([], [], **look) for look in looks]  # the lines have ids, and are in every frame
    figure.legend(signs, handles, loc="outside lower center", ncols=3)
    return figure


@cache
def play(name: str, settings: tuple[tuple[str, Any], ...]) -> tuple[AnyAlgorithm, list[Round]]:
    """Return an algorithm and its rounds."""
    algorithm, steps = set_up(name, dict(settings))
    with np.errstate(all="ignore"):  # a step that is too long diverges
        return algorithm, play_rounds(algorithm, steps=steps, more=MORE)


def set_up(name: str, settings: dict[str, Any]) -> tuple[AnyAlgorithm, Sequence[int]]:
    """Return an algorithm and each client's local steps. Raises ConfigError."""
    algorithm = make_algorithm(name, {k: x for k, x in settings.items() if k != "steps"})
    if "steps" not in settings:
        return algorithm, UNEQUAL.get(name, STEPS)
    steps = settings["steps"]
    if "S" in algorithm.roles:
        raise ConfigError(f"steps: a client of {name} sends a gradient, and takes no local steps")
    if type(steps) is not int or not 1 <= steps <= MOST:
        raise ConfigError(f"steps is {steps!r}, expected an integer from 1 to {MOST}")
    return algorithm, (steps, steps)


def draw_bowls(axes: Any) -> None:
    """Draw the contours of both clients' losses: ellipses, as the losses are quadratic."""
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-2.9, 2.9), ylim=(-2.0, 2.9))
    axes.grid(visible=False)
    for k, (colour, (c, *_), D) in enumerate(zip(CLIENT_COLOURS, BOWLS, DATA), 1):
        curvatures, directions = np.linalg.eigh(D.X.T @ D.X / len(D.X))
        look: Any = {"angle": np.degrees(np.arctan2(*directions[::-1, 0])), "fill": False}
        for level in (0.1, 0.4, 1.0, 2.0):  # above the minimum
            size = 2 * np.sqrt(2 * level / curvatures)
            axes.add_patch(Ellipse(c, *size, **look, ec=colour, lw=0.8, alpha=0.55))
        offset: Any = {"textcoords": "offset points", "fontsize": 9, "color": colour}
        axes.annotate(f"client {k}", c, (-16, -24), **offset)


def draw_until(axes: Any, algorithm: AnyAlgorithm, played: Sequence[Round], t: int) -> None:
    """Draw the server's way to round t, that round, and the minima; α as an ellipse, if it is learned."""
    last, alpha = played[t - 1], getattr(algorithm, "alpha", 0.0)
    path = np.array([*(r.before for r in played[:t]), last.after])
    axes.plot(*path.T, "o:", color=SERVER_COLOUR, markersize=2.5, linewidth=1.2)
    draw_round(axes, last)
    axes.plot(*best_point(), "k+", markersize=11, label="minimum of the mean loss")
    if last.rest is not None:
        look: Any = {"color": SERVER_COLOUR, "markersize": 7, "fillstyle": "none"}
        axes.plot(*last.rest, "D", **look, label="where the server comes to rest")
    if last.alpha is not None:
        x, y = last.after
        dashed: Any = {"fill": False, "ec": SERVER_COLOUR, "lw": 1.2, "ls": "--"}
        axes.add_patch(Ellipse((x, y), *(2 * last.alpha), **dashed))
    # pFedMe solves a problem instead of a step of size α
    elif algorithm.adapts_on and not hasattr(algorithm, "lam") and alpha:
        axes.plot(*best_point(alpha), "kx", markersize=8, label="minimum after a step of size α")


def draw_round(axes: Any, played: Round) -> None:
    """Draw one round: local steps, the server's average, and the way to each adapted point."""
    for k, (colour, path) in enumerate(zip(CLIENT_COLOURS, played.paths), 1):
        steps = f"{len(path) - 1} local steps of client {k}"
        axes.plot(*path.T, "o-", color=colour, markersize=3.2, linewidth=1.4, label=steps)
    if not np.allclose(mean_end(played), played.after, atol=0.02):
        look = {"fillstyle": "none", "markersize": 6, "label": "mean of their ends"}
        axes.plot(*mean_end(played), "ks", **look)
    server: Any = {"color": SERVER_COLOUR, "markersize": 8}
    axes.plot(*played.before, "o", fillstyle="none", **server, label="server before the round")
    axes.plot(*played.after, "o", **server, zorder=5, label="server after the round")
    for k, (colour, point) in enumerate(zip(CLIENT_COLOURS, played.adapted), 1):
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "linestyle": (0, (3, 1.5))}
        axes.annotate("", point, played.after, arrowprops=arrow, zorder=6)
        text = f"model that client {k} is tested with"
        axes.plot(*point, "*", color=colour, markersize=7, label=text)


def draw_step_sizes(axes: Any, algorithm: AnyAlgorithm, played: Sequence[Round], t: int) -> None:
    """Draw both entries of Meta-SGD's α, round by round, and where they are after round t."""
    alphas = np.array([r.alpha for r in played])
    for j, dash in enumerate(("-", "--")):
        look: Any = {"color": SERVER_COLOUR, "label": f"α, entry {j + 1}"}
        axes.plot(range(1, len(played) + 1), alphas[:, j], dash, **look)
    axes.plot([t, t], alphas[t - 1], "o", color="black", markersize=7)
    axes.set(xlabel="round", ylim=(0, None))


SHOWS = {"rounds": draw_until, "step sizes": draw_step_sizes}


def mean_end(played: Round) -> Array:
    """Return the mean of where the local steps end; after them, where a client sends a gradient."""
    return np.mean([path[-1] for path in played.paths] or [played.after], axis=0)


# ---- other pictures -------------------------------------------------------------------------------

#: The levels of a penalty, and two clients' bowls.
PENALTIES = [0.005, 0.02, 0.05]
FLAT_BOWLS = (((0.2, 1.2), (0.4, 0.0), (0.0, 2.4)), ((1.6, 0.4), (1.8, 0.0), (0.0, 0.5)))


def draw_ellipses() -> Figure:
    """Draw the ellipses of FedCurv's penalties and the circle of FedProx's."""
    figure = Figure((5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(aspect="equal", xlabel="$w_1$", ylabel="$w_2$")
    x, y = np.meshgrid(np.linspace(-1.0, 2.4, 60), np.linspace(-0.4, 1.9, 60))
    theta = [np.array(solution) for solution, *_ in FLAT_BOWLS]
    w0, data = np.mean(theta, axis=0), [rows_of_bowl(*bowl) for bowl in FLAT_BOWLS]
    I = [importance.fisher(MODEL, w, D) for w, D in zip(theta, data)]

    def circle(w: Array) -> Array:
        return np.sum((w - w0) ** 2, -1) / 2

    penalties: list[Any] = [partial(fedcurv.penalty, pairs=[x], lam=1.0) for x in zip(I, theta)]
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


#: The round whose reply of client 2 is lost, and how many are drawn.
LOST, FOLLOWED = 4, 16


def play_lost_reply(keeps: bool, rounds: int = FOLLOWED) -> Array:
    """Return ‖∇f(x)‖, ‖c − mean c_i‖ and ‖c‖ after each round of SCAFFOLD, (rounds, 3).

    In one round client 2 does its work, and the server does not get it. keeps : whether its c_i is the new
    one nevertheless.
    """
    algorithm, federation = make_algorithm("scaffold", {}), federation_of(pooled=False)
    state, norms = State(algorithm.initial(MODEL, START), {}), list[Any]()
    for t in range(rounds):
        plan = plan_of(algorithm, t, STEPS)
        worked, _ = run_round(algorithm, MODEL, state, plan, federation)
        if t + 1 == LOST:
            late = plan._replace(straggler=np.array([False, True]))
            counted, _ = run_round(algorithm, MODEL, state, late, federation)
            worked = counted._replace(clients=worked.clients if keeps else counted.clients)
        state = worked
        w, c = state.server
        gradient = np.mean([MODEL.grad(w, D) for D in DATA], axis=0)
        mean = np.mean([state.clients[k].c_i for k in range(2)], axis=0)
        norms.append([np.linalg.norm(x) for x in (gradient, c - mean, c)])
    return np.array(norms)


def draw_lost_reply() -> Figure:
    """Draw where SCAFFOLD comes to rest after one lost reply, with the new c_i and with the old one."""
    figure = Figure((5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    wrong, right = play_lost_reply(keeps=True), play_lost_reply(keeps=False)
    for norms, text, colour, line in (
        (wrong[:, 0], "mean gradient, new $c_i$ kept", COLOURS[2], "-"),
        (wrong[:, 1], "$c$ − mean $c_i$, new $c_i$ kept", COLOURS[0], ":"),
        (wrong[:, 2], "$c$, new $c_i$ kept", COLOURS[1], "--"),
        (right[:, 0], "mean gradient, old $c_i$ kept", COLOURS[3], "-"),
    ):
        shown = np.where(norms > 1e-12, norms, np.nan)  # not rounding
        axes.semilogy(np.arange(1, FOLLOWED + 1), shown, line, color=colour, label=text)
    axes.set(xlabel="round", ylabel="norm", ylim=(1e-5, 1), xticks=range(2, FOLLOWED + 1, 2))
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2)
    return figure


#: How often estimates of a meta-gradient are drawn, how many of them are shown, the batch and the inner step.
DRAWN, FEW, BATCH, ALPHA = 20000, 100, 4, 0.6


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
    panels = figure.subplots(1, 4, sharex=True, sharey=True)
    for axes, (name, points) in zip(panels, clouds.items()):
        mean = points.mean(0)
        axes.plot(*points[:FEW].T, ".", color=COLOURS[6], markersize=2.5, label="one estimate")
        axes.plot(*mean, "o", color=COLOURS[2], label=f"mean of {DRAWN}")
        axes.plot(*truth, "k+", markersize=12, label="truth, from all rows")
        off, error = np.linalg.norm(mean - truth), np.linalg.norm(points.std(0)) / np.sqrt(DRAWN)
        axes.set(title=f"{name}\noff by {off:.3f} ± {error:.3f}")
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.set(xlim=truth[0] + np.array([-2.0, 2.0]), ylim=truth[1] + np.array([-1.6, 1.6]))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


PICTURES: Mapping[str, Callable[[], Figure]] = {
    **{f"rounds-{name}": partial(draw_rounds, name) for name in ALGORITHMS},
    "ellipses": draw_ellipses,
    "noise": draw_noise,
    "lost-reply": draw_lost_reply,
    "complex-step": partial(draw_halves, (5.6, 4.6), 0, draw_errors),
    "taylor-slope": partial(draw_halves, (5.6, 4.6), 0, draw_remainders),
}


def draw(make: Callable[..., Figure], *arguments: Any) -> Figure:
    """Make a picture in the style of all of fedref's."""
    with context(STYLE):
        return make(*arguments)
