"""A run whose clients are on nodes: the server draws the plans from the nodes' sizes.

A node gets what a worker gets, without the rows: the parameters, and its clients' part of the plan.
Everything else is a local run's own code, so the numbers are equal to the bit.
"""

import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fedref import tree
from fedref.algorithm import Algorithm, AnyAlgorithm, ClientResult, State
from fedref.boundary import checkpoint
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import read_json, write_atomically
from fedref.boundary.values import Bounds, check_fields
from fedref.datasets.partition import offsets
from fedref.experiments import config
from fedref.experiments.config import Experiment, stamp
from fedref.experiments.loading import Loader, key_of
from fedref.experiments.progress import Progress
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.experiments.run_directory import begin_run
from fedref.experiments.unit import Engine, LoadedExperiment, Unit
from fedref.flower import messages
from fedref.flower.messages import (
    Call,
    ClientAnswer,
    Evaluate,
    Facts,
    MessageError,
    Train,
    check,
    require,
)
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData, gather
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import Plan, make_plan

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """clients : of all nodes. limit : seconds for an answer. wait : seconds for all nodes to begin."""

    clients: int
    limit: float = 600.0
    wait: float = 300.0

    bounds: ClassVar[Mapping[str, Any]] = {
        "clients": Bounds(1), "limit": Bounds(0), "wait": Bounds(0)
    }  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)


class Network(Protocol):
    """The link to the nodes."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are online."""

    def ask(self, requests: Mapping[int, bytes], limit: float) -> Mapping[int, Any]:
        """Send each node its request; return their answers, or for a node a text that says why not."""


@dataclass
class Nodes:
    """The nodes that a run began with: what each told of its rows, and who holds a client."""

    network: Network
    options: Options
    say: Say
    facts: dict[int, Facts]

    @property
    def holder(self) -> dict[int, int]:
        return {k: node for node, facts in self.facts.items() for k in facts.clients}

    def exchange(
        self, requests: Mapping[int, Any], read: Callable[[int, Any], Any], where: str
    ) -> dict[int, Any]:
        """Send each node its request; return what `read(node, answer)` makes of the answers.

        A node that does not answer, refuses, or sends what was not asked for is named, and left out.
        """
        data = {node: checkpoint.dumps(request) for node, request in requests.items()}
        answers, results = self.network.ask(data, self.options.limit), {}
        for node in sorted(requests):
            try:
                answer = answers.get(node, f"no answer in {self.options.limit:g} s")
                value = answer if isinstance(answer, str) else messages.read(answer)
                if isinstance(value, str):
                    raise MessageError(value)
                results[node] = read(node, value)
            except MessageError as error:
                self.say(f"{where}: node {node}: {error}")
        return results

    def gather_facts(self) -> None:
        """Ask the nodes for their rows until every client is held by one; FedrefError if it takes long."""
        end, N = time.monotonic() + self.options.wait, self.options.clients
        while len(self.holder) < N:
            new = dict.fromkeys(set(self.network.nodes()) - self.facts.keys(), "hello")
            self.exchange(new, self.accept, "at the start")
            if len(self.holder) < N and time.monotonic() > end:
                lacking = sorted({*range(N)} - self.holder.keys())
                raise FedrefError(
                    f"in {self.options.wait:g} s no node has announced the clients {lacking[:9]}: "
                    "start their nodes, then run the app again"
                )
            time.sleep(0 if len(self.holder) == N else min(1.0, self.options.wait / 10))

    def accept(self, node: int, facts: Facts) -> None:
        messages.check_facts(facts)
        held = self.holder.keys() & {*facts.clients}
        require(not held, f"announces clients {sorted(held)[:9]}, which another node holds")
        require(facts.clients[-1] < self.options.clients, "announces a client beyond the last")
        for other in self.facts.values():
            same = facts[3] == other[3] and facts[5:] == other[5:]
            require(same, "has other features, images or vocabulary than the other nodes")
        self.facts[node] = facts

    def stand_in(self, name: str) -> Federation:
        """Return a federation of the clients' sizes, whose rows are all the same row of zeros."""
        n = np.zeros((2, self.options.clients), np.int64)
        for facts in self.facts.values():
            n[:, facts.clients] = facts.n_train, facts.n_test
        labels = np.array(sorted({x for facts in self.facts.values() for x in facts.labels}))
        rows, cut, features = int(n.sum()), int(n[0].sum()), facts.features
        require(len(labels) <= rows, "there are more labels than rows")
        source = Source(
            np.broadcast_to(np.uint8(0), (rows, features)), np.resize(labels, rows), name=name,
            image=tuple(facts.image) or None,  # type: ignore[arg-type]
            vocabulary=tuple(facts.vocabulary) or None,
        )  # fmt: skip
        train = Part(np.arange(cut), offsets(n[0]))
        return Federation(source, train, Part(np.arange(cut, rows), offsets(n[1])), rule="flower")


