"""Two clients with two parameters: one picture for every algorithm, drawn from `run_round`.

Each client fits y = wᵀx to four rows of its own. So its loss is a bowl, ½(w − c)ᵀA(w − c) and a constant,
and two things can be chosen: where the bowl has its minimum, and how steep it is. The first client's is
steep and the second's is flat: what a method does about clients that differ is then to be seen.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from scipy.optimize import minimize

from fedref import tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.style import COLOURS
from fedref.boundary.values import build, schema
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_client, run_clients, run_round
from fedref.sampling import Plan
from fedref.teach.source import text_of

CLIENT_COLOURS, SERVER_COLOUR = COLOURS[1:3], COLOURS[3]
ROUNDS = (1, 2, 5)
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
STEPS, UNEQUAL = (5, 5), {"fednova": (5, 2)}


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
    state : the arrays of the server's state after it.
    """

    before: Array
    paths: list[Array]
    after: Array
    adapted: list[Array]
    state: list[Array]


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
    rows = np.tile(np.arange(n), (K, every.max(), 1))
    return Plan(
        t, np.arange(K), np.ones(K, int), np.full(K, n), every, np.zeros(K, bool), every, every,
        dict.fromkeys(algorithm.roles, rows),
    )  # fmt: skip


def play_rounds(
    algorithm: AnyAlgorithm, rounds: int = max(ROUNDS), steps: Sequence[int] = STEPS
) -> list[Round]:
    """Run rounds of both clients, and note each client's local steps."""
    X, y = (np.concatenate(parts) for parts in zip(*((D.X, D.y) for D in DATA)))
    part = Part(np.arange(8), np.array([0, 8] if algorithm.pooled else [0, 4, 8]))
    federation, paths = Federation(Source(X, y), part, part), list[Array]()

    def work(_: Any, model: Model, sent: Any, states: Any, data: LocalData) -> Any:
        for k, own in enumerate(states):
            ends = [
                run_client(algorithm, model, sent, own, data._replace(steps=np.full(2, s)), k)
                for s in range(data.steps[k] + 1)
            ]
            paths.append(np.array([first_vector(end) for end in ends]))
        return run_clients(algorithm, model, sent, states, data)

    state, played = State(algorithm.initial(MODEL, START), {}), list[Round]()
    for t in range(rounds):
        before = first_vector(state.server)
        paths.clear()
        plan = plan_of(algorithm, t, steps)
        state, _ = run_round(algorithm, MODEL, state, plan, federation, work=work)
        sent, adapts = algorithm.download(state.server), algorithm.adapts_on
        tested = [
            algorithm.personalised_params(MODEL, sent, state.clients.get(k), D if adapts else None)
            for k, D in enumerate(DATA)
            if algorithm.personalised
        ]
        local = [] if "S" in algorithm.roles else list(paths)  # there a client sends a gradient
        server = [np.asarray(x) for x in tree.leaves(state.server)]
        played.append(Round(before, local, server[0], tested, server))
    return played


def first_vector(value: Any) -> Array:
    """Return the first array of a state: w, w_S or θ."""
    return np.asarray(next(iter(tree.leaves(value))))


def best_point(alpha: float = 0.0) -> Array:
    """Return where the mean of f_k(w − α∇f_k(w)) is smallest; with α = 0 that of the losses."""

    def objective(w: Array) -> float:
        return float(np.mean([MODEL.loss(w - alpha * MODEL.grad(w, D), D) for D in DATA]))

    return np.asarray(minimize(objective, np.zeros(2), tol=1e-12).x)


def draw_rounds(name: str, settings: dict[str, Any] | None = None) -> Figure:
    """Draw rounds 1, 2 and 5 of an algorithm. settings : fields of the algorithm, as `--set` has them."""
    algorithm = make_algorithm(name, settings or {})
    played = play(algorithm, name)
    figure = Figure((10.2, 4.4), layout="constrained")
    panels = figure.subplots(1, len(ROUNDS), sharex=True, sharey=True)
    for axes, t in zip(panels, ROUNDS):
        draw_bowls(axes)
        draw_until(axes, algorithm, played, t)
        axes.set(title=f"round {t}")
    panels[0].annotate("start", START, (6, 4), textcoords="offset points", fontsize=9)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    rates = {key: getattr(algorithm, key, None) for key in ("lr", "alpha", "beta", "mu", "lam")}
    given = [f"{key} = {x:g}" for key, x in rates.items() if isinstance(x, float)]
    figure.suptitle(", ".join([name, *given]), fontsize=10)
    return figure


