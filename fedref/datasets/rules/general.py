"""Split rules that belong to no single paper: natural, iid, dirichlet, shards, quantity."""

from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.datasets import partition
from fedref.datasets.partition import apportion
from fedref.datasets.rules.common import Generator, Parts, by_class, need_rows, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source


def natural(source: Source, rng: Generator, min_rows: int, train_fraction: float) -> Parts:
    """Keep the source's own clients; its published test part, if it has one, is their test part."""
    if source.client is None:
        notes = "".join(f"; {note}" for note in source.notes)
        raise ConfigError(
            f"{source.name} has no natural clients: expected a column or an array called client, "
            f"which says whose row it is, or another split rule, such as iid{notes}"
        )
    whole = partition.group(source.client, int(source.client.max()) + 1)
    if source.test_from is None:
        train, test = partition.split_rows(whole, train_fraction, rng)
    else:
        train = partition.keep_rows(whole, whole.rows < source.test_from)
        test = partition.keep_rows(whole, whole.rows >= source.test_from)
    kept = kept_clients(source, min_rows)
    if not kept.size:
        raise ConfigError(f"no client of {source.name} has {min_rows} rows and a training row")
    return train.subset(kept), test.subset(kept)


def kept_clients(source: Source, min_rows: int) -> Array:
    """Return the numbers of the natural clients with min_rows rows, at least one of them for training."""
    assert source.client is not None
    trained = np.bincount(source.client[: source.test_from])
    sizes = np.bincount(source.client)
    trained = np.pad(trained, (0, len(sizes) - len(trained)))
    return np.flatnonzero((sizes >= min_rows) & (trained > 0))


def natural_names(source: Source, min_rows: int, **others: Any) -> tuple[str, ...]:
    """Return the names of the clients that `natural` keeps."""
    kept = kept_clients(source, min_rows).tolist()
    names = source.client_names
    return tuple(str(k) if names is None else names[k] for k in kept)


def iid(
    source: Source, rng: Generator, of: None, users: int, pool: str, train_fraction: float
) -> Parts:
    """Deal random rows, the same number for each client."""
    rows = rows_of(source, pool)
    need_rows(users, 1, rows, source)
    rng_deal, rng_cut = rng.spawn(2)
    ends = np.arange(users + 1) * len(rows) // users
    return partition.split_rows(Part(rng_deal.permutation(rows), ends), train_fraction, rng_cut)


def reshuffle(split: Parts, rng: Generator) -> Parts:
    """Return the IID twin of a split: same clients, same sizes, training rows among training rows."""
    streams = rng.spawn(2)
    train, test = (Part(r.permutation(p.rows), p.offsets) for r, p in zip(streams, split))
    return train, test


def dirichlet(
    source: Source,
    rng: Generator,
    alpha: float,
    min_rows: int,
    users: int,
    pool: str,
    train_fraction: float,
) -> Parts:
    """Label skew: each class is divided over the clients by a Dirichlet(α) draw (Hsu et al. 2019).

    A client with fewer than min_rows is given random rows of clients that have more than that.
    """
    rows = rows_of(source, pool)
    need_rows(users, min_rows, rows, source)
    rng_order, rng_share, rng_even, rng_cut = rng.spawn(4)
    pools = partition.shuffled(by_class(source, rows), rng_order)
    count = np.concatenate(
        [apportion(n, rng_share.dirichlet(np.full(users, alpha))) for n in pools.sizes]
    )
    pool_of, client = np.divmod(np.arange(len(count)), users)
    dealt = partition.deal(pools, pool_of, client, count, users)
    return partition.split_rows(even_out(dealt, min_rows, rng_even), train_fraction, rng_cut)


def even_out(part: Part, least: int, rng: Generator) -> Part:
    """Give clients with fewer than `least` rows some at random from those that hold more."""
    wanting = np.maximum(least - part.sizes, 0)
    if not wanting.any():
        return part
    mixed = partition.shuffled(part, rng)
    spare = np.flatnonzero(partition.positions(mixed) >= least)
    owner = mixed.owners
    owner[rng.permutation(spare)[: wanting.sum()]] = np.repeat(np.arange(len(wanting)), wanting)
    return partition.group(owner, len(wanting), mixed.rows)


def shards(
    source: Source, rng: Generator, shards: int, users: int, pool: str, train_fraction: float
) -> Parts:
    """Rows sorted by label, cut into users × shards equal pieces, dealt at random (McMahan 2017)."""
    rows = rows_of(source, pool)
    pieces = users * shards
    need_rows(users, shards, rows, source)
    rng_deal, rng_cut = rng.spawn(2)
    ordered = by_class(source, rows).rows
    ends = np.arange(pieces + 1) * len(rows) // pieces
    owner = np.empty(pieces, np.int64)
    owner[rng_deal.permutation(pieces)] = np.arange(pieces) // shards
    dealt = partition.group(np.repeat(owner, np.diff(ends)), users, ordered)
    return partition.split_rows(dealt, train_fraction, rng_cut)


def quantity(
    source: Source,
    rng: Generator,
    alpha: float,
    min_rows: int,
    users: int,
    pool: str,
    train_fraction: float,
) -> Parts:
    """Quantity skew: clients differ only in size, by Dirichlet(α); rows at random (Li et al. 2022)."""
    rows = rows_of(source, pool)
    need_rows(users, min_rows, rows, source)
    rng_deal, rng_share, rng_cut = rng.spawn(3)
    shares = rng_share.dirichlet(np.full(users, alpha))
    sizes = min_rows + apportion(len(rows) - users * min_rows, shares)
    return partition.split_rows(
        Part(rng_deal.permutation(rows), partition.offsets(sizes)), train_fraction, rng_cut
    )
