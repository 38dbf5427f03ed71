"""What is drawn, described once: models, batches, algorithms, rounds, the inputs of a case.

A description asks a `RandomSource` for all that is random. `NumPySource` draws random numbers (golden
vectors, proofs); `shrinking.HypothesisSource` draws what Hypothesis can make smaller (drawn cases,
`fedref.strategies`, `check_rounds`). Of all that may be chosen the simplest stands first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from fedref import spec
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.apfl import APFL
from fedref.algorithms.apfl_deng import APFLDeng
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.feddyn import FedDyn
from fedref.algorithms.fedmeta import MetaSGD
from fedref.algorithms.fedopt import FedAvgM
from fedref.algorithms.fedprox import FedProx
from fedref.algorithms.scaffold import Scaffold
from fedref.boundary.values import Entry, schema
from fedref.draws import serialise
from fedref.judge import Case, make_case
from fedref.judge.adapter import BY_SAMPLES, INPUTS, client_of
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import PADDING, Plan

#: What a case or one of its parts is given, by name.
Inputs = dict[str, Any]
#: Step sizes and weights of penalties, which are not 0.
RATES = 1.0, 0.5, 0.25, 0.75, 2.0
BOTH = False, True
#: The batch size of drawn steps.
B = 2


class RandomSource(Protocol):
    """Where choices and numbers come from. most_rows : those of a batch."""

    most_rows: ClassVar[int]

    def choose(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""

    def numbers(self, *shape: int, scale: float = 1.0) -> Array:
        """Return real numbers, of this scale where the source has no scale of its own."""

    def rates(self, d: int) -> Array:
        """Return d step sizes, Meta-SGD's α: (d,)."""

    def labels(self, known: Sequence[int], n: int) -> Array:
        """Return n of the known labels: (n,)."""

    def codes(self, most: int, *shape: int) -> Array:
        """Return whole numbers from 0 to `most`."""


@dataclass(frozen=True)
class NumPySource:
    """A source of NumPy's random numbers; of n labels each occurs, as far as n allows."""

    rng: np.random.Generator
    most_rows: ClassVar[int] = 3

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def numbers(self, *shape: int, scale: float = 1.0) -> Array:
        return scale * self.rng.normal(size=shape)

    def rates(self, d: int) -> Array:
        return self.rng.uniform(0.1, 0.5, d)

    def labels(self, known: Sequence[int], n: int) -> Array:
        each = np.resize(self.rng.permutation(np.array(known)), n)
        return self.rng.permutation(each).astype(np.int64)

    def codes(self, most: int, *shape: int) -> Array:
        return self.rng.integers(0, most, shape, endpoint=True)


def up_to(most: int) -> list[int]:
    """Return the options of a number from 1 to `most`, that for the most part is the last."""
    return [*range(1, most), *[most] * most]


# ---- models and batches --------------------------------------------------------------------------

#: Family → small models of it, few: a compiled backend compiles each, with each number of rows.
FAMILIES: Mapping[str, Sequence[Model]] = {
    "binary-logistic": (BinaryLogistic(1, bias=False), BinaryLogistic(3, 0.5)),
    "logistic": (Logistic(1, 2), Logistic(2, 3, 0.5)),
    "svm": tuple(
        LinearSVM(n, l2, squared, bias)
        for n, l2, squared, bias in ((1, 0.0, False, False), (2, 0.5, False, True), (3, 0.5, True, True))
    ),
    "mlp": (
        MLP(1, (1,), 2, "tanh"), MLP(2, (), 3, l2=0.5), MLP(2, (2,), 3, "elu", 0.5),
        MLP(3, (2, 1), 2, "relu"),
    ),
    "cnn": (
        CNN((2, 2), (1,), 1, 1, 2, "tanh", "mean"), CNN((3, 4, 2), (2,), 2, 2, 3, "elu", "max", 0.5),
        CNN((3, 3), (1,), 2, 2, 2, "elu", "mean"), CNN((4, 4), (2, 1), 1, 1, 2, "relu", "max", 0.5),
    ),
    "lstm": (
        LSTM(1, 2, 1, 1, (1,)), LSTM(2, 3, 3, 2, (2,), "last", 0.5), LSTM(2, 2, 2, 1, (1, 1), "mean"),
    ),
}  # fmt: skip


def draw_model(source: RandomSource, *families: str) -> Model:
    """Draw a model of these families (default: all), of 1 to 3 features, with and without L2."""
    return source.choose(FAMILIES[source.choose(families or [*FAMILIES])])


