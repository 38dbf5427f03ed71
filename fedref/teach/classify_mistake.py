"""The kind of mistake, found from what a wrong line computes.

A line is a sum of terms. What a term adds to the result is measured by leaving it out of the line. An
answer that is the same sum with other factors has a wrong factor (−1: a wrong sign; 0: a missing term;
in proportion to the number of samples or clients: a mean for a sum). If no factors explain it as the
right line, they may explain it as one of the known wrong lines of the exercise (`Exercise.slips`).
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from fedref.models.numerics import Array
from fedref.teach import template
from fedref.teach.catalogue import EXERCISES, KINDS, Exercise
from fedref.teach.run_solution import PROBES, Answers, answer_all, right_answer

#: The largest relative error of a right line, and of a fit; the former is rounding.
EXACT, FITS = 1e-9, 1e-6


class Verdict(NamedTuple):
    """Whether a file is right, or else its kinds of mistake, and the evidence, one line for each."""

    right: bool
    kinds: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


def terms(node: ast.expr) -> list[str]:
    """Return the terms of an expression, with products and quotients of sums multiplied out."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return terms(left) + terms(right)
        case ast.BinOp(left, ast.Sub(), right):
            return terms(left) + [f"-({term})" for term in terms(right)]
        case ast.BinOp(left, ast.Mult(), right):
            return [f"({a}) * ({b})" for a in terms(left) for b in terms(right)]
        case ast.BinOp(left, ast.Div(), right):
            return [f"({a}) / ({ast.unparse(right)})" for a in terms(left)]
        case ast.UnaryOp(ast.USub(), operand):
            return [f"-({term})" for term in terms(operand)]
    return [ast.unparse(node)]


def terms_of(line: str) -> list[str]:
    return terms(ast.parse(line, mode="eval").body)


@cache
def measure(name: str, line: str) -> list[Answers]:
    """Return the answers of a line in that exercise, then its answers without each of its terms."""
    parts = terms_of(line)
    lines = [line]
    for left_out in parts:
        kept = (f"({term})" if term is not left_out else f"0 * ({term})" for term in parts)
        lines.append(" + ".join(kept))
    made = []
    for text in lines:
        answers = answer_all(template.code(EXERCISES[name], text), EXERCISES[name], "term")
        assert not isinstance(answers, str), answers
        made.append(answers)
    return made


def largest(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def agree(got: Array | str, wanted: Array) -> bool:
    return not isinstance(got, str) and largest(got - wanted) <= EXACT * largest(wanted)


def fit_factors(answers: Answers, line: Answers, without: list[Answers]) -> dict[int, Array] | None:
    """Return, by probe, the c with answer = Σ c_i · term_i; None if the answers are no such sums.

    Where the line itself gives no numbers, as two shapes do not fit, the answer must give none either.
    """
    factors = {}
    for probe in PROBES[:-1]:  # in the last one a line may run twice, which multiplies its factors
        got, whole = answers[probe], line[probe]
        if isinstance(got, str) or isinstance(whole, str):
            if type(got) is not type(whole):
                return None
            continue
        error = got - whole
        columns = np.stack([whole - np.asarray(less[probe]) for less in without], 1)
        used = np.any(columns != 0, 0)
        c = np.ones(columns.shape[1])
        c[used] += np.linalg.lstsq(columns[:, used], error)[0]
        rest = largest(columns @ (c - 1) - error)
        if rest > FITS * largest(error) and rest > EXACT * largest(got):
            return None
        factors[probe] = c
    return factors or None


def kinds_of_factors(line: str, factors: Mapping[int, Array]) -> list[str]:
    """Return the kinds of mistake that these factors before the terms of a line amount to."""
    c = np.array(list(factors.values()))
    kinds = []
    for term, column in zip(terms_of(line), c.T):
        now, more = column[:2]
        if np.all(np.abs(column) < FITS):
            kinds.append("first order only" if "hvp" in term else "missing term")
            continue
        if np.all(column < 0):
            kinds.append("sign")
        if abs(abs(now) - 1) > FITS or abs(abs(more) - 1) > FITS:
            ratio = abs(more / now) if now else 0.0
            scales = min(abs(ratio - 2), abs(ratio - 0.5)) < FITS
            kinds.append("mean for sum" if scales else "factor")
    return kinds


def kinds_of(exercise: Exercise, answers: Answers) -> tuple[str, ...]:
    """Return the kinds of mistake that explain all answers, or none."""
    right = ast.unparse(template.missing_line(exercise).value)
    for line, kind in {right: "", **exercise.slips}.items():
        whole, *without = measure(exercise.name, line)
        factors = fit_factors(answers, whole, without)
        if factors is not None:
            kinds = [*kinds_of_factors(line, factors), kind]
            return tuple(dict.fromkeys(filter(None, kinds)))
    return ()


def classify_mistake(exercise: Exercise, answers: Answers) -> Verdict:
    """Return the verdict on a file's line from the file's answers."""
    right = {probe: right_answer(exercise, probe) for probe in PROBES}
    if all(agree(got, right[probe]) for probe, got in answers.items()):
        return Verdict(True)
    kinds = kinds_of(exercise, answers)
    evidence = [KINDS[kind] for kind in kinds]
    evidence += [got for got in answers.values() if isinstance(got, str)][:1]
    first, wanted = answers[PROBES[0]], right[PROBES[0]]
    if not isinstance(first, str) and not agree(first, wanted):
        error = largest(first - wanted) / largest(wanted)
        evidence.append(f"the error is {error:.2g} of the largest entry")
    return Verdict(False, kinds, tuple(evidence))
