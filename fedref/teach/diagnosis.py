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
from fedref.teach import files
from fedref.teach.answers import Answers, N, Probe, answered, call, flat, probes
from fedref.teach.catalogue import EXERCISES, KINDS, SYMBOLS, Exercise

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
    """What fedref's own function answers to every probe."""
    exercise = EXERCISES[name]
    return {
        probe: flat(call(exercise.callable, probe.arguments(exercise)))
        for probe in probes(exercise)
    }


@cache
def effects(name: str) -> list[Mapping[Probe, Array]]:
    """For each term of the right line, what it adds to the answer to every probe."""
    exercise, right = EXERCISES[name], right_values(name)
    parts = terms(files.expression(exercise))
    found: list[Mapping[Probe, Array]] = []
    for left_out in parts:
        kept = [f"({term})" if term is not left_out else f"0 * ({term})" for term in parts]
        without = answered(files.code(exercise, " + ".join(kept)), exercise, "term", golden=False)
        assert isinstance(without, Answers), without
        found.append({probe: right[probe] - np.asarray(without.values[probe]) for probe in right})
    return found


def size(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def is_right(got: Array | str, want: Array) -> bool:
    return not isinstance(got, str) and size(got - want) <= EXACT * size(want)


def coefficients(exercise: Exercise, got: Array | str, probe: Probe) -> Array | None:
    """c with answer = Σ c_i · term_i, or None: the answer is no such sum."""
    if isinstance(got, str):
        return None
    error = got - right_values(exercise.name)[probe]
    columns = np.stack([effect[probe] for effect in effects(exercise.name)], 1)
    used = np.any(columns != 0, 0)
    c = np.ones(columns.shape[1])
    c[used] += np.linalg.lstsq(columns[:, used], error)[0]
    fits = size(columns @ (c - 1) - error) <= FITS * size(error)
    return c if fits else None


def multiples(exercise: Exercise, answers: Answers, situation: str) -> tuple[str, ...]:
    """The kinds of mistake that wrong factors before terms are, in one situation."""
    by_probe = {
        probe: coefficients(exercise, got, probe)
        for probe, got in answers.values.items()
        if probe.situation == situation
    }
    if any(c is None for c in by_probe.values()):
        return ()
    c = np.array(list(by_probe.values()))
    base = list(by_probe).index(Probe(situation))
    double = list(by_probe).index(Probe(situation, 2 * N))
    kinds = []
    for i, term in enumerate(terms(files.expression(exercise))):
        now, more = float(c[base, i]), float(c[double, i])
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


def slope(exercise: Exercise, answers: Answers, knob: str) -> float | None:
    """k where the error goes as the k-th power of a knob."""
    ends = []
    for probe in (Probe(), Probe(halved=knob)):
        got = answers.values[probe]
        if isinstance(got, str):
            return None
        ends.append(size(got - right_values(exercise.name)[probe]))
    return float(np.log2(ends[0] / ends[1])) if min(ends) > 0 else None


def kinds_of(exercise: Exercise, answers: Answers) -> tuple[str, ...]:
    """The kinds of mistake that explain all answers, or none."""
    right = right_values(exercise.name)
    hidden = {
        situation
        for situation in exercise.hides
        if all(
            is_right(got, right[p]) for p, got in answers.values.items() if p.situation == situation
        )
    }
    for situation, kind in exercise.hides.items():
        if situation in hidden and kind:
            return (kind,)
    found = multiples(exercise, answers, "")
    if found:
        return found
    for situation, kind in exercise.hides.items():  # two at once, or a factor that is no number
        found = multiples(exercise, answers, situation)
        if found and (kind or found == ("factor",)):
            return tuple(dict.fromkeys((*found, kind or "factor")))
    # a difference from one side only: its error falls as δ, where the right one's falls as δ²
    k = slope(exercise, answers, "delta") if "delta" in exercise.knobs else None
    return ("first order only",) if k is not None and abs(k - 1) < NEAR else ()


def diagnose(exercise: Exercise, answers: Answers) -> Verdict:
    """What a file's answers say of its line."""
    right = right_values(exercise.name)
    if all(is_right(got, right[probe]) for probe, got in answers.values.items()):
        return Verdict(True)
    kinds = kinds_of(exercise, answers)
    evidence = [KINDS[kind] for kind in kinds]
    said = [got for got in answers.values.values() if isinstance(got, str)]
    if said:
        evidence.append(said[0])
    general = answers.values[Probe()]
    if not isinstance(general, str):
        error = size(general - right[Probe()]) / size(right[Probe()])
        powers = [
            f"{SYMBOLS[knob]} to the power {round(k)}"
            for knob in exercise.knobs
            if (k := slope(exercise, answers, knob)) is not None
            and round(k)
            and abs(k - round(k)) < NEAR
        ]
        goes = f"; it goes as {' and '.join(powers)}" if powers else ""
        if error > EXACT:
            evidence.append(f"the error is {error:.2g} of the largest entry{goes}")
    return Verdict(False, kinds, tuple(evidence))