@dataclass
class Remote:
    """The engine of a unit: rounds and evaluations, done by the nodes."""

    nodes: Nodes
    unit: Unit
    loaded: LoadedExperiment
    run: str
    experiment: str  # its stamp

    def call(self, round: int, clients: Sequence[int], states: Sequence[int | None]) -> Call:
        labels = self.loaded.whole.source.labels.tolist()
        kept = [-1 if t is None else t for t in states]
        return Call(self.run, self.experiment, self.unit.number, round, labels, [*clients], kept)

    def round(
        self, algorithm: AnyAlgorithm, model: Model, state: State, plan: Plan,
        federation: Federation, *, dtype: Any, work: Any = None,
    ) -> tuple[State, RoundLog]:  # fmt: skip
        """Run a round as `run_round` does; a client whose node does not answer has failed."""
        return run_round(
            algorithm, model, state, plan, federation, dtype=dtype, work=self.run_at_nodes
        )

    def run_at_nodes(
        self,
        algorithm: AnyAlgorithm,
        model: Model,
        sent: Any,
        states: Sequence[Any],
        data: LocalData,
    ) -> tuple[list[ClientResult | None], Counts]:
        """Do what `run_clients` does, at the nodes. In place of a client's state is its round."""
        ids, holder = data.clients.tolist(), self.nodes.holder
        parts = {
            node: [i for i, k in enumerate(ids) if holder[k] == node] for node in self.nodes.facts
        }
        requests = {}
        for node, part in parts.items():
            if part:
                own = data.subset(part)
                call = self.call(data.round, own.clients.tolist(), [states[i] for i in part])
                rows = tuple(own.rows[role] for role in algorithm.roles)
                requests[node] = Train(call, sent, rows, own.steps, own.per_epoch)
        expected = self.expected_result(algorithm, model, sent, data)

        def read(node: int, answer: Any) -> tuple[list[ClientResult | None], Counts]:
            require(isinstance(answer, tuple) and len(answer) == 2, "sends no results")
            results, counts = answer
            check(counts, [0], "counts")
            require(len(counts) == 4 and min(counts) >= 0, "claims a negative amount of work")
            part = parts[node]
            require(isinstance(results, list) and len(results) == len(part), "lacks results")
            done = [r if r is None else read_result(r, expected, data.round) for r in results]
            for i, result in zip(part, done):
                if result is None:
                    self.nodes.say(
                        f"{self.unit.name}: client {ids[i]} failed: its node's log says why"
                    )
            return done, Counts(*counts)

        where = f"{self.unit.name}, round {data.round + 1}"
        answers = self.nodes.exchange(requests, read, where)
        done: list[ClientResult | None] = [None] * len(ids)
        for node, (results, _) in answers.items():
            for i, result in zip(parts[node], results):
                done[i] = result
        return done, total(counts for _, counts in answers.values())

    def expected_result(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, data: LocalData
    ) -> ClientResult:
        """Return the result of a client with one row of zeros, as an example for all results."""
        source, sampling = (
            self.loaded.federation.source,
            self.unit.experiment.plan_of(self.loaded.federation.clients),
        )
        one = Part(np.zeros(1, np.int64), np.array([0, 1]))
        row = Federation(replace(source, X=source.X[:1], y=source.y[:1]), one, one)
        sampling = replace(sampling, clients_per_round=1, stragglers=0.0)
        plan = make_plan(sampling, np.array([1]), data.round, self.unit.seed, algorithm.roles)
        example = gather(plan, row, data.dtype, np.array([0]))
        with np.errstate(all="ignore"):
            (result,), _ = run_clients(algorithm, model, sent, [None], example)
        assert result is not None
        return result

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation,
        sampling: Any, *, round: int, seed: int, dtype: Any, train: bool,
    ) -> Scores:  # fmt: skip
        """Evaluate all clients, each on its node; a client without an answer has no rows."""
        sent, facts = algorithm.download(state.server), self.nodes.facts
        requests = {
            node: Evaluate(
                self.call(round, own.clients, [state.clients.get(k) for k in own.clients]),
                sent,
                train,
            )
            for node, own in facts.items()
        }
        where = f"{self.unit.name}, evaluation after round {round}"
        columns = np.full((5, federation.clients), np.nan)
        columns[[0, 3]] = 0
        answers = self.nodes.exchange(
            requests, lambda node, answer: read_scores(answer, facts[node], train), where
        )
        for node, scores in answers.items():
            columns[:, facts[node].clients] = scores
        n = columns[[0, 3]].astype(np.int64)
        return Scores(n[0], columns[1], columns[2], n[1], columns[4])


