"""A run whose clients are on nodes: the server draws the plans from the nodes' sizes.

A node gets what a worker gets, without the rows: the parameters, and its clients' part of the plan.
Everything else is a local run's own code, so the numbers are equal to the bit.
"""

import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedref.algorithm import AnyAlgorithm, ClientResult, State
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import read_json, write_atomically
from fedref.lab.datasets.describe import MOST_CLASSES
from fedref.lab.datasets.partition import offsets
from fedref.lab.experiments import checkpoint, config
from fedref.lab.experiments.loading import Loader, key_of
from fedref.lab.experiments.progress import Progress
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.run import execute
from fedref.lab.experiments.run_directory import begin_run
from fedref.lab.experiments.unit import Engine, LoadedExperiment, Say, Unit
from fedref.lab.flower import messages
from fedref.lab.flower.messages import ClientAnswer, Facts, Like, Maybe, MessageError, Request, Work
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_clients, run_round


class Network(Protocol):
    """The link to the nodes."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are online."""

    def ask(self, requests: Mapping[int, bytes], limit: float) -> Mapping[int, Any]:
        """Send each node its request; return their answers, or for a node a text that says why not."""


@dataclass
class Nodes:
    """The nodes that a run began with, and what each told of its rows.

    clients : of all nodes. limit : seconds for an answer, and for all nodes to be there.
    """

    network: Network
    clients: int
    limit: float
    say: Say
    facts: dict[int, Facts] = field(default_factory=dict)

    def exchange(
        self, requests: Mapping[int, Any], read: Callable[[int, Any], Any], where: str
    ) -> dict[int, Any]:
        """Send each node its request; return what `read(node, answer)` makes of the answers.

        A node that does not answer, refuses, or sends what was not asked for is named, and left out.
        """
        data = {node: checkpoint.dumps(request) for node, request in requests.items()}
        answers, results = self.network.ask(data, self.limit), {}
        for node in sorted(requests):
            try:
                answer = answers.get(node, f"no answer in {self.limit:g} s")
                value = answer if isinstance(answer, str) else messages.read(answer)
                messages.require(not isinstance(value, str), value)
                results[node] = read(node, value)
            except MessageError as error:
                self.say(f"{where}: node {node}: {error}")
        return results

    def gather_facts(self) -> None:
        """Ask the nodes for their rows until every client is held by one; FedrefError if it takes long."""
        end = time.monotonic() + self.limit
        while True:
            new = dict.fromkeys(set(self.network.nodes()) - self.facts.keys(), "hello")
            self.exchange(new, self.accept, "at the start")
            missing = sorted({*range(self.clients)} - self.clients_held())
            if not missing:
                return
            if time.monotonic() > end:
                raise FedrefError(
                    f"in {self.limit:g} s no node has announced the clients {missing[:9]}: "
                    "start their nodes, then run the app again"
                )
            time.sleep(min(1.0, self.limit / 10))

    def clients_held(self) -> set[int]:
        """Return the clients that a node holds."""
        return {k for facts in self.facts.values() for k in facts.sizes[0].tolist()}

    def accept(self, node: int, facts: Any) -> None:
        """Note what a node tells of its rows; refuse what is not possible, or too much."""
        most, numbers = messages.MOST_ROWS, messages.MOST_NUMBERS
        like = Facts(
            Like(int, (3, None), [[0], [1], [0]], [[self.clients - 1], [most], [most]]),
            Like(int, (None,), -MOST_CLASSES, MOST_CLASSES),
            Like(int, (), 1, numbers), Like(int, (3,), 0, numbers), Like(str, (None,)),
        )  # fmt: skip
        messages.check(facts, like, "its announcement")
        clients, total = facts.sizes[0].tolist(), facts.sizes[1:].sum()
        other = next(iter(self.facts.values()), facts)
        for holds, reason in (
            (self.clients_held().isdisjoint(clients), "clients that another node holds"),
            (len(set(clients)) == len(clients) > 0, "no client, or one twice"),
            (0 < len(facts.labels) <= MOST_CLASSES and total <= most, "no label, or too many rows"),
            (prod(facts.image.tolist()) in (0, facts.features), "features that are no image's"),
            (all(map(np.array_equal, facts[2:], other[2:])), "other features than another node"),
        ):
            messages.require(holds, f"announces {reason}")
        self.facts[node] = facts

    def stand_in(self, name: str) -> Federation:
        """Return a federation of the clients' sizes, whose rows are all the same row of zeros."""
        announced = [*self.facts.values()]
        clients, *n = np.concatenate([facts.sizes for facts in announced], 1)
        train, test = (rows[np.argsort(clients)] for rows in n)
        labels = np.unique(np.concatenate([facts.labels for facts in announced]))
        rows, cut = int(train.sum() + test.sum()), int(train.sum())
        y = np.resize(labels, max(rows, len(labels)))
        source = Source(
            np.broadcast_to(np.uint8(0), (len(y), announced[0].features)), y, name=name,
            image=tuple(announced[0].image.tolist()) if announced[0].image.any() else None,
            vocabulary=tuple(announced[0].vocabulary.tolist()) or None,
        )  # fmt: skip
        parts = Part(np.arange(cut), offsets(train)), Part(np.arange(cut, rows), offsets(test))
        return Federation(source, *parts, rule="flower")


