"""The known mistakes: the lines that differ, and what some of them do to a short run on the toy."""

import difflib
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.conformance.errata import MISTAKES, TEXTS, replace, run


def names_of(paper: str) -> list[str]:
    """Return the mistakes of a paper's file."""
    return [name for name, one in MISTAKES.items() if file_of(one.tag) == paper]


def file_of(tag: str) -> str:
    return tag.split()[0].replace("-", "_")


@cache
def lines_of(name: str) -> tuple[str, list[str], list[str]]:
    """Return the file of a mistake's first edit, its wrong lines and the right ones."""
    for module, text in TEXTS.items():
        wrong = replace(text, MISTAKES[name].edits[0])
        if wrong != text:
            # the lines themselves stand once: no context is needed
            changes = list(difflib.ndiff(text.splitlines(), wrong.splitlines(), charjunk=None))
            right, new = ([c[2:] for c in changes if c[0] == sign] for sign in "-+")
            both = textwrap.dedent("\n".join([*new, *right])).splitlines()
            place = f"{module.__name__.replace('.', '/')}.py"
            return place, both[: len(new)], both[len(new) :]
    raise ValueError(f"{name}: its edit changes nothing")


def mistakes_text() -> Iterator[str]:
    """Yield the lines about all mistakes for the terminal."""
    yield from ("Known mistakes", "==============", "", "- the wrong line, + the right one")
    for name in MISTAKES:
        yield ""
        yield from mistake_text(name)


def mistake_text(name: str) -> Iterator[str]:
    """Yield the lines about one mistake."""
    one, (place, wrong, right) = MISTAKES[name], lines_of(name)
    yield f"{name} [{one.tag}]" + (f" ({one.kind})" if one.kind != "wrong" else "")
    yield from textwrap.wrap(one.why, 96, initial_indent="  ", subsequent_indent="  ")
    yield f"  {place}"
    yield from (f"    - {line}" for line in wrong)
    yield from (f"    + {line}" for line in right)


# ---- what some do to a short run on the toy ------------------------------------------------------

Toy = Callable[[Any, Any, Any, list[Any]], Any]
ETA, ALPHA, BETA = spec.ETA, spec.ALPHA, spec.BETA
#: Mistake → the roles of a local step, and its algorithm on the toy: (specification, f, w, rounds) → w.
RUNS: dict[str, tuple[tuple[str, ...], Toy]] = {
    "penalty not squared": (("D",), lambda s, f, w, R: s.last(s.fedprox(f, w, R, ETA, 1.0))[0]),
    "gradients add up from step to step": (("D",), lambda s, f, w, R: s.last(s.fedavg(f, w, R, ETA))),
    "the Hessian is applied to g, not to u": (
        ("D", "D1", "D2"), lambda s, f, w, R: s.last(s.per_fedavg(f, w, R, ALPHA, BETA))),
    "HF: divided by δ": (("D", "D1", "D2"), lambda s, f, w, R: s.last(
        s.per_fedavg(f, w, R, ALPHA, BETA, s.meta_gradient_hf))),
    "first order: the inner step's graph was cut": (("S", "Q"), lambda s, f, w, R: s.last(
        s.fedmeta(f, w, R, BETA, partial(s.maml, alpha=ALPHA)))[0]),
    "FedMAML averages": (("S", "Q"), lambda s, f, w, R: s.last(s.fedmaml(f, w, R, ALPHA, BETA))[0]),
    "the own term is kept": (("D",), lambda s, f, w, R: s.last(s.fedcurv(f, w, R, ETA, 1.0))[0]),
    "SCAFFOLD's c_i is never kept": (("D",), lambda s, f, w, R: s.last(
        s.scaffold(f, w, R, ETA, spec.N))[0]),
    "FedDyn's h is divided by |S|": (("D",), lambda s, f, w, R: s.last(
        s.feddyn(f, w, R, ETA, ALPHA, spec.N))[0]),
    "FedNova's τ_eff is left out": (("D",), lambda s, f, w, R: s.last(s.fednova(f, w, R, ETA))),
}  # fmt: skip


@cache
def losses(name: str) -> tuple[float, float]:
    """Return the clients' mean test loss after the toy's rounds, without a mistake and with it.

    Where the method adapts, each client first takes its step on its training rows.
    """
    text = TEXTS[spec]
    for edit in MISTAKES[name].edits:
        text = replace(text, edit)
    roles, toy = RUNS[name]
    f, train, tests = spec.make_toy()
    rounds = list(spec.drop_stragglers(spec.toy_rounds(train, roles)))
    alpha = ALPHA if len(roles) > 1 else 0.0
    ends = []
    with np.errstate(all="ignore"):
        for module in (spec, run(text, "fedref.spec")):
            w = toy(module, f, np.zeros(12), rounds)
            adapted = [spec.adapt(f.grad, w, D, alpha) for D in train]
            ends.append(float(np.mean([f(x, D) for x, D in zip(adapted, tests)])))
    return ends[0], ends[1]


def harmless_mistakes() -> list[str]:
    """Return the mistakes whose loss is no worse than that of the right run."""
    return [name for name in RUNS if losses(name)[1] <= losses(name)[0]]
