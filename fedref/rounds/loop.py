"""Rounds: send, work, combine. The loop over clients and steps is written here, and only here.

`run_client` is the specification: one client, one step after the other. `run_stacked` does the same
steps for many clients at once along a leading axis; a test shows that both agree to the bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, ClientResult, Cohort, State
from fedref.models import base
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.cost import Counter, Counts, RoundLog, floats
from fedref.rounds.federation import Federation, affine
from fedref.sampling import PADDING, Plan

#: Features up to this size are made floating point once a round, larger ones block by block.
GATHER_BYTES = 1 << 23
#: The batches of as many steps as fit are gathered at once: they are used before they leave the cache.
BLOCK_BYTES = 1 << 19


class LocalData(NamedTuple):
    """The training data of a few clients, and what of the Plan is theirs: all that a worker needs.

    The k-th of them, client clients[k], holds rows held[offsets[k]:offsets[k+1]] of
    (X − shift)/scale, or of X itself where it holds codes. rows : role → (K, S, W), −1 = padding.
    """

    clients: Array
    round: int
    X: Array
    y: Array
    held: Array
    offsets: Array
    rows: Mapping[str, Array]
    steps: Array
    per_epoch: Array
    shift: Any
    scale: Any
    dtype: Any
    codes: bool = False

    def check(self, model: Model) -> None:
        """Refuse data that the model does not fit: once, so that no step need look again."""
        base.check_batch(model, Batch(self.X, self.y))
        base.check_labels(model, self.y.take(self.held))

    def features(self, index: Array) -> Array:
        X = self.X.take(index, 0)
        return X if self.codes else affine(X, self.shift, self.scale, self.dtype)

    def ready(self) -> "LocalData":
        """The same, with the features made floating point at once where they are few."""
        size = len(self.held) * self.X[:1].size * np.dtype(self.dtype).itemsize
        if self.codes or size > GATHER_BYTES:
            return self
        own = self.only(range(len(self.clients)))
        return own._replace(X=own.features(own.held), shift=None, scale=None)

    def all(self, k: int) -> Batch:
        """All training data of the k-th client."""
        index = self.held[self.offsets[k] : self.offsets[k + 1]]
        return Batch(self.features(index), self.y.take(index))

    def pick(self, ks: Sequence[int] | Array) -> "LocalData":
        """The same for some of the clients, of the same X and y."""
        parts = [self.held[self.offsets[k] : self.offsets[k + 1]] for k in ks]
        return self._replace(
            clients=self.clients[ks],
            held=np.concatenate(parts),
            offsets=np.concatenate([[0], np.cumsum([len(part) for part in parts])]),
            rows={role: rows[ks] for role, rows in self.rows.items()},
            steps=self.steps[ks],
            per_epoch=self.per_epoch[ks],
        )

    def only(self, ks: Sequence[int] | Array) -> "LocalData":
        """The same for some of the clients, and none of the others' rows."""
        some = self.pick(ks)
        return some._replace(
            X=self.X.take(some.held, 0),
            y=self.y.take(some.held),
            held=np.arange(len(some.held)),
        )

    def batch(self, role: str, k: int, t: int) -> Batch:
        """The k-th client's batch at step t: X (W, p)."""
        rows = self.rows[role][k, t]
        index, real = self.locate(rows, self.offsets[k]), rows != PADDING
        s = None if real.all() else real.astype(self.dtype)
        return Batch(self.features(index), self.y.take(index), s)

    def locate(self, rows: Array, offset: Array) -> Array:
        """Which rows of X these are; padding is any row."""
        at = np.maximum(rows, 0) + offset
        return self.held.take(at)

    def stacked(self, order: Array) -> Iterator[tuple[int, list[Batch]]]:
        """Of every step: how many clients of `order` are at work, and their batches, one a role.

        Clients are ordered by their number of steps, the most first. X (active, W, p).
        """
        steps = self.steps[order]
        active = np.count_nonzero(steps > np.arange(steps.max())[:, None], axis=1)
        plans = []
        for rows in self.rows.values():
            rows = rows[order].transpose(1, 0, 2)  # (S, K, W): the clients of a step side by side
            real = rows != PADDING
            late = np.arange(len(order)) >= active[:, None]
            plans.append(
                (
                    self.locate(rows, self.offsets[:-1][order][:, None]),
                    real,
                    (real.all(-1)[: len(active)] | late).all(-1),
                )
            )
        size = sum(rows[:1].size for rows, *_ in plans) * self.X[:1].size
        length = max(1, BLOCK_BYTES // max(size * np.dtype(self.dtype).itemsize, 1))
        for start in range(0, len(active), length):
            block = slice(start, start + length), slice(active[start])
            gathered = [
                (
                    self.features(index[block]),
                    self.y.take(index[block]),
                    None if full[block[0]].all() else real[block].astype(self.dtype),
                    full[block[0]],
                )
                for index, real, full in plans
            ]
            for i, k in enumerate(active[block[0]].tolist()):
                yield (
                    k,
                    [
                        Batch(X[i, :k], y[i, :k], None if s is None or full[i] else s[i, :k])
                        for X, y, s, full in gathered
                    ],
                )


def run_client(
    algorithm: AnyAlgorithm, model: Model, sent: Any, client_state: Any, data: LocalData, k: int
) -> Any:
    """The specification: the k-th client's local steps, one after the other. Returns its `local`."""
    local = algorithm.start(model, sent, client_state)
    everything = cache(partial(data.all, k))
    for t in range(int(data.steps[k])):
        local = algorithm.step(model, sent, local, *(data.batch(r, k, t) for r in data.rows))
        epoch_ends = (t + 1) % data.per_epoch[k] == 0
        if algorithm.stops_early and epoch_ends and algorithm.stop(model, sent, local, everything):
            break
    return local


def run_stacked(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
) -> list[Any]:
    """The theorem: the same steps for all of the clients at once.

    Clients are sorted by their number of steps, so that those still at work are always a prefix.
    """
    order = np.argsort(-data.steps, kind="stable")
    local = together([algorithm.start(model, sent, client_states[k]) for k in order])
    ended: list[Any] = [None] * len(order)
    active = len(order)
    for still, batches in data.stacked(order):
        if still < active:
            for i in range(still, active):
                ended[order[i]] = tree.map(lambda x, i=i: x[i], local)
            local = tree.map(lambda x, still=still: x[:still], local)
            active = still
        local = algorithm.step(model, sent, local, *batches)
    for i in range(active):
        ended[order[i]] = tree.map(lambda x, i=i: x[i], local)
    return ended


def together(trees: Sequence[tree.Tree]) -> tree.Tree:
    """`tree.stack`, without copies of what is one and the same in all: read only."""

    def leaf(first: Any, *others: Any) -> Array:
        if all(x is first for x in others):
            return np.broadcast_to(first, (1 + len(others), *np.shape(first)))
        return np.stack([first, *others])

    return tree.map(leaf, *trees)


#: From this many parameters on, clients are run one by one: a stack would leave the cache.
STACK_UP_TO = 100_000


def run_clients(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
    stack: bool | None = None,
) -> tuple[list[ClientResult | None], Counts]:
    """Some clients' work in one round, and what it cost: a pure function of its arguments.

    stack : many clients at once (None: where the model is small); the numbers are the same.
    """
    data.check(model)
    counter, data = Counter(model), data.ready()
    counting: Any = counter
    if (model.d <= STACK_UP_TO if stack is None else stack) and not algorithm.stops_early:
        ended = run_stacked(algorithm, counting, sent, client_states, data)
    else:
        ended = [
            run_client(algorithm, counting, sent, client_state, data, k)
            for k, client_state in enumerate(client_states)
        ]
    results: list[ClientResult | None] = []
    for k, (local, client_state) in enumerate(zip(ended, client_states)):
        everything = cache(partial(data.all, k))
        result = algorithm.finish(counting, sent, local, client_state, everything)
        log = {**algorithm.diagnose(model, sent, local, everything), **result.log}
        results.append(result._replace(client_state=tree.own(result.client_state), log=log))
    return results, counter.counts


#: `run_clients` or a replacement for it; None is the result of a client that failed.
RunClients = Callable[..., tuple[list[ClientResult | None], Counts]]


def gather(plan: Plan, federation: Federation, dtype: Any, keep: Array) -> LocalData:
    """The data of the clients `keep` (indices into the plan's cohort): a view of the source."""
    rows = [federation.train.of(k) for k in plan.clients[keep]]
    shift, scale = federation.shift_and_scale
    return LocalData(
        plan.clients[keep],
        plan.round,
        federation.source.X,
        federation.source.y,
        np.concatenate(rows),
        np.concatenate([[0], np.cumsum([len(r) for r in rows])]),
        {role: batches[keep] for role, batches in plan.rows.items()},
        plan.steps[keep],
        plan.per_epoch[keep],
        shift,
        scale,
        np.dtype(dtype),
        federation.source.vocabulary is not None,
    )


def at_work(algorithm: AnyAlgorithm, plan: Plan) -> Array:
    """Whose work is waited for, as indices into the plan's cohort: not a dropped straggler's."""
    return np.flatnonzero(~plan.straggler) if algorithm.drop else np.arange(len(plan.clients))


def run_round(
    algorithm: AnyAlgorithm,
    model: Model,
    state: State,
    plan: Plan,
    federation: Federation,
    *,
    dtype: Any = np.float64,
    work: RunClients = run_clients,
) -> tuple[State, RoundLog]:
    """One round: send, work, combine. Nothing that is passed in is changed.

    work : what runs the clients, `run_clients` or something that spreads it over processes.
    A straggler is dropped here, if the algorithm drops them; so is a client without a result.
    """
    sent = algorithm.download(state.server)
    travels = not algorithm.pooled  # the centralised learner has its data where it is
    keep = at_work(algorithm, plan)
    messages = [algorithm.message(sent, state.clients.get(int(k))) for k in plan.clients]
    log = RoundLog(
        floats_down=travels * sum(floats(message) for message in messages),
        stragglers=int(plan.straggler.sum()),
        dropped=len(plan.clients) - len(keep),
    )
    if not keep.size:
        return state, log

    client_states = [state.clients.get(int(k)) for k in plan.clients[keep]]
    data = gather(plan, federation, dtype, keep)
    outcomes, counts = work(algorithm, model, sent, client_states, data)
    here = [i for i, outcome in enumerate(outcomes) if outcome is not None]
    log = log._replace(counts=counts, failed=len(outcomes) - len(here))
    if not here:
        return state, log

    results = [outcome for outcome in outcomes if outcome is not None]
    keep = keep[here]
    cohort = Cohort(plan.clients[keep], plan.counts[keep], plan.sizes[keep])
    uploads = tree.stack([result.upload for result in results])
    names = dict.fromkeys(name for result in results for name in result.log)
    measured = {name: float(np.mean([r.log[name] for r in results])) for name in names}
    log = log._replace(floats_up=travels * floats(uploads), measured=measured)

    kept = {
        int(k): result.client_state
        for k, result in zip(cohort.clients, results)
        if result.client_state is not None
    }
    server = algorithm.combine(model, state.server, uploads, cohort)
    return State(server, {**state.clients, **kept} if kept else state.clients), log


def pool(federation: Federation, rng: np.random.Generator) -> Federation:
    """One client with every training row, shuffled: the IID version [apfl §4.1.1]."""
    rows = rng.permutation(federation.train.rows)
    part = replace(federation.train, rows=rows, offsets=np.array([0, len(rows)]))
    return replace(federation, train=part)
