"""Units of work: one algorithm from round 0 to T, at one point of the sweep, with one seed.

A unit is an experiment, too: one with a single algorithm, a single seed and no sweep. Its file is named
after the hash of its TOML text, so a unit whose values differ has another file.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms.fedprox import dissimilarity
from fedref.boundary.errors import ConfigError
from fedref.lab.experiments import config
from fedref.lab.experiments.generator import GeneratorRounds
from fedref.lab.experiments.own_code import CarefulClients, check_form, is_own, name_of
from fedref.lab.experiments.scores import ScoreFile
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds import cost
from fedref.rounds.evaluation import Scores, client_mean, evaluate, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation
from fedref.rounds.loop import pool, run_round
from fedref.rounds.metrics import TOTALS
from fedref.sampling import Plan, Sampling, make_plan, stream

Row = dict[str, Any]
#: More units than this are run with --many only.
MOST_UNITS = 10_000
Say = Callable[[str], None]


class Unit(NamedTuple):
    """One algorithm at one point of the sweep with one seed: the smallest thing that is resumed."""

    number: int  # its place in the order in which units are run and written
    experiment: config.Experiment  # of this algorithm and seed alone
    point: Mapping[str, Any]  # the keys and values of the sweep on which the algorithm depends
    file: str  # the name of its file

    @property
    def label(self) -> str:
        return next(iter(self.experiment.algorithms))

    @property
    def algorithm(self) -> AnyAlgorithm:
        return self.experiment.algorithms[self.label]

    @property
    def seed(self) -> int:
        return self.experiment.seeds[0]

    @property
    def variant(self) -> str:
        """The point of the sweep as text: "lr=0.1, rounds=5"."""
        return ", ".join(f"{key}={value}" for key, value in self.point.items())

    @property
    def title(self) -> str:
        """The name in tables, the same for all seeds: "fedavg (lr=0.1)"."""
        return f"{self.label} ({self.variant})" if self.point else self.label

    @property
    def name(self) -> str:
        """The name in messages: "fedavg (seed 0, lr=0.1)"."""
        return f"{self.label} (seed {self.seed}{', ' if self.point else ''}{self.variant})"

    @property
    def columns(self) -> Row:
        """The columns of the tables that say which unit a row belongs to; a list becomes text."""
        point = {f"sweep.{key}": value for key, value in self.point.items()}
        texts = {k: str(x) for k, x in point.items() if not isinstance(x, bool | int | float | str)}
        return {"algorithm": self.label, **point, **texts, "seed": self.seed}

    def rounds_done(self, record: "Record") -> int:
        """Return how many rounds are done, the start included; all of them if the unit has ended."""
        return 1 + (record.round if record.status == "running" else self.experiment.rounds)


def units(experiment: config.Experiment) -> list[Unit]:
    """Return the units of an experiment, in the order in which they are run and written."""
    by_file: dict[str, Unit] = {}  # an algorithm that does not depend on a swept key is run once
    labels: dict[str, set[str]] = {}
    for point, one in config.sweep_points(experiment):
        labels = labels or {key: config.labels_with(one, key) for key in point}
        for seed, (label, algorithm) in itertools.product(one.seeds, one.algorithms.items()):
            single = replace(one, name="unit", seeds=(seed,), algorithms={label: algorithm})
            digest = config.stamp(single)[:12]
            used = {key: value for key, value in point.items() if label in labels[key]}
            file = f"{label}-seed{seed}-{digest}.ckpt"
            by_file.setdefault(file, Unit(len(by_file), single, used, file))
    return list(by_file.values())


def check_many(experiment: config.Experiment, many: bool) -> None:
    """Refuse a sweep of more units than anybody means to run, unless they say so by `many`."""
    sizes = [len(values) for values in experiment.sweep.values()]
    number = prod(sizes) * len(experiment.seeds) * len(experiment.algorithms)
    if number > MOST_UNITS and not many:
        raise ConfigError(
            f"the sweep asks for up to {number} units (points, algorithms and seeds), expected at most "
            f"{MOST_UNITS}, or --many (many=True)"
        )


def count_work(experiment: config.Experiment) -> str:
    """Return how much there is to do, as text: "6 units, 600 rounds, 66 evaluations"."""
    work = [unit.experiment for unit in units(experiment)]
    evaluations = sum(1 + -(-one.rounds // one.eval_every) for one in work)
    rounds = sum(one.rounds for one in work)
    counts = {"unit": len(work), "round": rounds, "evaluation": evaluations}
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for word, n in counts.items())


class LoadedExperiment(NamedTuple):
    """The data and the model of a unit."""

    whole: Federation  # as it was split
    federation: Federation  # the clients that train and are tested
    model: Model
    unseen: tuple[Federation, Array] | None  # all clients, and which are tested but never train
    validation_clients: Array  # which of all clients are kept back to choose hyperparameters by


class Record(NamedTuple):
    """The progress of a unit: everything that is needed to go on, and all its results."""

    status: str  # running, done or diverged
    round: int  # rounds done
    state: State
    rows: list[Row]  # of metrics.csv, one a round
    rounds: list[int]  # the evaluated rounds whose scores are kept
    scores: Sequence[Scores]
    reason: str = ""
    seal: Mapping[str, str] = {}  # in a file: what the numbers were computed from
    one_by_one: bool | None = None  # whether clients are never stacked; None: not decided yet

    def __repr__(self) -> str:
        """Return a short text: the state alone can have millions of numbers."""
        return f"<Record of round {self.round}, {self.status}>"

    def earlier(self) -> Iterator["Record"]:
        """Yield the records of the rounds before this one, as `iterate_rounds` did, without their states."""
        # the last finite round was a record of its own, unless there was none
        later = self.status == "diverged" and not self.reason.startswith("round 0:")
        for n in range(1, len(self.rows) + later):
            yield self._replace(status="running", reason="", round=n - 1, rows=self.rows[:n])


# ---- rounds --------------------------------------------------------------------------------------


class Engine(NamedTuple):
    """The two functions that do the work of a run: a round and an evaluation."""

    round: Callable[..., tuple[State, cost.RoundLog]] = run_round
    evaluate: Callable[..., Scores] = evaluate


LOCAL = Engine()
#: Makes the engine of a unit; None: this process is it.
EngineOf = Callable[[Unit, LoadedExperiment], Engine] | None


def iterate_rounds(
    unit: Unit,
    loaded: LoadedExperiment,
    record: Record | None = None,
    say: Say = lambda text: None,
    engine: Engine = LOCAL,
    score_file: ScoreFile | None = None,
) -> Iterator[Record]:
    """Run the rounds of a unit that `record` does not have yet; yield the record after each.

    Stops early if parameters or an evaluated loss are no longer finite. The status is then
    "diverged", and the state the last finite one. say : is called if clients are run one by one.
    score_file : where a unit that begins puts its scores (None: in memory).
    """
    algorithm, trained = unit.algorithm, loaded.federation
    if algorithm.pooled:  # one client with all rows
        trained = pool(trained, stream(unit.seed, "pool"))
    if algorithm.generator:
        plan_of = partial(plan_for, unit, trained.train.sizes)
        engine = engine._replace(round=GeneratorRounds(unit, loaded, trained, plan_of, say))
    work = CarefulClients(unit.experiment.on_failure, say, record and record.one_by_one)
    if record is None:
        record = begin(unit, loaded, engine, score_file)
        yield record
    while record.status == "running":
        record = add_round(unit, loaded, trained, record, engine, work)
        yield record


def begin(
    unit: Unit, loaded: LoadedExperiment, engine: Engine, score_file: ScoreFile | None
) -> Record:
    """Return the record of round 0: the initial state, evaluated."""
    experiment, algorithm, model = unit.experiment, unit.algorithm, loaded.model
    w = model.init(stream(unit.seed, "init")).astype(experiment.dtype)
    state = State(algorithm.initial(model, w), {})
    scores, row, problem = evaluate_round(unit, loaded, state, 0, True, engine)
    more = dict.fromkeys(TOTALS, 0) | algorithm.server_metrics(state.server)
    kept: Sequence[Scores] = [scores] if score_file is None else score_file.add(scores)
    status = "running" if experiment.rounds else "done"
    record = Record(status, 0, state, [{"round": 0, **row, **more}], [0], kept)
    return diverged(record, 0, problem) if problem else record


def add_round(
    unit: Unit, loaded: LoadedExperiment, trained: Federation, record: Record, engine: Engine,
    work: CarefulClients,
) -> Record:  # fmt: skip
    """Return the record after one more round, or that of a unit that diverged in it.

    trained : the clients as they train, which the centralised baseline has pooled.
    """
    experiment, algorithm, model = unit.experiment, unit.algorithm, loaded.model
    dtype, t = np.dtype(experiment.dtype), record.round + 1
    plan = plan_for(unit, trained.train.sizes, record.round)
    state, log = engine.round(algorithm, model, record.state, plan, trained, dtype=dtype, work=work)
    if is_own(algorithm):
        what = f"{name_of(algorithm)}: the server's state after a round"
        check_form(what, record.state.server, state.server)
    if problem := problem_in_parameters(state, plan):
        return diverged(record, t, problem)
    last = t == experiment.rounds
    due = last or t % experiment.eval_every == 0
    row: Row = {}
    rounds, kept = record.rounds, record.scores
    if due or algorithm.watches_loss:
        scores, row, problem = evaluate_round(unit, loaded, state, t, due, engine)
        if problem:
            return diverged(record, t, problem)
        if due and (last or t % (experiment.clients_every or 1) == 0):
            rounds = [*rounds, t]
            kept = kept.add(scores) if isinstance(kept, ScoreFile) else [*kept, scores]
    loss, moved = row.get("train_loss", np.nan), state is not record.state
    if algorithm.watches_loss and moved and not np.isnan(loss):  # else no client's work arrived
        state = state._replace(server=algorithm.observe_loss(state.server, loss))
    new = cost.columns(model, log, dtype)
    totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
    measured = {**log.measured, **algorithm.server_metrics(state.server)}
    row = {"round": t, **(row if due else {}), **totals, **measured}
    status, rows = "done" if last else "running", [*record.rows, row]
    return Record(status, t, state, rows, rounds, kept, one_by_one=work.one_by_one)


def diverged(record: Record, t: int, problem: str) -> Record:
    """Return the last finite record of a unit, with what was no longer finite after t rounds."""
    return record._replace(status="diverged", reason=f"round {t}: {problem}")


def plan_for(unit: Unit, sizes: Array, round: int) -> Plan:
    """Draw the round's plan; the centralised baseline has one client and one epoch."""
    sampling = unit.experiment.plan_of(len(sizes))
    if unit.algorithm.pooled:
        sampling = Sampling(clients_per_round=1, epochs=1, batch_size=unit.experiment.batch_size)
    return make_plan(sampling, sizes, round, unit.seed, unit.algorithm.roles)


