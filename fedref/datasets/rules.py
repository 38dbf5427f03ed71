"""Split rules: who gets which rows. Each is a function of (source, rng, its parameters).

A rule returns (train, test). Randomness comes from `rng` alone; with the seed and the source, the
same split comes out. Parameters stand in RULES, so that a command line can check and explain them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.datasets import parts, scaling
from fedref.datasets.parameters import Parameter, resolve
from fedref.errors import ConfigError, unknown
from fedref.federation import Federation, Part, Source
from fedref.numerics import Array

Parts = tuple[Part, Part]
Generator = np.random.Generator


# ---- what the rules share ---------------------------------------------------------------------


def rows_of(source: Source, pool: str) -> Array:
    """Row numbers of the whole source, or of its published training part."""
    end = source.test_from if pool == "train" else None
    return np.arange(len(source.y) if end is None else end)


def by_class(source: Source, rows: Array) -> Part:
    """The rows as one "client" a class, ascending labels, in the source's order."""
    classes = source.labels
    return parts.group(np.searchsorted(classes, source.y[rows]), len(classes), rows)


def need_rows(users: int, each: int, rows: Array, source: Source) -> None:
    """Refuse more users than the rows can serve."""
    if users * each > len(rows):
        raise ConfigError(
            f"users={users} with at least {each} rows each need {users * each} rows, "
            f"{source.name} has {len(rows)}"
        )


# ---- FedProx's generators, and CIFAR-10 as APFL splits it -------------------------------------


class Holdings(NamedTuple):
    """Client user[i] holds class label[i] as its slot[i]-th: all (H,), in the order of serving."""

    user: Array
    slot: Array
    label: Array


def neighbours(source: Source, C: int, users: int, classes: int) -> Holdings:
    """Client u holds the classes (u, u+1, ..., u+classes−1) mod C."""
    if classes > C:
        raise ConfigError(f"classes={classes} a client, but {source.name} has only {C}")
    user, slot = np.divmod(np.arange(users * classes), classes)
    return Holdings(user, slot, (user + slot) % C)


def remaining(source: Source, pools: Part, held: Holdings, base: int) -> Array:
    """Rows left of each class when every holding has `base`; refused if there are not so many."""
    left = pools.sizes - base * np.bincount(held.label, minlength=len(pools.sizes))
    short = np.flatnonzero(left < 0)
    if short.size:
        c = short[0]
        raise ConfigError(
            f"{held.user[-1] + 1} users with at least {base} rows a class need "
            f"{pools.sizes[c] - left[c]} rows of class {source.labels[c]}, {source.name} has "
            f"{pools.sizes[c]}: lower users"
        )
    return left


def hand_out(pools: Part, held: Holdings, base: int, extra: Array) -> Part:
    """First `base` rows for every holding, then the extras, in order while they last."""
    count = np.concatenate([np.full_like(extra, base), extra])
    label, user = np.tile(held.label, 2), np.tile(held.user, 2)
    return parts.deal(pools, label, user, count, int(held.user[-1]) + 1)


