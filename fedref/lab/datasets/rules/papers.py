"""The papers' splits: Per-FedAvg's [per-fedavg §3.2], FedProx's generators, CIFAR-10 as APFL splits it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.lab.datasets import partition
from fedref.lab.datasets.rules.base import Division, Generator, Rule, by_class, classes_of, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source

# ---- Per-FedAvg ----------------------------------------------------------------------------------


def pairs(C: int, users: int) -> tuple[Array, Array]:
    """Return the two classes of each user i = 0, 1, ... of the second half: (lower, upper).

    With h = C/2 they are (i mod h, h + ⌊i/h⌋ mod h), which runs through all h² pairs. If the second
    half is not a multiple of h² users, they are (i mod h, h + (i + ⌊i/h⌋) mod h) instead: these run
    along the diagonals, so that no upper class is left out.
    """
    half, i = C // 2, np.arange(users // 2)
    step = i // half if len(i) % half**2 == 0 else i + i // half
    return i % half, half + step % half


def demand(C: int, users: int) -> Array:
    """Return how many rows of each class all users together hold if a = 1: (C,)."""
    low, high = pairs(C, users)
    wanted = np.zeros(C)
    wanted[: C // 2] += users // 2
    return wanted + np.bincount(low, minlength=C) / 2 + 2 * np.bincount(high, minlength=C)


def largest_even(pools: Part, users: int) -> int:
    """Return the largest even `a` for which no class runs out."""
    wanted = demand(len(pools.sizes), users)
    fits = pools.sizes[wanted > 0] / wanted[wanted > 0]
    return 2 * int(fits.min() / 2)


def deal_pairs(pools: Part, users: int, a: int) -> Part:
    """Deal rows to users: the first half gets a of each lower class, the others a/2 and 2a of a pair."""
    C = len(pools.sizes)
    lower = np.arange(users // 2 * (C // 2))
    low, high = pairs(C, users)
    second = np.arange(users // 2, users)
    pool = np.concatenate([lower % (C // 2), low, high])
    client = np.concatenate([lower // (C // 2), second, second])
    count = np.repeat([a, a // 2, 2 * a], [len(lower), len(low), len(high)])
    return partition.deal(pools, pool, client, count, users)


def default_users(train: Part, test: Part) -> int:
    """Return 50 users as in the paper, or the largest multiple of C below 50 for which rows suffice."""
    C = len(train.sizes)
    numbers = (50, *range(50 - 50 % C, 0, -C))
    fits = (n for n in numbers if min(largest_even(train, n), largest_even(test, n)) >= 2)
    return next(fits, C)


def class_pools(source: Source, train_fraction: float, rng: Generator) -> tuple[Part, Part]:
    """Return training and test rows by class: the published parts, or each class divided at random."""
    rows = rows_of(source, "all")
    if source.test_from is None:
        return partition.split_rows(by_class(source, rows), train_fraction, rng)
    train, test = (by_class(source, part) for part in np.split(rows, [source.test_from]))
    return train, test


@dataclass(frozen=True)
class PerFedAvg(Rule):
    """Half of the users hold a rows of each lower class, half a/2 of one and 2a of one upper class.

    [per-fedavg §3.2], for any data with an even number of classes. The test part is split in the same
    way. If none is published, the rows of each class are first divided by train_fraction.

    users : number of clients, even; 50, or fewer if the data has too few rows
    train_fraction : fraction of each class for training, if the source has no published test part
    """

    users: int | None = None
    a: int | None = None
    a_test: int | None = None
    train_fraction: float = 0.8

    leftover = "what is left of each class when all users have their rows"
    bounds: ClassVar[Mapping[str, tuple[float, ...]]] = {"users": (2,)}

    def fill(self, source: Source) -> Self:
        """Return the rule with users, a and a_test checked, or set as the data allow if not given."""
        C = len(classes_of(source))
        if C < 2 or C % 2:
            raise ConfigError(f"per-fedavg needs an even number of classes, {source.name} has {C}")
        # only sizes matter here, and they do not depend on the random numbers
        train, test = class_pools(source, self.train_fraction, np.random.default_rng(0))
        users = default_users(train, test) if self.users is None else self.users
        if users % 2:
            raise ConfigError(f"per-fedavg needs an even number of users, got {users}")
        most, most_test = largest_even(train, users), largest_even(test, users)
        a = min(196, most) if self.a is None else self.a
        a_test = most_test if self.a_test is None else self.a_test
        for name, value, fits in (("a", a, most), ("a_test", a_test, most_test)):
            if value % 2 or not 2 <= value <= fits:
                raise ConfigError(
                    f"per-fedavg: {name}={value} for {users} users of {source.name}, expected "
                    + (f"an even number from 2 to {fits}" if fits >= 2 else "fewer users")
                )
        return replace(self, users=users, a=a, a_test=a_test)

    def split(self, source: Source, rng: Generator) -> Division:
        users, a, a_test = (value for value in (self.users, self.a, self.a_test) if value)
        rng_train, rng_test, rng_cut = rng.spawn(3)
        train, test = class_pools(source, self.train_fraction, rng_cut)
        return Division(
            deal_pairs(partition.shuffle_clients(train, rng_train), users, a),
            deal_pairs(partition.shuffle_clients(test, rng_test), users, a_test),
        )


# ---- power-law and lognormal clients -------------------------------------------------------------


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

    def split(self, source: Source, rng: Generator) -> Division:
        pools = by_class(source, rows_of(source, self.pool))
        C = len(pools.sizes)
        held = neighbours(source, C, self.users, self.classes)
        left = rows_left(source, pools, held, self.base)
        rng_share, rng_cut = rng.spawn(2)
        drawn = rng_share.lognormal(0.0, self.sigma, (C, -(-self.users // C), self.classes))
        share = drawn[held.label, held.user // C, held.slot]
        total = np.bincount(held.label, share, C)[held.label]
        extra = np.floor(left[held.label] * share / total).astype(np.int64)
        dealt = hand_out(pools, held, self.base, extra)
        return Division(*partition.split_rows(dealt, self.train_fraction, rng_cut))


@dataclass(frozen=True)
class FedProxMNIST(PowerLaw):
    """The power-law split as FedProx uses it for MNIST: standardised features, 1000 clients."""

    scaling: str | None = "standardise"
    users: int = 1000


@dataclass(frozen=True)
class CIFAR10PowerLaw(PowerLaw):
    """The power-law split for APFL's CIFAR-10: 5 classes per client; sigma fitted to APFL's Table 1."""

    classes: int = 5
    sigma: float = 1.25
    pool: str = "train"
    train_fraction: float = 0.8


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
    bounds: ClassVar[Mapping[str, tuple[float, ...]]] = {"sigma": (0, 10)}

    def split(self, source: Source, rng: Generator) -> Division:
        pools = by_class(source, rows_of(source, self.pool))
        held = neighbours(source, len(pools.sizes), self.users, self.classes)
        rows_left(source, pools, held, 2)
        rng_size, rng_order, rng_cut = rng.spawn(3)
        size = rng_size.lognormal(self.mu, self.sigma, self.users) + 5
        extra = np.clip(size // self.classes - 2, 0, len(source.y)).astype(np.int64)[held.user]
        dealt = hand_out(partition.shuffle_clients(pools, rng_order), held, 2, extra)
        return Division(*partition.split_rows(dealt, self.train_fraction, rng_cut))
