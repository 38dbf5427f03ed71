"""Units of work: one algorithm from round 0 to T, at one point of the sweep, with one seed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms.fedprox import dissimilarity
from fedref.experiments import config
from fedref.experiments.config import Experiment
from fedref.experiments.metrics import TOTALS
from fedref.experiments.parallel import Workers
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds import cost
from fedref.rounds.evaluation import Scores, client_mean, evaluate, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation
from fedref.rounds.loop import RunClients, pool, run_round
from fedref.sampling import Plan, Sampling, make_plan, stream

Row = dict[str, Any]


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment at one point of its sweep, with all that a unit needs besides its algorithm."""

    experiment: Experiment
    whole: Federation  # as it was split
    federation: Federation  # the clients that train and are tested
    model: Model
    unseen: tuple[Federation, Array] | None  # all clients, and which are tested but never train
    validation: Array  # which of all clients are kept back to choose hyperparameters by


class Unit(NamedTuple):
    """One algorithm at one point of the sweep with one seed: the smallest thing that is resumed."""

    number: int
    label: str
    seed: int
    point: Mapping[str, Any]

    @property
    def variant(self) -> str:
        """The point of the sweep as text: "lr=0.1, rounds=5"."""
        return ", ".join(f"{key}={value}" for key, value in self.point.items())

    @property
    def title(self) -> str:
        """The name in tables, the same for all seeds: "fedavg (lr=0.1)"."""
        return f"{self.label} ({self.variant})" if self.point else self.label

    @property
    def columns(self) -> dict[str, Any]:
        """The point of the sweep as columns of the tables; a list becomes text."""
        plain = (bool, int, float, str)
        return {
            f"sweep.{key}": value if isinstance(value, plain) else str(value)
            for key, value in self.point.items()
        }

    @property
    def name(self) -> str:
        """The name in messages: "fedavg (seed 0, lr=0.1)"."""
        return f"{self.label} (seed {self.seed}{', ' * bool(self.point)}{self.variant})"

    @property
    def file(self) -> str:
        return f"{self.number:04d}-{self.label}-seed{self.seed}.ckpt"


class Record(NamedTuple):
    """The progress of a unit: everything that is needed to go on, and all its results."""

    status: str  # running, done or diverged
    round: int  # rounds done
    state: State
    rows: list[Row]
    rounds: list[int]  # the evaluated rounds whose scores are kept
    scores: list[Scores]
    reason: str = ""
    sealed: Mapping[str, str] = MappingProxyType({})  # in a file, what it was computed from

    def __repr__(self) -> str:
        """Return a short text: the state alone can have millions of numbers."""
        return f"<Record of round {self.round}, {self.status}>"


#: The key of a unit's name among what is `sealed`.
UNIT = "unit"


def stamp(experiment: Experiment) -> str:
    """Return the SHA-256 of all values of an experiment, which identifies it."""
    return sha256(config.toml_text(experiment).encode()).hexdigest()


def units(experiment: Experiment) -> list[Unit]:
    """Return the units of an experiment, in the order in which they are run and written."""
    triples = [
        (label, seed, config.restrict_point(experiment, label, point))
        for point in config.sweep_points(experiment)
        for seed in experiment.seeds
        for label in experiment.algorithms
    ]
    # an algorithm that does not depend on the swept key is run once
    unique = {repr(triple): triple for triple in triples}
    return [Unit(i, *triple) for i, triple in enumerate(unique.values())]


# ---- one unit ------------------------------------------------------------------------------------


def row_of_scores(scores: Scores) -> Row:
    """Return the means of the scores over rows, and over clients."""
    row: Row = {}
    for name, n in (("accuracy", "n_test"), ("test_loss", "n_test"), ("train_loss", "n_train")):
        values, sizes = getattr(scores, name), getattr(scores, n)
        row |= {name: sample_mean(values, sizes), f"{name}_mean": client_mean(values, sizes)}
    return row


def training_federation(algorithm: AnyAlgorithm, federation: Federation, seed: int) -> Federation:
    """Return the clients that the rounds train: for the centralised baseline, one with all rows."""
    return pool(federation, stream(seed, "pool")) if algorithm.pooled else federation


def plan_for(
    algorithm: AnyAlgorithm, experiment: Experiment, sizes: Array, round: int, seed: int
) -> Plan:
    """Draw the round's plan; the centralised baseline has one client and one epoch."""
    sampling = experiment.plan
    if experiment.clients_per_round is None:
        sampling = replace(sampling, clients_per_round=min(sampling.clients_per_round, len(sizes)))
    if algorithm.pooled:
        sampling = Sampling(clients_per_round=1, epochs=1, batch_size=experiment.batch_size)
    return make_plan(sampling, sizes, round, seed, algorithm.roles)


class Evaluation(NamedTuple):
    """The scores after a round, and the row of metrics.csv and the problem that follow from them."""

    scores: Scores | None = None  # None: this round is not evaluated
    row: Mapping[str, Any] = MappingProxyType({})
    loss: float = float("nan")  # the training loss, if the algorithm asks for it
    problem: str = ""  # why training has diverged


class Engine(NamedTuple):
    """The two functions that do the work of a run: a round and an evaluation."""

    round: Callable[..., tuple[State, cost.RoundLog]] = run_round
    evaluate: Callable[..., Scores] = evaluate


#: The engine of a local run: this process, with its workers.
LOCAL = Engine()


