"""Power-law and lognormal clients: FedProx's generators, and CIFAR-10 as APFL splits it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.lab.datasets import partition
from fedref.lab.datasets.rules.base import Generator, Parts, Rule, by_class, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source


class Holdings(NamedTuple):
    """The classes of the clients: client user[i]'s class number slot[i], counted from 0, is label[i].

    Three arrays (H,), one entry for each class of each client, in the order in which rows are dealt.
    """

    user: Array
    slot: Array
    label: Array


def neighbours(source: Source, C: int, users: int, classes: int) -> Holdings:
    """Return the holdings if client u holds the classes (u, u+1, ..., u+classes−1) mod C."""
    if classes > C:
        raise ConfigError(f"classes={classes} for each client, but {source.name} has only {C}")
    user, slot = np.divmod(np.arange(users * classes), classes)
    return Holdings(user, slot, (user + slot) % C)


def rows_left(source: Source, pools: Part, held: Holdings, base: int) -> Array:
    """Return how many rows of each class are left after `base` for every holding; refuse too few."""
    left = pools.sizes - base * np.bincount(held.label, minlength=len(pools.sizes))
    short = np.flatnonzero(left < 0)
    if short.size:
        c = short[0]
        raise ConfigError(
            f"{held.user[-1] + 1} users with at least {base} rows per class need "
            f"{pools.sizes[c] - left[c]} rows of class {source.labels[c]}, {source.name} has "
            f"{pools.sizes[c]}: lower users"
        )
    return left


def hand_out(pools: Part, held: Holdings, base: int, extra: Array) -> Part:
    """Deal `base` rows to every holding, then the extra rows, in order, as long as there are any."""
    count = np.concatenate([np.full_like(extra, base), extra])
    label, user = np.tile(held.label, 2), np.tile(held.user, 2)
    return partition.deal(pools, label, user, count, int(held.user[-1]) + 1)


@dataclass(frozen=True)
class PowerLaw(Rule):
    """Client u holds classes (u, u+1, ...) mod C: `base` rows of each, then a lognormal share.

    The rest of a class is divided in proportion to weights from lognormal(0, σ), one for each (class,
    ⌊u/C⌋, slot). FedProx calls this its power law; its published generator draws lognormal shares. Rows
    are dealt in the order of the source while they last [fedprox; apfl table 1].
    """

    users: int = 100
    classes: int = 2
    base: int = 5
    sigma: float = 2.0
    pool: str = "all"
    train_fraction: float = 0.9

    leftover = (
        "what is left of each class when shares are rounded down, and classes that nobody holds"
    )

    def split(self, source: Source, rng: Generator) -> Parts:
        pools = by_class(source, rows_of(source, self.pool))
        C = len(pools.sizes)
        held = neighbours(source, C, self.users, self.classes)
        left = rows_left(source, pools, held, self.base)
        rng_share, rng_cut = rng.spawn(2)
        drawn = rng_share.lognormal(0.0, self.sigma, (C, -(-self.users // C), self.classes))
        share = drawn[held.label, held.user // C, held.slot]
        total = np.bincount(held.label, share, C)[held.label]
        extra = np.floor(left[held.label] * share / total).astype(np.int64)
        return partition.split_rows(
            hand_out(pools, held, self.base, extra), self.train_fraction, rng_cut
        )


@dataclass(frozen=True)
class LognormalSizes(Rule):
    """Client u has lognormal(μ, σ) + 5 rows, of the classes (u, u+1, ...) mod C, at least 2 of each class.

    Decision: no two clients hold the same row. (The published generator starts every client at the
    same first row, so that a test row of one may be a training row of another.) Every client first
    gets 2 rows of each of its classes, then the rest of its rows while they last.

    mu : mean of log(n − 5)
    sigma : standard deviation of log(n − 5)
    """

    users: int = 200
    classes: int = 3
    mu: float = 4.0
    sigma: float = 1.0
    pool: str = "all"
    train_fraction: float = 0.9

    leftover = "what is left when each client has as many rows as were drawn"
    bounds: ClassVar[Mapping[str, Any]] = {"sigma": (0, 10)}

    def split(self, source: Source, rng: Generator) -> Parts:
        pools = by_class(source, rows_of(source, self.pool))
        held = neighbours(source, len(pools.sizes), self.users, self.classes)
        rows_left(source, pools, held, 2)
        rng_size, rng_order, rng_cut = rng.spawn(3)
        size = rng_size.lognormal(self.mu, self.sigma, self.users) + 5
        extra = np.clip(size // self.classes - 2, 0, len(source.y)).astype(np.int64)[held.user]
        dealt = hand_out(partition.shuffle_clients(pools, rng_order), held, 2, extra)
        return partition.split_rows(dealt, self.train_fraction, rng_cut)
