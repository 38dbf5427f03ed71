"""A small split of every rule, written out; and every rule read once more, as plain loops over lists.

The loops share nothing with the rules but the order in which random numbers are drawn: a split is data of
published results, so another stream, another rounding or another order is another split.
"""

from itertools import accumulate, pairwise
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from dataset_files import made

from fedref.lab.datasets import RULES, split, split_clients

# ---- the rules as plain loops: each returns (training rows, test rows) of every client ----------------


def generator(seed, purpose):
    return np.random.default_rng([seed, int.from_bytes(purpose)])


def join(lists):
    return [row for rows in lists for row in rows]


def shuffle_each(lists, rng):
    """Every list in random order: by one number a row, drawn list by list."""
    keys = iter(rng.random(sum(map(len, lists))).tolist())
    return [[row for _, row in sorted((next(keys), row) for row in rows)] for rows in lists]


def choose(lists, counts, rng):
    """So many random rows of each list, and the others; both in the list's order."""
    first = [{*rows[:n]} for rows, n in zip(shuffle_each(lists, rng), counts)]
    pairs = list(zip(lists, first))
    return [[r for r in x if r in f] for x, f in pairs], [
        [r for r in x if r not in f] for x, f in pairs
    ]


def cut(lists, fraction, rng):
    """⌊fraction·n⌋ training rows of each list, but one at least, and one for the test if there are two."""
    counts = [max(1, min(floor(fraction * len(x) + 1e-9), len(x) - 1)) for x in lists]
    return choose(lists, counts, rng)


def divide(rows, shares):
    """The rows in their order, in proportion to the shares."""
    ends = [round(len(rows) * total / sum(shares)) for total in accumulate(shares)]
    return [rows[a:b] for a, b in pairwise([0, *ends])]


def by_class(source, rows):
    return [[row for row in rows if source.y[row] == c] for c in range(4)]


def natural(source, rng, train_fraction, **_):
    held = [[row for row in range(len(source.y)) if source.client[row] == k] for k in range(4)]
    if (end := source.test_from) is None:
        return cut(held, train_fraction, rng)
    return [[r for r in x if r < end] for x in held], [[r for r in x if r >= end] for x in held]


