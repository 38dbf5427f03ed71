"""A run over nodes: it asks them for the work and the scores of every round of a unit.

Plans, `combine`, checkpoints and tables are the code of a local run. In place of a client's state,
which stays on its node, the server keeps the round after which it was saved.
"""

import csv
import io
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import Algorithm, AnyAlgorithm, ClientResult, State
from fedref.boundary.errors import ConfigError, DataError
from fedref.boundary.files import as_data_error, write_atomically
from fedref.datasets.partition import offsets
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, key_of
from fedref.experiments.progress import Progress
from fedref.experiments.results import Run, csv_text
from fedref.experiments.run import execute
from fedref.experiments.run_directory import (
    create_run_directory,
    lock_run_directory,
    read_experiment,
)
from fedref.experiments.unit import Engine, LoadedExperiment, Unit, plan_for, stamp
from fedref.flower import protocol
from fedref.flower.client import local_data
from fedref.flower.nodes import Network, NoAnswer, Nodes, Options
from fedref.flower.protocol import (
    NONE,
    Announcement,
    Call,
    ClientScores,
    EvaluateRequest,
    Packet,
    ProtocolError,
    TrainRequest,
    Work,
)
from fedref.models.base import Model
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import participants, run_clients, run_round
from fedref.sampling import Plan


def make_stand_in(known: Announcement, name: str) -> Federation:
    """Return a federation with the sizes, labels and shapes of the real one, but only zeros in X.

    It suffices to make models and plans. X takes no memory.
    """
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

COLUMNS = ("algorithm", "seed", "unit", "round", "phase", "client", "reason")


