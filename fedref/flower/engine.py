"""The rounds and evaluations of a unit, asked of nodes: an engine that a run is given.

What is not here is a local run's own code: plans, `combine`, checkpoints, tables. What the server
keeps of a client's own state is the round that it is of.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AnyAlgorithm, ClientResult, State
from fedref.boundary.files import write_whole
from fedref.experiments.setting import Setting
from fedref.experiments.unit import Unit, plan_for
from fedref.flower.answers import Answer, ClientScores, accepted, expected_result
from fedref.flower.messages import NONE, Call, Evaluating, Packet, Training, packed, record
from fedref.flower.nodes import Nodes
from fedref.models.base import Model
from fedref.rounds.cost import Counts, RoundLog, total
from fedref.rounds.evaluation import Scores
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import participants, run_round
from fedref.sampling import Plan

MISSED = ("algorithm", "seed", "unit", "round", "phase", "client", "reason")


@dataclass
class Missed:
    """missed.csv: which client's answer is not in the numbers of which round, and why.

    A round that is done again, after a stop, writes its rows again.
    """

    path: Path
    rows: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.rows = list(csv.DictReader(io.StringIO(self.path.read_text("utf-8"))))

    def set(self, unit: Unit, round: int, phase: str, reasons: Mapping[int, str]) -> None:
        where = {"unit": str(unit.number), "round": str(round), "phase": phase}
        rest = [row for row in self.rows if any(row[key] != where[key] for key in where)]
        head = {"algorithm": unit.label, "seed": str(unit.seed), **where}
        new = [{**head, "client": str(k), "reason": why} for k, why in sorted(reasons.items())]
        if rest + new != self.rows or not self.path.exists():
            self.rows = rest + new
            text = io.StringIO()
            writer = csv.DictWriter(text, MISSED, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            write_whole(self.path, text.getvalue().encode())


class Trained(NamedTuple):
    """A cohort's answers: the good ones, those refused, and those that never came, with reasons."""

    answers: Mapping[int, Answer]
    refused: Mapping[int, str]
    absent: Mapping[int, str]


class Scored(NamedTuple):
    """The clients' evaluations, and why some have none."""

    scores: Mapping[int, ClientScores]
    missing: Mapping[int, str]