# ---- the rounds of a unit ------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitOverNodes:
    """The rounds and evaluations of a unit, done by the nodes.

    head : what all requests of the unit have in common.
    """

    nodes: Nodes
    unit: Unit
    head: Request

    def round(self, *given: Any, **how: Any) -> tuple[State, RoundLog]:
        return run_round(*given, **(how | {"work": self.work}))

    def work(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData
    ) -> tuple[list[ClientResult | None], Counts]:  # fmt: skip
        """Do what `run_clients` does; in place of a client's state is its round."""
        rounds = np.array([-1 if t is None else t for t in states])
        head, places, requests = self.head._replace(round=data.round, sent=sent), {}, {}
        for node, facts in self.nodes.facts.items():
            if len(at := np.flatnonzero(np.isin(data.clients, facts.sizes[0]))):
                places[node] = at
                rows = tuple(data.rows[role][at] for role in algorithm.roles)
                steps = np.array([data.steps[at], data.per_epoch[at]])
                clients = np.array([data.clients[at], rounds[at]])
                work = Work(rows, steps, data.weights[at])
                requests[node] = head._replace(clients=clients, work=work)
        example = example_of(algorithm, model, sent, data)
        vector, names = max(tree.leaves(example.upload), key=np.size), sorted(example.log)
        like = Maybe(ClientAnswer(example.upload, True, Like(float, (len(names),))))

        def read(node: int, answer: Any) -> Any:
            asked = (like,) * len(places[node]), Like(int, (4,), 0, 2**53)
            messages.check(answer, asked, "answer", vector)
            return answer

        answers = self.nodes.exchange(requests, read, f"{self.unit.name}, round {data.round + 1}")
        done: list[ClientResult | None] = [None] * len(states)
        for node, (results, _) in answers.items():
            for i, result in zip(places[node].tolist(), results):
                if result is None:
                    failed = f"client {data.clients[i]} failed: its node's log says why"
                    self.nodes.say(f"{self.unit.name}: {failed}")
                    continue
                log = dict(zip(names, result.log.tolist()))
                done[i] = ClientResult(result.upload, data.round if result.keeps else None, log)
        return done, total(Counts(*counts.tolist()) for _, counts in answers.values())

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation, *_: Any,
        round: int, train: bool, **__: Any,
    ) -> Scores:  # fmt: skip
        """Evaluate all clients, each on its node; a client without an answer has no rows.

        A node answers with accuracy, test loss and training loss of its clients: (3, K).
        """
        facts_of, requests = self.nodes.facts, {}
        sent, train = algorithm.download(state.server), bool(train)
        head = self.head._replace(round=round, sent=sent, work=train)
        for node, facts in facts_of.items():
            rounds = [state.clients.get(k, -1) for k in facts.sizes[0].tolist()]
            requests[node] = head._replace(clients=np.array([facts.sizes[0], rounds]))

        def read(node: int, answer: Any) -> Array:
            K = len(facts_of[node].sizes[0])
            like = Like(float, (3, K), [[0], [-inf], [-inf]], [[1], [inf], [inf]])
            messages.check(answer, like, "scores")
            return np.asarray(answer)

        where = f"{self.unit.name}, evaluation after round {round}"
        scores = self.nodes.exchange(requests, read, where)
        columns = np.full((3, federation.clients), np.nan)
        n_train, n_test = np.zeros((2, federation.clients), np.int64)
        for node, found in scores.items():
            k, n_train_k, n_test_k = facts_of[node].sizes
            n_train[k], n_test[k], columns[:, k] = n_train_k, n_test_k, found
        columns[:2, n_test == 0] = np.nan
        columns[2, (n_train == 0) | (not train)] = np.nan
        return Scores(n_test, columns[0], columns[1], n_train, columns[2])


