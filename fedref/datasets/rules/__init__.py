"""Split rules: who gets which rows. Each is a function of (source, rng, its parameters).

A rule returns (train, test). Randomness comes from `rng` alone: the same seed and source give the
same split. Its parameters are listed in RULES, where the command line checks and explains them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Parameter, check_parameters
from fedref.datasets import scaling
from fedref.datasets.rules.common import Generator, Parts
from fedref.datasets.rules.general import (
    dirichlet,
    iid,
    natural,
    natural_names,
    quantity,
    reshuffle,
    shards,
)
from fedref.datasets.rules.per_fedavg import fill_per_fedavg, per_fedavg
from fedref.datasets.rules.power_law import lognormal_sizes, powerlaw
from fedref.rounds.federation import Federation, Source


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
SEED = Parameter(int, 0, "seed of the split", 0)


def fraction(default: float) -> Parameter:
    return Parameter(
        float,
        default,
        "fraction of each client's rows for training; a client with two rows or more has at least "
        "one of each kind, a single row is for training",
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
    help = (split.__doc__ or "").partition("\n")[0]
    return Rule(split, MappingProxyType({"scaling": SCALING} | known), help)


def power(default_users: int, classes: int, base: int, sigma: float) -> dict[str, Parameter]:
    return {
        "users": users(default_users),
        "classes": Parameter(int, classes, "classes per client", 1),
        "base": Parameter(int, base, "rows of each of its classes that a client has at least", 1),
        "sigma": Parameter(float, sigma, "width of the lognormal shares", 0.0, 100.0),
    }


def general(default_users: int) -> dict[str, Parameter]:
    return {
        "users": users(default_users),
        "pool": pool("all"),
        "train_fraction": fraction(0.9),
    }


ALPHA = Parameter(float, 0.5, "concentration: small is uneven, large is even", 1e-3, 1e6)
MIN_ROWS = Parameter(int, 2, "least number of rows per client", 1)

RULES: dict[str, Rule] = {
    "fedprox-mnist": table(
        powerlaw,
        **power(1000, 2, 5, 2.0),
        pool=pool("all"),
        train_fraction=fraction(0.9),
        scaling=SCALING._replace(default="standardise"),
    )._replace(help="power-law as FedProx has it for MNIST: standardised features, 1000 clients."),
    "power-law": table(
        powerlaw,
        **power(100, 2, 5, 2.0),
        pool=pool("all"),
        train_fraction=fraction(0.9),
    ),
    "fedprox-femnist": table(
        lognormal_sizes,
        users=users(200),
        classes=Parameter(int, 3, "classes per client", 1),
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
    )._replace(
        help="power-law for APFL's CIFAR-10: 5 classes a client, training part; sigma fitted to its Table 1."
    ),
    "per-fedavg": table(
        per_fedavg,
        users=Parameter(
            int, None, "number of clients, even; 50, or fewer if the data has too few rows", 2
        ),
        a=Parameter(int, None, "training rows per class, even; 196 or the most that fits", 2),
        a_test=Parameter(int, None, "test rows per class, even; the most that fits", 2),
        train_fraction=fraction(0.8)._replace(
            help="fraction of each class for training, if the source has no published test part"
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
            "shuffle the rows of a split by this rule, whose parameters may be given too, "
            "keeping every client's size",
        ),
        **general(100),
    ),
}


def lookup(rule: str) -> Rule:
    """The rule of this name; a ConfigError if there is none."""
    if not isinstance(rule, str) or rule not in RULES:
        raise ConfigError(unknown("split rule", rule, RULES))
    return RULES[rule]


def parameters_of(rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a rule, given ones checked; those of iid(of=...) are the other rule's."""
    of = given.get("of") if rule == "iid" else None
    if of is None:
        return check_parameters(rule, lookup(rule).parameters, given)
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
    return divide(rule, source, seed, parameters)


def divide(rule: str, source: Source, seed: int, parameters: Mapping[str, Any]) -> Federation:
    """`split` by parameters that come from a file, and so may have any names."""
    chosen = parameters_of(rule, parameters)
    seed = check_parameters("split", {"seed": SEED}, {"seed": seed})["seed"]
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