class MissedClients:
    """The file missed.csv: the clients that do not count in a round, with the phase and the reason.

    If a resumed run repeats a round, it replaces the rows of that round.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, [list(COLUMNS)]
        if path.exists():
            self.rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))

    def replace(self, unit: Unit, round: int, phase: str, reasons: Mapping[int, str]) -> None:
        """Replace the rows of a round and phase by these reasons."""
        key = [unit.label, str(unit.seed), str(unit.number), str(round), phase]
        rows = [row for row in self.rows if row[: len(key)] != key]
        rows += [[*key, str(k), why] for k, why in sorted(reasons.items())]
        if rows != self.rows or not self.path.exists():
            self.rows = rows
            write_atomically(self.path, csv_text(rows).encode())


#: Client → its part of a round, or as text why there is none.
Results = dict[int, tuple[ClientResult, Counts] | str]


@dataclass
class RemoteEngine:
    """The engine of one unit; `round` and `evaluate` take the places of `run_round` and `evaluate`.

    call : the run and the unit, as requests name them, in round 0. ahead : the results of the next
    round, if they were asked for together with the evaluation. has_begun : whether this process has
    evaluated or run a round before.
    """

    unit: Unit
    loaded: LoadedExperiment
    nodes: Nodes
    missed: MissedClients
    call: Call
    ahead: Results | None = None
    has_begun: bool = False

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation,
        sampling: Any, *, round: int, seed: int, dtype: Any, train: bool,
    ) -> Scores:  # fmt: skip
        """Return the scores of all clients that answer; the others count as clients without rows.

        The same message asks for the work of the next round, which begins with the parameters that
        are evaluated; unless the algorithm needs the loss first.
        """
        self.has_begun = True
        plan, N = None, federation.clients
        if round < self.loaded.experiment.rounds and not algorithm.watches_loss:
            plan = plan_for(algorithm, self.loaded.experiment, federation.train.sizes, round, seed)
        sent = algorithm.download(state.server)
        scores, results = self.exchange(algorithm, model, sent, state, round, plan, train)
        self.ahead = None if plan is None else results
        columns = np.full((5, N), np.nan)
        columns[[0, 3]] = 0
        for k, one in scores.items():
            if isinstance(one, ClientScores):
                n_train, n_test = self.nodes.sizes[k]
                test, train_loss = one.test or [np.nan] * 2, one.train or [np.nan]
                columns[:, k] = n_test, *test, n_train, *train_loss
        missing = self.note_missing(round, "evaluation", scores)
        if missing:
            words = f"{N - missing} of {N} clients were evaluated"
            self.nodes.say(f"{self.unit.name}, round {round}: {words}")
        counts = columns[[0, 3]].astype(np.int64)
        return Scores(counts[0], columns[1], columns[2], counts[1], columns[4])

    def round(
        self, algorithm: AnyAlgorithm, model: Model, state: State, plan: Plan,
        federation: Federation, *, dtype: Any, work: Any = None,
    ) -> tuple[State, RoundLog]:  # fmt: skip
        """Run a round as `run_round` does, but let the nodes do the work of their clients.

        A client that does not answer is a dropped straggler; one whose answer is refused has failed.
        """
        if not self.has_begun and plan.round:
            self.nodes.say(f"{self.unit.name} goes on after round {plan.round}")
        self.has_begun = True
        results, self.ahead = self.ahead, None

        def run_at_nodes(
            algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData
        ) -> tuple[list[ClientResult | None], Counts]:
            nonlocal results
            if results is None:
                _, results = self.exchange(algorithm, model, sent, state, plan.round, plan, None)
            done = [results[k] for k in data.clients.tolist()]
            pairs = [(None, Counts()) if isinstance(one, str) else one for one in done]
            return [result for result, _ in pairs], total(counts for _, counts in pairs)

        state, log = run_round(
            algorithm, model, state, plan, federation, dtype=dtype, work=run_at_nodes
        )
        results = results or {}
        self.note_missing(plan.round + 1, "training", results)
        absent = sum(isinstance(one, NoAnswer) for one in results.values())
        return state, log._replace(
            failed=log.failed - absent,
            dropped=log.dropped + absent,
            stragglers=log.stragglers + absent,
        )

    def exchange(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, state: State, round: int,
        plan: Plan | None, with_train: bool | None,
    ) -> tuple[dict[int, ClientScores | str], Results]:  # fmt: skip
        """Send one message to every node that has work to do; return the clients' scores and results.

        plan : the plan of the round that clients train for, if they do. with_train : whether clients
        are evaluated on their training rows, too; None: no client is evaluated.
        """
        nodes, parameters = self.nodes, protocol.write_arrays(sent)
        call = protocol.write(self.call._replace(round=round))
        requests: dict[str, dict[int, Any]] = {"evaluate": {}, "train": {}}
        if with_train is not None:
            for k in range(nodes.options.clients):
                requests["evaluate"][k] = EvaluateRequest(state.clients.get(k, NONE), with_train)
        if plan is not None:
            keep = participants(algorithm, plan)
            widths = [rows.shape[2] for rows in plan.rows.values()]
            for k, amount in zip(plan.clients[keep].tolist(), plan.amount[keep].tolist()):
                requests["train"][k] = TrainRequest(amount, state.clients.get(k, NONE), widths)
        online = nodes.greet()
        holder = dict(nodes.holder)  # a copy: while we wait, another node may take over a client
        packets: dict[int, dict[str, protocol.Record]] = {}
        for word, of_clients in requests.items():
            for k, request in of_clients.items():
                if (node := holder.get(k)) in online:
                    packet = packets.setdefault(node, {"call": call, "sent": parameters})
                    packet[f"{word} {k}"] = protocol.write(request)
        replies = nodes.ask(packets)

        def answer_of(k: int, read: Callable[..., Any], *expected: Any) -> Any:
            reply = replies.get(holder.get(k, NONE), NoAnswer("its node is not online"))
            if isinstance(reply, str):
                return NoAnswer(reply)
            try:
                if "refused" in reply:
                    reason = protocol.read_reason(reply, "refused")
                    raise ProtocolError(f"its node refuses: {reason}")
                if f"lost {k}" in reply:
                    raise ProtocolError(protocol.read_reason(reply, f"lost {k}"))
                return read(k, reply, *expected)
            except ProtocolError as error:
                return str(error)

        scores, results = {}, {}
        for k in requests["evaluate"]:
            has_test = nodes.sizes[k][1] > 0
            scores[k] = answer_of(k, read_scores, has_test, bool(with_train))
        if requests["train"]:
            expected = self.expected_result(algorithm, model, sent)
            results = {k: answer_of(k, read_result, expected, round) for k in requests["train"]}
        return scores, results

    def expected_result(self, algorithm: AnyAlgorithm, model: Model, sent: Any) -> ClientResult:
        """Compute the result of a client with one row of zeros, as an example for all results."""
        source, experiment = self.loaded.federation.source, self.loaded.experiment
        one = Part(np.zeros(1, np.int64), np.array([0, 1]))
        row = Federation(replace(source, X=source.X[:1], y=source.y[:1]), one, one)
        data = local_data(algorithm, experiment, row, 0, 1, 0, 0)
        with np.errstate(all="ignore"):
            (result,), _ = run_clients(algorithm, model, sent, [None], data)
        assert result is not None
        return result

    def note_missing(self, round: int, phase: str, answers: Mapping[int, object]) -> int:
        """Write the clients without an answer to missed.csv, and report them; return how many."""
        reasons = {k: why for k, why in answers.items() if isinstance(why, str)}
        self.missed.replace(self.unit, round, phase, reasons)
        for k, why in sorted(reasons.items()):
            self.nodes.say(f"{self.unit.name}, round {round}, {phase}: client {k} missed: {why}")
        return len(reasons)


def read_scores(k: int, reply: Packet, has_test: bool, with_train: bool) -> ClientScores:
    """Read client k's scores; refuse them if they do not fit the rows that it has."""
    scores: ClientScores = protocol.read(ClientScores(), reply, f"scores {k}")
    if (len(scores.test), len(scores.train)) != (2 * has_test, with_train):
        raise ProtocolError(f"has {len(scores.test)} test and {len(scores.train)} training scores")
    if has_test and not 0 <= scores.test[0] <= 1:
        raise ProtocolError(f"has an accuracy of {scores.test[0]}, expected 0 to 1")
    return scores