def example_of(algorithm: AnyAlgorithm, model: Model, sent: Any, data: LocalData) -> ClientResult:
    """Return what a client's answer looks like: one step on the stand-in's rows."""
    one = data.subset_rows([0])._replace(steps=np.ones(1, np.int64))
    with np.errstate(all="ignore"):
        (example,), _ = run_clients(algorithm, model, sent, [None], one)
    assert example is not None
    return example


# ---- a run ---------------------------------------------------------------------------------------


def check_experiment(experiment: config.Experiment) -> None:
    """Raise ConfigError if an experiment needs rows or states that the server does not have."""
    refused = {
        "dissimilarity needs": experiment.dissimilarity,
        "unseen needs": experiment.unseen > 0,
        "split.validation needs": bool(experiment.split.get("validation")),
        "split.seed=run changes": experiment.split.get("seed") == "run",
        f"classes={experiment.classes} needs": experiment.classes != "all",
    } | {
        f"sweep.{key} changes": key.partition(".")[0] in ("data", "split")
        for key in experiment.sweep
    }
    for label, algorithm in experiment.algorithms.items():
        refused[f"{label} pools"] = algorithm.pooled
        refused[f"{label}, a generator, takes"] = bool(algorithm.generator)
    for what, needs_rows in refused.items():
        if needs_rows:
            raise ConfigError(f"{what} clients' rows or states, which the server does not have")


def serve(
    network: Network,
    experiment: config.Experiment,
    out: Path,
    *,
    clients: int,
    limit: float = 600.0,
    say: Say = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """Run or resume an experiment over nodes, in the directory `out`, with the files of a local run.

    clients, limit : as in `Nodes`. federation.json holds the run's number, which is random: two runs
    share no client's state. A checkpoint is written after every round, since a round over a network
    takes long anyway.
    """
    check_experiment(experiment)
    path = out / "federation.json"
    resumed = path.exists()
    if resumed and config.stamp(config.read_experiment(out)) != config.stamp(experiment):
        raise DataError(f"{out} holds the run of another experiment, expected another out")
    nodes = Nodes(network, clients, limit, say)
    nodes.gather_facts()
    loader, whole = Loader(), nodes.stand_in(str(experiment.data["name"]))
    loader.kept[key_of(experiment.data, experiment.split)] = whole  # no sweep is over data
    with begin_run(experiment, out):
        if not resumed:
            write_atomically(path, json.dumps({"run": secrets.randbits(63)}).encode())
        run = read_json(path, "the file as the run left it").get("run", 0)
        head = Request(run, 0, 0, whole.source.labels, None, None, None)

        def engine(unit: Unit, loaded: LoadedExperiment) -> Engine:
            if not loaded.model.labels:
                raise ConfigError("models of real targets are not run over Flower")
            fits = loaded.model.d <= messages.MOST_NUMBERS
            messages.require(fits, "the model has too many parameters")
            over = UnitOverNodes(nodes, unit, head._replace(unit=unit.number))
            return Engine(over.round, over.evaluate)

        progress = progress or Progress(message=say)
        done = execute(experiment, out, every=0, loader=loader, engine=engine, progress=progress)
        done.draw(out)
    return done
