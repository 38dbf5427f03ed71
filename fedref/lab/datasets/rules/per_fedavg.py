"""Per-FedAvg's split [per-fedavg §3.2], for any data with an even number of classes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.lab.datasets import partition
from fedref.lab.datasets.rules.base import Generator, Parts, Rule, by_class, classes_of, rows_of
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source


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
    fits = (
        n
        for n in (50, *range(50 - 50 % C, 0, -C))
        if min(largest_even(train, n), largest_even(test, n)) >= 2
    )
    return next(fits, C)


def class_pools(source: Source, train_fraction: float, rng: Generator) -> Parts:
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
    bounds: ClassVar[Mapping[str, Any]] = {"users": (2,)}

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

    def split(self, source: Source, rng: Generator) -> Parts:
        users, a, a_test = (value for value in (self.users, self.a, self.a_test) if value)
        rng_train, rng_test, rng_cut = rng.spawn(3)
        train, test = class_pools(source, self.train_fraction, rng_cut)
        return (
            deal_pairs(partition.shuffle_clients(train, rng_train), users, a),
            deal_pairs(partition.shuffle_clients(test, rng_test), users, a_test),
        )
