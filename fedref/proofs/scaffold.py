"""The equations of SCAFFOLD."""

from collections.abc import Iterator

import numpy as np

from fedref.algorithm import Cohort
from fedref.algorithms import scaffold
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.rounds import SMALL, STEPS, TRAIN, TinyWorld, run_rounds
from fedref.proofs.table import ONE, proof


@proof("scaffold alg.1", "c_i⁺ of option II = the mean of ∇f_i along K corrected steps")
def difference(c: Case) -> Iterator[Report]:
    (c_i, c_s), y, gradients = c.draw_vectors(2), c.w, []
    for D, real in zip((c.D, c.D1, c.D2), c.real_rows):
        gradients.append(c.f.grad(y, real))
        y = y - 0.3 * scaffold.corrected_gradient(c.model, y, c_i, c_s, D)
    yield equal(scaffold.difference(c_i, c_s, c.w, y, K=3, lr=0.3), np.mean(gradients, axis=0))


@proof("scaffold alg.1", "the server adds η_g mean Δy and (|S|/N) mean Δc", ONE)
def server(c: Case) -> Iterator[Report]:
    dy, dc = c.draw_vectors(3), c.draw_vectors(3)
    cohort = Cohort(np.arange(3), np.ones(3, int), np.array([1, 2, 5]), N=8)
    server = scaffold.ScaffoldServer(c.w, c.vs[0])
    algorithm = scaffold.Scaffold(server_lr=0.7)
    got = algorithm.combine(c.model, server, scaffold.Upload(dy, dc), cohort)
    yield equal(got.w, c.w + 0.7 * np.mean(dy, axis=0))
    yield equal(got.c, c.vs[0] + 3 / 8 * np.mean(dc, axis=0))


@proof(
    "scaffold alg.1",
    "after every round c = the mean of all N c_i, whichever clients took part",
    SMALL,
)
def mean(c: Case) -> Iterator[Report]:
    for state, *_ in run_rounds(TinyWorld(c, scaffold.Scaffold(lr=0.3), STEPS, 4)):
        yield equal(state.server.c, sum(own.c_i for own in state.clients.values()) / len(TRAIN))