# ---- evaluations ---------------------------------------------------------------------------------


def evaluate_round(
    unit: Unit, loaded: LoadedExperiment, state: State, t: int, due: bool, engine: Engine
) -> tuple[Scores, Row, str]:
    """Return the scores after t rounds, the columns of metrics.csv, and why training has diverged.

    due : whether the round is evaluated; else only the training loss is, which an algorithm watches.
    """
    experiment, algorithm, model = unit.experiment, unit.algorithm, loaded.model
    federation, dtype = loaded.federation, np.dtype(experiment.dtype)
    train = experiment.eval_train or algorithm.watches_loss
    plan = experiment.plan_of(federation.clients)
    how: dict[str, Any] = {"seed": unit.seed, "dtype": dtype}
    now: dict[str, Any] = {"round": t, "train": train, "test": due}
    scores = engine.evaluate(algorithm, model, state, federation, plan, **now, **how)
    row: Row = {}
    for name, n in (("accuracy", "n_test"), ("test_loss", "n_test"), ("train_loss", "n_train")):
        row |= mean_columns(name, getattr(scores, name), getattr(scores, n))
    problem = problem_in_losses(scores, train, due)
    if due and experiment.dissimilarity and not problem:
        w = algorithm.personalised_params(model, algorithm.download(state.server), None, None)
        parts = (federation.train.rows_of(k) for k in range(federation.clients))
        batches = [federation.batch(rows, dtype) for rows in parts]
        row["B"], row["variance"] = dissimilarity(model, w, batches)
    if due and federation.validation is not None:
        as_test = replace(federation, test=federation.validation)
        new = evaluate(algorithm, model, state, as_test, plan, round=t, train=False, **how)
        row |= mean_columns("validation_accuracy", new.accuracy, new.n_test)
        row |= mean_columns("validation_loss", new.test_loss, new.n_test)
    if due and loaded.unseen:
        everyone, tested = loaded.unseen
        groups = {"unseen": tested, "validation_clients": loaded.validation_clients}
        how["support"] = experiment.unseen
        for name, clients in groups.items():
            if not len(clients):
                continue
            new = evaluate_unseen(algorithm, model, state, everyone, clients, **how)
            row |= mean_columns(f"{name}_accuracy", new.accuracy, new.n_test)
            if not model.labels:
                row |= mean_columns(f"{name}_loss", new.test_loss, new.n_test)
    return scores, row, problem


def mean_columns(name: str, values: Array, n: Array) -> Row:
    """Return the mean of clients' values over their rows, and over the clients."""
    return {name: sample_mean(values, n), f"{name}_mean": client_mean(values, n)}


def problem_in_losses(scores: Scores, train: bool, test: bool = True) -> str:
    """Name the first client with a loss that is not finite, of those that were evaluated; "" if none."""
    bad = ~np.isfinite(scores.test_loss) & (scores.n_test > 0) & test
    bad |= ~np.isfinite(scores.train_loss) & (scores.n_train > 0) & train
    return f"the loss of client {bad.argmax()} is not finite" if bad.any() else ""


def problem_in_parameters(state: State, plan: Plan) -> str:
    """Say whose parameters are not finite after a round; "" if all are finite."""
    if not tree.finite(state.server):
        return "the server's parameters are not finite"
    for k in plan.clients.tolist():
        if not tree.finite(state.clients.get(k)):
            return f"the parameters of client {k} are not finite"
    return ""