def evaluate_if_due(
    loaded: LoadedExperiment,
    algorithm: AnyAlgorithm,
    state: State,
    t: int,
    seed: int,
    engine: Engine,
) -> Evaluation:
    """Evaluate after t rounds if it is due, or if the algorithm asks for the training loss."""
    experiment, federation, model = loaded.experiment, loaded.federation, loaded.model
    dtype = np.dtype(experiment.dtype)
    due = t % experiment.eval_every == 0 or t == experiment.rounds
    if not due and not algorithm.watches_loss:
        return Evaluation()
    train = experiment.eval_train or algorithm.watches_loss
    scores = engine.evaluate(
        algorithm, model, state, federation, experiment.plan,
        round=t, seed=seed, dtype=dtype, train=train,
    )  # fmt: skip
    row, problem = row_of_scores(scores), problem_in_losses(scores, train)
    if not due:
        return Evaluation(loss=row["train_loss"], problem=problem)
    if experiment.dissimilarity and not problem:
        w = algorithm.personalised_params(model, algorithm.download(state.server), None, None)
        batches = [
            federation.batch(federation.train.rows_of(k), dtype) for k in range(federation.clients)
        ]
        row["B"], row["variance"] = dissimilarity(model, w, batches)
    if loaded.unseen:
        everyone, tested = loaded.unseen
        for name, clients in (("unseen", tested), ("validation", loaded.validation)):
            new = evaluate_unseen(
                algorithm, model, state, everyone, clients,
                support=experiment.unseen, seed=seed, dtype=dtype,
            )  # fmt: skip
            row[f"{name}_accuracy"] = sample_mean(new.accuracy, new.n_test)
            row[f"{name}_accuracy_mean"] = client_mean(new.accuracy, new.n_test)
    return Evaluation(scores, row, row["train_loss"], problem)


def problem_in_losses(scores: Scores, train: bool) -> str:
    """Name the first client with a loss that is not finite; "" if all losses are finite."""
    bad = ~np.isfinite(scores.test_loss) & (scores.n_test > 0)
    if train:
        bad |= ~np.isfinite(scores.train_loss) & (scores.n_train > 0)
    return f"the loss of client {bad.argmax()} is not finite" if bad.any() else ""


def problem_in_parameters(state: State, plan: Plan) -> str:
    """Say whose parameters are not finite after a round; "" if all are finite."""
    if not tree.finite(state.server):
        return "the server's parameters are not finite"
    for k in plan.clients.tolist():
        if not tree.finite(state.clients.get(k)):
            return f"the parameters of client {k} are not finite"
    return ""


def iterate_rounds(
    loaded: LoadedExperiment,
    algorithm: AnyAlgorithm,
    seed: int,
    record: Record | None = None,
    work: RunClients | None = None,
    message: Callable[[str], None] = lambda text: None,
    engine: Engine = LOCAL,
) -> Iterator[Record]:
    """Run the rounds of a unit that `record` does not have yet; yield the record after each.

    work : the function that runs a round's clients (None: in this process). message : is called
    when a stack of clients has failed and they are run again one by one.

    Stops early if parameters or an evaluated loss are no longer finite. The status is then
    "diverged", and the state the last finite one.
    """
    experiment, federation, model = loaded.experiment, loaded.federation, loaded.model
    dtype = np.dtype(experiment.dtype)
    work = work or Workers(on_failure=experiment.on_failure, message=message)
    trained = training_federation(algorithm, federation, seed)

    if record is None:
        w = model.init(stream(seed, "init")).astype(dtype)
        state = State(algorithm.initial(model, w), {})
        scores, row, _, problem = evaluate_if_due(loaded, algorithm, state, 0, seed, engine)
        assert scores is not None
        row = {
            "round": 0,
            **row,
            **dict.fromkeys(TOTALS, 0),
            **algorithm.server_metrics(state.server),
        }
        status = "diverged" if problem else "running" if experiment.rounds else "done"
        reason = f"round 0: {problem}" if problem else ""
        record = Record(status, 0, state, [row], [0], [scores], reason)
        yield record
        if problem:
            return
    for t in range(record.round, experiment.rounds):
        plan = plan_for(algorithm, experiment, trained.train.sizes, t, seed)
        state, log = engine.round(
            algorithm, model, record.state, plan, trained, dtype=dtype, work=work,
        )  # fmt: skip
        after = Evaluation(problem=problem_in_parameters(state, plan))
        if not after.problem:
            after = evaluate_if_due(loaded, algorithm, state, t + 1, seed, engine)
        if after.problem:
            yield record._replace(status="diverged", reason=f"round {t + 1}: {after.problem}")
            return
        moved = state is not record.state  # else no client's work arrived
        if algorithm.watches_loss and moved and not np.isnan(after.loss):  # NaN: no loss is known
            state = state._replace(server=algorithm.observe_loss(state.server, after.loss))
        new = cost.columns(model, log, dtype)
        totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
        row = {
            "round": t + 1, **after.row, **totals, **log.measured, **algorithm.server_metrics(state.server)
        }  # fmt: skip
        every = experiment.clients_every or 1
        last = t + 1 == experiment.rounds
        kept = [after.scores] if after.scores and (last or (t + 1) % every == 0) else []
        record = Record(
            "done" if last else "running",
            t + 1,
            state,
            [*record.rows, row],
            [*record.rounds, *[t + 1] * len(kept)],
            [*record.scores, *kept],
        )
        yield record