def draw_start(source: RandomSource, model: Model) -> Array:
    """Draw parameters w (d,): a model's usual start may be zeros."""
    return source.numbers(model.d, scale=0.5)


def draw_batch(source: RandomSource, model: Model, n: int, *lead: int) -> dict[str, Array]:
    """Draw n rows that the model reads, {"X", "y"}, or an array of such batches of shape `lead`.

    Codes have padding among them: the code `vocabulary`. A model without labels has real targets.
    """
    targets = partial(source.labels, model.labels) if model.labels else source.numbers
    y = np.reshape([targets(n) for _ in range(int(np.prod(lead)))], (*lead, n))
    shape, vocabulary = (*lead, n, model.features), getattr(model, "vocabulary", 0)
    codes = model.inputs == "codes"
    return {"X": source.codes(vocabulary, *shape) if codes else source.numbers(*shape), "y": y}


def draw_some(
    source: RandomSource, model: Model, least: int = 1, most: int | None = None
) -> dict[str, Array]:
    """Draw a batch of `least`, 3 or `most` rows (default: `most_rows` of the source)."""
    most = source.most_rows if most is None else most
    sizes = sorted({least, min(max(3, least), most), most})  # few, as there are few models
    return draw_batch(source, model, source.choose(sizes))


def draw_weights(source: RandomSource, n: int) -> dict[str, Array]:
    """Draw {"s": weights of n rows}, or {}; a weight of 0 is padding, and not all are 0."""
    if not n or source.choose(("none", "some")) == "none":
        return {}
    s = np.array([source.choose((1.0, 0.5, 2.0, 0.0)) for _ in range(n)])
    return {"s": s if s.any() else np.append(1.0, s[1:])}


# ---- algorithms ----------------------------------------------------------------------------------


def draw_algorithm(source: RandomSource, kind: str | type[AnyAlgorithm], **fixed: Any) -> Any:
    """Draw an algorithm, of its name or class, each hyperparameter within its bounds or choices."""
    cls = ALGORITHMS[kind] if isinstance(kind, str) else kind
    return cls(**draw_hyperparameters(source, cls) | fixed)


def draw_hyperparameters(source: RandomSource, cls: type[AnyAlgorithm]) -> Inputs:
    """Draw a table of an algorithm's fields, your own's too."""
    known, some = schema(cls), (f for f in fields(cls) if f.init)
    return {f.name: source.choose(options_of(known[f.name], f.default)) for f in some}


def options_of(entry: Entry, default: object) -> Sequence[object]:
    """Return the values of a hyperparameter that are drawn."""
    if entry.kind is bool:
        return BOTH
    if entry.words:
        return entry.words
    values = {float: RATES, int: (1, 2, 3, 0)}.get(entry.kind, ())
    return [x for x in values if entry.bounds.holds(x)] or [default]


# ---- federations and rounds ----------------------------------------------------------------------


def federation_of(model: Model, X: Array, y: Array, offsets: Array, tests: Array) -> Federation:
    """Return these rows as data that fit the model: training rows, then test rows, of the clients."""
    words = tuple(f"w{i}" for i in range(getattr(model, "vocabulary", 0)))
    index, n = np.arange(len(y)), offsets[-1]
    train, test = Part(index[:n], offsets), Part(index[n:], tests)
    return Federation(Source(X, y, vocabulary=words or None), train, test)


def draw_federation(
    source: RandomSource, model: Model, clients: int | Sequence[int], most: int, test: int
) -> Federation:
    """Draw 1 to `clients` clients of 1 to `most` training rows and 0 to `test` test rows each.

    clients : or the numbers to choose from. The training rows of all come first.
    """
    N = source.choose(up_to(clients) if isinstance(clients, int) else clients)
    parts = [draw_some(source, model, *size) for size in ((1, most), (0, test)) for _ in range(N)]
    X, y = (np.concatenate([D[name] for D in parts]) for name in ("X", "y"))
    ends = np.cumsum([0, *(len(D["y"]) for D in parts)])
    return federation_of(model, X, y, ends[: N + 1], ends[N:] - ends[N])


