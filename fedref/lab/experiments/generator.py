"""An algorithm as a generator over rounds, as fedref/spec.py writes them: `fedref run mine:ditto`.

    def ditto(f, w, rounds, lam=0.1, eta=0.05):

f : the run's model (`judge.objective`), with f.N clients and f.train_loss(w, {k: v_k}). w : (d,) to begin
with. rounds : the cohorts, each a list of `spec.Client`. Keywords are settings. After each round it yields w,
or (w, {k: v_k}) where clients are tested with models of their own. Attributes of the function say the rest:
`adapt` how a client adapts before its test, a function (f, w, D, ...) like `spec.adapt`, whose further
arguments are settings (S in the place of D: a support set); `roles` the batches of a step, ("D",) if there is
none; `drop = False` that stragglers take part.

What it is given is read-only, and what it yields becomes so. It cannot be saved in the middle: a run that is
resumed computes its rounds again.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, get_type_hints

import numpy as np

from fedref import spec
from fedref.algorithm import Algorithm, Server, State
from fedref.boundary.errors import ConfigError
from fedref.boundary.values import quote, values_of
from fedref.judge import tape
from fedref.judge.objective import Objective
from fedref.lab.experiments import checkpoint
from fedref.lab.experiments.own_code import OwnCodeError, Say, check_vector, name_of, random_states
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.clients import clients_of
from fedref.rounds.cost import Counter, Counts, RoundLog
from fedref.rounds.evaluation import evaluate, sample_mean
from fedref.rounds.federation import Federation
from fedref.rounds.loop import participants
from fedref.sampling import Plan, stream

# ---- its class: what a run knows of an algorithm -------------------------------------------------


@dataclass(frozen=True)
class Generated(Algorithm[Any, Any, Any, Any]):
    """An algorithm of a generator function, whose keywords are its fields."""

    weighting: str = field(default="samples", init=False)  # it weights itself

    adapt: ClassVar[Any] = None
    personalised: ClassVar[bool] = True
    usual_bounds: ClassVar[Any] = ()

    def __reduce__(self) -> Any:
        return make_algorithm, (self.generator, values_of(self))

    def choose(self, function: Any) -> dict[str, Any]:
        """Return the settings that a function takes."""
        return {name: getattr(self, name) for name in names_in(function) if hasattr(self, name)}

    def generate(self, f: Objective, w: Array, rounds: Iterator[Any]) -> Iterator[Any]:
        states = self.generator(f, w, rounds, **self.choose(self.generator))
        if not hasattr(states, "__next__"):
            raise OwnCodeError(f"{name_of(self)} returns {quote(states)}, expected yields")
        return states

    def state_of(self, yielded: Any) -> tuple[State, dict[str, float]]:
        """Return what is tested, of what was yielded, and measurements."""
        w, clients = yielded if isinstance(yielded, tuple) else (yielded, {})
        return State(Server(w), clients), {}

    def as_yielded(self, w: Array, clients: Mapping[int, Array] = MappingProxyType({})) -> Any:
        return w, clients

    def personalised_params(
        self, model: Model, sent: Any, client_state: Any, D: Batch | None
    ) -> Array:
        w = sent.w if client_state is None else client_state
        if D is None or self.adapt is None:
            return w
        with tape.gradients():
            rows, given = spec.Batch(D.X, D.y), self.choose(self.adapt)
            adapted = self.adapt(Objective(model), w, rows, **given)
        check_vector(f"{name_of(self)}.adapt returns", adapted, model.d)
        return np.asarray(adapted)


@cache
def names_in(function: Any) -> tuple[str, ...]:
    """Return what a function takes after its first three arguments, which takes long to find."""
    return (*inspect.signature(function).parameters,)[3:]


def algorithm_of(function: Any) -> type[Any]:
    """Return the class of a generator function."""
    if not hasattr(function, "__qualname__"):  # functools.partial, an object with __call__
        expected = "expected a function (f, w, rounds, lam=0.1, ...), with its settings beside it"
        raise ConfigError(f"algorithm is {quote(function)}, {expected}")
    attributes = (getattr(function, name, None) for name in ("adapt", "roles", "drop"))
    return make_class(function, *attributes)


def make_algorithm(function: Any, values: Mapping[str, Any]) -> Any:
    return algorithm_of(function)(**values)


@cache
def make_class(function: Any, adapt: Any, roles: Any, drop: Any) -> type[Any]:
    shown = f"{function.__module__}:{function.__qualname__}"
    parameters, settings = parameters_of(shown, function), list[Any]()
    hints = get_type_hints(function)
    for name, p in parameters.items():
        if p.default is p.empty:
            raise ConfigError(f"{shown}: {name} has no default, expected {name}=VALUE")
        if hasattr(Generated, name) or name == "algorithm":
            raise ConfigError(f"{shown}: a setting cannot be called {name}, expected another name")
        if not isinstance(p.default, int | float | str | tuple | list | None):
            expected = "expected a number, a text or a list"
            raise ConfigError(f"{shown}: {name} is {quote(p.default)}, {expected}")
        kind = {bool: bool, int: Real, float: float, str: str}.get(type(p.default), Any)
        usual = tuple(p.default) if isinstance(p.default, list) else p.default
        settings.append((name, hints.get(name, kind), field(default=usual)))
    own: dict[str, Any] = {"generator": staticmethod(function), "__doc__": function.__doc__}
    own["roles"] = tuple(roles or ("D",))
    if adapt is not None:
        for n, p in parameters_of(f"{shown}.adapt", adapt).items():
            if p.default is p.empty and n not in parameters:
                raise ConfigError(f"{shown}.adapt takes {n}, expected settings of {shown} alone")
        on_support = [*inspect.signature(adapt).parameters][2] == "S"
        own |= {"adapt": staticmethod(adapt), "adapts_on": "S" if on_support else "D"}
    settings += [] if drop is None else [("drop", bool, field(default=bool(drop)))]
    name, bases = function.__name__, (Generated,)
    made = make_dataclass(name, settings, bases=bases, namespace=own, frozen=True)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def parameters_of(shown: str, function: Any) -> dict[str, inspect.Parameter]:
    """Return a function's parameters after the first three, but for further functions."""
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    parameters = inspect.signature(function).parameters if callable(function) else {}
    if len(parameters) < 3 or any(p.kind in kinds for p in parameters.values()):
        given = inspect.signature(function) if parameters else quote(function)
        third = "D" if shown.endswith(".adapt") else "rounds"
        expected = f"a function (f, w, {third}, lam=0.1, ...)"
        raise ConfigError(f"{shown} takes {given}, expected {expected}")
    rest = [*parameters.items()][3:]
    return {name: p for name, p in rest if not callable(p.default) or p.default is p.empty}


