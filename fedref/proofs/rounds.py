"""Whole rounds: fedref's own, and those of the specification.

`compare_rounds` takes an algorithm through `make_plan`, `run_round` (clients one by one, and stacked),
`evaluate` and `observe_loss`, and compares everything after every round with the specification's. The
specification takes only the Plan from fedref, which is data (who takes part, with which rows), and the
training loss that the algorithm observes, which is compared as well.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedref import spec, tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS
from fedref.checks import Report
from fedref.judge import answer, pose
from fedref.judge.answer import clients_of, personal
from fedref.judge.case import name_leaf, nest
from fedref.models import MLP, Logistic
from fedref.models.numerics import Array
from fedref.proofs.case import Case, equal
from fedref.rounds.cost import RoundLog
from fedref.rounds.evaluation import evaluate, evaluate_clients, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import pool, run_clients, run_round
from fedref.sampling import Plan, Sampling, adaptation_rows, make_plan

#: The models that rounds are run on: small, and without kinks.
SMALL = (Logistic(3, 3, l2=0.1), MLP(2, (3,), 2, "tanh"))

#: Rows of each client. The first has too few for a support set, the second has no test row.
TRAIN, TEST = (1, 4, 7, 3, 5), (2, 0, 3, 1, 2)
SHIFT, SCALE = 0.5, 2.0  # of the features

#: EPOCHS draws clients with replacement, for two epochs; STEPS draws different ones, for three steps.
#: In both, some straggle.
EPOCHS = Sampling(4, epochs=2, batch_size=2, sampling="by-samples", stragglers=0.4)
STEPS = Sampling(3, steps=3, batch_size=3, stragglers=0.4)


class TinyWorld:
    """A few unequal clients, and the plans of some rounds with all events of `is_eventful`."""

    def __init__(self, c: Case, it: AnyAlgorithm, sampling: Sampling, rounds: int) -> None:
        self.model, self.f, self.w = c.model, c.f, c.w
        self.it, self.sampling = it, sampling
        n = sum(TRAIN) + sum(TEST)
        X = SHIFT + SCALE * c.rng.normal(size=(n, c.model.features))
        y, rows = c.rng.choice(c.model.labels, n), c.rng.permutation(n)
        train = Part(rows[: sum(TRAIN)], np.cumsum([0, *TRAIN]))
        test = Part(rows[sum(TRAIN) :], np.cumsum([0, *TEST]))
        self.federation = Federation(Source(X, y), train, test, shift=SHIFT, scale=SCALE)
        self.trained = pool(self.federation, c.rng) if it.pooled else self.federation
        self.draw = Sampling(1, epochs=1, batch_size=3) if it.pooled else sampling
        part = self.trained.train
        self.data = self.batch(part.rows)._asdict() | {"offsets": part.offsets}
        first = int(c.rng.integers(1 << 30))
        for self.seed in range(first, first + 10_000):
            self.plans = [self.plan(t) for t in range(rounds)]
            if it.pooled or self.is_eventful():
                return
        raise RuntimeError("no seed has the plans wanted")  # pragma: no cover

    def with_algorithm(self, it: AnyAlgorithm) -> "TinyWorld":
        """Return the same clients and rounds for another algorithm, whose plans are the same."""
        other = copy(self)
        other.it = it
        return other

    def plan(self, t: int) -> Plan:
        """Return the plan of round t."""
        return make_plan(self.draw, self.trained.train.sizes, t, self.seed, self.it.roles)

    def is_eventful(self) -> bool:
        """Return whether all events occur in these rounds.

        A client is drawn twice, one straggles with part of its work, one takes part in two consecutive
        rounds, one misses a round between two of its own, and no round is empty.
        """
        twice = self.sampling.sampling == "uniform" or any((p.counts > 1).any() for p in self.plans)
        less = any(
            (p.straggler & (self.it.drop | (p.amount < self.sampling.amount))).any()
            for p in self.plans
        )
        there = [set(p.clients[~(p.straggler & self.it.drop)].tolist()) for p in self.plans]
        follows = any(a & b for a, b in pairwise(there))
        misses = any((a & c) - b for a, b, c in zip(there, there[1:], there[2:]))
        return twice and less and follows and misses and all(there)

    def batch(self, rows: Array) -> spec.Batch:
        """Return rows of the source, scaled."""
        source = self.federation.source
        return spec.Batch((source.X[rows] - SHIFT) / SCALE, source.y[rows])

    def rows_of(self, k: int) -> tuple[Array, Array]:
        """Return client k's training and test rows."""
        train, test = self.federation.train.rows, self.federation.test.rows
        return (
            train[sum(TRAIN[:k]) : sum(TRAIN[: k + 1])],
            test[sum(TEST[:k]) : sum(TEST[: k + 1])],
        )

    def rounds(self) -> Iterator[list[spec.Client]]:
        """Yield for each round the clients whose work is aggregated."""
        for plan in self.plans:
            yield clients_of(plan._asdict(), self.data, self.it.drop)

    def states(self, losses: Sequence[float | None]) -> Iterator[Any]:
        """Yield the specification's state after each round. losses : of training, where observed."""
        plans = [
            plan._asdict() | ({} if loss is None else {"loss": loss})
            for plan, loss in zip(self.plans, losses)
        ]
        first = {"theta" if "S" in self.it.roles[0] else "w": self.w}
        inputs = {"state": {"server": first}, "data": self.data, "plans": plans}
        case = pose("round", self.model, inputs, name_of(self.it), asdict(self.it))
        whole = nest(answer(case))
        for t in range(len(plans)):
            yield {"clients": {}, "measured": {}} | whole[str(t)]

    def tested_model(self, state: Any, k: int | None, D: spec.Batch | None) -> Array:
        """Return the parameters that client k, or a new one, tests with. D : what it adapts to."""
        shapes = [view.shape for view in self.model.unpack(self.w)]
        h = SimpleNamespace(**asdict(self.it), shapes=shapes)
        server, own = state["server"], state["clients"].get(k, {})
        return personal(name_of(self.it), self.f, h, server, own, D)

    def adaptation(self, k: int, t: int) -> spec.Batch | None:
        """Return the batch that client k adapts to before it is tested after round t."""
        role, (own, _) = self.it.adapts_on, self.rows_of(k)
        if role is None:
            return None
        return self.batch(own[adaptation_rows(self.sampling, role, len(own), k, t, self.seed)])

    def score(self, w: Array, D: spec.Batch) -> tuple[float, float]:
        """Return the mean loss without L2, and the accuracy; NaN without samples."""
        return spec.evaluate(self.f, w, D) if len(D.y) else (np.nan, np.nan)


