"""Units of work: one algorithm from round 0 to T, at one point of the sweep, with one seed."""

import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedprox import dissimilarity
from fedref.boundary.errors import DataError
from fedref.experiments import checkpoint, config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.metrics import COLUMNS, TOTALS
from fedref.experiments.setting import Setting
from fedref.experiments.workers import Workers
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds import cost
from fedref.rounds.evaluation import Scores, client_mean, evaluate, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation
from fedref.rounds.loop import RunClients, pool, run_round
from fedref.sampling import Plan, Sampling, make_plan, stream

Row = dict[str, Any]


class Unit(NamedTuple):
    """One algorithm at one point of the sweep with one seed: the smallest thing that is resumed."""

    number: int
    label: str
    seed: int
    point: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """Where in the sweep it stands, as columns of its own in the tables; a list is its text."""
        plain = (bool, int, float, str)
        return {
            f"sweep.{key}": value if isinstance(value, plain) else str(value)
            for key, value in self.point.items()
        }

    @property
    def name(self) -> str:
        """What it is called in messages."""
        point = "".join(f", {key} {value}" for key, value in self.point.items())
        return f"{self.label} (seed {self.seed}{point})"

    @property
    def file(self) -> str:
        return f"{self.number:04d}-{self.label}-seed{self.seed}.ckpt"


class Record(NamedTuple):
    """How far a unit has come: everything that is needed to go on, and all its results."""

    status: str  # running, done or diverged
    round: int  # rounds done
    state: State
    rows: list[Row]
    rounds: list[int]  # the evaluated rounds whose scores are kept
    scores: list[Scores]
    reason: str = ""
    experiment: str = ""  # whose `stamp` it has; "" in what an older fedref wrote

    def __repr__(self) -> str:
        """Short: the state alone can have millions of numbers."""
        return f"<Record of round {self.round}, {self.status}>"


#: Columns of which a row that was not evaluated has none.
OPTIONAL = set(COLUMNS) - set(TOTALS)

STATUS = ("running", "done", "diverged")


def types_of(experiment: Experiment, unit: Unit) -> checkpoint.Types:
    """The tuples that a record of this unit may hold: ours, and those of its algorithm's modules."""
    table = experiment.algorithms[unit.label]
    cls = names.algorithm_class(table["algorithm"])
    modules = {c.__module__ for c in (*cls.__mro__, *ALGORITHMS.values())} - {"builtins", "typing"}
    things = [thing for module in modules for thing in vars(sys.modules[module]).values()]
    found = [Record, Scores, State, *filter(is_named_tuple, things)]
    return {checkpoint.type_name(kind): kind for kind in found}


