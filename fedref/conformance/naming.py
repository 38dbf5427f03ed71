"""Names and evidence: which known mistakes explain what failed, and what can be seen in the numbers.

A known mistake is the specification with a wrong line. It is named only if it reproduces all failing cases of
a function and an algorithm that it is known to change, and no passing case contradicts it.
What no name explains gets evidence: the answer for other inputs (inputs.py), a combination of the
specification's terms, a small change of it with the same numbers (variations.py), in which blocks they
differ, a ratio, an order of entries, a multiple of an input.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, combinations
from typing import Any

import numpy as np

from fedref.conformance.inputs import other_inputs
from fedref.conformance.trials import SearchEnded, Trials, search_apart
from fedref.conformance.variations import (
    OF_MODELS,
    Test,
    Variation,
    find_variation,
    observe,
    variations_of,
)
from fedref.judge import Case, errata, find_combination
from fedref.judge.adapter import try_answer
from fedref.judge.case import Values, first_rounds
from fedref.judge.compare import difference
from fedref.judge.errata import MISTAKES
from fedref.judge.evidence import SAME, describe
from fedref.judge.verdicts import FAILED, PASSED, Result
from fedref.models.numerics import Array

#: A name is tried first on so many failing cases of a function and algorithm, the smallest.
TRIED = 4
#: Calls of functions (four take a microsecond) that trials of names may take, and then those for evidence,
#: whatever a backend answers. What is left is shared among the functions and algorithms that fail.
LIMIT, EVIDENCE = 24_000_000, 24_000_000
#: The functions of the halves of a round.
HALVES = "client", "aggregate"
#: What a function is made of: those of a higher level call others.
LEVELS = (
    dict.fromkeys(OF_MODELS, 0)
    | dict.fromkeys(("dissimilarity", "meta_gradient", "evaluate"), 1)
    | dict.fromkeys(HALVES, 2)
    | {"round": 3}
)
#: What is said of a name that does not fit all.
DOUBT = "other cases that fail do not fit it"
#: Whether a wrong specification's answer to a case is the backend's, or the right one.
Fits = Callable[[Values, Case], bool]
#: How evidence begins that is a name which fits smaller cases; what joins the names of two at once.
PERHAPS, BOTH = "perhaps: ", ", together with "
#: How evidence begins that says what the answers are, not only where they are wrong.
TELLS = (
    PERHAPS,
    "as if in ",
    "it is the right answer where ",
    "two known mistakes at once: ",
    "yours is ",
)


def name_mistakes(
    results: Iterable[Result], cases: Sequence[Case], dtype: str, thorough: bool = False
) -> list[Result]:
    """Return the results with the known mistakes that explain them, or else with evidence.

    The search has a process of its own, since a wrong line may run without end. It has none where no
    failure has numbers. thorough : a name is tried even where another one fits and a passing case may
    refute it.
    """
    results = list(results)  # all are known before a name is looked for
    failed = [i for i, r in enumerate(results) if r.status == FAILED and r.outputs]
    if not failed:
        return results
    try:
        found = search_apart(find_mistakes, results, cases, dtype, thorough)
    except SearchEnded as error:
        for i in failed:
            said = f"the search for what it is was {error}"
            results[i] = results[i]._replace(looked=False, evidence=said)
        return results
    return [r._replace(**dict(zip(FOUND, said))) for r, said in zip(results, found)]


#: What a search finds.
FOUND = "mistakes", "evidence", "looked"


@np.errstate(all="ignore")
def find_mistakes(
    results: list[Result], cases: Sequence[Case], dtype: str, thorough: bool = False,
    begin: tuple[Sequence[str], int | None] = ((), None),
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return for each result the names that explain it, evidence, and whether names were looked for.

    Time and memory are bounded in the child alone: in the caller's process a limit would be of all its work.
    """
    trials = Trials(LIMIT, *begin)
    results = find_names(results, cases, dtype, thorough, trials)
    counts = Counter(name for result in results for name in result.mistakes)
    against = Counter(
        name for r, case in zip(results, cases) if r.status == PASSED for name in case.catches
    )
    results = [keep_best_names(result, counts, against) for result in results]
    results = doubt_names(results, cases)
    results = [describe(result, case, dtype) for result, case in zip(results, cases)]
    trials.left = EVIDENCE
    search = Search(results, cases, dtype, trials)
    parts = dict[tuple[str, str], list[int]]()
    for subject, places in by_subject(cases).items():  # a model's loss and its derivatives are one
        parts.setdefault(("", "") if subject[0] in OF_MODELS else subject, []).extend(places)
    unnamed = [[i for i in places if is_unexplained(results[i])] for places in parts.values()]
    ordered = [*zip(parts, parts.values(), unnamed)]
    ordered.sort(key=lambda part: (part[0][1] != "", part[0][0] == "round"))
    for n, (_, places, failed) in enumerate(ordered):
        if failed and trials.left > 0:
            later = [some for _, _, some in ordered[n + 1 :] if not search.mend_first(some)]
            share = trials.left / (1 + sum(map(bool, later)))
            passed = [i for i in places if results[i].status == PASSED and not cases[i].convention]
            if said := search.tell(failed, passed, trials.left - share):
                for i in failed:
                    results[i] = results[i]._replace(evidence=said)
    return [tuple(getattr(result, name) for name in FOUND) for result in results]


