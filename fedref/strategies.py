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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import inf
from random import Random
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from fedref import spec, tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import schema
from fedref.judge.answer import client_of
from fedref.judge.compare import FEW_DIGITS, KINK, ROUNDING, is_clear, measure_condition
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import PADDING, Plan

try:
    from hypothesis import HealthCheck, Phase, assume, errors, find, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise ConfigError(
        'fedref.strategies needs Hypothesis: pip install "fedref[strategies]"'
    ) from error

Draw = Any
Strategy = st.SearchStrategy[Any]

#: Numbers of a case, the simplest first; step sizes and weights of penalties, which are not 0.
NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.25, 1.5)
RATES = (1.0, 0.5, 0.25, 0.75, 2.0)
# ---- numbers, models, batches --------------------------------------------------------------------


def arrays(*shape: int, numbers: Sequence[float] = NUMBERS) -> Strategy:
    """Draw an array of this shape with entries from `numbers`."""
    n = int(np.prod(shape))
    drawn = st.lists(st.sampled_from(numbers), min_size=n, max_size=n)
    return drawn.map(lambda x: np.reshape(np.array(x, float), shape))


def directions(d: int) -> Strategy:
    """Draw a vector (d,) that is not 0."""
    return arrays(d).filter(np.any)


def upto(most: int) -> Strategy:
    """Draw a number from 1 to `most`: small ones first, and mostly the last."""
    return st.sampled_from([*range(1, most), *[most] * most])


def drawn_or_given(x: Any, default: Callable[[], Strategy]) -> Strategy:
    """Return a strategy for x: its own, or of x alone; the default for None."""
    return default() if x is None else x if isinstance(x, st.SearchStrategy) else st.just(x)


small, l2, bias = st.integers(1, 3), st.sampled_from([0.0, 0.5]), st.booleans()
smooth = st.sampled_from(["tanh", "elu", "relu"])

#: Images (H, W, c) of a CNN with its channels and the size of its kernels.
IMAGES = (
    ((2, 2), (1,), 1), ((3, 3), (1,), 2), ((2, 3, 2), (2,), 1), ((4, 4), (2, 1), 1), ((3, 4, 2), (2,), 2),
)  # fmt: skip
#: Family → its models, the smallest first.
FAMILIES: Mapping[str, Strategy] = {
    "binary-logistic": st.builds(BinaryLogistic, small, l2, bias),
    "logistic": st.builds(Logistic, small, st.integers(2, 3), l2),
    "svm": st.builds(LinearSVM, small, l2, st.booleans(), bias),
    "mlp": st.builds(
        MLP, small, st.sampled_from([(1,), (), (2,), (2, 1)]), st.integers(2, 3), smooth, l2
    ),
    "cnn": st.one_of([
        st.builds(
            CNN, *map(st.just, shape), st.integers(1, 2), st.integers(2, 3),
            st.sampled_from(["elu", "relu", "tanh"]), st.sampled_from(["mean", "max"]), l2,
        ) for shape in IMAGES
    ]).filter(lambda m: m.activation != "tanh" or m.pool == "mean"),  # saturated maxima tie
    "lstm": st.builds(
        LSTM, st.integers(1, 2), st.integers(2, 3), small, st.integers(1, 2),
        st.sampled_from([(1,), (2,), (1, 1)]), st.sampled_from(["last", "mean"]), l2,
    ),
}  # fmt: skip


def models(*families: str) -> Strategy:
    """Draw a model of these families (default: all), of 1 to 3 features, with and without L2."""
    for name in families:
        if name not in FAMILIES:
            raise ConfigError(unknown("family", name, FAMILIES))
    return st.one_of([FAMILIES[name] for name in families or FAMILIES])


