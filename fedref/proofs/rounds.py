"""Whole rounds: fedref's own, and those of the specification.

`rounds_agree` takes an algorithm through `make_plan`, `run_round` (clients one by one, and stacked),
`evaluate` and `observe_loss`, and compares all that it has after every round with what the specification
has. That takes only the Plan of fedref, which is data: who takes part, and which rows are in a batch.
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
from fedref.rounds.evaluation import evaluate, evaluate_clients, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import pool, run_clients, run_round
from fedref.sampling import Plan, Sampling, adaptation_rows, make_plan

#: The models that rounds are run on: small, and without kinks.
SMALL = (Logistic(3, 3, l2=0.1), MLP(2, (3,), 2, "tanh"))

#: Rows of each client. The first has no support, the second is not tested.
TRAIN, TEST = (1, 4, 7, 3, 5), (2, 0, 3, 1, 2)
SHIFT, SCALE = 0.5, 2.0  # of the features

#: Drawn with replacement, two epochs, some do less; and all different, in steps.
EPOCHS = Sampling(4, epochs=2, batch_size=2, sampling="by-samples", stragglers=0.4)
STEPS = Sampling(3, steps=3, batch_size=3, stragglers=0.4)
ALL_ROWS = Sampling(4, epochs=3, batch_size=0, sampling="by-samples", stragglers=0.4)


class After(NamedTuple):
    """What the specification has after a round.

    server : the fields of the server's state; personal : (client or None for a new one, the batch
    that it adapts to) → the parameters it tests with; clients : client → what it keeps;
    measured : what is logged.
    """

    server: Mapping[str, Any]
    personal: Callable[[int | None, spec.Batch | None], Array]
    clients: Mapping[int, Sequence[Any]] = {}
    measured: Mapping[str, float] = {}


def one_model(w: Array) -> Callable[[int | None, Any], Array]:
    """Return a model for all clients, as `After.personal`."""
    return lambda k, D: w


def adapted(
    world: "World", w: Array, alpha: Any, steps: int = 1
) -> Callable[[int | None, Any], Array]:
    """Return w after some steps on what a client adapts to, as `After.personal`."""
    return lambda k, D: w if D is None else spec.adapt(world.f.grad, w, D, alpha, steps)


class Paper(NamedTuple):
    """A paper's algorithm in the specification, and what else it says.

    rounds : yields what it has after each round; drop : whether stragglers are dropped;
    roles : the batches of a step; adapts_on : what a client adapts to before it is tested, a batch
    D or a support S; pooled : whether one learner holds all rows.
    """

    rounds: "Callable[[World], Iterator[After]]"
    drop: bool = True
    roles: tuple[str, ...] = ("D",)
    adapts_on: str | None = None
    pooled: bool = False


class World:
    """A few unequal clients, and the plans of some rounds in which something happens."""

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
        sizes, first = self.trained.train.sizes, int(c.rng.integers(1 << 30))
        for self.seed in range(first, first + 10_000):
            self.plans = [
                make_plan(self.draw, sizes, t, self.seed, paper.roles) for t in range(rounds)
            ]
            if paper.pooled or self.eventful():
                return
        raise RuntimeError("no seed has the plans wanted")  # pragma: no cover

    def eventful(self) -> bool:
        """Whether a client is drawn twice, one straggles with part of its work, one takes part in
        two rounds that follow each other, one misses a round between two, and no round is empty."""
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
        """Rows of the source as the model sees them."""
        source = self.federation.source
        return spec.Batch((source.X[rows] - SHIFT) / SCALE, source.y[rows])

    def train_rows(self, k: int) -> Array:
        return self.federation.train.rows[sum(TRAIN[:k]) : sum(TRAIN[: k + 1])]

    def test_rows(self, k: int) -> Array:
        return self.federation.test.rows[sum(TEST[:k]) : sum(TEST[: k + 1])]

    def rounds(self) -> Iterator[list[spec.Client]]:
        """For each round, the clients whose work is aggregated."""
        rounds = ([self.client(plan, i) for i in range(len(plan.clients))] for plan in self.plans)
        return spec.drop_stragglers(rounds) if self.paper.drop else rounds

    def client(self, plan: Plan, i: int) -> spec.Client:
        k, part = int(plan.clients[i]), self.trained.train
        own = self.batch(part.rows[part.offsets[k] : part.offsets[k + 1]])
        drawn = [plan.rows[role][i] for role in self.paper.roles]
        steps = [
            tuple(own.rows(rows[t][rows[t] >= 0]) for rows in drawn) for t in range(plan.steps[i])
        ]
        epoch, times = int(plan.per_epoch[i]), int(plan.counts[i])
        return spec.Client(k, own, steps, epoch, times, bool(plan.straggler[i]))

    def adaptation(self, k: int, t: int) -> spec.Batch | None:
        """What client k adapts to before it is tested after round t."""
        role = self.paper.adapts_on
        if role is None:
            return None
        own = self.train_rows(k)
        return self.batch(own[adaptation_rows(self.sampling, role, len(own), k, t, self.seed)])

    def train_loss(self, personal: Callable[[int], Array]) -> float:
        """Σ_k n_k/n × the mean loss of client k's model on its training rows."""
        losses = [
            n * spec.evaluate(self.f, personal(k), self.batch(self.train_rows(k)))[0]
            for k, n in enumerate(TRAIN)
        ]
        return sum(losses) / sum(TRAIN)

    def score(self, w: Array, D: spec.Batch) -> tuple[float, float]:
        """(mean loss without L2, accuracy); NaN without samples."""
        return spec.evaluate(self.f, w, D) if len(D.y) else (np.nan, np.nan)