def draw_plan(
    source: RandomSource, roles: Sequence[str], sizes: Sequence[int], round: int = 0
) -> Plan:
    """Draw who takes part in a round, and with which rows: batches of 1 or 2 of the client's rows.

    sizes : (N,) n_k. Clients miss the round, were drawn twice, straggle, do 1 or 2 steps (one, where an
    episode is a round); a support may be empty.
    """
    clients = [k for k in range(len(sizes)) if source.choose((True, True, False))] or [0]
    steps = [1 if "S" in roles else source.choose(up_to(2)) for _ in clients]
    rows = {role: np.full((len(clients), max(steps), B), PADDING) for role in roles}
    for i, k in enumerate(clients):
        for role in roles:
            for t in range(steps[i]):
                left = list(range(sizes[k]))
                least = 0 if role in ("S", "S of D") else 1
                for j in range(source.choose(range(least, 1 + min(B, sizes[k])))):
                    rows[role][i, t, j] = source.choose(left)
                    left.remove(rows[role][i, t, j])
    counts, epoch = ([source.choose((1, 2)) for _ in clients] for _ in range(2))
    late = [source.choose((False, False, False, True)) for _ in clients]
    n = np.array(sizes)[clients]
    columns = map(np.array, (clients, counts, n, steps, late, steps, epoch))
    return Plan._make([round, *columns, rows])


class Trace(NamedTuple):
    """All that a few rounds depend on: a case, whose algorithm and model may be your own.

    w : (d,) the first parameters; X (n, ...), y (n,) : rows; client k holds those from
    offsets[k] up to offsets[k+1]; plans : one a round; losses : the global training loss after each,
    for an algorithm that watches it.
    """

    algorithm: AnyAlgorithm
    model: Model
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

    def case(self, **server: Any) -> Case:
        """Return these rounds of an algorithm and a model of fedref's as a case, without outputs.

        server : fields of its state that are not as at the start. A round in which nobody takes part tells
        no loss.
        """
        (name,) = (name for name, kind in ALGORITHMS.items() if type(self.algorithm) is kind)
        rounds = zip(self.plans, self.losses, self.rounds())
        plans = [p._asdict() | ({"loss": loss} if clients else {}) for p, loss, clients in rounds]
        start = serialise.initial_server(self.algorithm, self.model, self.w)
        data = {"X": self.X, "y": self.y, "offsets": self.offsets}
        state = {"server": serialise.dump_state(start, np.float64) | server}
        inputs = {"state": state, "data": data, "plans": plans}
        width = next(iter(self.plans[0].rows.values())).shape[-1]
        return make_case("round", self.model, inputs, name, asdict(self.algorithm) | {"B": width})


def draw_trace(
    source: RandomSource, algorithm: AnyAlgorithm, model: Model, clients: int | Sequence[int] = 3,
    rounds: int = 3,
) -> Trace:  # fmt: skip
    """Draw 1 to `rounds` rounds of 1 to `clients` clients of 1 to 6 rows."""
    fed = draw_federation(source, model, clients, most=6, test=0)
    sizes, turns = fed.train.sizes.tolist(), range(source.choose(up_to(rounds)))
    plans = tuple(draw_plan(source, algorithm.roles, sizes, t) for t in turns)
    moves = np.full(len(turns), -1.0)  # the training loss falls, but perhaps in one round
    moves[source.choose(turns)] = source.choose((-1.0, 1.0, 1.0, 0.0))
    losses = np.cumsum(moves)
    losses -= losses.min() - 0.5  # a plateau for APFL is in reach
    X, y, offsets = fed.source.X, fed.source.y, fed.train.offsets
    w = draw_start(source, model)
    return Trace(algorithm, model, w, X, y, offsets, plans, tuple(losses.tolist()))


# ---- the inputs of cases -------------------------------------------------------------------------

#: Algorithms that are trained in their own way.
TRAINED = tuple(n for n in ALGORITHMS if n not in ("fedavg-update", "fedavg-meta", "centralised"))
#: Function → the algorithms of its cases ("" for a derivative).
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "loss": ("",), "grad": ("",), "hvp": ("",), "dissimilarity": ("",), "meta_gradient": tuple(INPUTS),
    "client": TRAINED, "aggregate": TRAINED, "round": TRAINED,
    "evaluate": ("fedavg", "fedavg-update", "per-fedavg", "fedmeta-maml", "fedmeta-sgd", "fedmaml",
                 "apfl", "apfl-deng", "pfedme"),
}  # fmt: skip
#: Models of algorithms' cases. Derivatives are drawn of all models: an algorithm asks for nothing else.
MODELS: tuple[str, ...] = "binary-logistic", "logistic", "svm", "mlp"


