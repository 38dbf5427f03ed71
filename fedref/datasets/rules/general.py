"""Split rules that belong to no single paper: natural, iid, dirichlet, shards, quantity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.datasets import partition
from fedref.datasets.partition import apportion
from fedref.datasets.rules.base import Generator, Parts, Rule, by_class, require_rows, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source


@dataclass(frozen=True)
class Natural(Rule):
    """Keep the source's own clients; its published test part, if it has one, is their test part."""

    min_rows: int = 1
    train_fraction: float = 0.9

    meanings: ClassVar[Mapping[str, str]] = {"min_rows": "leave out clients with fewer rows"}

    def split(self, source: Source, rng: Generator) -> Parts:
        if source.client is None:
            notes = "".join(f"; {note}" for note in source.notes)
            raise ConfigError(
                f"{source.name} has no natural clients: expected a column or an array called client, "
                f"which says whose row it is, or another split rule, such as iid{notes}"
            )
        whole = partition.group_by_client(source.client, int(source.client.max()) + 1)
        if source.test_from is None:
            train, test = partition.split_rows(whole, self.train_fraction, rng)
        else:
            train = partition.keep_rows(whole, whole.rows < source.test_from)
            test = partition.keep_rows(whole, whole.rows >= source.test_from)
        kept = self.kept_clients(source)
        if not kept.size:
            raise ConfigError(
                f"no client of {source.name} has {self.min_rows} rows and a training row"
            )
        return train.subset(kept), test.subset(kept)

    def kept_clients(self, source: Source) -> Array:
        """Return the clients that have at least min_rows rows, one or more of them for training."""
        assert source.client is not None
        sizes = np.bincount(source.client)
        trained = np.bincount(source.client[: source.test_from], minlength=len(sizes))
        return np.flatnonzero((sizes >= self.min_rows) & (trained > 0))

    def client_names(self, source: Source) -> tuple[str, ...]:
        kept, names = self.kept_clients(source).tolist(), source.client_names
        return tuple(str(k) if names is None else names[k] for k in kept)


@dataclass(frozen=True)
class IID(Rule):
    """Deal random rows, the same number for each client."""

    of: str | None = None
    users: int = 100
    pool: str = "all"
    train_fraction: float = 0.9

    def split(self, source: Source, rng: Generator) -> Parts:
        rows = rows_of(source, self.pool)
        require_rows(self.users, 1, rows, source)
        rng_deal, rng_cut = rng.spawn(2)
        ends = np.arange(self.users + 1) * len(rows) // self.users
        return partition.split_rows(
            Part(rng_deal.permutation(rows), ends), self.train_fraction, rng_cut
        )


def reshuffle(split: Parts, rng: Generator) -> Parts:
    """Return the IID twin of a split: clients of the same sizes, but with random rows.

    Training rows stay training rows, and test rows stay test rows.
    """
    streams = rng.spawn(2)
    train, test = (Part(r.permutation(p.rows), p.offsets) for r, p in zip(streams, split))
    return train, test


@dataclass(frozen=True)
class Dirichlet(Rule):
    """Label skew: each class is divided over the clients by a Dirichlet(α) draw (Hsu et al. 2019).

    A client with fewer than min_rows rows gets random rows from clients that have more than that.
    """

    alpha: float = 0.5
    min_rows: int = 2
    users: int = 100
    pool: str = "all"
    train_fraction: float = 0.9

    def split(self, source: Source, rng: Generator) -> Parts:
        rows = rows_of(source, self.pool)
        require_rows(self.users, self.min_rows, rows, source)
        rng_order, rng_share, rng_even, rng_cut = rng.spawn(4)
        pools = partition.shuffle_clients(by_class(source, rows), rng_order)
        count = np.concatenate(
            [
                apportion(n, rng_share.dirichlet(np.full(self.users, self.alpha)))
                for n in pools.sizes
            ]
        )
        pool_of, client = np.divmod(np.arange(len(count)), self.users)
        dealt = partition.deal(pools, pool_of, client, count, self.users)
        return partition.split_rows(
            even_out(dealt, self.min_rows, rng_even), self.train_fraction, rng_cut
        )


def even_out(part: Part, least: int, rng: Generator) -> Part:
    """Move random rows to clients with fewer than `least` rows, from clients that hold more."""
    wanting = np.maximum(least - part.sizes, 0)
    if not wanting.any():
        return part
    mixed = partition.shuffle_clients(part, rng)
    spare = np.flatnonzero(partition.row_positions(mixed) >= least)
    owner = mixed.owners
    owner[rng.permutation(spare)[: wanting.sum()]] = np.repeat(np.arange(len(wanting)), wanting)
    return partition.group_by_client(owner, len(wanting), mixed.rows)


@dataclass(frozen=True)
class Shards(Rule):
    """Sort rows by label, cut them into users × shards pieces, deal them at random (McMahan 2017)."""

    shards: int = 2
    users: int = 100
    pool: str = "all"
    train_fraction: float = 0.9

    def split(self, source: Source, rng: Generator) -> Parts:
        rows = rows_of(source, self.pool)
        pieces = self.users * self.shards
        require_rows(self.users, self.shards, rows, source)
        rng_deal, rng_cut = rng.spawn(2)
        ordered = by_class(source, rows).rows
        ends = np.arange(pieces + 1) * len(rows) // pieces
        owner = np.empty(pieces, np.int64)
        owner[rng_deal.permutation(pieces)] = np.arange(pieces) // self.shards
        dealt = partition.group_by_client(np.repeat(owner, np.diff(ends)), self.users, ordered)
        return partition.split_rows(dealt, self.train_fraction, rng_cut)


@dataclass(frozen=True)
class Quantity(Rule):
    """Quantity skew: random rows, but sizes that follow a Dirichlet(α) draw (Li et al. 2022)."""

    alpha: float = 0.5
    min_rows: int = 2
    users: int = 100
    pool: str = "all"
    train_fraction: float = 0.9

    def split(self, source: Source, rng: Generator) -> Parts:
        rows = rows_of(source, self.pool)
        require_rows(self.users, self.min_rows, rows, source)
        rng_deal, rng_share, rng_cut = rng.spawn(3)
        shares = rng_share.dirichlet(np.full(self.users, self.alpha))
        sizes = self.min_rows + apportion(len(rows) - self.users * self.min_rows, shares)
        return partition.split_rows(
            Part(rng_deal.permutation(rows), partition.offsets(sizes)), self.train_fraction, rng_cut
        )