def rounds_agree(
    c: Case, algorithm: AnyAlgorithm, paper: Paper, sampling: Sampling = EPOCHS, rounds: int = 4
) -> Iterator[Report]:
    """Compare fedref's rounds, clients one by one and stacked, with the specification's."""
    world = World(c, paper, sampling, rounds)
    states = 2 * [State(algorithm.initial(c.model, c.w), {})]
    for t, after in enumerate(paper.rounds(world)):
        plan = plan_of(world, algorithm, t)
        for i, stack in enumerate((False, True)):
            states[i], log = run_round(
                algorithm, c.model, states[i], plan, world.trained,
                work=partial(run_clients, stack=stack),
            )  # fmt: skip
            yield from scores_agree(world, algorithm, states[i], after, t)
            sent = algorithm.download(states[i].server)
            unadapted = algorithm.personalised_params(c.model, sent, None, None)
            yield equal(unadapted, after.personal(None, None))
            if algorithm.watches_loss:
                states[i] = observed(world, algorithm, states[i], t)
            yield from states_agree(states[i], after)
            logged = {**log.measured, **algorithm.server_metrics(states[i].server)}
            assert logged.keys() == after.measured.keys(), f"logged: {', '.join(logged)}"
            for name, value in after.measured.items():
                yield equal(logged[name], value)
    assert t == rounds - 1


def plan_of(world: World, algorithm: AnyAlgorithm, t: int) -> Plan:
    """The plan of round t, with the batches that the algorithm asks for."""
    sizes = world.trained.train.sizes
    return make_plan(world.draw, sizes, t, world.seed, algorithm.roles)


def observed(world: World, algorithm: AnyAlgorithm, state: State, t: int) -> State:
    """The state after the server has seen the training loss."""
    scores = evaluate(
        algorithm, world.model, state, world.federation, world.sampling, round=t, seed=world.seed
    )
    loss = sample_mean(scores.train_loss, scores.n_train)
    return state._replace(server=algorithm.observe_loss(state.server, loss))


def states_agree(state: State, after: After) -> Iterator[Report]:
    """What the server keeps, and what each client keeps."""
    for name, value in after.server.items():
        for got, expected in zip(
            tree.leaves(getattr(state.server, name)), tree.leaves(value), strict=True
        ):
            yield equal(got, expected)
    yield equal(sorted(state.clients), sorted(after.clients), bound=0)
    for k, kept in after.clients.items():
        for got, expected in zip(tree.leaves(state.clients[k]), kept, strict=True):
            yield equal(got, expected)


def scores_agree(
    world: World, algorithm: AnyAlgorithm, state: State, after: After, t: int
) -> Iterator[Report]:
    """Every client's model on its own rows, and a new client's."""
    got = evaluate(
        algorithm, world.model, state, world.federation, world.sampling, round=t, seed=world.seed
    )
    rows = list[Any]()
    for k, (n_train, n_test) in enumerate(zip(TRAIN, TEST)):
        w = after.personal(k, world.adaptation(k, t))
        test_loss, accuracy = world.score(w, world.batch(world.test_rows(k)))
        train_loss, _ = world.score(w, world.batch(world.train_rows(k)))
        rows.append([n_test, accuracy, test_loss, n_train, train_loss])
    expected = np.transpose(rows)
    yield equal(without_nan(got), without_nan(expected))

    some = np.array([4, 2])
    got = evaluate_clients(
        algorithm, world.model, algorithm.download(state.server), state.clients,
        world.federation.subset(some), world.sampling, clients=some.tolist(), round=t, seed=world.seed,
    )  # fmt: skip
    yield equal(without_nan(got), without_nan(expected[:, some]))

    new = [2, 4]
    got = evaluate_unseen(
        algorithm, world.model, state, world.federation, np.array(new), support=0.5, seed=world.seed
    )

    def personalise(S: spec.Batch) -> Array:
        return after.personal(None, S if world.paper.adapts_on else None)

    rows = []
    for k in new:
        D = world.batch(np.array([*world.train_rows(k), *world.test_rows(k)]))
        S, Q = spec.split_episode(spec.stream(world.seed, "unseen", k).permutation(len(D.y)), 0.5)
        test_loss, accuracy = spec.evaluate_unseen(world.f, personalise, D, 0.5, world.seed, k)
        train_loss, _ = world.score(personalise(D.rows(S)), D.rows(S))
        rows.append([len(Q), accuracy, test_loss, len(S), train_loss])
    yield equal(without_nan(got), without_nan(np.transpose(rows)))


def without_nan(x: Any) -> Array:
    """−1 for NaN: no loss, accuracy or number of samples is negative."""
    numbers = np.asarray(x, float)
    return np.where(np.isnan(numbers), -1.0, numbers)


def states(world: World, algorithm: AnyAlgorithm) -> Iterator[State]:
    """What fedref has after each round."""
    state = State(algorithm.initial(world.model, world.w), {})
    for plan in world.plans:
        state, _ = run_round(algorithm, world.model, state, plan, world.trained)
        yield state
