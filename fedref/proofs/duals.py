"""Dual numbers: every rule beside a derivative that uses f alone; what has no rule is refused. Tapes: the
same derivatives as dual numbers, of the first and second order.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import Report, dual_gradient, dual_hvp
from fedref.judge import tape
from fedref.judge.objective import Objective
from fedref.models.numerics import Array
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import FAMILIES, ONE, proof

A = np.arange(1.0, 13).reshape(3, 4) / 10
#: Functions of a vector w of four, analytic where each |w_i − (i + 1)/2| < 0.2; together they use every rule.
FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda w: (np.exp(-w) + np.log(w) * np.sqrt(w) - np.tanh(w) / w).sum(),
    lambda w: (2 - w) @ w + (1 / w).sum() + (3 * w + w * 2)[1] + 1,
    lambda w: (w**3).sum() + (w**-2 * w**w).sum() + (2**w).sum() + (w**0.5).sum() + (w**0).sum(),
    lambda w: np.where(w > 1.2, w**2, 1 / w)[w <= 1.7].sum() + np.where(w >= 0.7, 3, w)[w < 1.2].sum(),
    lambda w: (A @ w) @ (A @ w) + (A[:, 0] @ (A @ np.stack([w, w * w], 1))).sum() + w[:3] @ A @ w,
    lambda w: (w.reshape(2, 2) @ w.reshape(2, 2).T @ w[:2]).sum() + w.reshape((2, 2))[1].sum() ** 2,
    lambda w: (w.reshape(2, 2).sum(-1, keepdims=True) ** 2 * w[:2]).sum() + w.reshape(4, 1).sum(0)[0],
    lambda w: (w.reshape(2, 2).sum((0, 1)) ** 2 + w.reshape(2, 2).sum(1) @ w[2:]) * w.size,
    lambda w: (np.transpose(w.reshape(1, 2, 2), (2, 0, 1)) ** 2)[0, :, 1].sum() * w.ndim,
    lambda w: sum((x**3).sum() * (i + 1) for i, x in enumerate(np.split(w.reshape(2, 2), 2, axis=-1))),
    lambda w: (np.stack([w[0], 1.0, w[1] * w[2]]) ** 2)[[0, 1, 2, 2]].sum() + np.stack([w, w], -1)[3, 1],
    lambda w: (np.concatenate([w, A @ w, [1.0, 2]]) ** 3).sum() + (w[..., -1] * w[[0, 1, 1]]).sum(),
    lambda w: np.concatenate([w.reshape(2, 2), A[:2]], axis=-1)[0, 1] * w[w.argmax()] * w[np.argmax(-w)],
]  # fmt: skip
#: Functions that must raise, and what the error names.
REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (np.prod, "np.prod"), (lambda w: np.arctan(w).sum(), "np.arctan"), (np.add.reduce, "np.add.reduce"),
    (lambda w: w.item(), ".item"), (lambda w: w.imag.sum(), ".imag"), (lambda w: float(w[0]), "no float"),
    (lambda w: np.exp(w.real).sum(), "comparisons"), (lambda w: w.real.sum(), "comparisons"),
    (lambda w: np.array([w[0], 1]).sum(), "np.stack"), (lambda w: w.__iadd__(1), "z = z + x"),
    (lambda w: np.exp(w, dtype=float).sum(), "np.exp"), (lambda w: w, "of a number"),
    (lambda w: (np.eye(2) @ np.stack([w.reshape(2, 2)] * 2)).sum(), "more than a matrix"),
    (lambda w: spec.gradient(lambda u: (u * w).sum(), w)[0], "another gradient"),
    (lambda w: spec.gradient(lambda u: spec.gradient(lambda v: (v**4).sum(), u).sum(), w).sum(), "third"),
]  # fmt: skip


def cauchy(f: Callable[[Any], Any], w: Array, r: float = 0.05, n: int = 16) -> Array:
    """∇f(w) of an analytic f by Cauchy's formula: a mean over n points around w.

    Its error is (r/R)ⁿ, R the distance of the next singularity; what the radius r loses is one digit.
    """
    around = np.exp(2j * np.pi * np.arange(n) / n)
    return np.array([np.mean([f(w + r * z * e) / z for z in around]) / r for e in np.eye(w.size)])


def refuses(gradient: Any, f: Callable[[Any], Any], w: Array, words: str) -> bool:
    """Return whether a gradient of f raises an error with these words."""
    try:
        gradient(f, w)
    except (TypeError, AttributeError, ValueError) as error:
        return words in str(error)
    return False


@proof(
    "dual numbers",
    "∇f by every rule, at real and complex w = Cauchy's formula; no rule: refused",
    ONE,
)
def rules(c: Setting) -> Iterator[Report]:
    w = (np.arange(4) + 1) / 2 + 0.1 * c.rng.uniform(-1, 1, 4)
    for f in FUNCTIONS:
        for at in (w, w + 0.05j):
            yield equal(spec.gradient(f, at), cauchy(f, at))
    cubes = spec.gradient(lambda w: spec.gradient(lambda u: (u**3).sum(), w**2) @ w, w)
    yield equal(cubes, 15 * w**4)
    yield equal(spec.gradient(lambda w: 3.0, w), 0 * w, bound=0)
    for f, words in REFUSED:
        assert refuses(spec.gradient, f, w, words), f"dual numbers take {words} without a rule"


# ---- tapes -------------------------------------------------------------------------------------------

#: Functions with the rules that tapes have beyond the specification's.
MORE: list[Callable[[Any], Any]] = [
    lambda w: np.sum(np.sin(w) * np.cos(w)) + np.mean(np.square(+w)) + np.abs(w - 1.3).sum() ** 3,
    lambda w: np.expm1(np.maximum(w, 1.2)).sum() + (np.log1p(np.minimum(2 * w, 3.0)) ** 2).sum(),
    lambda w: np.linalg.norm(w - 0.1) ** 3 + np.logaddexp(w, 1).sum() + np.clip(w, 0.7, 1.7) @ w**3,
    lambda w: np.dot(A, w).mean() ** 3 + np.ravel(w.reshape(2, 2).T) @ w * w.mean(keepdims=True)[0],
    lambda w: (np.linalg.norm(w.reshape(2, 2), axis=1, keepdims=True) * w[:2]).mean(0).sum() ** 2,
    lambda w: np.var(w, ddof=1) * np.std(w.reshape(2, 2), 0) @ w[2:] + np.vdot(w, w) * np.vecdot(w, A[0]),
]  # fmt: skip


def slope_along(f: Callable[[Any], Any], v: Array) -> Callable[[Any], Any]:
    """Return w → ∇f(w)·v, by tapes."""
    return lambda w: tape.gradient(f, w) @ v


@proof("tapes", "∇f and ∇²f v by every rule = by dual numbers; no rule: refused", ONE)
def tape_rules(c: Setting) -> Iterator[Report]:
    w, v = (np.arange(4) + 1) / 2 + 0.1 * c.rng.uniform(-1, 1, (2, 4))
    for f in FUNCTIONS + MORE:
        yield equal(tape.gradient(f, w), dual_gradient(f, w))
        yield equal(tape.gradient(slope_along(f, v), w), dual_hvp(f, w, v))
        with tape.gradients():
            yield equal(spec.gradient(f, w), dual_gradient(f, w))
    twice = slope_along(slope_along(lambda w: (w**4).sum(), v), v)
    yield equal(tape.gradient(twice, w), 24 * w * v * v)
    outer = tape.gradient(lambda w: tape.gradient(lambda u: (u * w**2) @ u, w) @ w, w)
    yield equal(outer, 8 * w**3)
    yield equal(tape.gradient(lambda w: 3.0, w), 0 * w, bound=0)
    for f, words in REFUSED:
        if words not in ("comparisons", "another gradient", "third"):  # which a tape takes
            assert refuses(tape.gradient, f, w, words), f"a tape takes {words} without a rule"


@proof(
    "tapes",
    "∇ of expressions in f, with the model's own ∇f, ∇²f v and scores = by dual numbers",
    FAMILIES,
)
def tape_leaves(c: Setting) -> Iterator[Report]:
    S, Q, _ = c.real_rows
    mine, x, v = Objective(c.model), np.stack([c.w, 0.1 * c.h]), c.vs[0]

    def expressions(f: Any) -> list[Callable[[Any], Any]]:
        return [
            lambda w: f(w, S) + 0.5 * ((w - c.w0) ** 2).sum(),  # FedProx
            lambda w: f(0.3 * w + 0.7 * c.w0, Q) ** 2 - c.h @ w,
            lambda w: f(w - 0.1 * f.grad(w, S), Q),  # MAML
            lambda w: f.grad(w, S) @ v + (f.scores(w, Q.X) ** 2).sum(),
        ]

    for by_tape, by_duals in zip(expressions(mine), expressions(c.f)):
        yield equal(tape.gradient(by_tape, c.w), spec.gradient(by_duals, c.w))
    for function, *given in ((spec.meta_sgd, x, S, Q, 2), (spec.mas, c.w, S)):
        with tape.gradients():
            got = function(mine, *given)
        yield equal(got, function(c.f, *given))

    def twice(f: Any) -> list[Callable[[Any], Any]]:
        return [*expressions(f)[:2], lambda w: (f.scores(w, Q.X) ** 2).sum()]

    for by_tape, by_duals in zip(twice(mine), twice(c.f)):
        Hv = tape.gradient(slope_along(by_tape, v), c.w)
        yield equal(Hv, np.imag(spec.gradient(by_duals, c.w + 1e-200j * v)) / 1e-200)
    in_v = tape.gradient(lambda v: mine.hvp(c.w, v, S) @ c.h, v)
    yield equal(in_v, c.f.hvp(c.w, c.h, S))