def is_named_tuple(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields")


def check_record(record: Any, experiment: Experiment, unit: Unit, where: str) -> None:
    """DataError unless it is a Record as `rounds` would yield for this unit."""
    T = unit.point.get("rounds", experiment.rounds)
    problem = "is no Record" if type(record) is not Record else problem_in_record(record, T)
    if problem:
        raise DataError(f"{where}: {problem}; expected a checkpoint of {unit.name}")


def problem_in_record(record: Record, T: int) -> str:
    """What is wrong with a record of a unit of T rounds; "" if nothing is."""
    t, rows, evaluated, scores = record.round, record.rows, record.rounds, record.scores
    if record.status not in STATUS or type(t) is not int or not 0 <= t <= T:
        return f"its status is {record.status!r} in round {str(t)[:20]} of {T}"
    if record.status == "done" and t != T:
        return f"it is done after round {t} of {T}"
    if not all(isinstance(text, str) for text in (record.reason, record.experiment)):
        return "its reason is no text"
    if not (isinstance(rows, list) and len(rows) == t + 1 and all(map(is_row, rows))):
        return f"its rows are not one for each of the rounds 0 to {t}"
    if [row["round"] for row in rows] != list(range(t + 1)):
        return "its rows are out of order"
    if not (isinstance(evaluated, list) and isinstance(scores, list)):
        return "its scores are no list"
    if len(evaluated) != len(scores) or not evaluated or not set(evaluated) <= set(range(t + 1)):
        return "its evaluated rounds do not fit its scores"
    if not all(map(is_scores, scores)) or len({len(s.accuracy) for s in scores}) != 1:
        return "its scores are not one number for each client"
    state = record.state
    if type(state) is not State or not isinstance(state.clients, Mapping):
        return "its state is no State"
    if not all(type(k) is int and 0 <= k < len(scores[0].accuracy) for k in state.clients):
        return "its state is of clients that there are not"
    return ""


def is_row(row: Any) -> bool:
    """Names → numbers, among them the round, the accuracy and every total."""
    if not isinstance(row, dict) or not {"round", *COLUMNS} - OPTIONAL <= row.keys():
        return False
    numbers = (int, float, bool, np.generic)
    return all(isinstance(k, str) and isinstance(v, numbers) for k, v in row.items())


def is_scores(scores: Any) -> bool:
    """Five arrays of one length."""
    if type(scores) is not Scores or not all(isinstance(x, np.ndarray) for x in scores):
        return False
    return {x.shape for x in scores} == {(len(scores.accuracy),)} if scores[1].ndim == 1 else False


def problem_in_state(state: State, algorithm: AnyAlgorithm, model: Model) -> str:
    """Where the server's state is not one of this algorithm and model; "" if it is."""
    fresh = algorithm.initial(model, np.zeros(model.d))
    return "" if alike(state.server, fresh, model.d) else "its server state is of another shape"


def alike(one: Any, other: Any, d: int) -> bool:
    """Whether a state has the types and shapes of a fresh one; None and plain tuples may be anything.

    A number of the fresh one may have become a vector (d,), as APFL's importance does.
    """
    if one is None or other is None or type(one) is type(other) is tuple:
        return True
    if is_named_tuple(type(other)):
        return type(one) is type(other) and all(alike(*pair, d) for pair in zip(one, other))
    if isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and one.shape == other.shape and one.dtype.kind == "f"
    if isinstance(one, np.ndarray) and isinstance(other, int | float):
        return one.shape == (d,) and one.dtype.kind == "f"
    return not isinstance(one, np.ndarray | tuple | list | Mapping) or type(one) is type(other)


def stamp(experiment: Experiment) -> str:
    """What tells an experiment from any other: the SHA-256 of all its values."""
    return sha256(config.text(experiment).encode()).hexdigest()


def units(experiment: Experiment) -> list[Unit]:
    """In the order in which they are run and written."""
    triples = [
        (label, seed, config.own_point(experiment, label, point))
        for point in config.sweep_points(experiment)
        for seed in experiment.seeds
        for label in experiment.algorithms
    ]
    once = {repr(triple): triple for triple in triples}  # what lacks the swept key is run once
    return [Unit(i, *triple) for i, triple in enumerate(once.values())]


# ---- one unit ------------------------------------------------------------------------------------


def scores_row(scores: Scores) -> Row:
    n, m = scores.n_test, scores.n_train
    return {
        "accuracy": sample_mean(scores.accuracy, n),
        "accuracy_mean": client_mean(scores.accuracy, n),
        "test_loss": sample_mean(scores.test_loss, n),
        "test_loss_mean": client_mean(scores.test_loss, n),
        "train_loss": sample_mean(scores.train_loss, m),
        "train_loss_mean": client_mean(scores.train_loss, m),
    }


def trained_by(algorithm: AnyAlgorithm, federation: Federation, seed: int) -> Federation:
    """Whom the rounds train: everybody, or for the centralised baseline one pool of all rows."""
    return pool(federation, stream(seed, "pool")) if algorithm.pooled else federation


def plan_for(
    algorithm: AnyAlgorithm, experiment: Experiment, sizes: Array, round: int, seed: int
) -> Plan:
    """The round's plan; the centralised baseline has one client and one epoch."""
    drawn = experiment.plan
    if algorithm.pooled:
        drawn = Sampling(clients_per_round=1, epochs=1, batch_size=experiment.batch_size)
    return make_plan(drawn, sizes, round, seed, algorithm.roles)


class Measured(NamedTuple):
    """What an evaluation found."""

    scores: Scores | None = None  # None: this round is not evaluated
    row: Mapping[str, Any] = MappingProxyType({})
    loss: float = float("nan")  # the training loss, where the algorithm asks for it
    problem: str = ""


class Engine(NamedTuple):
    """What does the work of a run: functions with the arguments and results of these two."""

    round: Callable[..., tuple[State, cost.RoundLog]] = run_round
    evaluate: Callable[..., Scores] = evaluate


#: This process, with its workers.
HERE = Engine()


def measure(
    setting: Setting, algorithm: AnyAlgorithm, state: State, t: int, seed: int, engine: Engine
) -> Measured:
    """Evaluate after t rounds, if that is due or the algorithm asks for the training loss."""
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    due = t % experiment.eval_every == 0 or t == experiment.rounds
    if not due and not algorithm.watches_loss:
        return Measured()
    train = experiment.eval_train or algorithm.watches_loss
    scores = engine.evaluate(
        algorithm, model, state, federation, experiment.plan,
        round=t, seed=seed, dtype=dtype, train=train,
    )  # fmt: skip
    row, problem = scores_row(scores), problem_in_losses(scores, train)
    if not due:
        return Measured(loss=row["train_loss"], problem=problem)
    if experiment.dissimilarity and not problem:
        w = algorithm.personal(model, algorithm.download(state.server), None, None)
        batches = [
            federation.batch(federation.train.of(k), dtype) for k in range(federation.clients)
        ]
        row["B"], row["variance"] = dissimilarity(model, w, batches)
    if setting.unseen:
        everyone, tested = setting.unseen
        for name, clients in (("unseen", tested), ("validation", setting.validation)):
            new = evaluate_unseen(
                algorithm, model, state, everyone, clients,
                support=experiment.unseen, seed=seed, dtype=dtype,
            )  # fmt: skip
            row[f"{name}_accuracy"] = sample_mean(new.accuracy, new.n_test)
            row[f"{name}_accuracy_mean"] = client_mean(new.accuracy, new.n_test)
    return Measured(scores, row, row["train_loss"], problem)


def problem_in_losses(scores: Scores, train: bool) -> str:
    """The first client whose loss is not finite, as a message; "" if all are."""
    bad = ~np.isfinite(scores.test_loss) & (scores.n_test > 0)
    if train:
        bad |= ~np.isfinite(scores.train_loss) & (scores.n_train > 0)
    return f"the loss of client {bad.argmax()} is not finite" if bad.any() else ""


def problem_in_parameters(state: State, plan: Plan) -> str:
    """Who has parameters that are not finite after a round, as a message; "" if nobody has."""
    if not tree.finite(state.server):
        return "the server's parameters are not finite"
    for k in plan.clients.tolist():
        if not tree.finite(state.clients.get(k)):
            return f"the parameters of client {k} are not finite"
    return ""


def rounds(
    setting: Setting,
    algorithm: AnyAlgorithm,
    seed: int,
    record: Record | None = None,
    work: RunClients | None = None,
    message: Callable[[str], None] = lambda text: None,
    engine: Engine = HERE,
    spent: Callable[[str, float], None] = lambda what, seconds: None,
) -> Iterator[Record]:
    """One unit, from where `record` stands: yields the record after every round.

    work : what runs a round's clients (None: this process). message : told of work that failed as
    a stack and is done again client by client. spent : told the seconds of every "training" and
    "evaluation".

    Stops early when parameters or an evaluated loss are no longer finite: status "diverged", with
    the last finite state.
    """
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    work = work or Workers(on_failure=experiment.on_failure, message=message)
    trained = trained_by(algorithm, federation, seed)

    if record is None:
        w = model.init(stream(seed, "init")).astype(dtype)
        state = State(algorithm.initial(model, w), {})
        began = perf_counter()
        scores, row, _, problem = measure(setting, algorithm, state, 0, seed, engine)
        spent("evaluation", perf_counter() - began)
        assert scores is not None
        row = {"round": 0, **row, **dict.fromkeys(TOTALS, 0), **algorithm.log(state.server)}
        status = "diverged" if problem else "running" if experiment.rounds else "done"
        reason = f"round 0: {problem}" if problem else ""
        record = Record(status, 0, state, [row], [0], [scores], reason)
        yield record
        if problem:
            return
    for t in range(record.round, experiment.rounds):
        began = perf_counter()
        plan = plan_for(algorithm, experiment, trained.train.sizes, t, seed)
        state, log = engine.round(
            algorithm, model, record.state, plan, trained, dtype=dtype, work=work,
        )  # fmt: skip
        found = Measured(problem=problem_in_parameters(state, plan))
        trained_at = perf_counter()
        spent("training", trained_at - began)
        if not found.problem:
            found = measure(setting, algorithm, state, t + 1, seed, engine)
            if found.scores is not None or algorithm.watches_loss:
                spent("evaluation", perf_counter() - trained_at)
        if found.problem:
            yield record._replace(status="diverged", reason=f"round {t + 1}: {found.problem}")
            return
        moved = state is not record.state  # else nobody's work arrived
        if algorithm.watches_loss and moved and not np.isnan(found.loss):  # NaN: nobody's is known
            state = state._replace(server=algorithm.observe(state.server, found.loss))
        new = cost.columns(model, log, dtype)
        totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
        row = {
            "round": t + 1, **found.row, **totals, **log.measured, **algorithm.log(state.server)
        }  # fmt: skip
        every = experiment.clients_every or 1
        kept = found.scores is not None and ((t + 1) % every == 0 or t + 1 == experiment.rounds)
        record = Record(
            "done" if t + 1 == experiment.rounds else "running",
            t + 1,
            state,
            [*record.rows, row],
            [*record.rounds, t + 1] if kept else record.rounds,
            [*record.scores, found.scores] if kept and found.scores else record.scores,
        )
        yield record
    if record.status == "running":
        yield record._replace(status="done")