def name_of(it: AnyAlgorithm) -> str:
    """Return the algorithm's name in cases."""
    return next(name for name, kind in ALGORITHMS.items() if type(it) is kind)


def run_rounds(
    world: TinyWorld, stack: bool = False
) -> Iterator[tuple[State, RoundLog, float | None]]:
    """Yield fedref's state and log after each round, clients one by one or stacked.

    If the algorithm watches the training loss, the state has observed that of its round, which is the
    third value.
    """
    it, model = world.it, world.model
    state = State(it.initial(model, world.w), {})
    for t, plan in enumerate(world.plans):
        work = partial(run_clients, stack=stack)
        state, log = run_round(it, model, state, plan, world.trained, work=work)
        loss = None
        if it.watches_loss:
            scores = evaluate(
                it, model, state, world.federation, world.sampling, round=t, seed=world.seed
            )
            loss = sample_mean(scores.train_loss, scores.n_train)
            state = state._replace(server=it.observe_loss(state.server, loss))
        yield state, log, loss


def compare_rounds(
    c: Case, it: AnyAlgorithm, sampling: Sampling = EPOCHS, rounds: int = 4
) -> Iterator[Report]:
    """Compare fedref's rounds, clients one by one and stacked, with the specification's."""
    world = TinyWorld(c, it, sampling, rounds)
    both = [list(run_rounds(world, stack)) for stack in (False, True)]
    expected = world.states([loss for *_, loss in both[0]])
    for t, (want, *ours) in enumerate(zip(expected, *both, strict=True)):
        for state, log, loss in ours:
            yield from compare_scores(world, state, want, t)
            sent = it.download(state.server)
            unadapted = it.personalised_params(c.model, sent, None, None)
            yield equal(unadapted, world.tested_model(want | {"clients": {}}, None, None))
            yield from compare_states(state, want)
            logged = {**log.measured, **it.server_metrics(state.server)}
            missing = want["measured"].keys() - logged.keys()
            assert missing <= ({"gamma"} if not getattr(it, "measure_gamma", True) else set())
            known = want["measured"] | want["server"] | {"renewed": want["server"].get("renew")}
            for name, value in logged.items():
                yield equal(value, known[name])
            if loss is not None:
                losses = [
                    world.score(world.tested_model(want, k, None), world.batch(world.rows_of(k)[0]))
                    for k in range(len(TRAIN))
                ]
                yield equal(loss, np.average(losses, 0, TRAIN)[0])


