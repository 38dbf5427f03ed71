"""The proofs of SCAFFOLD."""

from collections.abc import Iterator

import numpy as np

from fedref import spec
from fedref.algorithm import Cohort
from fedref.algorithms import scaffold
from fedref.checks import Report
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import (
    SMALL,
    STEPS,
    TRAIN,
    ExpectedRound,
    Paper,
    TinyWorld,
    compare_rounds,
    one_model,
    run_rounds,
)
from fedref.proofs.table import ONE, proof


@proof("scaffold alg.1", "c_i⁺ of option II = the mean of ∇f_i along K corrected steps")
def scaffold_difference(c: Case) -> Iterator[Report]:
    (c_i, c_s), y, gradients = c.draw_vectors(2), c.w, []
    for D, real in zip((c.D, c.D1, c.D2), c.real_rows):
        gradients.append(c.f.grad(y, real))
        y = y - 0.3 * scaffold.corrected_gradient(c.model, y, c_i, c_s, D)
    yield equal(scaffold.difference(c_i, c_s, c.w, y, K=3, lr=0.3), np.mean(gradients, axis=0))


@proof("scaffold alg.1", "the server adds η_g mean Δy and (|S|/N) mean Δc", ONE)
def scaffold_server(c: Case) -> Iterator[Report]:
    dy, dc = c.draw_vectors(3), c.draw_vectors(3)
    cohort = Cohort(np.arange(3), np.ones(3, int), np.array([1, 2, 5]), N=8)
    server = scaffold.ScaffoldServer(c.w, c.vs[0])
    algorithm = scaffold.Scaffold(server_lr=0.7)
    got = algorithm.combine(c.model, server, scaffold.Upload(dy, dc), cohort)
    yield equal(got.w, c.w + 0.7 * np.mean(dy, axis=0))
    yield equal(got.c, c.vs[0] + 3 / 8 * np.mean(dc, axis=0))


# Rounds


def paper(option: str = "II") -> Paper:
    """Return SCAFFOLD with η_l = 0.3, η_g = 0.9."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        run = spec.scaffold(world.f, world.w, world.rounds(), 0.3, len(TRAIN), 0.9, option)
        for x, c, own in run:
            yield ExpectedRound(
                {"w": x, "c": c}, one_model(x), {k: [c_i] for k, c_i in own.items()}
            )

    return Paper(rounds)


@proof("scaffold alg.1", "4 rounds, options I and II = the specification", SMALL)
def scaffold_rounds(c: Case) -> Iterator[Report]:
    for control, option in (("difference", "II"), ("gradient", "I")):
        algorithm = scaffold.Scaffold(lr=0.3, server_lr=0.9, control=control)
        yield from compare_rounds(c, algorithm, paper(option))
        yield from compare_rounds(c, algorithm, paper(option), STEPS)


@proof(
    "scaffold alg.1",
    "after every round c = the mean of all N c_i, whichever clients took part",
    SMALL,
)
def scaffold_mean(c: Case) -> Iterator[Report]:
    for state, _ in run_rounds(TinyWorld(c, paper(), STEPS, 4), scaffold.Scaffold(lr=0.3)):
        yield equal(state.server.c, sum(own.c_i for own in state.clients.values()) / len(TRAIN))
