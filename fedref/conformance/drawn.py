"""Cases drawn by Hypothesis from simple numbers; the smallest that fails can be computed by hand.

The specification answers each. A backend's failure counts only if the right answer is well conditioned. We
move the inputs a little; how far the answer moves is its tolerance.
"""

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import write_or_raise
from fedref.conformance import naming, report, suite, vectors
from fedref.conformance.suite import grade_drawn
from fedref.draws.shrinking import TimeIsUp, drawn, smallest  # says if Hypothesis is missing
from fedref.draws.sources import SUBJECTS, NumPySource, draw_case
from fedref.judge import Case, answer, evidence, trace, verdicts
from fedref.judge.verdicts import Graded
from fedref.models.numerics import Array
from fedref.sampling import stream

# isort: split
from hypothesis import reject

#: Functions and algorithms take turns: up to which share of its draws each comes in a turn.
TURNS = 0.05, 0.25, 1.0
#: By how many examples a failure is made smaller, and by how many of forms that a backend compiles anew.
ATTEMPTS, FORMS = 600, 40
#: What explains a failure must explain at least two larger draws. So many are looked at, at most, until so
#: many fail.
LEAST_LARGER, MOST_LARGER, MOST_FAILURES = 2, 40, 5


def search(
    backend: suite.Backend, draws: int, only: str = "", seed: int = 0, dtype: str = "float64",
    until: float = inf, note: Callable[[str, verdicts.Result], None] = lambda call, result: None,
    skipped: Collection[str] = (), shrink: float = inf,
) -> Iterator[tuple[str, int, Graded | None]]:  # fmt: skip
    """Yield ("round fedavg", how many cases counted, the smallest that fails) for each that is offered.

    draws : the number of cases for each. until : the time by `monotonic()` at which the search ends; it also
    ends at the first failure.
    note : is told of each case that counts. skipped : of these none is drawn.
    shrink : seconds, at most, in which a failure is made smaller; that is counted by examples.
    """
    counted = Counter[str]()
    for turn, (before, after) in enumerate(pairwise((0.0, *TURNS))):
        for call, names in SUBJECTS.items():

            def fails(case: Case) -> bool:
                if monotonic() > until:
                    raise TimeIsUp
                graded = grade_drawn(backend, case, dtype)
                if graded is None:
                    reject()
                counted[subject_of(case)] += 1
                note(case.call, graded.result)
                return bool(graded.result.status == verdicts.FAILED)

            chosen = [name for name in names if only in f"{name} {call}"]
            chosen = [name for name in chosen if f"{call} {name}".strip() not in skipped]
            for name in chosen if backend.offers(call) else ():
                n = ceil(after * draws) - ceil(before * draws)
                start, key = seed * len(TURNS) + turn, f"fedref {call} {name}".encode()
                cases = drawn(draw_case, call, name)
                case = smallest(cases, fails, n, start, key, shrink, ATTEMPTS, form_of, FORMS)
                if case is not None:
                    failure = conclude(backend, case, name, dtype, until)
                    yield subject_of(case), counted[subject_of(case)], failure
                    return
    for subject, count in counted.items():
        yield subject, count, None


def form_of(case: Case) -> str:
    """Return what a compiled backend compiles for a case: its model, and the shapes of its arrays."""
    return repr((case.model, sorted({x.shape for x in case.inputs.values()})))


def subject_of(case: Case) -> str:
    return f"{case.call} {case.algorithm}".strip()


def expected_subjects(patterns: Sequence[str]) -> set[str]:
    """Return the functions and algorithms of golden cases that are expected to fail: "round fedprox"."""
    entries = vectors.read_index(vectors.folder())["cases"] if patterns else []
    expected = (x for x in entries if report.is_expected(x["name"], patterns))
    return {f"{x['call']} {x['algorithm']}".strip() for x in expected}


def conclude(
    backend: suite.Backend, case: Case, name: str, dtype: str, until: float = inf
) -> Graded:
    """Return the failure with its name or with evidence. A backend may pass the case that it failed.

    A small case fits several mistakes: what explains it must explain larger draws of its kind, too.
    """
    graded = grade_drawn(backend, case, dtype)
    if graded is None or graded.result.status != verdicts.FAILED:
        answered = suite.with_answer(case) or case
        twice = verdicts.Result(answered.name, answered.tag, verdicts.FAILED, reason=verdicts.TWICE)
        return Graded(answered, twice)
    if not graded.result.outputs:
        return graded
    some = [graded, *draw_larger(backend, case, name, dtype, until)]
    if sum(bool(result.outputs) for _, result in some) <= LEAST_LARGER:
        return Graded(graded.case, evidence.describe(graded.result, graded.case, dtype))
    known = known_mistakes(case.call, name)
    cases = [larger._replace(name=str(i), catches=known) for i, (larger, _) in enumerate(some)]
    results = naming.name_mistakes([result for _, result in some], cases, dtype, thorough=True)
    return Graded(graded.case, results[0])


