"""Whole rounds: fedref's own, and those of the specification.

`compare_rounds` takes an algorithm through `make_plan`, `run_round` (clients one by one, and stacked),
`evaluate` and `observe_loss`, and compares everything after every round with the specification's. The
specification takes only the Plan from fedref, which is data: who takes part, with which rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedref import spec, tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.checks import Report
from fedref.models import MLP, Logistic
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
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

#: (client, or None for a new one; the batch that it adapts to, or None) → the parameters it tests with.
Personal = Callable[[int | None, spec.Batch | None], Array]


class ExpectedRound(NamedTuple):
    """The specification's state after a round.

    server : the fields of the server's state; clients : client → what it keeps; measured : the log.
    """

    server: Mapping[str, Any]
    personal: Personal
    clients: Mapping[int, Sequence[Any]] = {}
    measured: Mapping[str, float] = {}


def one_model(w: Array) -> Personal:
    """Return `ExpectedRound.personal` where all clients test the same model."""
    return lambda k, D: w


def adapted_model(world: "TinyWorld", w: Array, alpha: Any, steps: int = 1) -> Personal:
    """Return `ExpectedRound.personal` where clients adapt w by `steps` steps of size alpha."""
    return lambda k, D: w if D is None else spec.adapt(world.f.grad, w, D, alpha, steps)


class Paper(NamedTuple):
    """A paper's algorithm in the specification, and its settings.

    rounds : yields the state after each round; drop : whether stragglers are dropped;
    roles : the batches of a step; adapts_on : what a client adapts to before it is tested, a batch
    D or a support S; pooled : whether one learner holds all rows.
    """

    rounds: "Callable[[TinyWorld], Iterator[ExpectedRound]]"
    drop: bool = True
    roles: tuple[str, ...] = ("D",)
    adapts_on: str | None = None
    pooled: bool = False


class TinyWorld:
    """A few unequal clients, and the plans of some rounds with all events of `is_eventful`."""

    def __init__(self, c: Case, paper: Paper, sampling: Sampling, rounds: int) -> None:
        self.model, self.f, self.w = c.model, c.f, c.w
        self.paper, self.sampling = paper, sampling
        n = sum(TRAIN) + sum(TEST)
        X = SHIFT + SCALE * c.rng.normal(size=(n, c.model.features))
        y, rows = c.rng.choice(c.model.labels, n), c.rng.permutation(n)
        train = Part(rows[: sum(TRAIN)], np.cumsum([0, *TRAIN]))
        test = Part(rows[sum(TRAIN) :], np.cumsum([0, *TEST]))
        source = Source(X, y)
        self.federation = Federation(source, train, test, shift=SHIFT, scale=SCALE)
        self.trained = pool(self.federation, c.rng) if paper.pooled else self.federation
        self.draw = Sampling(1, epochs=1, batch_size=3) if paper.pooled else sampling
        first = int(c.rng.integers(1 << 30))
        for self.seed in range(first, first + 10_000):
            self.plans = [self.plan(t, paper.roles) for t in range(rounds)]
            if paper.pooled or self.is_eventful():
                return
        raise RuntimeError("no seed has the plans wanted")  # pragma: no cover

    def plan(self, t: int, roles: Sequence[str]) -> Plan:
        """Return the plan of round t, with the batches of these roles."""
        return make_plan(self.draw, self.trained.train.sizes, t, self.seed, roles)

    def is_eventful(self) -> bool:
        """Return whether all events occur in these rounds.

        A client is drawn twice, one straggles with part of its work, one takes part in two consecutive
        rounds, one misses a round between two of its own, and no round is empty.
        """
        twice = self.sampling.sampling == "uniform" or any((p.counts > 1).any() for p in self.plans)
        less = any(
            (p.straggler & (self.paper.drop | (p.amount < self.sampling.amount))).any()
            for p in self.plans
        )
        there = [{client.k for client in clients} for clients in self.rounds()]
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
        rounds = ([self.client(plan, i) for i in range(len(plan.clients))] for plan in self.plans)
        return spec.drop_stragglers(rounds) if self.paper.drop else rounds

    def client(self, plan: Plan, i: int) -> spec.Client:
        """Return the i-th client of a plan, with its batches."""
        k, part = int(plan.clients[i]), self.trained.train
        own = self.batch(part.rows[part.offsets[k] : part.offsets[k + 1]])
        drawn = [plan.rows[role][i] for role in self.paper.roles]
        steps = [
            tuple(own.rows(rows[t][rows[t] >= 0]) for rows in drawn) for t in range(plan.steps[i])
        ]
        epoch, times = int(plan.per_epoch[i]), int(plan.counts[i])
        return spec.Client(k, own, steps, epoch, times, bool(plan.straggler[i]))

    def adaptation(self, k: int, t: int) -> spec.Batch | None:
        """Return the batch that client k adapts to before it is tested after round t."""
        role, (own, _) = self.paper.adapts_on, self.rows_of(k)
        if role is None:
            return None
        return self.batch(own[adaptation_rows(self.sampling, role, len(own), k, t, self.seed)])

    def train_loss(self, personal: Callable[[int], Array]) -> float:
        """Return Σ_k n_k/n × the mean loss of client k's model on its training rows."""
        losses = [
            n * spec.evaluate(self.f, personal(k), self.batch(self.rows_of(k)[0]))[0]
            for k, n in enumerate(TRAIN)
        ]
        return sum(losses) / sum(TRAIN)

    def score(self, w: Array, D: spec.Batch) -> tuple[float, float]:
        """Return the mean loss without L2, and the accuracy; NaN without samples."""
        return spec.evaluate(self.f, w, D) if len(D.y) else (np.nan, np.nan)


