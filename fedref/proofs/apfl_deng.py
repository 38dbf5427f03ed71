"""The APFL of Deng, Kamani, Mahdavi."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithm import Server
from fedref.algorithms import apfl_deng
from fedref.checks import Report
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import SMALL, STEPS, ExpectedRound, Paper, TinyWorld, compare_rounds
from fedref.proofs.table import proof


@proof(
    "apfl-deng alg.1", "the gradient in v, with its factor α = complex step of f_i(αv + (1 − α)w)"
)
@proof("apfl-deng α", "the gradient in α = complex step of f_i(αv + (1 − α)w)")
def apfl_deng_gradients(c: Case) -> Iterator[Report]:
    v, a = c.w + c.vs[0], np.array(0.3)
    got = apfl_deng.gradients(c.model, v, c.w, a, c.D)
    mixed = spec.gradients(lambda v, a: c.f(a * v + (1 - a) * c.w, c.real_rows[0]), (v, a))
    for mine, expected in zip(got, mixed):
        yield equal(mine, expected)


@proof("apfl-deng alg.1", "one step: w, v and α from the point before it; α in [0, 1]")
def apfl_deng_step(c: Case) -> Iterator[Report]:
    w, v, D = c.w, c.w + c.vs[0], c.real_rows[0]
    for lr in (0.3, 1e3, -1e3):  # α stays between 0 and 1, or is clipped at either end
        algorithm = apfl_deng.APFLDeng()
        object.__setattr__(algorithm, "lr", lr)
        local = apfl_deng.Local(w, v, np.array(0.3))
        got = algorithm.step(c.model, Server(w), local, c.D)
        g_v, g_a = spec.gradients(lambda v, a: c.f(a * v + (1 - a) * w, D), (v, np.array(0.3)))
        yield equal(got.w, w - lr * c.f.grad(w, D))
        yield equal(got.v, v - lr * g_v)
        yield equal(got.a, np.clip(0.3 - lr * g_a, 0, 1))


# Rounds


def model_of(w: Array, own: Any, k: int | None, D: object) -> Array:
    """Return v̄ of client k; w for one that has not taken part."""
    v, a = own.get(k, (w, 0.0))
    return np.asarray(a * v + (1 - a) * w)


def paper(adaptive: bool = True) -> Paper:
    """Return the paper's rounds with η = 0.3, α = 0.4."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        for w, own in spec.apfl_deng(world.f, world.w, world.rounds(), 0.3, 0.4, adaptive):
            yield ExpectedRound({"w": w}, partial(model_of, w, own), own)

    return Paper(rounds)


@proof("apfl-deng alg.1", "4 rounds, α adapted and fixed = the specification", SMALL)
def apfl_deng_rounds(c: Case) -> Iterator[Report]:
    for adaptive in (True, False):
        algorithm = apfl_deng.APFLDeng(lr=0.3, alpha=0.4, adaptive_alpha=adaptive)
        yield from compare_rounds(c, algorithm, paper(adaptive))
        yield from compare_rounds(c, algorithm, paper(adaptive), STEPS)
