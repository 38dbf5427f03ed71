"""A run over nodes: the rounds and evaluations of a unit, asked of them, and the run directory.

What is not here is a local run's own code: plans, `combine`, checkpoints, tables. What the server
keeps of a client's own state is the round that it is of.
"""

import csv
import io
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import Algorithm, AnyAlgorithm, ClientResult, State
from fedref.boundary.errors import ConfigError, DataError
from fedref.boundary.files import write_whole
from fedref.datasets.partition import offsets
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, key_of
from fedref.experiments.progress import Progress
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.experiments.run_directory import (
    create_run_directory,
    lock_run_directory,
    read_experiment,
)
from fedref.experiments.unit import Engine, LoadedExperiment, Unit, plan_for, stamp
from fedref.flower import protocol
from fedref.flower.client import local_data
from fedref.flower.nodes import Network, Nodes, Options
from fedref.flower.protocol import NONE, Announced, ClientScores, Packet, Refused, pack, record
from fedref.models.base import Model
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import participants, run_clients, run_round
from fedref.sampling import Plan


def stand_in(known: Announced, name: str) -> Federation:
    """Return a federation of the same sizes, labels and shapes, whose rows all hold zeros: enough
    to make models and plans. X takes no memory."""
    sizes = np.array([known.n_train, known.n_test])
    cut, rows = int(sizes[0].sum()), int(sizes.sum())
    source = Source(
        np.broadcast_to(np.uint8(0), (rows, known.features)),
        np.resize(np.array(known.labels, np.int64), rows),
        name=name,
        image=tuple(known.image) or None,  # type: ignore[arg-type]
        vocabulary=tuple(known.vocabulary) or None,
        sha256=sha256(json.dumps(known).encode()).hexdigest(),
    )
    train, test = np.split(np.arange(rows), [cut])
    parts = Part(train, offsets(sizes[0])), Part(test, offsets(sizes[1]))
    return Federation(source, *parts, rule="flower")


# ---- the engine of a unit ------------------------------------------------------------------------

MISSED = ("algorithm", "seed", "unit", "round", "phase", "client", "reason")


class Missed:
    """missed.csv: which client's answer is not in the numbers of which round, and why.

    A round that is done again, after a stop, writes its rows again.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, [list(MISSED)]
        if path.exists():
            self.rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))

    def set(self, unit: Unit, round: int, phase: str, reasons: Mapping[int, str]) -> None:
        """Write the reasons of a round in place of those that are there."""
        where = [unit.label, str(unit.seed), str(unit.number), str(round), phase]
        rows = [row for row in self.rows if row[: len(where)] != where]
        rows += [[*where, str(k), why] for k, why in sorted(reasons.items())]
        if rows != self.rows or not self.path.exists():
            self.rows, text = rows, io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            write_whole(self.path, text.getvalue().encode())


@dataclass
class Answers:
    """What came of an exchange, client by client: what is good of it, or as text why there is none.

    absent : those whose node did not answer at all.
    """

    trained: dict[int, tuple[ClientResult, Counts] | str] = field(default_factory=dict)
    scored: dict[int, ClientScores | str] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)


def reasons(answers: Mapping[int, object]) -> dict[int, str]:
    """Return why there is no answer, of those clients that have none."""
    return {k: why for k, why in answers.items() if isinstance(why, str)}


def or_reason(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what is read, or as text why it is refused."""
    try:
        return read(*arguments)
    except Refused as error:
        return str(error)