def read_result(
    k: int, reply: Packet, expected: ClientResult, round: int
) -> tuple[ClientResult, Counts]:
    """Read client k's result of a round; refuse it if it is not like the expected one.

    In place of the client's state, which stays on its node, the result has the round.
    """
    upload = protocol.read(expected.upload, reply, f"upload {k}")
    work: Work = protocol.read(Work(), reply, f"work {k}")
    if len(work.log) != len(expected.log):
        raise ProtocolError(f"logs {len(work.log)} values, expected {', '.join(expected.log)}")
    if min(work.counts) < 0:
        raise ProtocolError("claims a negative amount of work")
    log = dict(zip(expected.log, work.log))
    return ClientResult(upload, round if work.keeps else None, log), work.counts


# ---- a run ---------------------------------------------------------------------------------------


def check_experiment(experiment: Experiment) -> None:
    """Raise ConfigError if an experiment needs rows or states that the server does not have."""
    for label, table in experiment.algorithms.items():
        algorithm = names.make_algorithm(label, table)
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
    say: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """Run or resume an experiment in the directory `out`, with the files of a local run and two more.

    federation.json holds the nodes' announcements, missed.csv the clients that did not count. A
    checkpoint is written after every round, since a round over a network takes long anyway.
    """
    check_experiment(experiment)
    nodes, path = Nodes(network, options, say), out / "federation.json"
    progress = progress or Progress(message=say)
    if (out / "config.toml").exists() and path.exists():
        with lock_run_directory(out):
            if stamp(read_experiment(out)) != stamp(experiment):
                raise DataError(f"{out} holds the run of another experiment, expected another out")
            run, data, holder = load_federation(path)
            nodes.restore(data, holder)
            nodes.wait_for_all(partial=True)
            return run_to_end(experiment, out, nodes, run, data, progress)
    nodes.wait_for_all(partial=False)
    run, known = secrets.token_hex(8), nodes.known
    assert known is not None
    with create_run_directory(experiment, out):
        kept = {"run": run, "known": known._asdict(), "holder": sorted(nodes.holder.items())}
        write_atomically(path, (json.dumps(kept, indent=1) + "\n").encode())
        return run_to_end(experiment, out, nodes, run, known, progress)


def load_federation(path: Path) -> tuple[str, Announcement, dict[int, int]]:
    """Read federation.json: (the run's name, the announcements together, client → node)."""
    with as_data_error(path, "the file as the run left it"):
        kept = json.loads(path.read_bytes())
        return kept["run"], Announcement(**kept["known"]), dict(map(tuple, kept["holder"]))


def run_to_end(
    experiment: Experiment,
    out: Path,
    nodes: Nodes,
    run: str,
    known: Announcement,
    progress: Progress,
) -> Run:
    """Run all units with engines that ask the nodes."""
    federation = make_stand_in(known, str(experiment.data["name"]))
    loader = Loader()
    first = config.at_point(experiment, config.sweep_points(experiment)[0])
    loader.federations[key_of(first.data, first.split)] = federation  # no sweep is over data
    missed = MissedClients(out / "missed.csv")

    def engine(unit: Unit, loaded: LoadedExperiment) -> Engine:
        if not loaded.model.labels:
            raise ConfigError(
                "models of real targets are not run over Flower, expected one of labels"
            )
        protocol.check_size("parameters", loaded.model.d)
        call = Call(run, stamp(experiment), unit.number, 0, known.labels)
        remote = RemoteEngine(unit, loaded, nodes, missed, call)
        return Engine(remote.round, remote.evaluate)

    return execute(experiment, out, every=0, progress=progress, loader=loader, engine=engine)
