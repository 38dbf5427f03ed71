"""Split rules that belong to no single paper: natural, iid, dirichlet, shards, quantity."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.lab.datasets import partition
from fedref.lab.datasets.partition import apportion
from fedref.lab.datasets.rules import base
from fedref.lab.datasets.rules.base import Division, Generator, Rule, by_class, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source

USERS = 100


@dataclass(frozen=True)
class Natural(Rule):
    """Keep the source's own clients; its published test part, if it has one, is their test part.

    Clients that have rows in the test part alone never train: they are tested as unseen clients.

    min_rows : leave out clients with fewer rows
    """

    min_rows: int = 1
    train_fraction: float = 0.9

    leftover = "those of clients with fewer than min_rows rows"

    def split(self, source: Source, rng: Generator) -> Division:
        if source.client is None:
            raise ConfigError(
                f"{source.name} has no natural clients: expected a column or an array called client, "
                "which says whose row it is (of another name: --set data.client=COLUMN), or another "
                "split rule, such as iid"
            )
        whole = partition.group_by_client(source.client, int(source.client.max()) + 1)
        if source.test_from is None:
            train, test = partition.split_rows(whole, self.train_fraction, rng)
        else:
            train = partition.keep_rows(whole, whole.rows < source.test_from)
            test = partition.keep_rows(whole, whole.rows >= source.test_from)
        large = whole.sizes >= self.min_rows
        kept, never = (np.flatnonzero(large & ((train.sizes > 0) == has)) for has in (True, False))
        if not kept.size:
            least = f"{self.min_rows} rows and a training row"
            raise ConfigError(f"no client of {source.name} has {least}")
        known = source.client_names or [*map(str, range(len(whole.sizes)))]
        names, others = (tuple(known[k] for k in some.tolist()) for some in (kept, never))
        unseen = test.subset(never) if never.size else None
        return Division(train.subset(kept), test.subset(kept), names, unseen, others)


@dataclass(frozen=True)
class Dealt(Rule):
    """A rule that deals the rows anew, by default to as many clients as the data have of their own.

    So only the degree of heterogeneity changes. Data without clients of their own get 100.

    users : number of clients; default: as many as the data have of their own, else 100
    """

    users: int | None = None
    pool: str = "all"
    train_fraction: float = 0.9

    streams: ClassVar[int] = 1  # of random numbers that `deal` needs

    def fill(self, source: Source) -> Self:
        natural = USERS if source.client is None else len(np.unique(source.client))
        return self if self.users else replace(self, users=natural)

    def split(self, source: Source, rng: Generator) -> Division:
        *streams, rng_cut = rng.spawn(self.streams + 1)
        dealt = self.deal(source, rows_of(source, self.pool), self.users or USERS, *streams)
        return Division(*partition.split_rows(dealt, self.train_fraction, rng_cut))

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        """Return the rows of each client, training and test together."""
        raise NotImplementedError


@dataclass(frozen=True)
class IID(Dealt):
    """Deal random rows, the same number for each client."""

    of: str | None = None

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        base.require_rows(users, 1, rows, source)
        ends = np.arange(users + 1) * len(rows) // users
        return Part(streams[0].permutation(rows), ends)


def reshuffle(split: tuple[Part, Part], rng: Generator) -> tuple[Part, Part]:
    """Return the IID twin of a split: clients of the same sizes, but with random rows.

    Training rows stay training rows, and test rows stay test rows.
    """
    streams = rng.spawn(2)
    train, test = (Part(r.permutation(p.rows), p.offsets) for r, p in zip(streams, split))
    return train, test


@dataclass(frozen=True)
class Dirichlet(Dealt):
    """Label skew: each class is divided over the clients by a Dirichlet(α) draw (Yurochkin et al. 2019).

    A client with fewer than min_rows rows gets random rows from clients that have more than that.
    """

    alpha: float = 0.5
    min_rows: int = 2

    streams = 3
    elsewhere = (
        "FedLab 1.3.0 and flwr-datasets 0.6.1 (unless self_balancing=False) give a client above the mean "
        "size no row of a further class: the standard deviation of sizes is 52 there, 69 here (digits, 20 "
        "clients, α = 0.1, 200 seeds). flwr-datasets and fl-data-generator 0.1.4 truncate shares, and the "
        "last client gets the rest: 9.9 of 10 labels (3.9 here). What pfl calls by this name is "
        "dirichlet-mix."
    )

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        base.require_rows(users, self.min_rows, rows, source)
        rng_order, rng_share, rng_even = streams
        pools = partition.shuffle_clients(by_class(source, rows), rng_order)
        count = [apportion(n, rng_share.dirichlet(np.full(users, self.alpha))) for n in pools.sizes]
        pool_of, client = np.divmod(np.arange(len(count) * users), users)
        dealt = partition.deal(pools, pool_of, client, np.concatenate(count), users)
        return even_out(dealt, self.min_rows, rng_even)


@dataclass(frozen=True)
class DirichletMix(Dealt):
    """Label skew: each client draws a mix of classes from Dirichlet(α p); equal sizes (Hsu et al. 2019).

    p is the data's own mix of classes. One client after the other draws a class for each of its rows. A
    class that has run out is drawn no more, so the last clients get what is left.
    """

    alpha: float = 1.0

    streams = 2
    elsewhere = (
        "pfl 0.6.0 takes the parameter of one class for alpha: α/C for what is α here. Both agree until a "
        "class has run out; then pfl mixes all classes in: with 10 classes of 600 rows, 20 clients, α = 0.1 "
        "here, 200 seeds, the last ten clients hold 4.1 labels there and 1.9 here."
    )

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        base.require_rows(users, 1, rows, source)
        rng_order, rng_mix = streams
        pools = partition.shuffle_clients(by_class(source, rows), rng_order)
        sizes = np.diff(np.arange(users + 1) * len(rows) // users)
        left, prior = pools.sizes.copy(), pools.sizes / len(rows)
        count = np.zeros((users, len(left)), np.int64)
        for k, n in enumerate(sizes.tolist()):
            mix = rng_mix.dirichlet(self.alpha * prior)
            while (wanting := n - count[k].sum()) > 0:
                share = np.where(left > 0, mix, 0)
                if not share.sum() > 0:  # none of its classes has a row left
                    share = left
                drawn = np.minimum(rng_mix.multinomial(wanting, share / share.sum()), left)
                count[k] += drawn
                left -= drawn
        client, pool = np.divmod(np.arange(count.size), len(left))
        return partition.deal(pools, pool, client, count.ravel(), users)


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
class Shards(Dealt):
    """Sort rows by label, cut them into users × shards pieces, deal them at random (McMahan 2017)."""

    shards: int = 2

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        base.require_rows(users, self.shards, rows, source)
        pieces = users * self.shards
        ordered = by_class(source, rows).rows
        ends = np.arange(pieces + 1) * len(rows) // pieces
        owner = np.empty(pieces, np.int64)
        owner[streams[0].permutation(pieces)] = np.arange(pieces) // self.shards
        return partition.group_by_client(np.repeat(owner, np.diff(ends)), users, ordered)


@dataclass(frozen=True)
class Quantity(Dealt):
    """Quantity skew: random rows, but sizes that follow a Dirichlet(α) draw (Li et al. 2022)."""

    alpha: float = 0.5
    min_rows: int = 2

    streams = 2

    def deal(self, source: Source, rows: Array, users: int, *streams: Generator) -> Part:
        base.require_rows(users, self.min_rows, rows, source)
        rng_deal, rng_share = streams
        shares = rng_share.dirichlet(np.full(users, self.alpha))
        sizes = self.min_rows + apportion(len(rows) - users * self.min_rows, shares)
        return Part(rng_deal.permutation(rows), partition.offsets(sizes))
