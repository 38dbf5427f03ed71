"""Names and evidence: which known mistakes explain what failed, and what can be seen in the numbers.

A known mistake is the specification with a wrong line. Its name is given where it is certain: of one
function and algorithm it fits the failing cases that it is known to change, and changes none that pass.
Whatever has no name has evidence: in which blocks the numbers differ, a constant ratio, a multiple of an
input that is too much.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np

from fedref.conformance import errata
from fedref.conformance.suite import FAILED, PASSED, Result
from fedref.judge.case import Case
from fedref.judge.compare import compare, difference
from fedref.models.numerics import Array

#: A mistake explains outputs that differ from its own by less than this, relatively, or the tolerance.
SAME = {"float64": 1e-8, "float32": 1e-4}
#: A name is tried on so many failing cases of a function and algorithm, the smallest.
TRIED = 4
#: Seconds that are spent on names, whatever a backend answers; in what is left, none is looked for.
LIMIT = 8.0
#: The name for numbers that were float32 somewhere in the computation.
SINGLE = "float32 somewhere"


def name_mistakes(results: Iterable[Result], cases: Sequence[Case], dtype: str) -> list[Result]:
    """Return the results with the known mistakes that explain them, or else with evidence."""
    results, seen = list(results), Counter[str]()  # all are known before a name is looked for
    end = perf_counter() + LIMIT
    for places in by_subject(cases).values():
        failed = [i for i in places if results[i].status == FAILED and results[i].outputs]
        failed.sort(key=lambda i: cases[i].model["d"])
        passed = {n for i in places if results[i].status == PASSED for n in cases[i].catches}
        near = dict.fromkeys(n for i in failed for n in cases[i].catches if n not in passed)
        for name in sorted(near, key=lambda name: -seen[name]):
            known = [i for i in failed if name in cases[i].catches]
            if perf_counter() > end:
                for i in known:
                    results[i] = results[i]._replace(looked=False)
            elif all(explains(results[i].outputs, cases[i], dtype, name) for i in known[:TRIED]):
                seen[name] += 1
                for i in known:
                    results[i] = results[i]._replace(mistakes=(*results[i].mistakes, name))
    counts = Counter(name for result in results for name in result.mistakes)
    against = Counter(
        name for r, case in zip(results, cases) if r.status == PASSED for name in case.catches
    )
    settled = (settle(result, counts, against) for result in results)
    return [describe(result, case, dtype) for result, case in zip(settled, cases)]


def by_subject(cases: Sequence[Case]) -> dict[tuple[str, str], list[int]]:
    """Return the places of the cases of each function and algorithm."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, case in enumerate(cases):
        groups.setdefault((case.call, case.algorithm), []).append(i)
    return groups


def explains(outputs: Mapping[str, Any], case: Case, dtype: str, name: str) -> bool:
    """Return whether the outputs are those of the specification with this mistake, and not the right.

    Only what the specification has is compared; outputs that are right must be so with the mistake.
    """
    made = errata.answer(case, name)
    both = [name for name in case.outputs if name in made and name in outputs]
    if any(np.shape(made[name]) != np.shape(outputs[name]) for name in both):
        return False
    same = max(SAME[dtype], case.tolerance.get(dtype, 0.0))
    moved = max((difference(made[name], case.outputs[name]) for name in both), default=0.0)
    return moved > same and all(difference(outputs[n], np.asarray(made[n])) <= same for n in both)


def settle(result: Result, counts: Mapping[str, int], against: Mapping[str, int]) -> Result:
    """Return the result with the best of several names: `against` by few passing cases, for many others."""
    if len(result.mistakes) < 2:
        return result
    best = min((against[name], -counts[name]) for name in result.mistakes)
    names = tuple(n for n in result.mistakes if (against[n], -counts[n]) == best)
    return result._replace(mistakes=names)


