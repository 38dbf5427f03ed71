"""Split rules: who gets which rows. Each is a function of (source, rng, its parameters).

A rule returns (train, test). Randomness comes from `rng` alone: the same seed and source give the
same split. PARAMETERS says what each parameter of a function may be; RULES
names the rules, and says which of their parameters are other than usual.
"""

import inspect
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

# ---- what parameters may be ----------------------------------------------------------------------

FRACTION = (
    "fraction of each client's rows for training; a client with two rows or more has at least one "
    "of each kind, a single row is for training"
)
SCALING = (
    "features as none | unit (x / full scale) | standardise ((x − mean)/(std + 0.001)); unit for "
    "pixels and none for other features unless given"
)
OF = (
    "shuffle the rows of a split by this rule, whose parameters may be given too, keeping every "
    "client's size"
)
SEED = Parameter(int, 0, "seed of the split", 0)
PARAMETERS = {
    "scaling": Parameter(str, None, SCALING, choices=tuple(scaling.SCALINGS)),
    "users": Parameter(int, 100, "number of clients", 1),
    "pool": Parameter(
        str, "all", "rows to split: all, or the published training part", choices=("all", "train")
    ),
    "train_fraction": Parameter(float, 0.9, FRACTION, 0.0, 1.0),
    "alpha": Parameter(float, 0.5, "concentration: small is uneven, large is even", 1e-3, 1e6),
    "min_rows": Parameter(int, 2, "least number of rows per client", 1),
    "shards": Parameter(int, 2, "shards a client gets", 1),
    "of": Parameter(str, None, OF),
    "classes": Parameter(int, 2, "classes per client", 1),
    "base": Parameter(int, 5, "rows of each of its classes that a client has at least", 1),
    "sigma": Parameter(float, 2.0, "width of the lognormal shares", 0.0, 100.0),
    "mu": Parameter(float, 4.0, "mean of log n", -20.0, 20.0),
    "a": Parameter(int, None, "training rows per class, even; 196 or the most that fits", 2),
    "a_test": Parameter(int, None, "test rows per class, even; the most that fits", 2),
}

# ---- the rules -----------------------------------------------------------------------------------


def nothing(source: Source, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return no values: no default depends on the data."""
    return {}


class Rule(NamedTuple):
    """A split rule: its function and parameters, and what is chosen by the data unless given."""

    split: Callable[..., Parts]
    parameters: Mapping[str, Parameter]
    help: str
    fill: Callable[[Source, Mapping[str, Any]], dict[str, Any]] = nothing


def make_rule(split: Callable[..., Parts], help: str = "", **others: Any) -> Rule:
    """Return a rule by its function, explained by the first line of that unless `help` is given.

    others : defaults, or whole Parameters, that are other than in PARAMETERS.
    """
    _, _, *names = inspect.signature(split).parameters  # without source and rng
    known = {}
    for name in ("scaling", *names):
        other = others.get(name, PARAMETERS[name])
        usual = isinstance(other, Parameter)
        known[name] = other if usual else PARAMETERS[name]._replace(default=other)
    help = help or (split.__doc__ or "").partition("\n")[0]
    return Rule(split, MappingProxyType(known), help)


RULES: dict[str, Rule] = {
    "fedprox-mnist": make_rule(
        powerlaw,
        "power-law as FedProx has it for MNIST: standardised features, 1000 clients.",
        users=1000,
        scaling="standardise",
    ),
    "power-law": make_rule(powerlaw),
    "fedprox-femnist": make_rule(
        lognormal_sizes,
        users=200,
        classes=3,
        sigma=Parameter(float, 1.0, "standard deviation of log n", 0.0, 10.0),
    ),
    "cifar10-powerlaw": make_rule(
        powerlaw,
        "power-law for APFL's CIFAR-10: 5 classes a client, training part; sigma fitted to its Table 1.",
        classes=5,
        sigma=1.25,
        pool="train",
        train_fraction=0.8,
    ),
    "per-fedavg": make_rule(
        per_fedavg,
        users=Parameter(
            int, None, "number of clients, even; 50, or fewer if the data has too few rows", 2
        ),
        train_fraction=PARAMETERS["train_fraction"]._replace(
            default=0.8,
            help="fraction of each class for training, if the source has no published test part",
        ),
    )._replace(fill=fill_per_fedavg),
    "natural": make_rule(
        natural, min_rows=Parameter(int, 1, "leave out clients with fewer rows", 1)
    ),
    "dirichlet": make_rule(dirichlet),
    "shards": make_rule(shards),
    "quantity": make_rule(quantity),
    "iid": make_rule(iid),
}


def lookup(rule: str) -> Rule:
    """Return the rule of this name; a ConfigError if there is none."""
    if not isinstance(rule, str) or rule not in RULES:
        raise ConfigError(unknown("split rule", rule, RULES))
    return RULES[rule]


def parameters_of(rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a rule, given ones checked; those of iid(of=...) are the other rule's."""
    of = given.get("of") if rule == "iid" else None
    if of is None:
        return check_parameters(rule, lookup(rule).parameters, given)
    if of == "iid":
        raise ConfigError("iid: of is 'iid', expected another rule to reshuffle")
    lookup(of)
    return {"of": of} | parameters_of(of, {k: v for k, v in given.items() if k != "of"})


def apply_rule(rule: str, source: Source, rng: Generator, chosen: Mapping[str, Any]) -> Parts:
    """Return (train, test) by the rule; with `of`, the IID twin of that rule's split."""
    if chosen.get("of") is None:
        return lookup(rule).split(source, rng, **chosen)
    rng_of, rng_mix = rng.spawn(2)
    inner = {name: value for name, value in chosen.items() if name != "of"}
    return reshuffle(apply_rule(chosen["of"], source, rng_of, inner), rng_mix)


def split(rule: str, source: Source, seed: int = 0, **parameters: Any) -> Federation:
    """Divide a source over clients by a named rule (see RULES): the same seed, the same split."""
    return divide(rule, source, seed, parameters)


def divide(rule: str, source: Source, seed: int, parameters: Mapping[str, Any]) -> Federation:
    """Do what `split` does by parameters that come from a file, and so may have any names."""
    chosen = parameters_of(rule, parameters)
    seed = check_parameters("split", {"seed": SEED}, {"seed": seed})["seed"]
    named = lookup(chosen.get("of") or rule)
    how = chosen.pop("scaling") or scaling.default(source)
    chosen |= named.fill(source, chosen)
    # a stream of its own: the same seed elsewhere draws other numbers
    rng = np.random.default_rng([seed, int.from_bytes(b"split")])
    train, test = apply_rule(rule, source, rng, chosen)
    shift, scale = scaling.SCALINGS[how](source)
    names = natural_names(source, **chosen) if named.split is natural else None
    settled = MappingProxyType(chosen | {"scaling": how})
    federation = Federation(source, train, test, rule, settled, seed, shift, scale, names)
    federation.check()
    return federation