def run_rounds(
    world: TinyWorld, algorithm: AnyAlgorithm, stack: bool = False
) -> Iterator[tuple[State, RoundLog]]:
    """Yield fedref's state and log after each round, clients one by one or stacked.

    If the algorithm watches the training loss, the yielded state has observed that of its round.
    """
    state = State(algorithm.initial(world.model, world.w), {})
    work = partial(run_clients, stack=stack)
    for t in range(len(world.plans)):
        plan = world.plan(t, algorithm.roles)
        state, log = run_round(algorithm, world.model, state, plan, world.trained, work=work)
        if algorithm.watches_loss:
            scores = evaluate(
                algorithm, world.model, state, world.federation, world.sampling, round=t,
                seed=world.seed,
            )  # fmt: skip
            loss = sample_mean(scores.train_loss, scores.n_train)
            state = state._replace(server=algorithm.observe_loss(state.server, loss))
        yield state, log


def compare_rounds(
    c: Case, algorithm: AnyAlgorithm, paper: Paper, sampling: Sampling = EPOCHS, rounds: int = 4
) -> Iterator[Report]:
    """Compare fedref's rounds, clients one by one and stacked, with the specification's."""
    world = TinyWorld(c, paper, sampling, rounds)
    both = zip(*(run_rounds(world, algorithm, stack) for stack in (False, True)), strict=True)
    for t, (expected, ours) in enumerate(zip(paper.rounds(world), both, strict=True)):
        for state, log in ours:
            yield from compare_scores(world, algorithm, state, expected, t)
            sent = algorithm.download(state.server)
            unadapted = algorithm.personalised_params(c.model, sent, None, None)
            yield equal(unadapted, expected.personal(None, None))
            yield from compare_states(state, expected)
            logged = {**log.measured, **algorithm.server_metrics(state.server)}
            assert logged.keys() == expected.measured.keys(), f"logged: {', '.join(logged)}"
            for name, value in expected.measured.items():
                yield equal(logged[name], value)


def compare_models(
    c: Case, paper: Paper, one: AnyAlgorithm, other: AnyAlgorithm
) -> Iterator[Report]:
    """Compare the server's models of two algorithms, bit for bit, after each of 4 rounds."""
    world = TinyWorld(c, paper, EPOCHS, 4)
    for (a, _), (b, _) in zip(run_rounds(world, one), run_rounds(world, other), strict=True):
        yield equal(a.server.w, b.server.w, bound=0)


def compare_states(state: State, expected: ExpectedRound) -> Iterator[Report]:
    """Compare the server's state, and each client's."""
    pairs = [(getattr(state.server, name), value) for name, value in expected.server.items()]
    pairs += [(state.clients[k], tuple(kept)) for k, kept in expected.clients.items()]
    yield equal(sorted(state.clients), sorted(expected.clients), bound=0)
    for ours, theirs in pairs:
        for got, value in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
            yield equal(got, value)


def compare_scores(
    world: TinyWorld, algorithm: AnyAlgorithm, state: State, expected: ExpectedRound, t: int
) -> Iterator[Report]:
    """Compare the scores of all clients, of a few clients alone, and of clients that never trained."""
    rows = list[Any]()
    for k, (n_train, n_test) in enumerate(zip(TRAIN, TEST)):
        w = expected.personal(k, world.adaptation(k, t))
        train, test = (world.batch(rows) for rows in world.rows_of(k))
        test_loss, accuracy = world.score(w, test)
        rows.append([n_test, accuracy, test_loss, n_train, world.score(w, train)[0]])
    scores = np.transpose(rows)
    at: dict[str, Any] = {"round": t, "seed": world.seed}
    got = evaluate(algorithm, world.model, state, world.federation, world.sampling, **at)
    yield equal(without_nan(got), without_nan(scores))

    some = np.array([4, 2])
    got = evaluate_clients(
        algorithm, world.model, algorithm.download(state.server), state.clients,
        world.federation.subset(some), world.sampling, clients=some.tolist(), **at,
    )  # fmt: skip
    yield equal(without_nan(got), without_nan(scores[:, some]))

    def personalise(S: spec.Batch) -> Array:
        return expected.personal(None, S if world.paper.adapts_on else None)

    rows, new = [], [2, 4]
    for k in new:
        D = world.batch(np.concatenate(world.rows_of(k)))
        S, Q = spec.split_episode(spec.stream(world.seed, "unseen", k).permutation(len(D.y)), 0.5)
        test_loss, accuracy = spec.evaluate_unseen(world.f, personalise, D, 0.5, world.seed, k)
        train_loss, _ = world.score(personalise(D.rows(S)), D.rows(S))
        rows.append([len(Q), accuracy, test_loss, len(S), train_loss])
    got = evaluate_unseen(
        algorithm, world.model, state, world.federation, np.array(new), support=0.5, seed=world.seed
    )
    yield equal(without_nan(got), without_nan(np.transpose(rows)))


def without_nan(x: Any) -> Array:
    """Return x with −1 for NaN: no loss, accuracy or number of samples is negative."""
    numbers = np.asarray(x, float)
    return np.where(np.isnan(numbers), -1.0, numbers)
