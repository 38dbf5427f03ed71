"""An experiment becomes numbers: units of work, each one algorithm from round 0 to T."""

import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref import cost, tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms.fedprox import dissimilarity
from fedref.datasets import from_manifest, load, split, split_clients
from fedref.datasets.sources import parse_name
from fedref.errors import ConfigError
from fedref.evaluation import Scores, client_mean, evaluate, evaluate_unseen, sample_mean
from fedref.experiments import config
from fedref.experiments.config import Experiment
from fedref.experiments.workers import Workers
from fedref.federation import Federation
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.rounds import pool, run_round
from fedref.sampling import Plan, Sampling, make_plan, stream

#: What a row of a record counts: totals since round 0.
TOTALS = ("bytes_down", "bytes_up", "grads", "hvps", "flops", "stragglers", "dropped", "failed")

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
    rounds: list[int]  # the evaluated rounds
    scores: list[Scores]
    reason: str = ""
    experiment: str = ""  # whose `stamp` it has; "" in what an older fedref wrote


@dataclass(frozen=True)
class Setting:
    """What a unit needs besides its algorithm: made once for each point of the sweep."""

    experiment: Experiment
    whole: Federation  # as it was split
    federation: Federation  # whom we train and test on
    model: Model
    unseen: tuple[Federation, Array] | None  # everybody, and those that are tested unseen


def stamp(experiment: Experiment) -> str:
    """What tells an experiment from any other: the SHA-256 of all its values."""
    return sha256(config.text(experiment).encode()).hexdigest()


def units(experiment: Experiment) -> list[Unit]:
    """In the order in which they are run and written."""
    triples = [
        (label, seed, point)
        for point in config.sweep_points(experiment)
        for seed in experiment.seeds
        for label in experiment.algorithms
    ]
    return [Unit(i, *triple) for i, triple in enumerate(triples)]


# ---- from names to things ------------------------------------------------------------------------


def federation_of(experiment: Experiment, data_dir: str | Path | None = None) -> Federation:
    """The split data of an experiment."""
    table = config.split_table(experiment.split)
    rule = table.pop("rule")
    data = dict(experiment.data)
    if rule.endswith(".json"):  # it names its data; where they are a file, its folder is known here
        return from_manifest(rule, Path(data["name"]).parent if is_file(data["name"]) else data_dir)
    source = load(data.pop("name"), data_dir, **data)
    return split(rule, source, table.pop("seed"), **given(table))