def powerlaw(
    source: Source,
    rng: Generator,
    users: int,
    classes: int,
    base: int,
    sigma: float,
    pool: str,
    train_fraction: float,
) -> Parts:
    """Client u holds classes (u, u+1, ...) mod C: `base` rows of each, then lognormal extras.

    Shares of lognormal(0, σ) are drawn per (class, ⌊u/C⌋, slot) and scaled to what the class has
    left; all are taken in the source's order while they last [fedprox; apfl table 1].
    """
    pools = by_class(source, rows_of(source, pool))
    C = len(pools.sizes)
    held = neighbours(source, C, users, classes)
    left = remaining(source, pools, held, base)
    rng_share, rng_cut = rng.spawn(2)
    drawn = rng_share.lognormal(0.0, sigma, (C, -(-users // C), classes))
    share = drawn[held.label, held.user // C, held.slot]
    total = np.bincount(held.label, share, C)[held.label]
    extra = np.floor(left[held.label] * share / total).astype(np.int64)
    return parts.cut(hand_out(pools, held, base, extra), train_fraction, rng_cut)


def lognormal_sizes(
    source: Source,
    rng: Generator,
    users: int,
    classes: int,
    mu: float,
    sigma: float,
    pool: str,
    train_fraction: float,
) -> Parts:
    """n_u = lognormal(μ, σ) + 5, divided over the classes (u, u+1, ...) mod C, at least 2 of each.

    Decision: no row is given twice. (The published generator starts at the same first row for every
    client, so that a test row of one may be a training row of another.) Everybody gets 2 rows of
    each class first, and then the rest while it lasts.
    """
    pools = by_class(source, rows_of(source, pool))
    held = neighbours(source, len(pools.sizes), users, classes)
    remaining(source, pools, held, 2)
    rng_size, rng_order, rng_cut = rng.spawn(3)
    size = rng_size.lognormal(mu, sigma, users) + 5
    extra = np.clip(size // classes - 2, 0, len(source.y)).astype(np.int64)[held.user]
    dealt = hand_out(parts.shuffled(pools, rng_order), held, 2, extra)
    return parts.cut(dealt, train_fraction, rng_cut)


# ---- Per-FedAvg -------------------------------------------------------------------------------


def pairs(C: int, users: int) -> tuple[Array, Array]:
    """The class pairs of the second half of the users: (i mod h, h + ⌊i/h⌋ mod h), h = C/2.

    That goes through all h² pairs. Where there are not enough users for all, it goes along the
    diagonals instead, (i mod h, h + (i + ⌊i/h⌋) mod h), so that no upper class is left out.
    """
    half, i = C // 2, np.arange(users // 2)
    step = i // half if len(i) % half**2 == 0 else i + i // half
    return i % half, half + step % half


def demand(C: int, users: int) -> Array:
    """Rows of each class for a = 1: the lower half of the classes serves both halves of users."""
    low, high = pairs(C, users)
    wanted = np.zeros(C)
    wanted[: C // 2] += users // 2
    return wanted + np.bincount(low, minlength=C) / 2 + 2 * np.bincount(high, minlength=C)


def largest_even(pools: Part, users: int) -> int:
    """The largest even `a` for which no class runs out."""
    wanted = demand(len(pools.sizes), users)
    fits = pools.sizes[wanted > 0] / wanted[wanted > 0]
    return 2 * int(fits.min() / 2)


def deal_pairs(pools: Part, users: int, a: int) -> Part:
    """The first half of the users: a of each lower class; the others: a/2 of one, 2a of another."""
    C = len(pools.sizes)
    lower = np.arange(users // 2 * (C // 2))
    low, high = pairs(C, users)
    second = np.arange(users // 2, users)
    pool = np.concatenate([lower % (C // 2), low, high])
    client = np.concatenate([lower // (C // 2), second, second])
    count = np.repeat([a, a // 2, 2 * a], [len(lower), len(low), len(high)])
    return parts.deal(pools, pool, client, count, users)


def default_users(train: Part, test: Part) -> int:
    """50 as in the document, or the largest multiple of the number of classes below that fits."""
    C = len(train.sizes)
    fits = (
        n
        for n in (50, *range(50 - 50 % C, 0, -C))
        if min(largest_even(train, n), largest_even(test, n)) >= 2
    )
    return next(fits, C)


def class_pools(source: Source, train_fraction: float, rng: Generator) -> Parts:
    """Training and test rows by class: the published parts, or each class divided at random."""
    rows = rows_of(source, "all")
    if source.test_from is None:
        return parts.cut(by_class(source, rows), train_fraction, rng)
    train, test = (by_class(source, part) for part in np.split(rows, [source.test_from]))
    return train, test


def fill_per_fedavg(source: Source, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """users, a and a_test as the data allow, unless given; all three checked."""
    C = len(source.labels)
    if C < 2 or C % 2:
        raise ConfigError(f"per-fedavg needs an even number of classes, {source.name} has {C}")
    # how many rows a class has in either part does not depend on the random numbers
    train, test = class_pools(source, chosen["train_fraction"], np.random.default_rng(0))
    users = default_users(train, test) if chosen["users"] is None else chosen["users"]
    if users % 2:
        raise ConfigError(f"per-fedavg needs an even number of users, got {users}")
    most, most_test = largest_even(train, users), largest_even(test, users)
    a = min(196, most) if chosen["a"] is None else chosen["a"]
    a_test = most_test if chosen["a_test"] is None else chosen["a_test"]
    for name, value, fits in (("a", a, most), ("a_test", a_test, most_test)):
        if value % 2 or not 2 <= value <= fits:
            raise ConfigError(
                f"per-fedavg: {name}={value} for {users} users of {source.name}, expected "
                + (f"an even number from 2 to {fits}" if fits >= 2 else "fewer users")
            )
    return {"users": users, "a": a, "a_test": a_test}


def per_fedavg(
    source: Source, rng: Generator, users: int, a: int, a_test: int, train_fraction: float
) -> Parts:
    """Half of the users hold a rows of each lower class, half a/2 of one and 2a of one upper class.

    [per-fedavg §3.2], for any data with an even number of classes. The test part is split the same
    way; without a published one, the rows of each class are first divided by train_fraction.
    """
    rng_train, rng_test, rng_cut = rng.spawn(3)
    train, test = class_pools(source, train_fraction, rng_cut)
    return (
        deal_pairs(parts.shuffled(train, rng_train), users, a),
        deal_pairs(parts.shuffled(test, rng_test), users, a_test),
    )


# ---- general rules ----------------------------------------------------------------------------


def natural(source: Source, rng: Generator, min_rows: int, train_fraction: float) -> Parts:
    """The source's own clients; its published test part, if it has one, is their test part."""
    if source.client is None:
        raise ConfigError(f"{source.name} has no natural clients; use another split rule")
    whole = parts.group(source.client, int(source.client.max()) + 1)
    if source.test_from is None:
        train, test = parts.cut(whole, train_fraction, rng)
    else:
        train = parts.take(whole, whole.rows < source.test_from)
        test = parts.take(whole, whole.rows >= source.test_from)
    kept = kept_clients(source, min_rows)
    if not kept.size:
        raise ConfigError(f"no client of {source.name} has {min_rows} rows and a training row")
    return subset(train, kept), subset(test, kept)


def kept_clients(source: Source, min_rows: int) -> Array:
    """Natural clients with enough rows, and with a training row among them."""
    assert source.client is not None
    trained = np.bincount(source.client[: source.test_from])
    sizes = np.bincount(source.client)
    trained = np.pad(trained, (0, len(sizes) - len(trained)))
    return np.flatnonzero((sizes >= min_rows) & (trained > 0))


def subset(part: Part, clients: Array) -> Part:
    """Some of the clients, renumbered in the order given."""
    sizes = part.sizes[clients]
    return Part(part.rows[parts.spans(part.offsets[clients], sizes)], parts.offsets(sizes))


def iid(
    source: Source, rng: Generator, users: int, pool: str, train_fraction: float, of: None = None
) -> Parts:
    """All rows at random, equally many for each client."""
    rows = rows_of(source, pool)
    need_rows(users, 1, rows, source)
    rng_deal, rng_cut = rng.spawn(2)
    ends = np.arange(users + 1) * len(rows) // users
    return parts.cut(Part(rng_deal.permutation(rows), ends), train_fraction, rng_cut)


def reshuffle(split: Parts, rng: Generator) -> Parts:
    """The IID twin of a split: same clients, same sizes, training rows among training rows."""
    streams = rng.spawn(2)
    train, test = (Part(r.permutation(p.rows), p.offsets) for r, p in zip(streams, split))
    return train, test


def dirichlet(
    source: Source,
    rng: Generator,
    alpha: float,
    users: int,
    min_rows: int,
    pool: str,
    train_fraction: float,
) -> Parts:
    """Each class is divided over the clients by its own draw from Dirichlet(α) (Hsu et al. 2019).

    A client left with fewer than min_rows gets rows taken at random from those that can spare some.
    """
    rows = rows_of(source, pool)
    need_rows(users, min_rows, rows, source)
    rng_order, rng_share, rng_even, rng_cut = rng.spawn(4)
    pools = parts.shuffled(by_class(source, rows), rng_order)
    count = np.concatenate(
        [apportion(n, rng_share.dirichlet(np.full(users, alpha))) for n in pools.sizes]
    )
    pool_of, client = np.divmod(np.arange(len(count)), users)
    dealt = parts.deal(pools, pool_of, client, count, users)
    return parts.cut(even_out(dealt, min_rows, rng_even), train_fraction, rng_cut)


def apportion(n: int, shares: Array) -> Array:
    """n rows divided in proportion to the shares, none lost: differences of rounded cumulations."""
    total = np.cumsum(shares)
    # a Dirichlet with a tiny α can underflow to zeros altogether: then the first takes all
    ends = np.round(n * (total / total[-1] if total[-1] > 0 else np.ones_like(total)))
    return np.diff(ends, prepend=0).astype(np.int64)


def even_out(part: Part, least: int, rng: Generator) -> Part:
    """Clients with fewer than `least` rows get some at random from those that hold more."""
    wanting = np.maximum(least - part.sizes, 0)
    if not wanting.any():
        return part
    mixed = parts.shuffled(part, rng)
    spare = np.flatnonzero(parts.positions(mixed) >= least)
    owner = mixed.owners
    owner[rng.permutation(spare)[: wanting.sum()]] = np.repeat(np.arange(len(wanting)), wanting)
    return parts.group(owner, len(wanting), mixed.rows)


def shards(
    source: Source, rng: Generator, users: int, shards: int, pool: str, train_fraction: float
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
    dealt = parts.group(np.repeat(owner, np.diff(ends)), users, ordered)
    return parts.cut(dealt, train_fraction, rng_cut)


def quantity(
    source: Source,
    rng: Generator,
    alpha: float,
    users: int,
    min_rows: int,
    pool: str,
    train_fraction: float,
) -> Parts:
    """Clients differ in size alone: sizes by Dirichlet(α), rows at random (Li et al. 2022)."""
    rows = rows_of(source, pool)
    need_rows(users, min_rows, rows, source)
    rng_deal, rng_share, rng_cut = rng.spawn(3)
    shares = rng_share.dirichlet(np.full(users, alpha))
    sizes = min_rows + apportion(len(rows) - users * min_rows, shares)
    return parts.cut(
        Part(rng_deal.permutation(rows), parts.offsets(sizes)), train_fraction, rng_cut
    )


# ---- the table --------------------------------------------------------------------------------


def nothing(source: Source, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """No default depends on the data."""
    return {}


class Rule(NamedTuple):
    """A split rule: its function and parameters, and what is chosen by the data unless given."""

    split: Callable[..., Parts]
    parameters: Mapping[str, Parameter]
    help: str
    fill: Callable[[Source, Mapping[str, Any]], dict[str, Any]] = nothing


SCALING = Parameter(
    str,
    None,
    "features as none | unit (x / full scale) | standardise ((x − mean)/(std + 0.001)); "
    "unit for pixels and none for other features unless given",
    choices=tuple(scaling.SCALINGS),
)


def fraction(default: float) -> Parameter:
    return Parameter(
        float,
        default,
        "part of each client's rows for training; at least one row on either side if it has two, "
        "a single row is for training",
        0.0,
        1.0,
    )


def users(default: int | None, low: int = 1) -> Parameter:
    return Parameter(int, default, "number of clients", low)


def pool(default: str) -> Parameter:
    choices = ("all", "train")
    return Parameter(
        str, default, "rows to split: all, or the published training part", choices=choices
    )


def table(split: Callable[..., Parts], **known: Parameter) -> Rule:
    """A rule explained by the first line of its function."""
    help = (split.__doc__ or "").splitlines()[0]
    return Rule(split, MappingProxyType({"scaling": SCALING} | known), help)


def power(default_users: int, classes: int, base: int, sigma: float) -> dict[str, Parameter]:
    return {
        "users": users(default_users),
        "classes": Parameter(int, classes, "classes a client holds", 1),
        "base": Parameter(int, base, "rows of each of its classes that a client surely has", 1),
        "sigma": Parameter(float, sigma, "width of the lognormal shares", 0.0, 100.0),
    }


def general(default_users: int) -> dict[str, Parameter]:
    return {
        "users": users(default_users),
        "pool": pool("all"),
        "train_fraction": fraction(0.9),
    }


ALPHA = Parameter(float, 0.5, "concentration: small is uneven, large is even", 1e-3, 1e6)
MIN_ROWS = Parameter(int, 2, "rows that every client has at least", 1)

RULES: dict[str, Rule] = {
    "fedprox-mnist": table(
        powerlaw,
        **power(1000, 2, 5, 2.0),
        pool=pool("all"),
        train_fraction=fraction(0.9),
        scaling=SCALING._replace(default="standardise"),
    ),
    "fedprox-femnist": table(
        lognormal_sizes,
        users=users(200),
        classes=Parameter(int, 3, "classes a client holds", 1),
        mu=Parameter(float, 4.0, "mean of log n", -20.0, 20.0),
        sigma=Parameter(float, 1.0, "standard deviation of log n", 0.0, 10.0),
        pool=pool("all"),
        train_fraction=fraction(0.9),
    ),
    "cifar10-powerlaw": table(
        powerlaw,
        **power(100, 5, 5, 1.25),
        pool=pool("train"),
        train_fraction=fraction(0.8),
    ),
    "per-fedavg": table(
        per_fedavg,
        users=Parameter(int, None, "clients, even; 50 unless so many do not fit the data", 2),
        a=Parameter(int, None, "training rows a class, even; 196 or the most that fits", 2),
        a_test=Parameter(int, None, "test rows a class, even; the most that fits", 2),
        train_fraction=fraction(0.8)._replace(
            help="part of each class for training, where the source has no published test part"
        ),
    )._replace(fill=fill_per_fedavg),
    "natural": table(
        natural,
        min_rows=MIN_ROWS._replace(default=1, help="leave out clients with fewer rows"),
        train_fraction=fraction(0.9),
    ),
    "dirichlet": table(dirichlet, alpha=ALPHA, min_rows=MIN_ROWS, **general(100)),
    "shards": table(shards, shards=Parameter(int, 2, "shards a client gets", 1), **general(100)),
    "quantity": table(quantity, alpha=ALPHA, min_rows=MIN_ROWS, **general(100)),
    "iid": table(
        iid,
        of=Parameter(
            str,
            None,
            "reshuffle the rows of this rule, whose parameters may then follow, "
            "keeping every client's size",
        ),
        **general(100),
    ),
}


def lookup(rule: str) -> Rule:
    if rule not in RULES:
        raise ConfigError(unknown("split rule", rule, RULES))
    return RULES[rule]


def parameters_of(rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a rule, given ones checked; those of iid(of=...) are the other rule's."""
    of = given.get("of") if rule == "iid" else None
    if of is None:
        return resolve(rule, lookup(rule).parameters, given)
    if of == "iid":
        raise ConfigError("iid: of is 'iid', expected another rule to reshuffle")
    lookup(of)
    return {"of": of} | parameters_of(of, {k: v for k, v in given.items() if k != "of"})


def parts_of(rule: str, source: Source, rng: Generator, chosen: Mapping[str, Any]) -> Parts:
    """(train, test) by the rule; with `of`, the IID twin of that rule's split."""
    if chosen.get("of") is None:
        return lookup(rule).split(source, rng, **chosen)
    rng_of, rng_mix = rng.spawn(2)
    inner = {name: value for name, value in chosen.items() if name != "of"}
    return reshuffle(parts_of(chosen["of"], source, rng_of, inner), rng_mix)


def split(rule: str, source: Source, seed: int = 0, **parameters: Any) -> Federation:
    """Divide a source over clients by a named rule (see RULES): the same seed, the same split."""
    chosen = parameters_of(rule, parameters)
    seed = resolve("split", {"seed": Parameter(int, 0, "", 0)}, {"seed": seed})["seed"]
    named = lookup(chosen.get("of") or rule)
    how = chosen.pop("scaling") or scaling.default(source)
    chosen |= named.fill(source, chosen)
    # a stream of its own: the same seed elsewhere draws other numbers
    rng = np.random.default_rng([seed, int.from_bytes(b"split")])
    train, test = parts_of(rule, source, rng, chosen)
    shift, scale = scaling.SCALINGS[how](source)
    names = natural_names(source, **chosen) if named.split is natural else None
    settled = MappingProxyType(chosen | {"scaling": how})
    federation = Federation(source, train, test, rule, settled, seed, shift, scale, names)
    federation.check()
    return federation


def natural_names(source: Source, min_rows: int, **others: Any) -> tuple[str, ...]:
    """The names of the clients that `natural` keeps."""
    kept = kept_clients(source, min_rows).tolist()
    names = source.client_names
    return tuple(str(k) if names is None else names[k] for k in kept)


# ---- clients, and the rows of one client --------------------------------------------------------


def split_clients(
    n_clients: int, seed: int, fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
) -> tuple[Array, ...]:
    """Disjoint random sets of clients, e.g. training, validation and test clients, ascending."""
    if n_clients < 0 or min(fractions, default=0) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ConfigError(f"fractions of clients are {fractions}, expected numbers ≥ 0 of sum 1")
    rng = np.random.default_rng([seed, int.from_bytes(b"clients")])
    sizes = apportion(n_clients, np.asarray(fractions))
    groups = np.split(rng.permutation(n_clients), np.cumsum(sizes)[:-1])
    return tuple(np.sort(group) for group in groups)


def support_query(n: int, fraction: float, rng: Generator) -> tuple[Array, Array]:
    """Positions 0..n−1 at random into (support, query), disjoint; at n = 1 the row is support."""
    if not 0 <= fraction <= 1:
        raise ConfigError(f"support fraction is {fraction}, expected a number from 0 to 1")
    size = int(parts.train_sizes(np.array([n]), fraction)[0])
    support, query = np.split(rng.permutation(n), [size])
    return support, query
