"""The operations that assign rows to clients; every split rule is built from them."""

import numpy as np

from fedref.models.numerics import Array
from fedref.rounds.federation import Part


def offsets(sizes: Array) -> Array:
    """Return the (N + 1,) offsets of (N,) sizes, from 0 to their sum."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def concatenate_ranges(start: Array, count: Array) -> Array:
    """Return start[i], ..., start[i] + count[i] − 1 for every i, one after the other.

    >>> concatenate_ranges(np.array([10, 40]), np.array([3, 2]))
    array([10, 11, 12, 40, 41])
    """
    ends = offsets(count)
    return np.asarray(np.arange(ends[-1]) + np.repeat(start - ends[:-1], count))


def group_by_client(owner: Array, clients: int, rows: Array | None = None) -> Part:
    """Group rows (default: 0, 1, ...) by their owner; each client's rows keep their order."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=clients)
    return Part(order if rows is None else rows[order], offsets(sizes))


def join(part: Part, other: Part) -> Part:
    """Return the clients of a part, then those of another."""
    ends = other.offsets[1:] + part.offsets[-1]
    return Part(np.concatenate([part.rows, other.rows]), np.concatenate([part.offsets, ends]))


def shuffle_clients(part: Part, rng: np.random.Generator) -> Part:
    """Return the same clients, each with its rows in random order."""
    # client + U[0, 1) sorts by client first: one sort shuffles all clients at once
    order = np.argsort(part.owners + rng.random(len(part.rows)), kind="stable")
    return Part(part.rows[order], part.offsets)


def row_positions(part: Part) -> Array:
    """Return every row's position within its client, 0, 1, ..., n_k − 1: (R,)."""
    return concatenate_ranges(np.zeros(len(part.offsets) - 1, np.int64), part.sizes)


def keep_rows(part: Part, keep: Array) -> Part:
    """Return the rows of every client for which keep (R,) is true."""
    return Part(part.rows[keep], offsets(keep)[part.offsets])


def train_sizes(sizes: Array, fraction: float) -> Array:
    """Return ⌊fraction·n⌋, but at least 1 and at most n − 1 if n ≥ 2; a single row is for training.

    >>> train_sizes(np.array([0, 1, 2, 5, 10]), 0.9)
    array([0, 1, 1, 4, 9])
    """
    # the small term keeps 0.29·100 = 28.999999999999996 from becoming 28
    wanted = np.floor(fraction * sizes + 1e-9).astype(np.int64)
    return np.where(sizes < 2, sizes, np.clip(wanted, 1, sizes - 1))


def split_rows(part: Part, fraction: float, rng: np.random.Generator) -> tuple[Part, Part]:
    """Divide each client's rows at random into (train, test); the order of rows is kept in both."""
    return draw_rows(part, train_sizes(part.sizes, fraction), rng)


def draw_rows(part: Part, sizes: Array, rng: np.random.Generator) -> tuple[Part, Part]:
    """Divide each client's rows at random into (sizes[k] of them, the others), in their order."""
    rank = np.empty(len(part.rows), np.int64)
    places = Part(np.arange(len(part.rows)), part.offsets)
    rank[shuffle_clients(places, rng).rows] = row_positions(part)
    first = rank < np.repeat(sizes, part.sizes)
    return keep_rows(part, first), keep_rows(part, ~first)


def deal(pools: Part, pool: Array, client: Array, count: Array, clients: int) -> Part:
    """Hand out the pools' rows: holding i gives client[i] the next count[i] rows of pool[i].

    pools : a Part with pools in place of clients. pool, client, count : (H,), one entry a holding.
    Holdings are served in this order; one that asks for more than its pool has left gets the rest.
    """
    order = np.argsort(pool, kind="stable")
    ends = np.cumsum(count[order])
    first = np.searchsorted(pool[order], np.arange(len(pools.offsets) - 1))
    before = np.concatenate([[0], ends])[first]  # rows that the holdings of earlier pools ask for
    stop = ends - before[pool[order]]
    start = np.minimum(stop - count[order], pools.sizes[pool[order]])
    stop = np.minimum(stop, pools.sizes[pool[order]])
    got, begin = np.empty_like(count), np.empty_like(count)
    got[order], begin[order] = stop - start, start + pools.offsets[pool[order]]
    rows = pools.rows[concatenate_ranges(begin, got)]
    return group_by_client(np.repeat(client, got), clients, rows)


def apportion(n: int, shares: Array) -> Array:
    """Divide n rows in proportion to the shares: differences of the rounded cumulative sums."""
    total = np.cumsum(shares)
    # with a tiny α all Dirichlet shares can underflow to 0: then the first client takes all rows
    ends = np.round(n * (total / total[-1] if total[-1] > 0 else np.ones_like(total)))
    return np.diff(ends, prepend=0).astype(np.int64)


def split_clients(n_clients: int, seed: int) -> tuple[Array, ...]:
    """Return 80 % of the clients for training, 10 % for validation, 10 % for testing, each ascending."""
    rng = np.random.default_rng([seed, int.from_bytes(b"clients")])
    sizes = apportion(n_clients, np.array((0.8, 0.1, 0.1)))
    groups = np.split(rng.permutation(n_clients), np.cumsum(sizes)[:-1])
    return tuple(np.sort(group) for group in groups)