def play(algorithm: AnyAlgorithm, name: str, rounds: int = max(ROUNDS)) -> list[Round]:
    """Run rounds of an algorithm with its own numbers of steps."""
    with np.errstate(all="ignore"):  # a step that is too long diverges
        return play_rounds(algorithm, rounds, UNEQUAL.get(name, STEPS))


def draw_until(axes: Any, algorithm: AnyAlgorithm, played: Sequence[Round], t: int) -> None:
    """Draw round t, the server's way to it, and the minima."""
    way = np.array([*(r.before for r in played[:t]), played[t - 1].after])
    axes.plot(*way.T, ":", color=SERVER_COLOUR, linewidth=1.2)
    draw_round(axes, played[t - 1])
    axes.plot(*best_point(), "k+", markersize=11, label="minimum of the mean loss")
    alpha = getattr(algorithm, "alpha", 0.0)
    # pFedMe solves a problem instead of a step of size α
    if algorithm.adapts_on and not hasattr(algorithm, "lam") and np.ndim(alpha) == 0 and alpha:
        axes.plot(*best_point(alpha), "kx", markersize=8, label="minimum after a step of size α")


# ---- frames of a slider --------------------------------------------------------------------------


class Slider(NamedTuple):
    """What a slider changes, in how many frames. key : a field of the algorithm, or "round"."""

    algorithm: str
    key: str
    symbol: str
    values: Sequence[float]


SLIDERS = {
    page: Slider(**words["slider"])
    for page, words in tomllib.loads(text_of("pictures.toml")).items()
    if "slider" in words
}


def draw_slider(page: str) -> Figure:
    """Draw all frames into one figure; what belongs to frame i has an id that begins with "fi-"."""
    slider = SLIDERS[page]
    learns = slider.key == "round"
    figure = Figure((10.2, 5.0 if learns else 4.4), layout="constrained")
    panels = figure.subplots(1, 2 if learns or page == "per_fedavg" else 3)
    plain = [axes for axes in panels if not (learns and axes is panels[1])]
    for axes in plain:
        draw_bowls(axes)
    if learns:
        played = play(make_algorithm(slider.algorithm, {}), slider.algorithm, len(slider.values))
        draw_step_sizes(panels[1], played)
    for i, value in enumerate(slider.values):
        before = {id(artist) for axes in panels for artist in axes.get_children()}
        said = f"{slider.symbol} = {value:g}" if slider.symbol != "round" else f"round {value:g}"
        if learns:
            draw_learned(panels, played, int(value))
        else:
            algorithm = make_algorithm(slider.algorithm, {slider.key: float(value)})
            played = play(algorithm, slider.algorithm)
            rounds = {2: (1, 5), 3: (1, 2, 5)}[len(panels)]
            for axes, t in zip(panels, rounds):
                if page == "fedprox" and axes is panels[0]:
                    fedavg = make_algorithm("fedavg", {})
                    draw_until(axes, fedavg, play(fedavg, "fedavg"), 1)
                else:
                    draw_until(axes, algorithm, played, t - (page == "fedprox" and t == 2))
        panels[0].annotate(said, (0.02, 0.98), xycoords="axes fraction", va="top", fontsize=12)
        new = [x for axes in panels for x in axes.get_children() if id(x) not in before]
        for n, artist in enumerate(new):
            for part in (artist, getattr(artist, "arrow_patch", None)):
                if part is not None:
                    part.set_gid(f"f{i}-{n}{'a' * (part is not artist)}")
    titles = {"fedprox": ["FedAvg, round 1", "FedProx, round 1", "FedProx, round 5"]}
    usual = [f"round {t}" for t in ((1, 5) if len(panels) == 2 else (1, 2, 5))]
    for axes, text in zip(plain, titles.get(page, ["θ and its step sizes"] if learns else usual)):
        axes.set(title=text)
    handles = dict(zip(*plain[-1].get_legend_handles_labels()[::-1]))
    signs = [Line2D([], [], **look_of(x)) for x in handles.values()]
    figure.legend(signs, handles, loc="outside lower center", ncols=4)
    return figure