def given(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that are to be found from the data."""
    return {key: value for key, value in table.items() if value is not None}


def setting(
    experiment: Experiment, data_dir: str | Path | None = None, before: Setting | None = None
) -> Setting:
    """Load, split and check: every mistake in data or options is met here, before any work.

    before : another point of the same sweep; where it has the same data, they are not loaded anew.
    """
    same = before and (before.experiment.data, before.experiment.split) == (
        experiment.data,
        experiment.split,
    )
    whole = before.whole if before and same else federation_of(experiment, data_dir)
    model = config.make_model(experiment.model, whole.source)
    federation = config.relabelled(whole, model)
    federation.check()
    unseen = None
    if experiment.unseen:
        train, _, test = split_clients(federation.clients, federation.seed)
        if not len(test):
            raise ConfigError(
                f"unseen needs 10 clients or more, to test one in ten, and has {federation.clients}"
            )
        unseen = (federation, test)
        federation = federation.subset(train)
    for label in experiment.algorithms:
        if config.algorithm(experiment, label).pooled:
            continue
        if experiment.clients_per_round > federation.clients:
            raise ConfigError(
                f"clients-per-round is {experiment.clients_per_round}, "
                f"but there are only {federation.clients} clients to train on"
            )
    return Setting(experiment, whole, federation, model, unseen)


def check(experiment: Experiment, data_dir: str | Path | None = None) -> Experiment:
    """Meet every mistake, at every point of the sweep, before there is a directory or any work.

    Returns the experiment as config.toml will hold it: with the values found from its data.
    """
    found = None
    for point in config.sweep_points(experiment):
        found = setting(config.at_point(experiment, point), data_dir, found)
    assert found is not None
    return config.from_table(tomllib.loads(config.text(settled(experiment, found.whole))))


def settled(experiment: Experiment, federation: Federation) -> Experiment:
    """With the split's values that were found from the data, unless a sweep changes them; and files
    by their absolute paths, so that a run can be resumed from another folder."""
    data, table = dict(experiment.data), dict(experiment.split)
    manifest = table["rule"].endswith(".json")
    if manifest and not is_file(data["name"]):
        data = {"name": federation.source.name}
    elif not manifest and not any(key.startswith(("data.", "split.")) for key in experiment.sweep):
        table |= federation.parameters
    data["name"], table["rule"] = absolute(data["name"]), absolute(table["rule"])
    return replace(experiment, data=data, split=table)


def is_file(name: str) -> bool:
    """Whether data are a file or folder, not a named data set."""
    return parse_name(name) is None and Path(name).exists()


def absolute(name: str) -> str:
    """A file's absolute path; any other name as it is."""
    return str(Path(name).resolve()) if is_file(name) else name


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


def measure(setting: Setting, algorithm: AnyAlgorithm, state: State, t: int, seed: int) -> Measured:
    """Evaluate after t rounds, if that is due or the algorithm asks for the training loss."""
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    due = t % experiment.eval_every == 0 or t == experiment.rounds
    if not due and not algorithm.watches_loss:
        return Measured()
    train = experiment.eval_train or algorithm.watches_loss
    scores = evaluate(
        algorithm, model, state, federation, experiment.plan,
        round=t, seed=seed, dtype=dtype, train=train,
    )  # fmt: skip
    row, problem = scores_row(scores), problem_in_losses(scores, train)
    if not due:
        return Measured(loss=row["train_loss"], problem=problem)
    if experiment.dissimilarity and not problem:
        w = algorithm.personal(model, algorithm.download(state.server), None, None)
        everyone = [
            federation.batch(federation.train.of(k), dtype) for k in range(federation.clients)
        ]
        row["B"], row["variance"] = dissimilarity(model, w, everyone)
    if setting.unseen:
        new = evaluate_unseen(
            algorithm, model, state, *setting.unseen,
            support=experiment.unseen, seed=seed, dtype=dtype,
        )  # fmt: skip
        row["unseen_accuracy"] = sample_mean(new.accuracy, new.n_test)
        row["unseen_accuracy_mean"] = client_mean(new.accuracy, new.n_test)
    return Measured(scores, row, row["train_loss"], problem)


def problem_in_losses(scores: Scores, train: bool) -> str:
    """Whose loss is no finite number, if anybody's."""
    bad = ~np.isfinite(scores.test_loss) & (scores.n_test > 0)
    if train:
        bad |= ~np.isfinite(scores.train_loss)
    return f"the loss of client {bad.argmax()} is not finite" if bad.any() else ""


def problem_in_parameters(state: State, plan: Plan) -> str:
    """Whose parameters are no finite numbers after a round, if anybody's."""
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
    executor: Executor | None = None,
    workers: int = 1,
) -> Iterator[Record]:
    """One unit, from where `record` stands: yields the record after every round.

    Stops early when parameters or an evaluated loss are no longer finite: status "diverged", with
    the last finite state.
    """
    experiment, federation, model = setting.experiment, setting.federation, setting.model
    dtype = np.dtype(experiment.dtype)
    work = Workers(executor, workers, experiment.on_failure)
    trained = pool(federation, stream(seed, "pool")) if algorithm.pooled else federation

    if record is None:
        w = model.init(stream(seed, "init")).astype(dtype)
        state = State(algorithm.initial(model, w), {})
        scores, row, _, problem = measure(setting, algorithm, state, 0, seed)
        assert scores is not None
        row = {"round": 0, **row, **dict.fromkeys(TOTALS, 0), **algorithm.log(state.server)}
        status = "diverged" if problem else "running" if experiment.rounds else "done"
        reason = f"round 0: {problem}" if problem else ""
        record = Record(status, 0, state, [row], [0], [scores], reason)
        yield record
        if problem:
            return
    for t in range(record.round, experiment.rounds):
        plan = plan_for(algorithm, experiment, trained.train.sizes, t, seed)
        state, log = run_round(
            algorithm, model, record.state, plan, trained, dtype=dtype, work=work,
        )  # fmt: skip
        found = Measured(problem=problem_in_parameters(state, plan))
        if not found.problem:
            found = measure(setting, algorithm, state, t + 1, seed)
        if found.problem:
            yield record._replace(status="diverged", reason=f"round {t + 1}: {found.problem}")
            return
        if algorithm.watches_loss and state is not record.state:  # else nobody's work arrived
            state = state._replace(server=algorithm.observe(state.server, found.loss))
        new = cost.columns(model, log, dtype)
        totals = {name: record.rows[-1][name] + new[name] for name in TOTALS}
        row = {
            "round": t + 1, **found.row, **totals, **log.measured, **algorithm.log(state.server)
        }  # fmt: skip
        evaluated = found.scores is not None
        record = Record(
            "done" if t + 1 == experiment.rounds else "running",
            t + 1,
            state,
            [*record.rows, row],
            [*record.rounds, t + 1] if evaluated else record.rounds,
            [*record.scores, found.scores] if found.scores is not None else record.scores,
        )
        yield record
    if record.status == "running":
        yield record._replace(status="done")