# ---- the rounds of a unit ------------------------------------------------------------------------


class Rounds:
    """The cohorts of a run, each of which is read once, before the state after it is yielded."""

    def __init__(self, name: str, t: int = 0) -> None:
        self.name, self.t, self.fault = name, t, ""
        self.clients: list[spec.Client] | None = None

    def __iter__(self) -> "Rounds":
        return self

    def __next__(self) -> list[spec.Client]:
        if self.clients is None:
            self.fault = "has no yield, expected one a round"
            if self.t:
                once = f"its state after round {self.t}: they are read once, one by one"
                self.fault = f"reads round {self.t + 1} before it has yielded {once}"
            raise OwnCodeError(f"{self.name} {self.fault}")
        clients, self.clients = self.clients, None
        return clients

    def advance(self, states: Iterator[Any], clients: list[spec.Client]) -> Any:
        """Return what a generator yields after one more round."""
        self.clients, outside = list(clients), scope_of(states, outside=True)
        before = random_states(outside)
        with tape.gradients():
            yielded = next(states, self)
        fault = self.fault  # also where the function goes on after it
        if yielded is self:
            fault = fault or f"ends after {self.t - 1} rounds, expected a yield after each round"
        elif self.clients is not None:
            fault = f"yields before it has read round {self.t}, expected one yield a round"
        elif before != random_states(outside):
            fault = (
                "draws from a global random generator, which others change, too: expected one of its own, "
                "made anew in each round, such as fedref.spec.stream(0, NAME, t)"
            )
        if fault:
            raise OwnCodeError(f"{self.name} {fault}")
        return yielded


def scope_of(states: Any, outside: bool = False) -> dict[str, Any]:
    """Return the variables of a generator, or those outside of it that it may read."""
    frame = getattr(states, "gi_frame", None)
    if frame is None:
        return {}
    names = frame.f_code.co_freevars if outside else frame.f_code.co_varnames
    found = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    return frame.f_globals | found if outside else found