def look_of(line: Any) -> dict[str, Any]:
    """Return the look of a line for a legend that is in every frame."""
    names = ("color", "marker", "markersize", "linestyle", "linewidth", "fillstyle")
    return {name: getattr(line, f"get_{name}")() for name in names}


def draw_learned(panels: Any, played: Sequence[Round], t: int) -> None:
    """Draw Meta-SGD after round t: θ's way, α as an ellipse about it, and what the clients adapt to."""
    axes, curves = panels
    last = played[t - 1]
    (x, y), alpha = last.state
    way = np.array([*(r.before for r in played[:t]), last.after])
    axes.plot(*way.T, "o:", color=SERVER_COLOUR, markersize=2.5, linewidth=1.2, label="θ so far")
    draw_round(axes, last._replace(paths=[]))
    axes.add_patch(Ellipse((x, y), *(2 * alpha), fill=False, ec=SERVER_COLOUR, lw=1.2, ls="--"))
    curves.plot([t, t], alpha, "o", color="black", markersize=7)


def draw_step_sizes(axes: Any, played: Sequence[Round]) -> None:
    """Draw both entries of Meta-SGD's α, round by round."""
    alphas = np.array([r.state[1] for r in played])
    for j, (values, dash) in enumerate(zip(alphas.T, ("-", "--")), 1):
        axes.plot(
            range(1, len(played) + 1), values, dash, color=SERVER_COLOUR, label=f"α, entry {j}"
        )
    axes.set(xlabel="round", title="the learned step sizes α", ylim=(0, None))
    axes.legend()


def draw_bowls(axes: Any) -> None:
    """Draw the contours of both clients' losses: ellipses, as the losses are quadratic."""
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-2.9, 2.9), ylim=(-2.0, 2.9))
    axes.grid(visible=False)
    for k, (colour, (c, *_), D) in enumerate(zip(CLIENT_COLOURS, BOWLS, DATA), 1):
        curvatures, directions = np.linalg.eigh(D.X.T @ D.X / len(D.X))
        angle = np.degrees(np.arctan2(*directions[::-1, 0]))
        for level in (0.1, 0.4, 1.0, 2.0):  # above the minimum
            width, height = 2 * np.sqrt(2 * level / curvatures)
            axes.add_patch(
                Ellipse(c, width, height, angle=angle, fill=False, ec=colour, lw=0.8, alpha=0.55)
            )
        axes.annotate(
            f"client {k}", c, (-16, -24), textcoords="offset points", fontsize=9, color=colour
        )


def draw_round(axes: Any, played: Round) -> None:
    """Draw one round: local steps, the server's average, and the way to each adapted point."""
    for k, (colour, path) in enumerate(zip(CLIENT_COLOURS, played.paths)):
        said = f"{len(path) - 1} local steps of client {k + 1}"
        axes.plot(*path.T, "o-", color=colour, markersize=3.2, linewidth=1.4, label=said)
    if not np.allclose(mean_end(played), played.after, atol=0.02):
        axes.plot(
            *mean_end(played), "ks", fillstyle="none", markersize=6, label="mean of their ends"
        )
    look = {"color": SERVER_COLOUR, "markersize": 8}
    axes.plot(*played.before, "o", fillstyle="none", **look, label="server before the round")
    axes.plot(*played.after, "o", **look, zorder=5, label="server after the round")
    for k, (colour, point) in enumerate(zip(CLIENT_COLOURS, played.adapted)):
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "linestyle": (0, (3, 1.5))}
        axes.annotate("", point, played.after, arrowprops=arrow, zorder=6)
        axes.plot(
            *point,
            "*",
            color=colour,
            markersize=7,
            label=f"model that client {k + 1} is tested with",
        )


def mean_end(played: Round) -> Array:
    """Return the mean of where the local steps end; after them, where a client sends a gradient."""
    return np.mean([path[-1] for path in played.paths] or [played.after], axis=0)
