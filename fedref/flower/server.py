"""A run whose clients are on nodes: the server draws the plans from the nodes' sizes.

A node gets what a worker gets, without the rows: the parameters, and its clients' part of the plan.
Everything else is a local run's own code, so the numbers are equal to the bit.
"""

import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedref import tree
from fedref.algorithm import Algorithm, AnyAlgorithm, ClientResult, State
from fedref.boundary import checkpoint
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import read_json, write_atomically
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
from fedref.flower.messages import ClientAnswer, Facts, MessageError, Request, Work, check, require
from fedref.models.base import Model
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import Plan

Say = Callable[[str], None]


class Network(Protocol):
    """The link to the nodes."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are online."""

    def ask(self, requests: Mapping[int, bytes], limit: float) -> Mapping[int, Any]:
        """Send each node its request; return their answers, or for a node a text that says why not."""


@dataclass
class Nodes:
    """The nodes that a run began with: what each told of its rows, and client → node.

    clients : of all nodes. limit : seconds for an answer, and for all nodes to be there.
    """

    network: Network
    clients: int
    limit: float
    say: Say
    facts: dict[int, Facts] = field(default_factory=dict)
    holder: dict[int, int] = field(default_factory=dict)

    def exchange(
        self, requests: Mapping[int, Any], read: Callable[[int, Any], Any], where: str,
        limit: float | None = None,
    ) -> dict[int, Any]:  # fmt: skip
        """Send each node its request; return what `read(node, answer)` makes of the answers.

        A node that does not answer, refuses, or sends what was not asked for is named, and left out.
        """
        data = {node: checkpoint.dumps(request) for node, request in requests.items()}
        limit = self.limit if limit is None else limit
        answers, results = self.network.ask(data, limit), {}
        for node in sorted(requests):
            try:
                answer = answers.get(node, f"no answer in {limit:g} s")
                value = answer if isinstance(answer, str) else messages.read(answer)
                if isinstance(value, str):
                    raise MessageError(value)
                results[node] = read(node, value)
            except MessageError as error:
                self.say(f"{where}: node {node}: {error}")
        return results

    def gather_facts(self) -> None:
        """Ask the nodes for their rows until every client is held by one; FedrefError if it takes long."""
        end, N = time.monotonic() + self.limit, self.clients
        while len(self.holder) < N:
            new = dict.fromkeys(set(self.network.nodes()) - self.facts.keys(), "hello")
            # more than once: a node may still be at the work of a link that was killed
            self.exchange(new, self.accept, "at the start", self.limit / 4)
            if len(self.holder) < N and time.monotonic() > end:
                lacking = sorted({*range(N)} - self.holder.keys())
                raise FedrefError(
                    f"in {self.limit:g} s no node has announced the clients {lacking[:9]}: "
                    "start their nodes, then run the app again"
                )
            time.sleep(0 if len(self.holder) == N else min(1.0, self.limit / 10))

    def accept(self, node: int, facts: Facts) -> None:
        messages.check_facts(facts)
        clients = facts.clients.tolist()
        held = sorted(self.holder.keys() & {*clients})
        require(not held, f"announces clients {held[:9]}, which another node holds")
        require(clients[-1] < self.clients, "announces a client beyond the last")
        for other in self.facts.values():
            same = all(np.array_equal(facts[i], other[i]) for i in (3, 5, 6))
            require(same, "has other features, images or vocabulary than the other nodes")
        self.facts[node] = facts
        self.holder |= dict.fromkeys(clients, node)

    def stand_in(self, name: str) -> Federation:
        """Return a federation of the clients' sizes, whose rows are all the same row of zeros."""
        n = np.zeros((2, self.clients), np.int64)
        told = [*self.facts.values()]
        for facts in told:
            n[:, facts.clients] = facts.n_train, facts.n_test
        labels = np.unique(np.concatenate([facts.labels for facts in told]))
        rows, cut = int(n.sum()), int(n[0].sum())
        require(len(labels) <= rows, "there are more labels than rows")
        source = Source(
            np.broadcast_to(np.uint8(0), (rows, told[0].features)), np.resize(labels, rows), name=name,
            image=tuple(told[0].image.tolist()) or None,
            vocabulary=tuple(told[0].vocabulary.tolist()) or None,
        )  # fmt: skip
        train = Part(np.arange(cut), offsets(n[0]))
        return Federation(source, train, Part(np.arange(cut, rows), offsets(n[1])), rule="flower")