def rows(model: Model, least: int = 1, most: int = 3) -> Strategy:
    """Draw rows (X, y): numbers, or codes with padding among them; labels, or real targets."""
    codes = range(getattr(model, "vocabulary", 0) + 1) if model.inputs == "codes" else ()
    p, of_X, of_y = model.features, *(np.int64 if x else float for x in (codes, model.labels))

    def stack(drawn: list[Any]) -> tuple[Array, Array]:
        X = np.array([x for x, _ in drawn], of_X).reshape(len(drawn), p)
        return X, np.array([y for _, y in drawn], of_y)

    row = st.tuples(arrays(p, numbers=codes or NUMBERS), st.sampled_from(model.labels or NUMBERS))
    return st.lists(row, min_size=least, max_size=most).map(stack)


@st.composite
def batches(
    draw: Draw, model: Model, most: int = 3, weights: bool = False, empty: bool = False
) -> Batch:
    """Draw a batch of 1 to `most` rows (from 0, if it may be empty), also with one class alone.

    weights : also draw D.s, or none; a weight of 0 is padding, and not all are 0.
    """
    X, y = draw(rows(model, 0 if empty else 1, most))
    if not (weights and len(y) and draw(st.booleans())):
        return Batch(X, y)
    return Batch(X, y, draw(arrays(len(y), numbers=(1.0, 0.5, 2.0, 0.0)).filter(np.any)))


class Problem(NamedTuple):
    """A model with a point w (d,), a direction v (d,) and a batch."""

    model: Any
    w: Array
    v: Array
    D: Batch


@st.composite
def problems(draw: Draw, /, model: Any = None, kinks: bool = False, **options: Any) -> Problem:
    """Draw a model, w, v ≠ 0 and a batch with `options` as of `batches`.

    model : a model, or a strategy for one; default: any of fedref's. kinks : also draw points on a kink,
    ties of a maximum, and answers that are rounding alone.
    """
    m = draw(drawn_or_given(model, models))
    p = Problem(m, draw(arrays(m.d)), draw(directions(m.d)), draw(batches(m, **options)))
    ways = p.v, p.v + np.sin(1 + np.arange(m.d))  # at a kink Hv along the second jumps

    def outputs(w: Array) -> list[Array]:
        return [m.loss(w, p.D), m.grad(w, p.D), *(m.hvp(w, v, p.D) for v in ways)]

    assume(kinks or is_steady(outputs, p.w, FEW_DIGITS))
    return p


def is_steady(f: Callable[[Array], Iterable[Any]], w: Array, least: float = ROUNDING) -> bool:
    """Return whether the outputs of f are clear at w, and none jumps close to it."""

    def outputs(given: Mapping[str, Array]) -> dict[str, Any]:
        return {str(i): np.asarray(x, float) for i, x in enumerate(f(given["w"]))}

    with np.errstate(all="ignore"):
        here = outputs({"w": w})
        return (
            is_clear(*here.values(), least=least)
            and measure_condition(outputs, {"w": w}, here) < KINK
        )


# ---- algorithms ----------------------------------------------------------------------------------


def hyperparameters(cls: type[AnyAlgorithm]) -> Strategy:
    """Draw a table of an algorithm's fields, your own's too, each within its bounds or choices."""
    return st.fixed_dictionaries({f.name: _field(cls, f) for f in fields(cls) if f.init})


def _field(cls: Any, f: Any) -> Strategy:
    entry = schema(cls)[f.name]
    if entry.kind is bool:
        return st.booleans()
    if entry.words:
        return st.sampled_from(entry.words)
    values = {float: RATES, int: (1, 2, 3, 0)}.get(entry.kind, ())
    return st.sampled_from([x for x in values if entry.bounds.holds(x)] or [f.default])


def algorithms(*names: str | type[AnyAlgorithm], **fixed: Any) -> Strategy:
    """Draw an algorithm (names or classes; default: all of fedref's) with hyperparameters drawn.

    fixed : hyperparameters that are given, as in `algorithms("fedprox", mu=0.0)`.
    """
    for name in names:
        if isinstance(name, str) and name not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    kinds = [ALGORITHMS[x] if isinstance(x, str) else x for x in names or ALGORITHMS]
    return st.sampled_from(kinds).flatmap(
        lambda cls: hyperparameters(cls).map(lambda table: cls(**table | fixed))
    )