def compare_models(c: Case, one: AnyAlgorithm, other: AnyAlgorithm) -> Iterator[Report]:
    """Compare the server's models of two algorithms, bit for bit, after each of 4 rounds."""
    world = TinyWorld(c, one, EPOCHS, 4)
    for (a, *_), (b, *_) in zip(
        run_rounds(world), run_rounds(world.with_algorithm(other)), strict=True
    ):
        yield equal(a.server.w, b.server.w, bound=0)


def compare_states(state: State, want: Any) -> Iterator[Report]:
    """Compare the server's state as far as the specification yields it, and all that clients keep."""
    yield equal(sorted(state.clients), sorted(want["clients"]), bound=0)
    ours = {name_leaf(path): x for path, x in tree.flatten(state.server).items()}
    for name, value in want["server"].items():
        yield equal(ours[name], value)
    for k, own in want["clients"].items():
        kept = tree.flatten(state.clients[k])
        assert kept.keys() == own.keys(), f"kept: {', '.join(kept)}"
        for name, value in own.items():
            yield equal(kept[name], value)


def compare_scores(world: TinyWorld, state: State, want: Any, t: int) -> Iterator[Report]:
    """Compare the scores of all clients, of a few clients alone, and of clients that never trained."""
    it, rows = world.it, list[Any]()
    for k, (n_train, n_test) in enumerate(zip(TRAIN, TEST)):
        w = world.tested_model(want, k, world.adaptation(k, t))
        train, test = (world.batch(rows) for rows in world.rows_of(k))
        test_loss, accuracy = world.score(w, test)
        rows.append([n_test, accuracy, test_loss, n_train, world.score(w, train)[0]])
    scores = np.transpose(rows)
    at: dict[str, Any] = {"round": t, "seed": world.seed}
    got = evaluate(it, world.model, state, world.federation, world.sampling, **at)
    yield equal(without_nan(got), without_nan(scores))

    some = np.array([4, 2])
    got = evaluate_clients(
        it, world.model, it.download(state.server), state.clients,
        world.federation.subset(some), world.sampling, clients=some.tolist(), **at,
    )  # fmt: skip
    yield equal(without_nan(got), without_nan(scores[:, some]))

    def personalise(S: spec.Batch) -> Array:
        return world.tested_model(want, None, S if it.adapts_on else None)

    rows, new = [], [2, 4]
    for k in new:
        D = world.batch(np.concatenate(world.rows_of(k)))
        S, Q = spec.split_episode(spec.stream(world.seed, "unseen", k).permutation(len(D.y)), 0.5)
        test_loss, accuracy = spec.evaluate_unseen(world.f, personalise, D, 0.5, world.seed, k)
        train_loss, _ = world.score(personalise(D.rows(S)), D.rows(S))
        rows.append([len(Q), accuracy, test_loss, len(S), train_loss])
    got = evaluate_unseen(
        it, world.model, state, world.federation, np.array(new), support=0.5, seed=world.seed
    )
    yield equal(without_nan(got), without_nan(np.transpose(rows)))


def without_nan(x: Any) -> Array:
    """Return x with −1 for NaN: no loss, accuracy or number of samples is negative."""
    numbers = np.asarray(x, float)
    return np.where(np.isnan(numbers), -1.0, numbers)