@dataclass
class Remote:
    """The engine of a unit: rounds and evaluations, done by the nodes."""

    nodes: Nodes
    unit: Unit
    head: Request  # what all requests of the unit have in common

    def round(
        self, algorithm: AnyAlgorithm, model: Model, state: State, plan: Plan,
        federation: Federation, *, dtype: Any, work: Any = None,
    ) -> tuple[State, RoundLog]:  # fmt: skip
        """Run a round as `run_round` does; a client whose node does not answer has failed."""
        work = self.run_at_nodes
        return run_round(algorithm, model, state, plan, federation, dtype=dtype, work=work)

    def run_at_nodes(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData
    ) -> tuple[list[ClientResult | None], Counts]:  # fmt: skip
        """Do what `run_clients` does, at the nodes. In place of a client's state is its round."""
        holder = np.array([self.nodes.holder[k] for k in data.clients.tolist()])
        places = {node: np.flatnonzero(holder == node) for node in self.nodes.facts}
        places = {node: at for node, at in places.items() if len(at)}
        rounds = np.array([-1 if t is None else t for t in states])
        requests = {
            node: self.head._replace(
                round=data.round, clients=data.clients[at], states=rounds[at], sent=sent,
                work=Work(
                    tuple(data.rows[role][at] for role in algorithm.roles),
                    data.steps[at], data.per_epoch[at],
                ),
            )
            for node, at in places.items()
        }  # fmt: skip
        expected = example_result(algorithm, model, sent, data)

        def read(node: int, answer: Any) -> tuple[list[ClientResult | None], Counts]:
            K = len(places[node])
            require(isinstance(answer, tuple) and len(answer) == 2, "sends no results")
            results, counts = answer
            check(counts, np.zeros(4, np.int64), "counts")
            require(
                0 <= counts.min() <= counts.max() < 2**53,
                "claims a negative or impossible amount of work",
            )
            require(isinstance(results, tuple) and len(results) == K, "lacks results")
            done = [r if r is None else read_result(r, expected, data.round) for r in results]
            return done, Counts(*counts.tolist())

        where = f"{self.unit.name}, round {data.round + 1}"
        answers = self.nodes.exchange(requests, read, where)
        done: list[ClientResult | None] = [None] * len(states)
        for node, (results, _) in answers.items():
            for i, result in zip(places[node].tolist(), results):
                done[i] = result
                if result is None:
                    failed = f"client {data.clients[i]} failed: its node's log says why"
                    self.nodes.say(f"{self.unit.name}: {failed}")
        return done, total(counts for _, counts in answers.values())

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation,
        sampling: Any, *, round: int, seed: int, dtype: Any, train: bool,
    ) -> Scores:  # fmt: skip
        """Evaluate all clients, each on its node; a client without an answer has no rows."""
        facts = self.nodes.facts
        head = self.head._replace(
            round=round, sent=algorithm.download(state.server), work=bool(train)
        )
        rounds = np.array([state.clients.get(k, -1) for k in range(federation.clients)])
        requests = {
            node: head._replace(clients=own.clients, states=rounds[own.clients])
            for node, own in facts.items()
        }
        where = f"{self.unit.name}, evaluation after round {round}"
        answers = self.nodes.exchange(
            requests, lambda node, answer: read_scores(answer, facts[node]), where
        )
        columns = np.zeros((5, federation.clients))
        for node, scores in answers.items():
            columns[:, facts[node].clients] = scores
        n_test, n_train = columns[[0, 3]].astype(np.int64)
        accuracy, test_loss = np.where(n_test > 0, columns[[1, 2]], np.nan)
        train_loss = np.where((n_train > 0) & train, columns[4], np.nan)
        return Scores(n_test, accuracy, test_loss, n_train, train_loss)