@dataclass
class RemoteEngine:
    """The engine of one unit. `round` and `evaluate` are called as those of a local run are."""

    unit: Unit
    setting: LoadedExperiment
    nodes: Nodes
    missed: Missed
    run: str
    stamp: str
    labels: list[int]
    ahead: tuple[int, Answers] | None = None  # a round's answers that came with the evaluation
    begun: bool = False

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation,
        sampling: Any, *, round: int, seed: int, dtype: Any, train: bool,
    ) -> Scores:  # fmt: skip
        """Return the scores of all clients that answer; the others have no rows in this round.

        The next round begins with the very parameters that are evaluated, unless the algorithm
        looks at the loss first: then its work is asked for in the same message.
        """
        self.begun, plan, N = True, None, federation.clients
        if round < self.setting.experiment.rounds and not algorithm.watches_loss:
            plan = plan_for(algorithm, self.setting.experiment, federation.train.sizes, round, seed)
        sent = algorithm.download(state.server)
        answers = self.exchange(algorithm, model, sent, state, round, plan, range(N), train)
        self.ahead = (round, answers) if plan is not None else None
        missing = reasons(answers.scored)
        columns = np.full((5, N), np.nan)
        columns[[0, 3]] = 0
        for k in answers.scored.keys() - missing:
            columns[:, k] = answers.scored[k]
        self.note(round, "evaluation", missing)
        if missing:
            there = f"{N - len(missing)} of {N} clients were evaluated"
            self.nodes.say(f"{self.unit.name}, round {round}: {there}")
        n_test, accuracy, test_loss, n_train, train_loss = columns
        counts = [n.astype(np.int64) for n in (n_test, n_train)]
        return Scores(counts[0], accuracy, test_loss, counts[1], train_loss)

    def round(
        self, algorithm: AnyAlgorithm, model: Model, state: State, plan: Plan,
        federation: Federation, *, dtype: Any, work: Any = None,
    ) -> tuple[State, RoundLog]:  # fmt: skip
        """`run_round`, its clients' work done by their nodes. Who does not answer is a straggler
        that is dropped; whose answer is refused has failed."""
        if not self.begun and plan.round:
            self.nodes.say(f"{self.unit.name} goes on after round {plan.round}")
        self.begun, answers = True, Answers()

        def at_nodes(
            algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData
        ) -> tuple[list[ClientResult | None], Counts]:
            nonlocal answers
            ahead, self.ahead = self.ahead, None
            if ahead is not None and ahead[0] == plan.round:
                answers = ahead[1]
            else:
                answers = self.exchange(algorithm, model, sent, state, plan.round, plan)
            failed = None, Counts()
            done = [answers.trained[k] for k in data.clients.tolist()]
            pairs = [failed if isinstance(one, str) else one for one in done]
            return [result for result, _ in pairs], total(counts for _, counts in pairs)

        state, log = run_round(
            algorithm, model, state, plan, federation, dtype=dtype, work=at_nodes
        )
        self.note(plan.round + 1, "training", reasons(answers.trained))
        absent = len(answers.absent & answers.trained.keys())
        return state, log._replace(
            failed=log.failed - absent,
            dropped=log.dropped + absent,
            stragglers=log.stragglers + absent,
        )

    def exchange(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, state: State, round: int,
        plan: Plan | None, everyone: Sequence[int] = (), with_train: bool = False,
    ) -> Answers:  # fmt: skip
        """Send one message to every node that has something to do, and read the replies.

        plan : of the clients that are to train. everyone : all clients, if they are evaluated.
        """
        call = protocol.Call(self.run, self.stamp, self.unit.number, round, self.labels)
        amounts: dict[int, int] = {}
        if plan is not None:
            keep = participants(algorithm, plan)
            amounts = dict(zip(plan.clients[keep].tolist(), plan.amount[keep].tolist()))
        online, nodes, parameters = self.nodes.greet(), self.nodes, pack(sent)
        holder = dict(nodes.holder)  # of now: while we wait, another node may take a client over
        packets: dict[int, Packet] = {}
        for node in {holder[k] for k in {*everyone, *amounts} & holder.keys()} & online:
            own = nodes.clients_of(node)
            packet = {"call": record(call), "sent": parameters}
            if everyone:
                states = [state.clients.get(k, NONE) for k in own]
                packet["evaluate"] = record(protocol.Evaluating(own, states, with_train))
            training = [k for k in own if k in amounts]
            if training and plan is not None:
                states = [state.clients.get(k, NONE) for k in training]
                steps = [amounts[k] for k in training]
                widths = [rows.shape[2] for rows in plan.rows.values()]
                packet["train"] = record(protocol.Training(training, steps, states, widths))
            packets[node] = packet
        replies, answers = nodes.ask(packets), Answers()
        wrong = {
            node: or_reason(protocol.check_reply, reply, packets[node])
            for node, reply in replies.items()
            if not isinstance(reply, str)
        }

        def answer_of(k: int, read: Callable[..., Any], *arguments: Any) -> Any:
            reply = replies.get(holder.get(k, NONE), "its node is not online")
            if isinstance(reply, str):
                answers.absent.add(k)
                return reply
            return wrong[holder[k]] or or_reason(read, reply, k, *arguments)

        expected = self.expected_result(algorithm, model, sent) if amounts else None
        for k in amounts:
            answers.trained[k] = answer_of(k, protocol.read_result, expected, round)
        for k in everyone:
            answers.scored[k] = answer_of(k, protocol.read_scores, *nodes.sizes[k], with_train)
        return answers

    def expected_result(self, algorithm: AnyAlgorithm, model: Model, sent: Any) -> ClientResult:
        """Return what every client's result looks like: that of a stand-in with one row of zeros."""
        source, experiment = self.setting.federation.source, self.setting.experiment
        one = Part(np.zeros(1, np.int64), np.array([0, 1]))
        row = Federation(replace(source, X=source.X[:1], y=source.y[:1]), one, one)
        data = local_data(algorithm, experiment, row, 0, 1, 0, 0)
        with np.errstate(all="ignore"):
            (result,), _ = run_clients(algorithm, model, sent, [None], data)
        assert result is not None
        return result

    def note(self, round: int, phase: str, reasons: Mapping[int, str]) -> None:
        """Write who was missed into missed.csv and the log."""
        self.missed.set(self.unit, round, phase, reasons)
        for k, why in sorted(reasons.items()):
            self.nodes.say(f"{self.unit.name}, round {round}, {phase}: client {k} missed: {why}")


