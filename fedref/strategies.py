"""Hypothesis strategies for property tests: models, batches, algorithms, federations, whole rounds.

    from hypothesis import given
    from fedref import checks, strategies

    @given(strategies.problems())
    def test_the_gradient(p):
        assert checks.check_gradient(lambda w: p.model.loss(w, p.D), my_gradient(p), p.w).ok

Everything drawn is small, and shrinks: few clients, rows and features first, and numbers towards 0, 1, −1
and halves, so that a failing example can be computed by hand. Two things are never drawn unless asked
for: a point on a kink (of ReLU, hinge, max), where every slope between two is right, and an answer that
is rounding alone, to which no relative error can be taken. `pip install "fedref[strategies]"` installs
Hypothesis.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.draws import shrinking, sources
from fedref.draws.shrinking import NUMBERS, Draw, Strategy, arrays, drawn, smallest
from fedref.draws.sources import FAMILIES, Trace
from fedref.judge.compare import FEW_DIGITS, KINK, ROUNDING, is_clear, measure_condition
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array

# isort: split
from hypothesis import assume
from hypothesis import strategies as st

__all__ = [
    "FAMILIES", "NUMBERS", "Problem", "Trace", "algorithms", "arrays", "batches", "directions", "federations",
    "hyperparameters", "models", "plans", "problems", "smallest", "traces",
]  # fmt: skip

# ---- numbers, models, batches --------------------------------------------------------------------


def directions(d: int) -> Strategy:
    """Draw a vector (d,) that is not 0.

    d : its length, ≥ 1.
    """
    return arrays(d).filter(np.any)


def models(*families: str) -> Strategy:
    """Draw a model of 1 to 3 features, with and without L2.

    families : names of `fedref.models.MODELS`, else ConfigError (default: all).
    """
    for name in families:
        if name not in FAMILIES:
            raise ConfigError(unknown("family", name, FAMILIES))
    return drawn(sources.draw_model, *families)


@st.composite
def batches(
    draw: Draw, model: Model, most: int = 3, weights: bool = False, empty: bool = False
) -> Batch:
    """Draw a batch, also with one class alone.

    model : a `Model`, whose features and labels are drawn.
    most : at most so many rows.
    weights : also draw D.s, or none; a weight of 0 is padding, and not all are 0.
    empty : whether a batch may have no row.
    """
    source = shrinking.HypothesisSource(draw)
    D = sources.draw_batch(source, model, source.choose(range(0 if empty else 1, most + 1)))
    return Batch(**D, **(sources.draw_weights(source, len(D["y"])) if weights else {}))


class Problem(NamedTuple):
    """A model with a point w (d,), a direction v (d,) and a batch."""

    model: Any
    w: Array
    v: Array
    D: Batch


@st.composite
def problems(draw: Draw, /, model: Any = None, kinks: bool = False, **options: Any) -> Problem:
    """Draw a `Problem`: a model, w (d,), v (d,) that is not 0, and a batch.

    model : a model, or a strategy for one (None: any of fedref's).
    kinks : also draw points on a kink, ties of a maximum, and answers that are rounding alone.
    options : those of `batches`: most, weights, empty.
    """
    m = draw(drawn_or_given(model, models))
    p = Problem(m, draw(arrays(m.d)), draw(directions(m.d)), draw(batches(m, **options)))
    ways = p.v, p.v + np.sin(1 + np.arange(m.d))  # at a kink Hv along the second jumps

    def outputs(w: Array) -> list[Array]:
        return [m.loss(w, p.D), m.grad(w, p.D), *(m.hvp(w, v, p.D) for v in ways)]

    assume(kinks or is_steady(outputs, p.w, FEW_DIGITS))
    return p


def drawn_or_given(x: Any, default: Callable[[], Strategy]) -> Strategy:
    """Return a strategy for x: its own, or of x alone; the default for None."""
    if isinstance(x, str | type):
        raise TypeError(f"{x!r} is given, expected an instance of a class, or a strategy for one")
    return default() if x is None else x if isinstance(x, st.SearchStrategy) else st.just(x)


def is_steady(f: Callable[[Array], Iterable[Any]], w: Array, least: float = ROUNDING) -> bool:
    """Return whether the outputs of f are clear at w, and none jumps close to it."""

    def outputs(given: Mapping[str, Array]) -> dict[str, Any]:
        return {str(i): np.asarray(x, float) for i, x in enumerate(f(given["w"]))}

    with np.errstate(all="ignore"):
        at_w = outputs({"w": w})
        clear = is_clear(*at_w.values(), least=least)
        return clear and measure_condition(outputs, {"w": w}, at_w) < KINK


# ---- algorithms, federations, rounds -------------------------------------------------------------


def hyperparameters(cls: type[AnyAlgorithm]) -> Strategy:
    """Draw a table of an algorithm's fields, each within its bounds or choices.

    cls : the algorithm's class, one of fedref's or your own.
    """
    return drawn(sources.draw_hyperparameters, cls)


def algorithms(*names: str | type[AnyAlgorithm], **values: Any) -> Strategy:
    """Draw an algorithm with hyperparameters drawn.

    names : names or classes, else ConfigError (default: all of fedref's).
    values : hyperparameters that are given, as in `algorithms("fedprox", mu=0.0)`.
    """
    for name in names:
        if isinstance(name, str) and name not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    kinds = st.sampled_from(names or [*ALGORITHMS])
    return kinds.flatmap(lambda kind: drawn(sources.draw_algorithm, kind, **values))


def federations(model: Model, clients: int = 3, most: int = 3, test: int = 1) -> Strategy:
    """Draw a `Federation` of a few clients.

    model : a `Model`, whose features and labels are drawn.
    clients : from 1 to so many clients.
    most : from 1 to so many training rows each.
    test : from 0 to so many test rows each.
    """
    return drawn(sources.draw_federation, model, clients, most, test)


def plans(roles: Sequence[str], sizes: Sequence[int], round: int = 0) -> Strategy:
    """Draw who takes part in a round, and with which rows: batches of 1 or 2 of the client's rows.

    roles : the names of the batches that a step takes, such as ("D", "D1", "D2").
    sizes : n_k, the training rows of each client, (N,).
    round : the round's number, from 0.
    Clients miss the round, were drawn twice, straggle, do 1 or 2 steps (one, where an
    episode is a round); a support may be empty.
    """
    return drawn(sources.draw_plan, roles, sizes, round)


@st.composite
def traces(
    draw: Draw, algorithm: Any = None, model: Any = None, *, clients: int | Sequence[int] = 3,
    rounds: int = 3, kinks: bool = False,
) -> Trace:  # fmt: skip
    """Draw a `Trace`: a few rounds of a few clients.

    algorithm : an `Algorithm`, or a strategy for one (None: any of fedref's).
    model : a `Model`, or a strategy for one (None: any of fedref's).
    clients : from 1 to so many clients, or a list of numbers to choose from.
    rounds : from 1 to so many rounds.
    kinks : also draw rounds that cross a kink or a threshold, and states that are rounding alone.
    """
    a, m = draw(drawn_or_given(algorithm, algorithms)), draw(drawn_or_given(model, models))
    trace = sources.draw_trace(shrinking.HypothesisSource(draw), a, m, clients, rounds)

    def states(w: Array) -> list[Any]:
        run = trace._replace(w=w).run(False)
        return [x for s in run for x in tree.leaves((s.server, *s.clients.values()))]

    assume(kinks or is_steady(states, trace.w))
    return trace
