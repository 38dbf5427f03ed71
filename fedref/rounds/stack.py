"""Many clients at once: the steps of `loop.run_client`, along a leading axis."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.local_data import LocalData
from fedref.sampling import PADDING

#: Clients of models with more parameters are run one by one: a stack would not fit the cache.
STACK_UP_TO = 100_000


def run_stacked(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
) -> list[Any]:
    """Run all clients at once along a leading axis: equal to `run_client`, bit for bit.

    Clients are sorted by their number of steps, so that those still at work are always a prefix.
    """
    order = np.argsort(-data.steps, kind="stable")
    starts = [algorithm.start(model, sent, client_states[k], data.participant(k)) for k in order]
    local = stack_shared(starts)
    locals_after: list[Any] = [None] * len(order)

    def end(first: int, last: int) -> None:
        for i in range(first, last):
            locals_after[order[i]] = tree.map(lambda x, i=i: x[i], local)

    at_work = len(order)
    for still, batches in steps(data, order, algorithm.roles):
        if still < at_work:
            end(still, at_work)
            local = tree.map(lambda x, still=still: x[:still], local)
            at_work = still
        local = algorithm.step(model, sent, local, *batches)
    end(0, at_work)
    return locals_after


def stack_shared(trees: Sequence[tree.Tree]) -> tree.Tree:
    """Like `tree.stack`, but a leaf shared by all trees is broadcast (read-only) instead of copied."""

    def leaf(first: Any, *others: Any) -> Array:
        if all(x is first for x in others):
            return np.broadcast_to(first, (1 + len(others), *np.shape(first)))
        return np.stack([first, *others])

    return tree.map(leaf, *trees)


def steps(data: LocalData, order: Array, roles: Iterable[str]) -> Iterator[tuple[int, list[Batch]]]:
    """Yield for every step how many clients of `order` are at work, and their batches, one a role.

    Clients are ordered by their number of steps, the most first. X (active, W, p).
    """
    S = data.steps[order]
    active = np.count_nonzero(np.arange(S.max())[:, None] < S, axis=1)
    finished = np.arange(len(order)) >= active[:, None]  # (S, K) the client has no step left
    plans = []
    for role in roles:
        # (S, K, W): a step's clients together
        rows = data.rows[role][order, : len(active)].transpose(1, 0, 2)
        real = rows != PADDING
        full = (real.all(-1) | finished).all(-1)  # (S,) nobody at work has padding
        index = data.locate(rows, data.offsets[:-1][order][:, None])
        plans.append((index, data.y.take(index), real.astype(data.dtype), full.tolist()))
    # a step's rows are gathered as it begins: they are used before they leave the cache
    for t, k in enumerate(active.tolist()):
        yield (
            k,
            [
                Batch(data.features(index[t, :k]), y[t, :k], None if full[t] else s[t, :k])
                for index, y, s, full in plans
            ],
        )