def find_names(
    results: list[Result], cases: Sequence[Case], dtype: str, thorough: bool, trials: Trials
) -> list[Result]:
    """Return the results with all names that fit, as far as the trials suffice.

    A name that fits the smallest cases of a function and algorithm is then tried on all the others, the
    smallest first: one that does not fit refutes it. Where none is left to try it, it is only likely.
    """

    def answer(case: Case, name: str) -> dict[str, Array]:
        return trials.answer(case, name, lambda case: errata.answer(case, name))

    def explains(i: int, name: str) -> bool:
        outputs, early = results[i].outputs, shorten(cases[i], results[i].output)

        def answer_if_early(case: Case) -> dict[str, Array]:
            """The first rounds contradict most names."""
            shorter = len(early.inputs) < len(case.inputs)
            if shorter and not agrees(errata.answer(early, name), outputs, early, dtype):
                return {}
            return errata.answer(case, name)

        made = trials.answer(cases[i], name, answer_if_early)
        return is_made(made, outputs, cases[i], dtype)

    results = list(results)
    seen, named, fits = Counter[str](), set[int](), dict[tuple[Any, str], list[int]]()
    rest, subjects = list[tuple[Any, int]](), list(by_subject(cases).items())
    failures = [
        [i for i in places if results[i].status == FAILED and results[i].outputs]
        for _, places in subjects
    ]
    for n, ((subject, places), failed) in enumerate(zip(subjects, failures)):
        end = trials.left - trials.left / max(1, sum(map(bool, failures[n:])))
        failed = sorted(failed, key=lambda i: cases[i].model["d"])
        smallest = sorted(places, key=lambda i: cases[i].model["d"])
        clear = [i for i in smallest if not cases[i].convention]  # at a kink a wrong slope may pass
        passed = [cases[i] for i in clear if results[i].status == PASSED]
        doubted = {name for case in passed for name in case.catches}
        candidates = dict.fromkeys(name for i in failed for name in cases[i].catches)
        for name in sorted(candidates, key=lambda name: (name in doubted, -seen[name])):
            known = [i for i in failed if name in cases[i].catches]
            right = [case for case in passed if name in case.catches]
            if not thorough and name in doubted and named & {*known}:
                continue
            if trials.left <= end:
                rest += [(None, i) for i in known]
            elif all(explains(i, name) for i in known[:TRIED]) and all(
                holds(answer(case, name), case, dtype) for case in right
            ):
                seen[name] += 1
                named |= {*known}
                fits[subject, name] = known[:TRIED]
                rest += [((subject, name), i) for i in known[TRIED:]]
    for key, i in sorted(rest, key=lambda one: cases[one[1]].model["d"]):
        if key is None or (key in fits and trials.left <= 0):
            likely = (
                f"{PERHAPS}{key[1]} (as in smaller cases; nothing more was tried)" if key else ""
            )
            results[i] = results[i]._replace(looked=False, evidence=likely)
        elif key in fits and explains(i, key[1]):
            fits[key].append(i)
        else:
            fits.pop(key, None)
    for (_, name), places in fits.items():
        for i in places:
            results[i] = results[i]._replace(mistakes=(*results[i].mistakes, name))
    return results


