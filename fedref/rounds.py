"""Rounds: send, work, combine. The loop over clients and steps is written here, and only here.

`run_client` is the specification: one client, one step after the other. `run_stacked` does the same
steps for many clients at once along a leading axis; a test shows that both agree to the bit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, ClientResult, Cohort, State
from fedref.batch import Batch
from fedref.cost import Counter, Counts, RoundLog, floats
from fedref.federation import Federation, affine
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.sampling import PADDING, Plan

#: Features up to this size are made floating point once a round, larger ones batch by batch.
GATHER_BYTES = 1 << 26


class LocalData(NamedTuple):
    """The training data of a few clients, and what of the Plan is theirs: all that a worker needs.

    The k-th of them, client clients[k], holds rows offsets[k]:offsets[k+1] of (X − shift)/scale.
    rows : role → (K, S, W), −1 = padding.
    """

    clients: Array
    round: int
    X: Array
    y: Array
    offsets: Array
    rows: Mapping[str, Array]
    steps: Array
    per_epoch: Array
    shift: Any
    scale: Any
    dtype: Any

    def features(self, rows: Array | slice) -> Array:
        X = self.X[rows] if isinstance(rows, slice) else self.X.take(rows, 0)
        return affine(X, self.shift, self.scale, self.dtype)

    def ready(self) -> "LocalData":
        """The same, with the features made floating point at once where they are few."""
        if self.X.size * np.dtype(self.dtype).itemsize > GATHER_BYTES:
            return self
        return self._replace(X=self.features(slice(None)), shift=None, scale=None)

    def all(self, k: int) -> Batch:
        """All training data of the k-th client."""
        rows = slice(self.offsets[k], self.offsets[k + 1])
        return Batch(self.features(rows), self.y[rows])

    def only(self, ks: Sequence[int] | Array) -> "LocalData":
        """The same for some of the clients."""
        parts = [slice(self.offsets[k], self.offsets[k + 1]) for k in ks]
        sizes = [part.stop - part.start for part in parts]
        return self._replace(
            clients=self.clients[ks],
            X=np.concatenate([self.X[part] for part in parts]),
            y=np.concatenate([self.y[part] for part in parts]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            rows={role: rows[ks] for role, rows in self.rows.items()},
            steps=self.steps[ks],
            per_epoch=self.per_epoch[ks],
        )

    def batch(self, role: str, k: int, t: int) -> Batch:
        """The k-th client's batch at step t: X (W, p)."""
        return self._batch(self.rows[role][k, t], self.offsets[k])

    def batches(self, role: str, active: int, t: int) -> Batch:
        """The batches of the first `active` clients at step t: X (active, W, p)."""
        return self._batch(self.rows[role][:active, t], self.offsets[:active, None])

    def _batch(self, rows: Array, offset: Array) -> Batch:
        index, real = rows + offset, rows != PADDING
        if real.all():
            return Batch(self.features(index), self.y.take(index))
        index = np.where(real, index, offset)
        index = np.minimum(index, len(self.y) - 1)  # an empty batch may point past the last client
        return Batch(self.features(index), self.y.take(index), real.astype(self.dtype))


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
    sorted_data = data._replace(
        offsets=data.offsets[:-1][order],
        rows={role: rows[order] for role, rows in data.rows.items()},
    )
    steps = data.steps[order]
    local = tree.stack([algorithm.start(model, sent, client_states[k]) for k in order])
    ended: list[Any] = [None] * len(order)
    active = len(order)
    for t in range(int(steps[0]) + 1):
        still = int(np.count_nonzero(steps > t))
        for i in range(still, active):
            ended[order[i]] = tree.map(lambda x, i=i: x[i], local)
        if still == 0:
            break
        if still < active:
            local = tree.map(lambda x, still=still: x[:still], local)
            active = still
        local = algorithm.step(
            model, sent, local, *(sorted_data.batches(r, active, t) for r in data.rows)
        )
    return ended


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
        results.append(result._replace(log=log))
    return results, counter.counts


#: `run_clients` or a replacement for it; None is the result of a client that failed.
RunClients = Callable[..., tuple[list[ClientResult | None], Counts]]


def gather(plan: Plan, federation: Federation, dtype: Any, keep: Array) -> LocalData:
    """The data of the clients `keep` (indices into the plan's cohort), in the source's own dtype."""
    rows = [federation.train.of(k) for k in plan.clients[keep]]
    index = np.concatenate(rows)
    shift, scale = federation.shift_and_scale
    return LocalData(
        plan.clients[keep],
        plan.round,
        federation.source.X.take(index, 0),
        federation.source.y.take(index),
        np.concatenate([[0], np.cumsum([len(r) for r in rows])]),
        {role: batches[keep] for role, batches in plan.rows.items()},
        plan.steps[keep],
        plan.per_epoch[keep],
        shift,
        scale,
        np.dtype(dtype),
    )


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
    keep = np.flatnonzero(~plan.straggler) if algorithm.drop else np.arange(len(plan.clients))
    log = RoundLog(
        floats_down=travels * len(plan.clients) * floats(sent),
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