class GeneratorRounds:
    """`run_round` of one unit whose algorithm is a generator. The first call computes earlier rounds again.

    trained : the clients that train. plan_of : t → the plan of round t.
    """

    def __init__(
        self, unit: Any, loaded: Any, trained: Federation, plan_of: Callable[[int], Plan], say: Say
    ) -> None:
        self.unit, self.loaded, self.trained = unit, loaded, trained
        self.plan_of, self.say, self.algorithm = plan_of, say, unit.algorithm
        self.dtype, self.model = np.dtype(unit.experiment.dtype), Counter(loaded.model)
        self.own = isinstance(self.algorithm, Generated)
        self.name = name_of(self.algorithm)
        self.w = tree.freeze(loaded.model.init(stream(unit.seed, "init")).astype(self.dtype))
        self.rounds = Rounds(self.name)
        self.f = Objective(self.model, trained.clients, self.train_loss, self.dtype)
        self.states = self.algorithm.generate(self.f, self.w, self.rounds)
        self.state = State(self.algorithm.initial(loaded.model, self.w), {})
        #: What was yielded last, under None and the clients' numbers, and copies of it.
        self.yielded, self.copies = dict[Any, Array](), dict[Any, Array]()

    def __call__(
        self, algorithm: Any, model: Model, state: State, plan: Plan, federation: Any, **how: Any
    ) -> tuple[State, RoundLog]:
        if plan.round > self.rounds.t:
            self.catch_up(plan.round, state)
        self.state, log = self.run(plan)
        return self.state, log

    def catch_up(self, until: int, state: State) -> None:
        """Compute the rounds of a run that is resumed again: the state must be the one that was saved."""
        began, name = time.monotonic(), self.unit.name
        why = "a generator is not saved in the middle"
        self.say(f"{name}: {why}, so {until} rounds are computed again")
        for t in range(until):
            self.state, _ = self.run(self.plan_of(t), resumed=True)
        self.say(f"{name}: computed {until} rounds again in {time.monotonic() - began:.1f} s")
        if checkpoint.dumps(self.state) != checkpoint.dumps(state):
            raise OwnCodeError(
                f"{self.name} computes other numbers than before: it draws random numbers, keeps something "
                "outside of the function, or was begun on another machine; expected the same, or a new run"
            )

    def run(self, plan: Plan, resumed: bool = False) -> tuple[State, RoundLog]:
        keep, d = participants(self.algorithm, plan), 0 if self.algorithm.pooled else self.model.d
        K, stragglers = len(plan.clients), int(plan.straggler.sum())
        log = RoundLog(K * d, len(keep) * d, Counts(), stragglers, K - len(keep))
        first, self.rounds.t = not self.rounds.t, plan.round + 1
        if not keep.size:
            return self.state, log
        clients = clients_of(plan, keep, self.trained, self.algorithm.roles, self.dtype)
        before = self.model.counts
        yielded = self.rounds.advance(self.states, clients)
        counts = Counts(*(now - then for now, then in zip(self.model.counts, before)))
        state, measured = self.algorithm.state_of(self.accept(yielded))
        if self.own and first and not resumed:
            again = Rounds(self.name, self.rounds.t)
            states = self.algorithm.generate(self.f, self.w, again)
            second = again.advance(states, clients)
            other, _ = self.algorithm.state_of(self.joined(self.arrays_of(second)))
            drawn, redrawn = (random_states(scope_of(x)) for x in (self.states, states))
            if drawn != redrawn or checkpoint.dumps(state) != checkpoint.dumps(other):
                raise OwnCodeError(
                    f"{self.name} computes other numbers when it is called again: it draws random numbers or "
                    "keeps something outside of the function, so that no run could be resumed"
                )
        return state, log._replace(counts=counts, measured=measured)

    def train_loss(self, *yielded: Any) -> float:
        """Return the mean loss over all training rows, of w or (w, {k: v_k})."""
        state, _ = self.algorithm.state_of(self.algorithm.as_yielded(*yielded))
        e, model, federation = self.unit.experiment, self.loaded.model, self.loaded.federation
        plan = e.plan_of(federation.clients)
        how: Any = {"round": self.rounds.t, "seed": self.unit.seed, "dtype": self.dtype}
        scores = evaluate(self.algorithm, model, state, federation, plan, **how, test=False)
        return sample_mean(scores.train_loss, scores.n_train)

    # -- what it yields

    def accept(self, yielded: Any) -> Any:
        """Return a copy of what was yielded, if it is as it should be; it becomes read-only."""
        if not self.own:
            return yielded
        for k, x in self.yielded.items():
            if not np.array_equal(x, self.copies[k], equal_nan=True):
                what = "w" if k is None else f"the model of client {k}"
                raise OwnCodeError(
                    f"{self.name} changes {what} that it has yielded, in round {self.rounds.t}: write "
                    "w = w - x for w -= x, or yield a copy"
                )
        arrays = self.arrays_of(yielded)
        if np.may_share_memory(arrays[None], self.w):
            raise OwnCodeError(
                f"{self.name} yields the w that it was given, after round {self.rounds.t}, which is the "
                "run's own: expected a new array (w.copy(), if nothing is to be learned)"
            )
        old, self.yielded = self.yielded, arrays
        self.copies = {
            k: self.copies[k] if x is old.get(k) else tree.freeze(x.copy())
            for k, x in arrays.items()
        }
        tree.freeze(tuple(arrays.values()))
        return self.joined(self.copies)

    def joined(self, arrays: Mapping[Any, Array]) -> Any:
        cast = {k: x.astype(self.dtype, copy=False) for k, x in arrays.items()}
        return cast.pop(None), cast

    def arrays_of(self, yielded: Any) -> dict[Any, Array]:
        """Return the arrays of what was yielded: w under None, v_k under k."""
        shown, N = f"{self.name} yields, after round {self.rounds.t},", self.trained.clients
        w, clients = yielded if isinstance(yielded, tuple) and len(yielded) == 2 else (yielded, {})
        check_vector(shown, w, self.model.d)
        if not isinstance(clients, Mapping):
            kind = type(clients).__name__
            raise OwnCodeError(f"{shown} w and a {kind}, expected (w, {{k: v_k}})")
        for k, v in clients.items():
            if not (isinstance(k, int | np.integer) and 0 <= k < N):
                raise OwnCodeError(f"{shown} a model of client {quote(k)}, expected 0 to {N - 1}")
            check_vector(f"{shown} for client {k}", v, self.model.d)
        return {None: w, **{int(k): v for k, v in clients.items()}}
