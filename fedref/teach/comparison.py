"""Rounds of the two bowls with a student's expression beside the right ones: a picture and its words."""

from itertools import repeat
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fedref import spec
from fedref.boundary.style import COLOURS
from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.judge.adapter import RUNS, clients_of, settings
from fedref.models.numerics import Array
from fedref.teach import pictures
from fedref.teach.exercises import Exercise
from fedref.teach.verdict import Answer, Raised, StudentFile

#: Rounds; and how little the server moves in the last one where it rests.
ROUNDS, STILL = 40, 1e-4
#: Algorithms whose clients are tested after one step of size α.
ONE_STEP = ("per-fedavg", "per-fedavg-fo", "per-fedavg-hf")
#: The loss of the bowls, as the specification writes one.
RISK = spec.Risk(lambda w, X: X @ w, lambda z, y: (z - y) ** 2 / 2, None)


class Comparison(NamedTuple):
    """What the server of an algorithm does in the bowls: the right path and yours, (rounds + 1, 2).

    alpha : the size of the step after which a client is tested, 0 where it takes none.
    """

    alpha: float
    right: Array
    yours: Array

    @property
    def target(self) -> tuple[str, Array]:
        """What a server is measured from: by name, and where it is."""
        cross = pictures.best_point(self.alpha)
        return "the slanted cross" if self.alpha else "the cross", cross

    def words(self) -> str:
        """Say where the server comes to rest, and where the right one does."""
        return f"in the bowls yours {self.describe(self.yours)}; the right one {self.describe(self.right)}"

    def describe(self, path: Array) -> str:
        name, cross = self.target
        if not np.all(np.isfinite(path)) or np.abs(path).max() > 1e6:
            return "leaves the picture: it diverges"
        away = f"{np.linalg.norm(path[-1] - cross):.3f} from {name}"
        if np.linalg.norm(path[-1] - path[-2]) < STILL:
            return f"rests {away}"
        return f"is {away} after {len(path) - 1} rounds, and still moves"


def play_spec(exercise: Exercise) -> Array:
    """Return the server's parameters from the start on, as the specification's own loop has them."""
    algorithm, steps = pictures.set_up(exercise.algorithm, dict(exercise.shown))
    both = pictures.federation_of(pooled=False)
    data = {"X": both.source.X, "y": both.source.y, "offsets": both.train.offsets}
    plans = (pictures.plan_of(algorithm, t, steps)._asdict() for t in range(ROUNDS))
    rounds = (clients_of(plan, data, drop=False) for plan in plans)
    h = SimpleNamespace(**vars(algorithm), shapes=pictures.MODEL.shapes)
    h = settings(exercise.algorithm, h, both.clients, repeat(1.0))
    _, loop = RUNS[exercise.algorithm]
    path = [pictures.START]
    with np.errstate(all="ignore"):
        for state in loop(RISK, pictures.START, rounds, h):
            w = np.asarray(state[0] if isinstance(state, tuple) else state, float)
            first = w.reshape(-1, len(pictures.START))[0]  # of Meta-SGD's (θ, α)
            path.append(first.copy())
    return np.array(path)


def compare(exercise: Exercise, text: str, where: str, seconds: float) -> Comparison | str:
    """Return both paths, or one line on why the student's file has none.

    It runs in a process of its own. Raises TimeoutError, ChildProcessError as `verdict` does.
    """
    algorithm, _ = pictures.set_up(exercise.algorithm, dict(exercise.shown))
    right = play_spec(exercise)
    with SubprocessRunner(fork=True) as runner:
        yours = StudentFile(exercise, text, where, seconds).run(runner, play_student)
    alpha = getattr(algorithm, "alpha", 0.0) if exercise.algorithm in ONE_STEP else 0.0
    return yours if isinstance(yours, str) else Comparison(alpha, right, yours)


def play_student(answer: Answer) -> Array | Raised:
    """Return the path with a student's function in the specification's place, or one line."""
    with answer.exercise.replaced_by(answer.function):
        path = play_spec(answer.exercise)
    return path if len(path) == ROUNDS + 1 else Raised(f"{len(path) - 1} rounds of {ROUNDS}")


def draw(both: Comparison) -> Figure:
    """Draw both servers' paths over the clients' bowls."""
    figure = Figure((6.4, 6.0), layout="constrained")
    axes: Any = figure.subplots()
    pictures.draw_bowls(axes)
    axes.annotate("start", pictures.START, (6, 4), textcoords="offset points", fontsize=9)
    for text, path, colour, dash in (
        ("the right one", both.right, pictures.SERVER_COLOUR, "o:"),
        ("yours", both.yours, COLOURS[0], "s--"),
    ):
        shown = path[np.all(np.abs(path) < 1e3, axis=1)]  # NaN is not, either
        axes.plot(*shown.T, dash, color=colour, markersize=3, linewidth=1.2, label=text)
        axes.plot(*shown[-1], "D", color=colour, markersize=8, fillstyle="none", zorder=6)
    name, cross = both.target
    meaning = "minimum after a step of size α" if both.alpha else "minimum of the mean loss"
    axes.plot(*cross, "kx" if both.alpha else "k+", markersize=10, label=f"{name}: {meaning}")
    axes.set_title(both.words().replace("; ", "\n"), fontsize=9)
    figure.legend(loc="outside lower center", ncols=1)
    return figure
