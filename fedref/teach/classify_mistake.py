"""The kind of mistake, read off the error.

A line is a sum of terms. What a term does to the result is measured by leaving it out of the right
line, so an error that is a multiple of that is a wrong factor (−1: a sign; 0: a term that is missing;
in proportion to the number of samples or clients: a mean for a sum). A mistake that vanishes in a
situation made for it, such as equal batches or a symmetric matrix, is of the kind that this
situation hides. How an error shrinks with α or δ tells the order of what is missing.
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from fedref.models.numerics import Array
from fedref.teach import template
from fedref.teach.catalogue import EXERCISES, KINDS, SYMBOLS, Exercise
from fedref.teach.run_solution import Answers, N, Probe, answer_all, probes, right_answer

#: Relative error of a right line, and of a fit; the former is rounding.
EXACT, FITS = 1e-9, 1e-6
#: By how much a measured slope may differ from a whole number.
NEAR = 0.2


class Verdict(NamedTuple):
    """right, or which kinds of mistake there are, and the evidence, a line each."""

    right: bool
    kinds: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


def terms(node: ast.expr) -> list[str]:
    """The terms of an expression, products and quotients of sums multiplied out."""
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


@cache
def right_values(name: str) -> Mapping[Probe, Array]:
    """Return what fedref's own function answers to every probe."""
    exercise = EXERCISES[name]
    return {probe: right_answer(exercise, probe) for probe in probes(exercise)}


@cache
def effects(name: str) -> list[Mapping[Probe, Array]]:
    """Return, for each term of the right line, what it adds to the answer to every probe."""
    exercise, right = EXERCISES[name], right_values(name)
    parts = terms(template.missing_line(exercise).value)
    effects: list[Mapping[Probe, Array]] = []
    for left_out in parts:
        kept = [f"({term})" if term is not left_out else f"0 * ({term})" for term in parts]
        text = template.code(exercise, " + ".join(kept))
        without = answer_all(text, exercise, "term")
        assert isinstance(without, Answers), without
        effects.append({probe: right[probe] - np.asarray(without.values[probe]) for probe in right})
    return effects


def largest(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def agree(got: Array | str, wanted: Array) -> bool:
    return not isinstance(got, str) and largest(got - wanted) <= EXACT * largest(wanted)


def fit_factors(exercise: Exercise, got: Array | str, probe: Probe) -> Array | None:
    """Return c with answer = Σ c_i · term_i, or None: the answer is no such sum."""
    if isinstance(got, str):
        return None
    error = got - right_values(exercise.name)[probe]
    columns = np.stack([effect[probe] for effect in effects(exercise.name)], 1)
    used = np.any(columns != 0, 0)
    c = np.ones(columns.shape[1])
    c[used] += np.linalg.lstsq(columns[:, used], error)[0]
    return c if largest(columns @ (c - 1) - error) <= FITS * largest(error) else None


def wrong_factors(exercise: Exercise, answers: Answers, situation: str) -> tuple[str, ...]:
    """Return the kinds of mistake that wrong factors before terms are, in one situation."""
    factors = {
        probe: fit_factors(exercise, got, probe)
        for probe, got in answers.values.items()
        if probe.situation == situation
    }
    if any(c is None for c in factors.values()):
        return ()
    c = np.array(list(factors.values()))
    first, doubled = (list(factors).index(Probe(situation, n)) for n in (N, 2 * N))
    kinds = []
    for i, term in enumerate(terms(template.missing_line(exercise).value)):
        now, more = float(c[first, i]), float(c[doubled, i])
        if np.all(np.abs(c[:, i]) < FITS):
            kinds.append("first order only" if "hvp" in term else "missing term")
            continue
        if np.all(c[:, i] < 0):
            kinds.append("sign")
        if abs(abs(now) - 1) > FITS or abs(abs(more) - 1) > FITS:
            ratio = abs(more / now) if now else 0.0
            scales = min(abs(ratio - 2), abs(ratio - 0.5)) < FITS
            kinds.append("mean for sum" if scales else "factor")
    return tuple(dict.fromkeys(kinds))


def error_order(exercise: Exercise, answers: Answers, knob: str) -> float | None:
    """Return k where the error goes as the k-th power of a knob."""
    errors = []
    for probe in (Probe(), Probe(halved=knob)):
        got = answers.values[probe]
        if isinstance(got, str):
            return None
        errors.append(largest(got - right_values(exercise.name)[probe]))
    return float(np.log2(errors[0] / errors[1])) if min(errors) > 0 else None


def kinds_of(exercise: Exercise, answers: Answers) -> tuple[str, ...]:
    """Return the kinds of mistake that explain all answers, or none."""
    right = right_values(exercise.name)
    for situation, kind in exercise.hides.items():
        probes = [probe for probe in answers.values if probe.situation == situation]
        if kind and all(agree(answers.values[probe], right[probe]) for probe in probes):
            return (kind,)
    if kinds := wrong_factors(exercise, answers, ""):
        return kinds
    for situation, kind in exercise.hides.items():  # two at once, or a factor that is no number
        kinds = wrong_factors(exercise, answers, situation)
        if kinds and (kind or kinds == ("factor",)):
            return tuple(dict.fromkeys((*kinds, kind or "factor")))
    for expression, kind in exercise.slips.items():
        slip = answer_all(template.code(exercise, expression), exercise, "slip")
        assert isinstance(slip, Answers), slip
        pairs = zip(answers.values.values(), slip.values.values())
        if all(agree(got, np.asarray(wrong)) for got, wrong in pairs):
            return (kind,)
    # a difference from one side only: its error falls as δ, where the right one's falls as δ²
    k = error_order(exercise, answers, "delta") if "delta" in exercise.knobs else None
    return ("first order only",) if k is not None and abs(k - 1) < NEAR else ()


def classify_mistake(exercise: Exercise, answers: Answers) -> Verdict:
    """Return what a file's answers say of its line."""
    right = right_values(exercise.name)
    if all(agree(got, right[probe]) for probe, got in answers.values.items()):
        return Verdict(True)
    kinds = kinds_of(exercise, answers)
    evidence = [KINDS[kind] for kind in kinds]
    evidence += [got for got in answers.values.values() if isinstance(got, str)][:1]
    general = answers.values[Probe()]
    if not isinstance(general, str):
        error = largest(general - right[Probe()]) / largest(right[Probe()])
        orders = {knob: error_order(exercise, answers, knob) for knob in exercise.knobs}
        powers = [
            f"{SYMBOLS[knob]} to the power {round(k)}"
            for knob, k in orders.items()
            if k is not None and round(k) and abs(k - round(k)) < NEAR
        ]
        goes = f"; it goes as {' and '.join(powers)}" if powers else ""
        if error > EXACT:
            evidence.append(f"the error is {error:.2g} of the largest entry{goes}")
    return Verdict(False, kinds, tuple(evidence))
