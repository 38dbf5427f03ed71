"""Split rules: which client gets which rows. RULES names them all.

A rule is a dataclass whose fields are its parameters. The same seed, source and parameters give the
same split.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Bounds, Entry, build
from fedref.lab.datasets import partition
from fedref.lab.datasets.rules import general, papers
from fedref.lab.datasets.rules.base import Rule
from fedref.lab.datasets.scaling import shift_and_scale, usual_scaling
from fedref.rounds.federation import Federation, Source

RULES: dict[str, type[Rule]] = {
    "fedprox-mnist": papers.FedProxMNIST,
    "power-law": papers.PowerLaw,
    "fedprox-femnist": papers.LognormalSizes,
    "cifar10-powerlaw": papers.CIFAR10PowerLaw,
    "per-fedavg": papers.PerFedAvg,
    "natural": general.Natural,
    "dirichlet": general.Dirichlet,
    "dirichlet-mix": general.DirichletMix,
    "shards": general.Shards,
    "quantity": general.Quantity,
    "iid": general.IID,
}


def make_rule(rule: str, given: Mapping[str, Any]) -> tuple[str | None, Rule]:
    """Return (None, the rule with checked parameters); for iid(of=...), (of, the rule named by `of`)."""
    of = given.get("of") if rule == "iid" else None
    if of == "iid":
        raise ConfigError("iid: of is 'iid', expected another rule to reshuffle")
    if of is not None:
        rule, given = of, {key: value for key, value in given.items() if key != "of"}
    if not isinstance(rule, str) or rule not in RULES:
        hint = "; its parameters are --set split.KEY=VALUE" if "(" in str(rule) else ""
        raise ConfigError(unknown("split rule", rule, RULES) + hint)
    return of, build(RULES[rule], given, rule)


def parameters_of(rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a rule, checked; iid(of=...) has those of the rule named by `of`."""
    of, splitter = make_rule(rule, given)
    stated = {key: value for key, value in vars(splitter).items() if key != "validation" or value}
    return ({} if of is None else {"of": of}) | stated


def split(rule: str, source: Source, seed: int = 0, **parameters: Any) -> Federation:
    """Divide a source over clients by a named rule (see RULES). The same seed gives the same split."""
    of, splitter = make_rule(rule, parameters)
    seed = Entry("seed", int, bounds=Bounds(0)).check(seed, "split")
    kind = splitter.scaling or usual_scaling(source)
    splitter = replace(splitter.fill(source), scaling=kind)
    # "split" makes this stream different from others that are drawn with the same seed
    rng = np.random.default_rng([seed, int.from_bytes(b"split")])
    rng_of, rng_mix = (rng, None) if of is None else rng.spawn(2)
    train, test, names, unseen, unseen_names = splitter.split(source, rng_of)
    if rng_mix is not None:
        held = test if unseen is None else partition.join(test, unseen)
        train, test = general.reshuffle((train, held), rng_mix)
        if unseen is not None:
            clients = np.arange(len(test.sizes))
            test, unseen = (test.subset(k) for k in np.split(clients, [len(train.sizes)]))
    shift, scale = shift_and_scale(source, kind)
    left_out = ("scaling", "validation")
    others = {key: value for key, value in vars(splitter).items() if key not in left_out}
    chosen = ({} if of is None else {"of": of}) | others | {"scaling": kind}
    federation = Federation(
        source, train, test, rule, MappingProxyType(chosen), seed, shift, scale, names,
        unseen=unseen, unseen_names=unseen_names,
    )  # fmt: skip
    if splitter.validation:
        federation = with_validation(federation, splitter.validation, seed)
    federation.check()
    return federation


def with_validation(federation: Federation, share: float, seed: int) -> Federation:
    """Return a federation in which round(share·n) training rows of each client are for validation."""
    if federation.validation is not None:
        name = federation.source.name
        raise ConfigError(f"{name} has validation rows; expected no split.validation")
    rng = np.random.default_rng([seed, int.from_bytes(b"validation")])
    sizes = federation.train.sizes
    rest = sizes - np.round(share * sizes).astype(np.int64)
    train, validation = partition.draw_rows(federation.train, np.where(rest, rest, sizes), rng)
    if not len(validation.rows):
        few = "no client has enough training rows for it"
        raise ConfigError(f"split.validation is {share:g}: {few}")
    parameters = MappingProxyType({**federation.parameters, "validation": share})
    return replace(federation, train=train, validation=validation, parameters=parameters)