def draw_offered(source: RandomSource, name: str, call: str) -> Any:
    """Draw an algorithm with the options that the protocol of backends has."""
    kind, fixed = ALGORITHMS[name], dict[str, Any]()
    if name == "fedprox":
        fixed = {"until_gamma": 0.0, **({"adaptive_mu": False} if call == "round" else {})}
    if name in BY_SAMPLES:
        fixed["weighting"] = "samples"
    if "bias_correction" in schema(kind):
        fixed["bias_correction"] = False
    if "inner_steps" in schema(kind):
        fixed["inner_steps"] = source.choose((1, 2, 3))
    return draw_algorithm(source, kind, **fixed)


def hyper_of_meta_gradient(variant: str, hyper: Mapping[str, object]) -> Inputs:
    """Return those of an algorithm's hyperparameters that a case of its meta-gradient has."""
    names = ["alpha", "beta" if variant.startswith("per-fedavg") else "inner_steps"]
    names += ["delta"] if variant == "per-fedavg-hf" else []
    return {name: hyper[name] for name in names}


def draw_meta_gradient(
    source: RandomSource, model: Model, variant: str, sizes: Sequence[int]
) -> Inputs:
    """Draw the inputs of a meta-gradient. sizes : rows of its batches."""
    inputs, sizes = dict[str, Any](), [*sizes]
    for name in INPUTS[variant]:
        if name in ("w", "theta"):
            inputs[name] = draw_start(source, model)
        elif name == "alpha":
            inputs[name] = source.rates(model.d)
        else:
            inputs[name] = draw_batch(source, model, sizes.pop(0))
    return inputs


def draw_server(source: RandomSource, algorithm: AnyAlgorithm, model: Model) -> Inputs:
    """Draw a server's state in the middle of a run, by the names of cases; its vectors are any."""
    start = serialise.initial_server(algorithm, model, np.zeros(model.d))
    state = serialise.dump_state(start, np.float64)
    state = {n: source.numbers(model.d) if x.shape == (model.d,) else x for n, x in state.items()}
    if not isinstance(algorithm, FedAvgM | FedCurv):  # second moments, whose root is taken
        state |= {n: np.abs(x) for n, x in state.items() if n.startswith("v")}
    if isinstance(algorithm, APFL):
        state["t"] = np.asarray(algorithm.z)
    return state | draw_learned(source, algorithm, model)


def draw_learned(source: RandomSource, algorithm: AnyAlgorithm, model: Model) -> Inputs:
    """Draw what the server has learned or adapted so far: Meta-SGD's α, of which no two entries need be
    equal, and FedProx's μ."""
    if getattr(algorithm, "adaptive_mu", False):
        return {"mu": np.array(source.choose((*RATES, 0.05)))}
    return {"alpha": source.rates(model.d)} if isinstance(algorithm, MetaSGD) else {}


def draw_kept(source: RandomSource, algorithm: AnyAlgorithm, model: Model) -> Inputs:
    """Draw what a client has kept for itself: {"client": ...}, or {}."""
    if isinstance(algorithm, APFL):
        units = sum(view.shape[-1] for view in model.unpack(np.zeros(model.d)) if view.ndim > 1)
        return {"client": {"a": source.numbers(units), "w_k": draw_start(source, model)}}
    if isinstance(algorithm, APFLDeng):
        return {"client": {"v": draw_start(source, model), "a": source.numbers(1)[0]}}
    if isinstance(algorithm, FedCurv):  # of the round before the server's first
        kept = {name: source.numbers(model.d) for name in ("I", "v")}
        return {"client": kept | {"t": np.asarray(-1)}}
    if isinstance(algorithm, Scaffold | FedDyn):
        name = "c_i" if isinstance(algorithm, Scaffold) else "h_k"
        return {"client": {name: source.numbers(model.d)}}
    return {}


def draw_rounds(source: RandomSource, name: str) -> Case:
    """Draw some rounds of an algorithm, from what its server may have learned."""
    families, how = MODELS, dict[str, Any]()
    algorithm = draw_offered(source, name, "round")
    if name == "fedprox" and source.choose(BOTH):  # μ falls when the loss fell five times
        algorithm = FedProx(lr=0.5, mu=source.choose((0.25, 0.05)), adaptive_mu=True)
        families, how = MODELS[:1], {"clients": 2, "rounds": 8}
    model = draw_model(source, *families)
    trace = draw_trace(source, algorithm, model, **how)
    return trace.case(**draw_learned(source, algorithm, model))


