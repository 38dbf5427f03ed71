"""A proof is a case: the golden vectors' inputs, answered by the specification and by fedref.

Each row is an equation and a function: all cases of it, their numbers moved at random, with fedref's clients
one by one and stacked. The vectors' own answers are not used; `fedref conformance fedref` compares those.
"""

from collections.abc import Iterator
from functools import partial
from itertools import groupby

import numpy as np

from fedref import judge
from fedref.checks import Report
from fedref.conformance import suite, vectors
from fedref.conformance.backends.reference import LOOP, STACK
from fedref.models.numerics import Array
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import ONE, PROOFS, proof


def is_answered(case: judge.Case) -> bool:
    """Return whether a proof is about a case: its maker confirms each half, and twins add nothing."""
    keeps = any(name.startswith("client.") for name in case.inputs)
    alone = case.call == "client" and (keeps or case.required != ("upload.w",))
    return not (case.name.endswith("-no-l2") or case.call == "aggregate" or alone)


def move_numbers(case: judge.Case, rng: np.random.Generator) -> judge.Case:
    """Return the case with its vectors and rows moved by some 10 %; zeros stay, and with them kinks."""

    def moves(name: str, x: Array) -> bool:
        # of a server's state the rest begins as usual
        starts = ".server." not in name or name.endswith((".w", ".theta"))
        return starts and x.ndim > 0 and x.dtype.kind == "f"

    inputs = case.inputs.items()
    moved = {n: x * rng.uniform(0.9, 1.1, x.shape) if moves(n, x) else x for n, x in inputs}
    return case._replace(inputs=moved)


def compare(case: judge.Case) -> Iterator[Report]:
    """Compare all that the specification answers; stacked clients are those one by one to the bit."""
    answers = {n: x for n, x in judge.answer(case).items() if ".measured." not in n}
    loop, stack = (suite.call_backend(x, case, case.arguments()) for x in (LOOP, STACK))
    missing = answers.keys() - loop.keys()
    assert not missing, f"{case.name}: no {', '.join(missing)}"
    for name, expected in answers.items():
        yield equal(loop[name], expected)
        yield equal(stack[name], loop[name], bound=0)


def enter(tag: str, cases: list[judge.Case]) -> None:
    """Enter a row for the cases of an equation, one for each function of the protocol."""
    for call, some in groupby(sorted(cases, key=lambda case: case.call), lambda case: case.call):
        chosen = list(some)
        names = ", ".join(dict.fromkeys(case.algorithm for case in chosen if case.algorithm))
        claim = f"{call}{' of ' if names else ''}{names}, {len(chosen)} cases = the specification"
        proof(tag, claim, ONE)(partial(compare_all, chosen))


def compare_all(cases: list[judge.Case], c: Setting) -> Iterator[Report]:
    """Compare some cases, with numbers of this proof's own."""
    for case in cases:
        yield from compare(move_numbers(case, c.rng))


#: Equations that a whole algorithm is, or that only a line of its documentation has: the tag of their cases.
SHOWN_BY = {
    "per-fedavg alg.1": "per-fedavg eq.6", "apfl alg.1": "apfl eq.6", "apfl eq.4": "apfl eq.6",
    "apfl §4.1.2": "fedcurv penalty",
}  # fmt: skip
EVERY = vectors.read()
CASES = list(filter(is_answered, EVERY))
for _tag in dict.fromkeys(case.tag for case in CASES):
    enter(_tag, [case for case in CASES if case.tag == _tag])
# Every case has been compared in the row of its first tag: one of a few numbers stands for each other tag.
_small = sorted((c for c in CASES if len(c.model["shapes"]) > 3), key=lambda c: c.model["d"])
for _tag in dict.fromkeys(tag for case in CASES for tag in case.tags if tag.split()[0] != "Adam"):
    if _tag not in {one.tag for one in PROOFS}:
        enter(_tag, [case for case in _small if _tag in case.tags][:1])
for _tag, _other in SHOWN_BY.items():
    enter(_tag, [case for case in CASES if case.tag == _other and case.call == "round"][:1])