def by_subject(cases: Sequence[Case]) -> dict[tuple[str, str], list[int]]:
    """Return the places of the cases of each function and algorithm."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, case in enumerate(cases):
        groups.setdefault((case.call, case.algorithm), []).append(i)
    return groups


def explains(outputs: Values, case: Case, dtype: str, name: str) -> bool:
    """Return whether the outputs are those of the specification with this mistake, and not the right ones."""
    return is_made(errata.answer(case, name), outputs, case, dtype)


def is_made(made: Values, outputs: Values, case: Case, dtype: str) -> bool:
    """Return whether the outputs are those that a wrong specification made, and not the right ones.

    Only what the specification has is compared; outputs that are right must be so in it.
    """
    return agrees(made, outputs, case, dtype) and any(
        difference(x, case.outputs[name]) > same_up_to(case, dtype)
        for name, x in made.items()
        if name in case.outputs and name in outputs
    )


def same_up_to(case: Case, dtype: str) -> float:
    """Return how far two answers to a case may lie apart that are one."""
    return max(SAME[dtype], case.tolerance.get(dtype, 0.0))


def agrees(made: Values, outputs: Values, case: Case, dtype: str) -> bool:
    """Return whether the outputs are those that a wrong specification made, of what both have."""
    both = [name for name in case.outputs if name in made and name in outputs]
    same = same_up_to(case, dtype)
    return all(
        np.shape(made[n]) == np.shape(outputs[n])
        and difference(outputs[n], np.asarray(made[n])) <= same
        for n in both
    )


def holds(made: Values, case: Case, dtype: str) -> bool:
    """Return whether a wrong specification's outputs are right in a case, all the same."""
    want = {name: x for name, x in case.outputs.items() if name in made}
    same = same_up_to(case, dtype)
    return bool(want) and all(
        np.shape(made[name]) == x.shape and difference(made[name], x) <= same
        for name, x in want.items()
    )


def keep_best_names(
    result: Result, counts: Mapping[str, int], against: Mapping[str, int]
) -> Result:
    """Return the result with the best of several names: `against` by few passing cases, for many others."""
    if len(result.mistakes) < 2:
        return result
    best = min((against[name], -counts[name]) for name in result.mistakes)
    names = tuple(n for n in result.mistakes if (against[n], -counts[n]) == best)
    return result._replace(mistakes=names)


def doubt_names(results: Sequence[Result], cases: Sequence[Case]) -> list[Result]:
    """Return the results, in which a name is only likely where another failure contradicts it.

    So does a failure that has no name, in a case that this mistake would change, if its function is on no
    higher level than the lowest that the name explains. It is not even that where the model itself is wrong.
    """
    both = [*zip(results, cases)]
    broken = broken_models(results, cases)
    least = dict[str, int]()
    for result, case in both:
        least |= {n: min(least.get(n, 9), LEVELS[case.call]) for n in result.mistakes}
    against = {
        name
        for result, case in both
        if result.status == FAILED and result.looked and is_unexplained(result)
        for name in case.catches
        if LEVELS[case.call] <= least.get(name, -1)
    }
    out = list[Result]()
    for result, case in both:
        sure, said = tuple(n for n in result.mistakes if n not in against), result.evidence
        if result.mistakes and not sure and case.model["family"] not in broken:
            said = f"{PERHAPS}{'; or '.join(result.mistakes)} ({DOUBT})"
        out.append(result._replace(mistakes=sure, evidence=said))
    return out