def example_result(
    algorithm: AnyAlgorithm, model: Model, sent: Any, data: LocalData
) -> ClientResult:
    """Return the result of one client after one step on the stand-in's rows, as an example for all."""
    one = data.subset_rows([0])
    rows = {role: batches[:, :1] for role, batches in one.rows.items()}
    one = one._replace(rows=rows, steps=np.ones(1, np.int64))
    with np.errstate(all="ignore"):
        (result,), _ = run_clients(algorithm, model, sent, [None], one)
    assert result is not None
    return result


def read_result(result: Any, expected: ClientResult, round: int) -> ClientResult:
    """Check a client's result against the expected one; its state is the round."""
    vector = max(tree.leaves(expected.upload), key=np.size)
    require(isinstance(result, ClientAnswer), "sends no result of a client")
    check(result.upload, expected.upload, "upload", vector)
    check(result[1:], (True, np.ones(len(expected.log))), "result")
    log = dict(zip(sorted(expected.log), result.log.tolist()))
    return ClientResult(result.upload, round if result.keeps else None, log)


def read_scores(answer: Any, facts: Facts) -> Scores:
    """Check the scores of a node's clients; where nothing is known, they are 0."""
    n_test, n_train = facts.n_test, facts.n_train
    number = np.zeros(len(n_test))
    check(answer, Scores(n_test, number, number, n_train, number), "scores")
    same = np.array_equal(answer.n_test, n_test) and np.array_equal(answer.n_train, n_train)
    require(same, "has other rows than before")
    within = (answer.accuracy >= 0) & (answer.accuracy <= 1)
    require(within.all(), "has an accuracy beyond 0 to 1")
    return Scores(*answer)


# ---- a run ---------------------------------------------------------------------------------------


def check_experiment(experiment: Experiment) -> None:
    """Raise ConfigError if an experiment needs rows or states that the server does not have."""
    refused = {
        "dissimilarity needs": experiment.dissimilarity,
        "unseen needs": experiment.unseen > 0,
        f"classes={experiment.classes} needs": experiment.classes != "all",
    } | {
        f"sweep.{key} changes": key.partition(".")[0] in ("data", "split")
        for key in experiment.sweep
    }
    for label, algorithm in experiment.algorithms.items():
        refused[f"{label} pools"] = algorithm.pooled
        known = type(algorithm).download_for is not Algorithm.download_for
        refused[f"{label} sends what a client does not have yet, which needs"] = known
    for what, needs_rows in refused.items():
        if needs_rows:
            raise ConfigError(f"{what} clients' rows or states, which the server does not have")


def serve(
    network: Network,
    experiment: Experiment,
    out: Path,
    *,
    clients: int,
    limit: float = 600.0,
    say: Say = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """Run or resume an experiment over nodes, in the directory `out`, with the files of a local run.

    clients, limit : as in `Nodes`. federation.json holds the run's name, which is random: two runs
    share no client's state. A checkpoint is written after every round, since a round over a network
    takes long anyway.
    """
    check_experiment(experiment)
    path = out / "federation.json"
    resumed = path.exists()
    if resumed and stamp(config.read_experiment(out)) != stamp(experiment):
        raise DataError(f"{out} holds the run of another experiment, expected another out")
    nodes = Nodes(network, clients, limit, say)
    nodes.gather_facts()
    loader, name = Loader(), str(experiment.data["name"])
    whole = nodes.stand_in(name)
    loader.kept[key_of(experiment.data, experiment.split)] = whole  # no sweep is over data
    begin_run(experiment, out)
    if not resumed:
        write_atomically(path, json.dumps({"run": secrets.token_hex(8)}).encode())
    run = str(read_json(path, "the file as the run left it").get("run"))
    head = Request(run, stamp(experiment), labels=whole.source.labels)

    def engine(unit: Unit, loaded: LoadedExperiment) -> Engine:
        if not loaded.model.labels:
            raise ConfigError("models of real targets are not run over Flower")
        require(loaded.model.d <= messages.MOST_NUMBERS, "the model has too many parameters")
        remote = Remote(nodes, unit, head._replace(unit=unit.number))
        return Engine(remote.round, remote.evaluate)

    progress = progress or Progress(message=say)
    return execute(experiment, out, every=0, loader=loader, engine=engine, progress=progress)