def read_result(result: Any, expected: ClientResult, round: int) -> ClientResult:
    """Check a client's result against the expected one; its state is the round."""
    log = dict.fromkeys(expected.log, 0.0)
    vector = max(tree.leaves(expected.upload), key=np.size)
    require(isinstance(result, ClientAnswer), "sends no result of a client")
    check(result.upload, expected.upload, "upload", vector)
    check(result.keeps, True, "keeps")
    check(result.log, log, "log")
    return ClientResult(result.upload, round if result.keeps else None, result.log)


def read_scores(answer: Any, facts: Facts, train: bool) -> Array:
    """Check the five columns of a node's `Scores`, (5, clients): finite where the client has rows."""
    n_test, n_train = np.array(facts.n_test), np.array(facts.n_train)
    require(isinstance(answer, tuple) and len(answer) == 5, "sends no scores")
    check((answer[0], answer[3]), (n_test, n_train), "the numbers of rows")
    require(
        (answer[0] == n_test).all() and (answer[3] == n_train).all(), "has other rows than before"
    )
    columns = np.full((5, len(n_test)), np.nan)
    columns[[0, 3]] = n_test, n_train
    for i, has in ((1, n_test > 0), (2, n_test > 0), (4, (n_train > 0) & train)):
        require(isinstance(answer[i], np.ndarray) and answer[i].shape == has.shape, "lacks scores")
        check(answer[i][has], np.zeros(int(has.sum())), "a column of scores")
        columns[i, has] = answer[i][has]
    accuracy = columns[1, n_test > 0]
    require(((accuracy >= 0) & (accuracy <= 1)).all(), "has an accuracy beyond 0 to 1")
    return columns


# ---- a run ---------------------------------------------------------------------------------------


def check_experiment(experiment: Experiment) -> None:
    """Raise ConfigError if an experiment needs rows or states that the server does not have."""
    for label, algorithm in experiment.algorithms.items():
        if algorithm.pooled:
            words = "pools all clients' rows, which are not on the server"
            raise ConfigError(f"{label} {words}; leave it out")
        if type(algorithm).download_for is not Algorithm.download_for:
            words = "sends what a client does not have yet, which the server cannot know"
            raise ConfigError(f"{label} {words}; leave it out")
    for key in experiment.sweep:
        if key.partition(".")[0] in ("data", "split"):
            words = "changes the rows of the clients, who have one split"
            raise ConfigError(f"sweep.{key} {words}")
    for option, needs_rows in (
        ("dissimilarity", experiment.dissimilarity),
        ("unseen", experiment.unseen > 0),
        (f"classes={experiment.classes}", experiment.classes != "all"),
    ):
        if needs_rows:
            raise ConfigError(f"{option} needs clients' rows on the server, which are not there")


def serve(
    network: Network,
    experiment: Experiment,
    out: Path,
    options: Options,
    say: Say = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """Run or resume an experiment over nodes, in the directory `out`, with the files of a local run.

    federation.json holds the run's name, which is random: two runs share no client's state. A
    checkpoint is written after every round, since a round over a network takes long anyway.
    """
    check_experiment(experiment)
    path = out / "federation.json"
    resumed = path.exists()
    if resumed and stamp(config.read_experiment(out)) != stamp(experiment):
        raise DataError(f"{out} holds the run of another experiment, expected another out")
    nodes = Nodes(network, options, say, {})
    nodes.gather_facts()
    loader = Loader()
    whole = nodes.stand_in(str(experiment.data["name"]))
    loader.kept[key_of(experiment.data, experiment.split)] = whole  # no sweep is over data
    begin_run(experiment, out)
    if not resumed:
        write_atomically(path, json.dumps({"run": secrets.token_hex(8)}).encode())
    run = str(read_json(path, "the file as the run left it").get("run"))

    def engine(unit: Unit, loaded: LoadedExperiment) -> Engine:
        if not loaded.model.labels:
            raise ConfigError("models of real targets are not run over Flower")
        require(
            loaded.model.d <= messages.MOST_NUMBERS, f"{loaded.model.d} parameters are too many"
        )
        remote = Remote(nodes, unit, loaded, run, stamp(experiment))
        return Engine(remote.round, remote.evaluate)

    return execute(
        experiment, out, every=0, loader=loader, engine=engine,
        progress=progress or Progress(message=say),
    )  # fmt: skip