def broken_models(results: Sequence[Result], cases: Sequence[Case]) -> set[str]:
    """Return the families whose loss or derivatives are wrong, and have no name."""
    both = zip(results, cases)
    return {c.model["family"] for r, c in both if c.call in OF_MODELS and is_unexplained(r)}


def is_unexplained(result: Result) -> bool:
    """Return whether a result has numbers that differ, and neither a name nor one that is likely."""
    return bool(result.outputs and not result.mistakes) and not result.evidence.startswith(PERHAPS)


class Search:
    """The search for what explains the failures of a function and algorithm that have no name.

    found : the variations that explained others, which are tried first. models : families whose loss or
    derivatives are wrong, and have no name; right : those whose are right. halves : algorithms of whose
    rounds a half is wrong, and has no name.
    """

    def __init__(
        self, results: Sequence[Result], cases: Sequence[Case], dtype: str, trials: Trials
    ) -> None:
        self.results, self.cases, self.dtype, self.trials = results, cases, dtype, trials
        self.found = list[Variation]()
        both = [*zip(results, cases)]
        of_models = [(r, case.model["family"]) for r, case in both if case.call in OF_MODELS]
        self.models = broken_models(results, cases)
        self.right = {family for r, family in of_models if r.status == PASSED} - {
            family for r, family in of_models if r.status == FAILED
        }
        self.halves = {c.algorithm for r, c in both if c.call in HALVES and is_unexplained(r)}

    def mend_first(self, failed: Sequence[int]) -> str:
        """Return what is to be mended before these cases are looked at, or ""."""
        some = [self.cases[i] for i in failed]
        if all(case.call not in OF_MODELS and case.model["family"] in self.models for case in some):
            return "the model itself is wrong (loss, grad or hvp): begin there"
        if all(case.call == "round" and case.algorithm in self.halves for case in some):
            return "a half of the round is wrong (client or aggregate): begin there"
        return ""

    def tell(self, failed: Sequence[int], passed: Sequence[int], end: float) -> str:
        """Return the combination of terms or the variation that these answers are, or "".

        failed, passed : the places of the cases. end : the search stops when so many calls are left.
        """
        if (blocked := self.mend_first(failed)) and not self.found:
            return blocked
        outputs = {self.cases[i].name: self.results[i].outputs for i in failed}
        wrong = self.simplest(failed)
        early = [shorten(case, result.output) for case, result in wrong]
        rest, right = (
            sorted((self.cases[i] for i in some), key=lambda case: case.model["d"])
            for some in (failed, passed)
        )

        def fits(made: Values, case: Case) -> bool:
            return is_made(made, outputs[case.name], case, self.dtype)

        as_right = partial(holds, dtype=self.dtype)
        tests: list[Test] = [(fits, case) for case in early]
        tests += [(as_right, case) for case in right[:TRIED]]
        tests += [(fits, case) for case in rest] + [(as_right, case) for case in right[TRIED:]]
        find = partial(find_variation, early, tests, outputs, trials=self.trials, end=end)
        if blocked:
            return str(find(self.found) or blocked)
        if said := self.other_input(early[0], tests, end):
            return said
        is_round = early[0].call == "round"
        if not is_round and (said := self.combination(wrong)):
            return said
        middle = (self.trials.left + end) / 2
        if is_round and (pair := self.pair(wrong, right, middle)):
            return f"two known mistakes at once: {BOTH.join(pair)}"
        models = not {case.model["family"] for case in rest} <= self.right
        variation = find(
            chain(self.found, variations_of([observe(case) for case in early], models))
        )
        if variation is None:
            return self.combination(wrong) if is_round else ""
        self.found.append(variation)
        return str(variation)

    def simplest(self, failed: Sequence[int]) -> list[tuple[Case, Result]]:
        """Return a few cases that take few calls, of several families if there are, and their verdicts."""
        seen = Counter[str]()

        def key(pair: tuple[Case, Result]) -> tuple[int, int]:
            case = shorten(pair[0], pair[1].output)
            seen[case.model["family"]] += 1
            return seen[case.model["family"]], self.trials.effort(case)

        some = [(self.cases[i], self.results[i]) for i in failed]
        some = sorted(some, key=lambda pair: pair[0].model["d"])[: 4 * TRIED]
        return sorted(some, key=key)[:TRIED]

    def pair(
        self, failed: Sequence[tuple[Case, Result]], passed: Sequence[Case], end: float
    ) -> tuple[str, ...]:
        """Return two names that explain these rounds together, of those that no case here refutes."""
        early = [shorten(case, result.output) for case, result in failed]  # most pairs end here
        wrong = [*zip(early, failed), *((case, (case, result)) for case, result in failed)]
        refuted = {name for case in passed for name in case.catches}
        tried = dict.fromkeys(name for case, _ in failed for name in case.catches)
        paper, _, _ = failed[0][0].tag.partition(" ")
        own = [n for n in tried if MISTAKES[n].tag.startswith(f"{paper} ") and n not in refuted]

        def answer(case: Case, both: tuple[str, ...]) -> dict[str, Array]:
            work = partial(errata.answer_of_pair, names=both)
            return self.trials.answer(case, BOTH.join(both), work)

        for both in combinations(own, 2):
            if self.trials.left <= end:
                break
            if all(
                is_made(answer(x, both), r.outputs, x, self.dtype) for x, (_, r) in wrong
            ) and all(holds(answer(case, both), case, self.dtype) for case in passed[:TRIED]):
                return both
        return ()

    def other_input(self, first: Case, tests: Sequence[Test], end: float) -> str:
        """Return which other inputs have these answers, all that the cases do not tell apart, or ""."""
        others = dict[str, dict[str, Callable[[], dict[str, Any]]]]()

        def answer(case: Case, words: str) -> dict[str, Any]:
            key = f"{case.name} {len(case.inputs)}"
            known = others.get(key) or others.setdefault(key, dict(other_inputs(case)))
            work = known.get(words, lambda: dict(case.outputs))
            return self.trials.answer(case, words, lambda _: work())

        fits = [
            words
            for words, _ in other_inputs(first)
            if self.trials.left > end
            and all(test(answer(case, words), case) for test, case in tests)
        ]
        return f"it is the right answer where {' or '.join(fits)}" if fits else ""

    def combination(self, some: Sequence[tuple[Case, Result]]) -> str:
        """Return the combination of terms that these answers are, of those with the same wrong output."""
        output = some[0][1].output
        same = [(case, result.outputs[output]) for case, result in some if result.output == output]
        works = [partial(try_answer, shorten(case, output)) for case, _ in same]
        right = [case.outputs[output] for case, _ in same]
        known = [{"l2": case.model["l2"]} for case, _ in same]
        found = find_combination(works, [x for _, x in same], right, known)
        return str(found) if found and is_simple(found.terms.values()) else ""


def is_simple(coefficients: Collection[str]) -> bool:
    """Return whether a reader can follow these: at most one has a number in front, and none 1/x as well."""
    fronts = [c.removeprefix("-").partition("·")[0] for c in coefficients]
    odd = sum(c != "1" and c[0].isdigit() for c in fronts if c)
    return odd < 2 and not any("·1/" in c for c in coefficients)


def shorten(case: Case, output: str) -> Case:
    """Return a case of rounds up to the one of this output."""
    last, _, name = output.partition(".")
    return first_rounds(case, int(last) + 1) if case.call == "round" and name else case