def describe(result: Result, case: Case, dtype: str) -> Result:
    """Return the result with SINGLE, or with evidence, where it has numbers and no name."""
    if result.mistakes or result.status != FAILED or not result.outputs:
        return result
    if is_single(result, case, dtype):
        return result._replace(mistakes=(SINGLE,))
    return result._replace(evidence="; ".join(evidence(result, case, dtype)))


def is_single(result: Result, case: Case, dtype: str) -> bool:
    """Return whether all outputs are right to float32's precision, and the wrong one is float32 numbers."""
    if dtype != "float64" or result.reason:
        return False
    if compare(result.outputs, case._replace(tolerance={"float64": case.tolerance["float32"]})):
        return False
    x = np.asarray(result.outputs[result.output])
    return bool(np.array_equal(x, x.astype(np.float32).astype(np.float64)))


# ---- evidence ------------------------------------------------------------------------------------


def evidence(result: Result, case: Case, dtype: str) -> Iterator[str]:
    """Yield what can be seen in the first output that is wrong."""
    got = np.asarray(result.outputs[result.output], float)
    want = np.asarray(case.outputs[result.output], float)
    same = max(SAME[dtype], case.tolerance.get(dtype, 0.0)) * (np.max(np.abs(want), initial=0) or 1)
    wrong = np.abs(got - want) > same
    if 0 < wrong.sum() < wrong.size:
        yield f"wrong only in {places_of(wrong, case)}"
    factor = ratio(got[wrong], want[wrong], same)
    if factor is not None:
        yield f"{tell_number(factor, case)} × what is right"
        return
    for name, x in case.inputs.items():
        if x.shape == want.shape and x.dtype.kind == "f":
            factor = ratio((got - want)[wrong], x[wrong], same)
            if factor is not None:
                yield f"off by {tell_number(factor, case)} × {name}"


def ratio(got: Array, want: Array, same: float) -> float | None:
    """Return c where got = c · want but for `same`, from at least two numbers that are not 0."""
    square = float(np.sum(want * want))
    if np.sum(np.abs(want) > same) < 2:
        return None
    c = float(np.sum(got * want)) / square
    return c if np.max(np.abs(got - c * want)) <= same and abs(c) > 1e-12 else None


def tell_number(c: float, case: Case) -> str:
    """Return a number as a fraction, or as one times a hyperparameter of the case, or in six digits.

    >>> from types import SimpleNamespace
    >>> case = SimpleNamespace(hyper={"mu": 0.7}, model={"l2": 0.1})
    >>> tell_number(2 / 3, case), tell_number(-0.35, case), tell_number(2 ** 0.5, case)
    ('2/3', '-1/2·mu', '1.41421')
    """
    known = {"": 1.0} | {
        f"·{name}": float(x)
        for name, x in [*case.hyper.items(), ("l2", case.model["l2"])]
        if type(x) is float and x and x != 1
    }
    for most in (4, 100):
        for name, x in known.items():
            simple = Fraction(c / x).limit_denominator(most)
            if abs(c / x - simple) < 1e-7 * abs(c / x):
                return f"{simple}{name}" if simple != 1 or not name else name[1:]
    return f"{c:.6g}"


def places_of(wrong: Array, case: Case) -> str:
    """Return the blocks of parameters that are wrong, or the entries: "W2 (4, 3)", "entries 0, 3"."""
    if wrong.shape == (case.model["d"],):
        shapes = case.model["shapes"]
        ends = np.cumsum([np.prod(shape) for shape in shapes]).astype(int)
        names, layer = [], 0
        for shape, own in zip(shapes, np.split(wrong, ends[:-1])):
            layer += len(shape) > 1
            if own.any():
                whole = "" if own.all() else "part of "
                names.append(f"{whole}{'W' if len(shape) > 1 else 'b'}{layer} {tuple(shape)}")
        return ", ".join(names)
    at = np.argwhere(wrong)
    entries = ", ".join(str(i[0] if len(i) == 1 else tuple(i.tolist())) for i in at[:4])
    return f"entries {entries}{', …' * (len(at) > 4)} of {wrong.shape}"