# ---- federations and rounds ----------------------------------------------------------------------


@st.composite
def federations(
    draw: Draw, model: Model, clients: int = 3, most: int = 3, test: int = 1
) -> Federation:
    """Draw 1 to `clients` clients of 1 to `most` training rows and 0 to `test` test rows each."""
    N = draw(upto(clients))  # the training rows of all, then the others
    drawn = [draw(rows(model, *size)) for size in ((1, most), (0, test)) for _ in range(N)]
    X, y = (np.concatenate(x) for x in zip(*drawn))
    ends = np.cumsum([0, *(len(y) for _, y in drawn)])
    return federation_of(model, X, y, ends[: N + 1], ends[N:] - ends[N])


def federation_of(model: Model, X: Array, y: Array, offsets: Array, tests: Array) -> Federation:
    """Return these rows as data that fit the model: training rows, then test rows, of the clients."""
    words = tuple(f"w{i}" for i in range(getattr(model, "vocabulary", 0)))
    index, n = np.arange(len(y)), offsets[-1]
    train, test = Part(index[:n], offsets), Part(index[n:], tests)
    return Federation(Source(X, y, vocabulary=words or None), train, test)


@st.composite
def plans(draw: Draw, roles: Sequence[str], sizes: Sequence[int], round: int = 0) -> Plan:
    """Draw who takes part in a round, and with which rows: batches of 1 or 2 of the client's rows.

    sizes : (N,) n_k. Clients miss the round, were drawn twice, straggle, do 1 or 2 steps (one, where an
    episode is a round); a support may be empty.
    """
    N = len(sizes)
    absent = draw(st.sets(st.integers(0, N - 1), max_size=N - 1))
    clients = [k for k in range(N) if k not in absent]
    steps = [1 if "S" in roles else draw(upto(2)) for _ in clients]
    rows = {role: np.full((len(clients), max(steps), 2), PADDING) for role in roles}
    for i, k in enumerate(clients):
        for role, t in ((role, t) for role in roles for t in range(steps[i])):
            least = 0 if role in ("S", "S of D") else 1
            one = st.integers(0, sizes[k] - 1)
            index = draw(st.lists(one, min_size=least, max_size=2, unique=True))
            rows[role][i, t, : len(index)] = index
    counts, epoch = ([draw(st.integers(1, 2)) for _ in clients] for _ in range(2))
    late = [draw(st.sampled_from([False, False, False, True])) for _ in clients]
    n, S = np.array(sizes)[clients], np.array(steps)
    return Plan(
        round, np.array(clients), np.array(counts), n, S, np.array(late), S, np.array(epoch), rows
    )


class Trace(NamedTuple):
    """All that a few rounds of an algorithm depend on.

    w : (d,) the first parameters; X (n, ...), y (n,) : rows; client k holds those from
    offsets[k] up to offsets[k+1]; plans : one a round; losses : the global training loss after each,
    for an algorithm that watches it.
    """

    algorithm: AnyAlgorithm
    model: Any
    w: Array
    X: Array
    y: Array
    offsets: Array
    plans: tuple[Plan, ...]
    losses: tuple[float, ...]

    def rounds(self) -> Iterator[list[spec.Client]]:
        """Yield each round as the specification takes it; stragglers are gone if they are dropped."""
        data = {"X": self.X, "y": self.y, "offsets": self.offsets}
        for plan in self.plans:
            clients = [client_of(plan._asdict(), i, data) for i in range(len(plan.clients))]
            yield [c for c in clients if not (c.straggler and self.algorithm.drop)]

    def run(self, stack: bool | None = None, threads: int = 1) -> Iterator[State]:
        """Yield fedref's state after each round; stack, threads : as in `run_clients`."""
        work = partial(run_clients, stack=stack, threads=threads)
        federation = federation_of(self.model, self.X, self.y, self.offsets, 0 * self.offsets)
        state = State(self.algorithm.initial(self.model, self.w), {})
        for plan, loss in zip(self.plans, self.losses):
            before = state
            state, _ = run_round(self.algorithm, self.model, state, plan, federation, work=work)
            if self.algorithm.watches_loss and state is not before:  # else all straggled
                state = state._replace(server=self.algorithm.observe_loss(state.server, loss))
            yield state