def iid(rows, users, rng, **_):
    order = rng.permutation(rows).tolist()
    return [order[k * len(rows) // users : (k + 1) * len(rows) // users] for k in range(users)]


def dirichlet(rows, users, rng_order, rng_share, rng_even, alpha, min_rows, source, **_):
    held = [[] for _ in range(users)]
    for pool in shuffle_each(by_class(source, rows), rng_order):
        for mine, more in zip(held, divide(pool, rng_share.dirichlet([alpha] * users).tolist())):
            mine += more
    wanting = [k for k, x in enumerate(held) for _ in range(min_rows - len(x))]
    if not wanting:
        return held
    held = shuffle_each(held, rng_even)
    place = [(k, i, row) for k, x in enumerate(held) for i, row in enumerate(x)]
    spare = [n for n, (_, i, _) in enumerate(place) if i >= min_rows]
    to = dict(zip(rng_even.permutation(spare).tolist(), wanting))
    owners = [(to.get(n, k), row) for n, (k, _, row) in enumerate(place)]
    return [[row for owner, row in owners if owner == k] for k in range(users)]


def shards(rows, users, rng, shards, source, **_):
    ordered, n = join(by_class(source, rows)), users * shards
    pieces = [ordered[i * len(rows) // n : (i + 1) * len(rows) // n] for i in range(n)]
    order = rng.permutation(n).tolist()
    mine = (sorted(order[u * shards : (u + 1) * shards]) for u in range(users))
    return [join(pieces[i] for i in some) for some in mine]


def quantity(rows, users, rng_deal, rng_share, alpha, min_rows, **_):
    shares = rng_share.dirichlet([alpha] * users).tolist()
    more = [len(x) for x in divide(range(len(rows) - users * min_rows), shares)]
    order = rng_deal.permutation(rows).tolist()
    ends = [0, *accumulate(min_rows + n for n in more)]
    return [order[a:b] for a, b in pairwise(ends)]


def dirichlet_mix(rows, users, rng_order, rng_mix, alpha, source, **_):
    pools = shuffle_each(by_class(source, rows), rng_order)
    prior, held = [len(pool) / len(rows) for pool in pools], []
    for k in range(users):
        n = (k + 1) * len(rows) // users - k * len(rows) // users
        mix, count = rng_mix.dirichlet([alpha * p for p in prior]).tolist(), [0] * 4
        while sum(count) < n:
            left = [len(pool) - c for pool, c in zip(pools, count)]
            share = [m if rest else 0.0 for m, rest in zip(mix, left)]
            share = share if sum(share) else left
            drawn = rng_mix.multinomial(n - sum(count), [s / sum(share) for s in share]).tolist()
            count = [c + min(d, rest) for c, d, rest in zip(count, drawn, left)]
        held.append(join(pool[:c] for pool, c in zip(pools, count)))
        pools = [pool[c:] for pool, c in zip(pools, count)]
    return held


def dealt(deal, streams):
    def divide_rows(source, rng, pool, train_fraction, users, **given):
        *draw, rng_cut = rng.spawn(streams + 1)
        rows = range(len(source.y))[: source.test_from if pool == "train" else None]
        return cut(deal(rows, users, *draw, source=source, **given), train_fraction, rng_cut)

    return divide_rows


def hand_out(pools, users, classes, base, extra):
    """`base` rows to each holding, then `extra(u, j)` to each, while the class has any."""
    held = [[] for _ in range(users)]
    for count in (lambda u, j: base, extra):
        for u in range(users):
            for j in range(classes):
                pool = pools[(u + j) % 4]
                n = count(u, j)
                held[u] += pool[:n]
                del pool[:n]
    return held


def power_law(rows, users, rng, classes, base, sigma, source, **_):
    pools, holdings = by_class(source, rows), [(u, j) for u in range(users) for j in range(classes)]
    share = rng.lognormal(0, sigma, (4, ceil(users / 4), classes))
    of = {(u, j): float(share[(u + j) % 4, u // 4, j]) for u, j in holdings}
    total = [sum(of[u, j] for u, j in holdings if (u + j) % 4 == c) for c in range(4)]
    left = [len(pool) - sum(base for u, j in holdings if (u + j) % 4 == c)
            for c, pool in enumerate(pools)]  # fmt: skip

    def extra(u, j):
        c = (u + j) % 4
        return floor(left[c] * of[u, j] / total[c])

    return hand_out(pools, users, classes, base, extra)


def lognormal_sizes(rows, users, rng_size, rng_order, classes, mu, sigma, source, **_):
    """num_samples = lognormal(μ, σ) + 5, of which num_samples / classes of each class, at least 2."""
    num_samples = [x + 5 for x in rng_size.lognormal(mu, sigma, users).tolist()]
    pools = shuffle_each(by_class(source, rows), rng_order)
    return hand_out(
        pools, users, classes, 2, lambda u, j: max(int(num_samples[u] / classes), 2) - 2
    )


def per_fedavg(source, rng, users, a, a_test, train_fraction, **_):
    rng_train, rng_test, rng_cut = rng.spawn(3)
    rows, end = range(len(source.y)), source.test_from
    if end is None:
        parts = cut(by_class(source, rows), train_fraction, rng_cut)
    else:
        parts = by_class(source, rows[:end]), by_class(source, rows[end:])
    both = []
    for pools, rng_order, n in zip(parts, (rng_train, rng_test), (a, a_test)):
        pools, held = shuffle_each(pools, rng_order), [[] for _ in range(users)]
        half = range(users // 2)
        wishes = [(u, c, n) for u in half for c in (0, 1)]
        wishes += [(users // 2 + i, i % 2, n // 2) for i in half]
        step = (lambda i: i // 2) if len(half) % 4 == 0 else (lambda i: i + i // 2)
        wishes += [(users // 2 + i, 2 + step(i) % 2, 2 * n) for i in half]
        for u, c, count in wishes:
            held[u] += pools[c][:count]
            del pools[c][:count]
        both.append(held)
    return both


LOOPS = {
    "natural": natural, "iid": dealt(iid, 1), "dirichlet": dealt(dirichlet, 3),
    "dirichlet-mix": dealt(dirichlet_mix, 2),
    "shards": dealt(shards, 1), "quantity": dealt(quantity, 2), "per-fedavg": per_fedavg,
    "fedprox-femnist": dealt(lognormal_sizes, 2),
    **dict.fromkeys(("power-law", "fedprox-mnist", "cifar10-powerlaw"), dealt(power_law, 1)),
}  # fmt: skip


def loop(rule, source, seed, validation, of=None, **given):
    """The rows of every client: {"train": [[row, ...], ...], "test": ..., "validation": ...}."""
    rng = generator(seed, b"split")
    if of is None:
        train, test = LOOPS[rule](source, rng, **given)
    else:  # the sizes of another rule's clients, and any of all their rows, part by part
        rng_of, rng_mix = rng.spawn(2)
        train, test = (
            [order[a:b] for a, b in pairwise([0, *accumulate(map(len, part))])]
            for stream, part in zip(rng_mix.spawn(2), LOOPS[of](source, rng_of, **given))
            for order in [stream.permutation(join(part)).tolist()]
        )
    counts = [len(x) - round(validation * len(x)) or len(x) for x in train]  # 2.5 is rounded to 2
    train, held_back = choose(train, counts, generator(seed, b"validation"))
    return {"train": train, "test": test, "validation": held_back}


# ---- the splits ----------------------------------------------------------------------------------

#: 40 rows of 4 classes and 4 clients; those from row 20 on may be published as a test part.
Y, CLIENT = (np.array([*map(int, digits)]) for digits in (
    "0231320112300132321020130132133022011203", "0012310230120213112030210322013210320132"
))  # fmt: skip
SEED, VALIDATION = 7, 0.3

#: A rule, its parameters, where a test part is published; and of each client the rows that it then has
#: for training | test | validation.
PINNED: list[tuple[str, dict[str, Any], int | None, str]] = [
    ("natural", {"train_fraction": 0.7}, None, """
        0 6 19 33 36 | 1 9 21 28 | 12 24
        2 5 10 14 32 | 16 23 29 | 17 37
        7 11 13 18 39 | 3 27 31 35 | 22 26
        15 20 38 | 4 25 34 | 8 30"""),
    ("natural", {}, 20, """
        0 1 9 19 | 21 24 28 33 36 | 6 12
        5 10 14 16 | 23 29 32 37 | 2 17
        11 13 18 | 22 26 27 31 35 39 | 3 7
        4 8 | 20 25 30 34 38 | 15"""),
    ("iid", {"users": 6}, None, """
        38 10 17 | 32 | 3 15
        0 2 24 35 | 22 | 29 16
        20 39 14 33 | 36 | 34 31
        11 19 30 | 13 | 37 26
        1 5 9 6 | 28 | 21 27
        4 23 8 25 | 7 | 18 12"""),
    ("iid", {"of": "shards", "shards": 2}, None, """
        4 16 35 22 2 18 | 33 | 7 9 17
        15 10 24 6 32 29 | 23 | 25 0 26
        38 3 8 20 28 34 | 1 | 27 19 30
        36 5 39 21 31 12 | 11 | 14 13 37"""),
    ("dirichlet", {"alpha": 0.5, "min_rows": 7}, None, """
        25 35 22 7 17 32 8 33 12 13 5 | 20 37 | 18 3 34 27
        1 15 36 23 | 21 | 9 28
        24 10 19 38 30 0 | 31 | 11 39
        29 26 4 14 | 16 | 2 6"""),
    ("dirichlet-mix", {"alpha": 1.0, "users": 5}, None, """
        12 37 27 17 33 | 20 | 32 5
        1 23 39 30 26 | 16 | 10 29
        8 18 22 15 4 | 25 | 2 14
        21 38 19 31 9 | 13 | 34 3
        0 11 6 35 28 | 36 | 24 7"""),
    ("dirichlet-mix", {"alpha": 0.001}, None, """
        12 34 38 0 11 6 | 24 | 21 19 31
        23 39 29 2 14 4 | 10 | 30 16 26
        37 27 17 20 33 1 | 9 | 32 5 15
        8 25 22 13 3 7 | 36 | 18 35 28"""),
    ("shards", {"shards": 3}, None, """
        6 11 31 1 5 9 | 0 | 24 34 38
        3 7 35 36 26 29 | 30 39 | 8 25 28
        13 22 32 33 37 14 | 23 | 18 27 16
        19 15 17 20 2 10 | 12 | 21 4"""),
    ("quantity", {"alpha": 0.5, "min_rows": 3}, None, """
        32 38 3 22 16 0 | 29 | 10 17 15
        24 | 35 | 2
        14 33 36 11 13 19 37 26 1 21 27 6 4 | 34 5 9 | 20 31 39 30 28 18
        23 8 7 | 25 | 12"""),
    ("quantity", {"alpha": 0.5, "min_rows": 2, "pool": "train"}, 20, """
        10 0 9 | 3 | 14
        13 | 15 |
        18 6 2 1 5 19 | 11 | 16 4 8
        17 | 12 | 7"""),
    ("per-fedavg", {"a": 2, "a_test": 2, "train_fraction": 0.5}, None, """
        31 34 7 | 38 24 35 8 | 25
        21 36 22 | 11 6 3 28 | 12
        19 20 33 | 0 5 1 32 37 | 27 15
        16 10 29 | 13 30 4 2 14 | 18 26"""),
    ("per-fedavg", {"a": 2, "a_test": 2}, 20, """
        12 19 3 | 38 34 36 25 | 13
        11 18 8 | 31 24 22 35 | 0
        6 9 17 | 21 27 20 33 37 | 15 1
        4 2 16 | 28 30 26 23 29 | 7 14"""),
    ("power-law", {"classes": 3, "base": 1, "sigma": 1.0}, None, """
        3 1 19 15 17 20 27 32 | 0 31 | 12 21 24 33
        2 13 18 22 | 14 | 7 5
        4 16 26 | 9 | 6 23
        10 11 8 25 35 | 34 | 29 28"""),
    ("fedprox-mnist", {"base": 3}, None, """
        6 11 7 34 25 28 35 | 0 31 | 3 8 24
        13 22 5 9 27 32 | 33 | 18 1
        17 2 10 26 29 | 15 | 20 4
        14 12 21 30 | 23 | 16 19"""),
    ("cifar10-powerlaw", {"classes": 3, "base": 1}, 20, """
        3 1 15 | 0 | 12
        5 | 2 | 7
        6 14 | 9 | 4
        11 8 | 10 | 13"""),
    ("fedprox-femnist", {"mu": 1.5, "sigma": 0.5}, None, """
        19 12 7 6 34 31 28 18 1 | 20 9 | 35 27 15 8
        25 33 16 26 36 39 | 37 | 3 5
        17 14 11 | 38 | 32 10
        24 22 13 29 0 | 30 | 23 21"""),
]  # fmt: skip


def rows_of_parts(federation):
    return {
        name: [part.rows_of(k).tolist() for k in range(federation.clients)]
        for name, part in federation.parts.items()
    }


def test_every_rule_is_pinned():
    assert {rule for rule, *_ in PINNED} == {*RULES}


@pytest.mark.parametrize(("rule", "given", "end", "text"), PINNED)
def test_a_split_has_the_rows_that_stand_here_and_those_of_a_plain_loop(rule, given, end, text):
    source = made(Y, client=CLIENT, test_from=end)
    given = ({} if rule == "natural" else {"users": 4}) | given
    for seed in (SEED, 0, 1, 2, 3):
        found = split(rule, source, seed, validation=VALIDATION, **given)
        recorded = {k: x for k, x in found.parameters.items() if k != "scaling"}
        assert rows_of_parts(found) == loop(rule, source, seed, **recorded)
        alone = split(rule, source, seed, **given)  # who validates changes nobody's test
        assert rows_of_parts(alone)["test"] == rows_of_parts(found)["test"]
        if seed == SEED:
            clients = [
                [[*map(int, x.split())] for x in line.split("|")] for line in text.split("\n")[1:]
            ]
            assert [*rows_of_parts(found).values()] == [*map(list, zip(*clients))]


def test_the_share_of_validation_rows_is_rounded_to_the_nearest_and_never_takes_all():
    sizes = [4, 5, 6, 14, 15, 1, 25, 24]  # 0.5, 1.5 and 2.5 lie between two: the even one
    held_back = {0.1: [0, 0, 1, 1, 2, 0, 2, 2], 0.9: [0, 4, 5, 13, 14, 0, 22, 22]}
    n = sum(sizes)
    source = made(np.arange(n + 1) % 2, client=np.append(np.repeat(np.arange(8), sizes), 0),
                  test_from=n)  # fmt: skip
    for share, counts in held_back.items():
        found = split("natural", source, validation=share)
        assert found.validation.sizes.tolist() == counts
        assert (found.train.sizes + found.validation.sizes).tolist() == sizes


@pytest.mark.parametrize(
    ("clients", "seed", "validation", "unseen"),
    [(10, 7, [1], [3]), (15, 7, [1, 3], [11]), (23, 0, [8, 15, 19], [4, 12])],
)
def test_the_clients_that_never_train_are_those_that_stand_here(clients, seed, validation, unseen):
    """The last fifth of a random order, cut where 80 % and 90 % are rounded to."""
    order = generator(seed, b"clients").permutation(clients).tolist()
    a, b = round(0.8 * clients), round(0.9 * clients)
    assert [sorted(order[a:b]), sorted(order[b:])] == [validation, unseen]
    train, *others = (group.tolist() for group in split_clients(clients, seed))
    assert others == [validation, unseen]
    assert train == sorted({*range(clients)} - {*validation, *unseen})