# ---- a run ---------------------------------------------------------------------------------------


def check_experiment(experiment: Experiment) -> None:
    """Raise ConfigError for what needs rows or states that the server does not have."""
    for label, table in experiment.algorithms.items():
        algorithm = names.make_algorithm(label, table)
        if algorithm.pooled:
            raise ConfigError(
                f"{label} pools all clients' rows, which stay with them here; leave it out"
            )
        if type(algorithm).download_for is not Algorithm.download_for:
            raise ConfigError(
                f"{label} sends by what each client keeps, which the server does not know here"
            )
    for key in ("dissimilarity", "unseen"):
        if getattr(experiment, key):
            raise ConfigError(f"{key} needs clients' rows on the server, which are not there")
    if experiment.classes != "all":
        raise ConfigError(
            f"classes={experiment.classes} counts labels that the server does not know"
        )
    swept = [key for key in experiment.sweep if key.partition(".")[0] in ("data", "split")]
    if swept:
        raise ConfigError(f"sweep.{swept[0]} changes the rows of the clients, who have one split")


def serve(
    network: Network,
    experiment: Experiment,
    out: Path,
    options: Options,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """Run an experiment into the directory `out`, or what is left of it: the tables of a local run.

    federation.json holds what the nodes announced, missed.csv who was missed. A checkpoint is
    written after every round, since a round over a network takes long anyway.
    """
    check_experiment(experiment)
    nodes, path = Nodes(network, options, say), out / "federation.json"
    progress = progress or Progress(message=say)
    if (out / "config.toml").exists() and path.exists():
        with lock_run_directory(out):
            if stamp(read_experiment(out)) != stamp(experiment):
                raise DataError(f"{out} holds the run of another experiment, expected another out")
            run, known, holder = load_federation(path)
            nodes.restore(known, holder)
            nodes.gather(enough=True)
            return run_to_end(experiment, out, nodes, run, known, progress)
    nodes.gather(enough=False)
    run, known = secrets.token_hex(8), nodes.known()
    with create_run_directory(experiment, out):
        kept = {"run": run, "known": known._asdict(), "holder": sorted(nodes.holder.items())}
        write_whole(path, (json.dumps(kept, indent=1) + "\n").encode())
        return run_to_end(experiment, out, nodes, run, known, progress)


def load_federation(path: Path) -> tuple[str, Announced, dict[int, int]]:
    """Return (run, what is known of the data, client → node) of a run that goes on."""
    try:
        kept = json.loads(path.read_bytes())
        return kept["run"], Announced(**kept["known"]), dict(map(tuple, kept["holder"]))
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); expected it as the run left it"
        ) from error


def run_to_end(
    experiment: Experiment,
    out: Path,
    nodes: Nodes,
    run: str,
    known: Announced,
    progress: Progress,
) -> Run:
    """Run all units, their rounds and evaluations asked of the nodes."""
    federation = stand_in(known, str(experiment.data["name"]))
    loader = Loader()
    for point in config.sweep_points(experiment):
        now = config.at_point(experiment, point)
        loader.federations[key_of(now.data, now.split)] = federation
    missed = Missed(out / "missed.csv")

    def engine(unit: Unit, setting: LoadedExperiment) -> Engine:
        if not setting.model.labels:
            raise ConfigError(
                "models of real targets are not run over Flower, expected one of labels"
            )
        protocol.check_size("parameters", setting.model.d)
        remote = RemoteEngine(unit, setting, nodes, missed, run, stamp(experiment), known.labels)
        return Engine(remote.round, remote.evaluate)

    return execute(experiment, out, every=0, progress=progress, loader=loader, engine=engine)