@dataclass
class Remote:
    """The engine of one unit. `round` and `evaluate` are called as those of a local run are."""

    unit: Unit
    setting: Setting
    nodes: Nodes
    missed: Missed
    run: str
    stamp: str
    labels: list[int]
    ahead: tuple[int, Trained] | None = None  # a round's answers that came with the evaluation

    def evaluate(
        self, algorithm: AnyAlgorithm, model: Model, state: State, federation: Federation,
        sampling: Any, *, round: int, seed: int, dtype: Any, train: bool,
    ) -> Scores:  # fmt: skip
        """Scores of all clients that answer; the others have no rows in this round.

        The next round begins with the very parameters that are evaluated, unless the algorithm
        looks at the loss first: then its work is asked for in the same message.
        """
        plan = None
        if round < self.setting.experiment.rounds and not algorithm.watches_loss:
            plan = plan_for(algorithm, self.setting.experiment, federation.train.sizes, round, seed)
        everyone = list(range(federation.clients))
        scored, trained = self.exchange(
            algorithm, model, algorithm.download(state.server), state.clients,
            federation, round, dtype, everyone, train, plan,
        )  # fmt: skip
        self.ahead = (round, trained) if plan is not None else None
        columns = np.full((5, len(everyone)), np.nan)
        columns[[0, 3]] = 0
        for k, one in scored.scores.items():
            columns[:, k] = one
        self.note(round, "evaluation", scored.missing)
        n_test, accuracy, test_loss, n_train, train_loss = columns
        whole = n_test.astype(np.int64), accuracy, test_loss, n_train.astype(np.int64)
        return Scores(*whole, train_loss)

    def round(
        self, algorithm: AnyAlgorithm, model: Model, state: State, plan: Plan,
        federation: Federation, *, dtype: Any, work: Any = None,
    ) -> tuple[State, RoundLog]:  # fmt: skip
        """`run_round`, its clients' work done by their nodes. Who does not answer is a straggler
        that is dropped; whose answer is refused has failed."""
        found = Trained({}, {}, {})

        def at_nodes(
            algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData
        ) -> tuple[list[ClientResult | None], Counts]:
            nonlocal found
            ahead, self.ahead = self.ahead, None
            if ahead is not None and ahead[0] == plan.round:
                found = ahead[1]
            else:
                _, found = self.exchange(
                    algorithm, model, sent, state.clients, federation, plan.round, dtype,
                    [], False, plan,
                )  # fmt: skip
            answers = [found.answers.get(k) for k in data.clients.tolist()]
            counts = total(answer.counts for answer in answers if answer)
            return [answer and answer.result for answer in answers], counts

        state, log = run_round(
            algorithm, model, state, plan, federation, dtype=dtype, work=at_nodes
        )
        self.note(plan.round + 1, "training", {**found.refused, **found.absent})
        absent = len(found.absent)
        return state, log._replace(
            failed=log.failed - absent,
            dropped=log.dropped + absent,
            stragglers=log.stragglers + absent,
        )

    def exchange(
        self, algorithm: AnyAlgorithm, model: Model, sent: Any, states: Mapping[int, Any],
        federation: Federation, round: int, dtype: Any,
        everyone: list[int], with_train: bool, plan: Plan | None,
    ) -> tuple[Scored, Trained]:  # fmt: skip
        """One message to every node that has something to do, and what is good of the replies."""
        call = Call(self.run, self.stamp, self.unit.number, round, self.labels)
        amounts: dict[int, int] = {}
        if plan is not None:
            keep = participants(algorithm, plan)
            amounts = dict(zip(plan.clients[keep].tolist(), plan.amount[keep].tolist()))
        online = self.nodes.greet()
        packets: dict[int, Packet] = {}
        asked: dict[int, tuple[list[int], list[int]]] = {}
        holder = self.nodes.roster.holder
        parameters = packed(sent, "sent")
        for node in sorted({holder[k] for k in (*everyone, *amounts) if k in holder} & online):
            own = self.nodes.roster.clients_of(node)
            scored, working = own if everyone else [], [k for k in own if k in amounts]
            asked[node] = working, scored
            packet = {"call": record(call), **parameters}
            if scored:
                bases = [states.get(k, NONE) for k in scored]
                packet["evaluate"] = record(Evaluating(scored, bases, with_train))
            if working and plan is not None:
                training = Training(
                    working,
                    [amounts[k] for k in working],
                    [states.get(k, NONE) for k in working],
                    [rows.shape[2] for rows in plan.rows.values()],
                )
                packet["train"] = record(training)
            packets[node] = packet
        expected = None
        if amounts:
            X, y = federation.source.X[:1], federation.source.y[:1]
            codes = federation.source.vocabulary is not None
            X = X if codes else X.astype(dtype)
            expected = expected_result(algorithm, model, sent, X, y, dtype, codes)
        sizes = dict(
            enumerate(zip(federation.train.sizes.tolist(), federation.test.sizes.tolist()))
        )
        answers: dict[int, Answer] = {}
        scores: dict[int, ClientScores] = {}
        refused: dict[int, str] = {}
        unscored: dict[int, str] = {}
        absent: dict[int, str] = {}
        for node, reply in sorted(self.nodes.ask(packets).items()):
            working, scored = asked[node]
            if isinstance(reply, str):
                absent |= dict.fromkeys({*working, *scored}, reply)
                continue
            found = accepted(reply, call, working, scored, expected, sizes, with_train)
            answers |= found.trained
            scores |= found.scored
            refused |= found.refused
            unscored |= found.unscored
        heard = {k for clients in asked.values() for some in clients for k in some}
        absent |= {k: "its node is not online" for k in (*everyone, *amounts) if k not in heard}
        unscored |= {k: why for k, why in absent.items() if k in everyone}
        late = {k: why for k, why in absent.items() if k in amounts}
        return Scored(scores, unscored), Trained(answers, refused, late)

    def note(self, round: int, phase: str, reasons: Mapping[int, str]) -> None:
        """Into missed.csv and the log."""
        self.missed.set(self.unit, round, phase, reasons)
        for k, why in sorted(reasons.items()):
            self.nodes.say(f"{self.unit.name}, round {round}, {phase}: client {k} missed: {why}")
