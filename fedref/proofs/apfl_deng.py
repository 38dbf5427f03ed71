"""The equations of the APFL of Deng, Kamani, Mahdavi."""

from collections.abc import Iterator

import numpy as np

from fedref import spec
from fedref.algorithm import Server
from fedref.algorithms import apfl_deng
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.table import proof


@proof(
    ("apfl-deng alg.1", "apfl-deng α"),
    "the gradients in v, with its factor α, and in α = complex steps of f_i(αv + (1 − α)w)",
)
def gradients(c: Case) -> Iterator[Report]:
    v, a = c.w + c.vs[0], np.array(0.3)
    got = apfl_deng.gradients(c.model, v, c.w, a, c.D)
    mixed = spec.gradients(lambda v, a: c.f(a * v + (1 - a) * c.w, c.real_rows[0]), (v, a))
    for mine, expected in zip(got, mixed):
        yield equal(mine, expected)


@proof("apfl-deng alg.1", "one step: w, v and α from the point before it; α in [0, 1]")
def step(c: Case) -> Iterator[Report]:
    w, v, D = c.w, c.w + c.vs[0], c.real_rows[0]
    g_v, g_a = spec.gradients(lambda v, a: c.f(a * v + (1 - a) * w, D), (v, np.array(0.3)))
    for lr in (0.3, 1e3, -1e3):  # α stays between 0 and 1, or is clipped at either end
        algorithm = apfl_deng.APFLDeng()
        object.__setattr__(algorithm, "lr", lr)
        got = algorithm.step(c.model, Server(w), apfl_deng.Local(w, v, np.array(0.3)), c.D)
        yield equal(got.w, w - lr * c.f.grad(w, D))
        yield equal(got.v, v - lr * g_v)
        # 0.3 and its step may cancel: the error beside 1, not beside what is left of them
        yield Report(float(abs(got.a - np.clip(0.3 - lr * g_a, 0, 1))))
