"""The proofs of FedNova."""

from collections.abc import Iterator

import numpy as np

from fedref import spec
from fedref.algorithm import Cohort, Server
from fedref.algorithms import fednova
from fedref.checks import Report
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import (
    SMALL,
    STEPS,
    ExpectedRound,
    Paper,
    TinyWorld,
    compare_rounds,
    one_model,
)
from fedref.proofs.table import ONE, proof


@proof("fednova alg.1", "d_k = the mean of ∇f_k along τ_k steps")
def fednova_change(c: Case) -> Iterator[Report]:
    w, gradients = c.w, []
    for D in c.real_rows:
        gradients.append(c.f.grad(w, D))
        w = w - 0.3 * gradients[-1]
    yield equal(fednova.normalised_change(c.w, w, tau=3, lr=0.3), np.mean(gradients, axis=0))


@proof("fednova alg.1", "with equal τ_k, w = Σ_k p_k w_k: FedAvg", ONE)
def fednova_equal(c: Case) -> Iterator[Report]:
    ends, tau = c.draw_vectors(3), np.array([4, 4, 4])
    d = np.stack([fednova.normalised_change(c.w, end, tau=4, lr=0.05) for end in ends])
    cohort = Cohort(np.arange(3), np.ones(3, int), np.array([1, 2, 5]), N=3)
    got = fednova.FedNova().combine(c.model, Server(c.w), fednova.Upload(d, tau), cohort)
    yield equal(got.w, np.average(ends, axis=0, weights=[1, 2, 5]))


# Rounds


def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
    for w in spec.fednova(world.f, world.w, world.rounds(), 0.3):
        yield ExpectedRound({"w": w}, one_model(w))


@proof("fednova alg.1", "4 rounds, clients of 1 to 8 steps = the specification", SMALL)
def fednova_rounds(c: Case) -> Iterator[Report]:
    yield from compare_rounds(c, fednova.FedNova(lr=0.3), Paper(rounds, drop=False))
    yield from compare_rounds(c, fednova.FedNova(lr=0.3), Paper(rounds, drop=False), STEPS)