class WideSource(NumPySource):
    """Random numbers of more rows, and step sizes of any sign."""

    most_rows: ClassVar[int] = 7

    def rates(self, d: int) -> Array:
        return self.numbers(d)


def draw_larger(
    backend: suite.Backend, case: Case, name: str, dtype: str, until: float
) -> Iterator[Graded]:
    """Yield larger cases with their verdicts, until enough fail: every other one of the same family."""
    source, failed = WideSource(stream(0, f"larger {case.call} {name}")), 0
    for i in range(MOST_LARGER):
        if failed == MOST_FAILURES or monotonic() > until:
            return
        families = (case.model["family"],) if i % 2 == 0 else ()
        graded = grade_drawn(backend, draw_case(source, case.call, name, *families), dtype)
        if graded is not None:
            yield graded
            failed += graded.result.status == verdicts.FAILED


def known_mistakes(call: str, algorithm: str) -> tuple[str, ...]:
    """Return the names of the mistakes that golden cases of this function and algorithm catch."""
    index, places = vectors.read_index(vectors.folder()), set[int]()
    for entry in index["cases"]:
        if (entry["call"], entry["algorithm"]) == (call, algorithm):
            places |= {*entry["catches"]}
    return tuple(index["mistakes"][i]["name"] for i in sorted(places))


# ---- by hand -------------------------------------------------------------------------------------

#: Inputs that no one needs to redo a case.
NOT_SHOWN = {"round", "sizes", "delta_mu", "delta_sigma", "length", "mean_old", "std_old", "peak"}


def show(x: object) -> str:
    """Return a value as a Python literal, six digits a number."""
    if isinstance(x, tuple | list):
        return f"({', '.join(map(show, x))})"
    text = np.array2string(np.asarray(x), precision=6, separator=", ", threshold=10_000)
    return " ".join(text.split())


@np.errstate(all="ignore")
def by_hand(failure: Graded) -> str:
    """Return a failure as text: inputs, the specification's lines with their values, both answers."""
    case, result = failure
    fields = {k: x for k, x in case.model.items() if k not in ("d", "shapes")}
    lines = [report.failure_text(result)]
    lines += [f"        {report.explain_name(name)}" for name in result.mistakes]
    lines += [f"  model = {fields}  # d = {case.model['d']}"]
    lines += [f"  hyper = {case.hyper}"] if case.hyper else []
    given = {n: x for n, x in case.inputs.items() if n.split(".")[-1] not in NOT_SHOWN}
    lines += shorten([f"  {n} = {show(x)}" for n, x in given.items()], SHOWN, "inputs")
    computed = []
    for line in trace(lambda: answer(case)):
        values = ", ".join(f"{n} = {show(x)}" for n, x in line.values.items())
        computed.append(f"    {line.number}: {line.text:<60}  {values}"[:400])
    lines += (["  fedref/spec.py computes"] if computed else []) + shorten(computed, SHOWN, "lines")
    names = list(result.outputs)
    first = names.index(result.output) if result.output in names else 0
    for n in names[max(first - 1, 0) :][:4]:  # from the one before the first that is wrong
        lines.append(f"  {n}: right {show(case.outputs[n])}, yours {show(result.outputs[n])}")
    return "\n".join(lines)


#: How many inputs, and how many lines of the specification, a report shows.
SHOWN = 12


def shorten(lines: list[str], most: int, what: str) -> list[str]:
    """Return the lines, or the first and the last of them where they are too many."""
    if len(lines) <= most:
        return lines
    half = most // 2
    left_out = f"    … {len(lines) - 2 * half} {what} more (--save has all)"
    return [*lines[:half], left_out, *lines[-half:]]


MARK = "# written by fedref conformance --save"
TEST = (files("fedref.conformance") / "drawn_case.txt").read_text("utf-8")


def save(failure: Graded, backend: str, path: Path) -> None:
    """Write a failure as a vector (PATH with .npz) and as a pytest function (PATH with .py)."""
    case, file = failure.case, io.BytesIO()
    named: Any = {f"in.{n}": x for n, x in case.inputs.items()}
    np.savez(file, **named | {f"out.{n}": x for n, x in case.outputs.items()})
    test = path.with_suffix(".py")
    if test.exists() and not test.read_text("utf-8").startswith(MARK):
        wrong = f"--save {test}: exists, and fedref did not write it"
        raise ConfigError(f"{wrong}; expected another name")
    write_or_raise(path.with_suffix(".npz"), file.getvalue())
    words = report.describe_failure(failure.result)
    text = TEST.format(mark=MARK, failure=words, case=repr(case), backend=backend)
    write_or_raise(path.with_suffix(".py"), text.encode())