def draw_derivative(source: RandomSource, model: Model) -> Inputs:
    """Draw w and a batch, whose rows may have weights."""
    D = draw_some(source, model)
    return {"w": draw_start(source, model), "D": D | draw_weights(source, len(D["y"]))}


def draw_hvp(source: RandomSource, model: Model) -> Inputs:
    return draw_derivative(source, model) | {"v": source.numbers(model.d)}


def draw_dissimilarity(source: RandomSource, model: Model) -> Inputs:
    clients = [draw_some(source, model) for _ in range(source.choose((2, 3)))]
    return {"w": draw_start(source, model), "clients": dict(enumerate(clients))}


def draw_variant(source: RandomSource, model: Model, algorithm: AnyAlgorithm, name: str) -> Inputs:
    sizes = [source.choose((1, 3)) for _ in range(3)]
    inputs = draw_meta_gradient(source, model, name, sizes)
    if name.endswith("-steps"):  # a batch for each of its inner steps
        n = source.choose((2, 3))
        inputs |= {role: draw_batch(source, model, 1, n) for role in ("D", "D2")}
    return inputs


def draw_client(source: RandomSource, model: Model, algorithm: AnyAlgorithm, name: str) -> Inputs:
    data = draw_some(source, model)
    plan = draw_plan(source, algorithm.roles, [len(data["y"])])
    rows = {role: x[0, : plan.steps[0]] for role, x in plan.rows.items()}
    inputs = {"server": draw_server(source, algorithm, model), "data": data, "rows": rows}
    return inputs | (draw_kept(source, algorithm, model) if source.choose(BOTH) else {})


def draw_aggregate(
    source: RandomSource, model: Model, algorithm: AnyAlgorithm, name: str
) -> Inputs:
    """Draw what the server gets from 1 to 3 of 4 clients: any vectors, as many as the weights."""
    K = source.choose(up_to(3))
    n, counts = (np.array([source.choose(up_to(most)) for _ in range(K)]) for most in (5, 2))
    server = draw_server(source, algorithm, model)
    sent = serialise.dump_upload(algorithm, serialise.template_of(algorithm).upload)
    if isinstance(algorithm, APFL):
        sent = {"w": sent["w"]} | ({"importance": sent["w"]} if server["renew"] else {})
    uploads = Inputs()
    for key, x in sent.items():
        whole = None if np.ndim(x) else [source.choose(up_to(3)) for _ in range(K)]
        uploads[key] = source.numbers(K, model.d) if whole is None else np.array(whole)
    N = {"N": np.asarray(4)} if name in ("scaffold", "feddyn") else {}
    return {"server": server, "uploads": uploads, "n": n, "counts": counts} | N


def draw_evaluation(
    source: RandomSource, model: Model, algorithm: AnyAlgorithm, name: str
) -> Inputs:
    tests = [draw_some(source, model) for _ in range(source.choose((1, 2)))]
    inputs = {"server": draw_server(source, algorithm, model), "tests": tests}
    kept = draw_kept(source, algorithm, model)
    adapts = {} if kept or name == "fedavg" else {"D": draw_some(source, model)}
    return inputs | kept | adapts


#: Function → what draws its inputs for a model, and from `meta_gradient` on for an algorithm (or a
#: variant's) and its name, too.
DRAWS: Mapping[str, Callable[..., Inputs]] = {
    "loss": draw_derivative, "grad": draw_derivative, "hvp": draw_hvp, "dissimilarity": draw_dissimilarity,
    "meta_gradient": draw_variant, "client": draw_client, "aggregate": draw_aggregate,
    "evaluate": draw_evaluation,
}  # fmt: skip


def draw_case(source: RandomSource, call: str, name: str, *families: str) -> Case:
    """Draw a case of this function, of this algorithm ("" for a derivative), without outputs.

    families : of its model; default: all of a derivative, `MODELS` of an algorithm.
    """
    if call == "round":
        return draw_rounds(source, name)
    model = draw_model(source, *(families or (MODELS if name else ())))
    if not name:
        return make_case(call, model, DRAWS[call](source, model))
    algorithm = draw_offered(source, name.removesuffix("-steps"), call)
    inputs, hyper = DRAWS[call](source, model, algorithm, name), asdict(algorithm) | {"B": B}
    if call == "meta_gradient":
        hyper = hyper_of_meta_gradient(name, hyper)
    return make_case(call, model, inputs, name, hyper)