@st.composite
def traces(
    draw: Draw, algorithm: Any = None, model: Any = None, *, clients: int = 3, rounds: int = 3,
    kinks: bool = False,
) -> Trace:  # fmt: skip
    """Draw 1 to `rounds` rounds of 1 to `clients` clients.

    algorithm, model : one, or a strategy for one; default: any of fedref's. kinks : also draw rounds
    that cross a kink or a threshold, and states that are rounding alone.
    """
    a, m = draw(drawn_or_given(algorithm, algorithms)), draw(drawn_or_given(model, models))
    fed = draw(federations(m, clients, most=6, test=0))
    X, y, offsets = fed.source.X, fed.source.y, fed.train.offsets
    sizes, turns = fed.train.sizes.tolist(), range(draw(upto(rounds)))
    drawn = tuple(draw(plans(a.roles, sizes, t)) for t in turns)
    moves = np.full(len(turns), -1.0)  # the training loss falls, but perhaps in one round
    moves[draw(st.sampled_from(turns))] = draw(st.sampled_from([-1.0, 1.0, 1.0, 0.0]))
    losses = np.cumsum(moves)
    losses -= losses.min() - 0.5  # a plateau for APFL is in reach
    trace = Trace(a, m, draw(arrays(m.d)), X, y, offsets, drawn, tuple(losses.tolist()))

    def states(w: Array) -> list[Any]:
        run = trace._replace(w=w).run(False)
        return [x for s in run for x in tree.leaves((s.server, *s.clients.values()))]

    assume(kinks or is_steady(states, trace.w))
    return trace


#: Of more draws than these Hypothesis varies what it has instead of drawing anew.
DRAWS_AT_ONCE = 9


class TimeIsUp(BaseException):
    """The time to draw, or to make an example smaller, is over; Hypothesis lets it pass."""


def smallest(
    strategy: Strategy, fails: Callable[[Any], bool], draws: int, seed: int | None = None,
    key: bytes | None = None, seconds: float = 300.0,
) -> Any:  # fmt: skip
    """Return the smallest example that fails, if one of `draws` does, else None.

    seed : None draws the same examples each time. key : keeps a failure in Hypothesis' database.
    seconds : for how long a failure is made smaller.
    """
    how: dict[str, Any] = {"database": None} if key is None else {}
    how |= {"deadline": None, "suppress_health_check": list(HealthCheck)}
    how["phases"] = (Phase.reuse, Phase.generate, Phase.shrink)
    found, end = list[Any](), inf

    def fails_in_time(x: Any) -> bool:
        nonlocal end
        if monotonic() > end:
            raise TimeIsUp
        if not fails(x):
            return False
        found.append(x)
        end = min(end, monotonic() + seconds)
        return True

    for start in range(0, draws, DRAWS_AT_ONCE):
        here = settings(max_examples=min(DRAWS_AT_ONCE, draws - start), **how)
        random = Random(f"{seed or 0} {start}")
        try:
            return find(strategy, fails_in_time, settings=here, random=random, database_key=key)
        except (errors.NoSuchExample, errors.Unsatisfiable):
            continue
        except (TimeIsUp, errors.Flaky):  # what failed may pass when it is asked again
            return min(found, key=lambda x: len(repr(x)), default=None)
    return None
