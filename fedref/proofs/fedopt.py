"""The equations of FedAdagrad, FedYogi, FedAdam and FedAvgM."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm, Cohort
from fedref.algorithms import fedopt
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.table import ONE, proof


def server_steps(c: Case, algorithm: AnyAlgorithm) -> Iterator[tuple[Any, Any]]:
    """Yield the server's state and all Δ so far, after each of four rounds of random uploads."""
    server, deltas = algorithm.initial(c.model, c.w), list[Any]()
    cohort = Cohort(np.arange(2), np.ones(2, int), np.array([1, 3]), N=2)
    for _ in range(4):
        uploads = c.draw_vectors(2)
        deltas.append(uploads[0] / 4 + uploads[1] * 3 / 4 - server.w)
        server = algorithm.combine(c.model, server, uploads, cohort)
        yield server, deltas


@proof("fedopt alg.2", "m, and v of Adam and Adagrad = their sums over all rounds", ONE)
def moments(c: Case) -> Iterator[Report]:
    for algorithm, decay, gain in (
        (fedopt.FedAdam(lr=0.3), 0.99, 0.01),  # β₂, 1 − β₂
        (fedopt.FedAdagrad(lr=0.3), 1.0, 1.0),
    ):
        for server, deltas in server_steps(c, algorithm):
            ages = range(len(deltas))[::-1]
            m = sum(algorithm.beta1**s * d for s, d in zip(ages, deltas)) * (1 - algorithm.beta1)
            yield equal(server.m, m)
            squares = sum(decay**s * d**2 for s, d in zip(ages, deltas))
            yield equal(server.v, decay ** len(deltas) * 1e-3**2 + gain * squares)  # from τ²


@proof("fedopt alg.2", "v of Yogi moves towards Δ² by (1 − β₂)Δ², by hand", ONE)
def yogi(c: Case) -> Iterator[Report]:
    got = fedopt.yogi(np.ones(4), np.array([0.5, 2.0, 0.0, 1.0]), 0.9)
    yield equal(got, [1 - 0.1 * 0.25, 1 + 0.1 * 4, 1.0, 1.0])


@proof("fedopt fedavgm", "v = Σ_s βˢ Δ, and β = 0 is FedAvg", ONE)
def momentum(c: Case) -> Iterator[Report]:
    for beta in (0.9, 0.0):
        before = c.w
        for server, deltas in server_steps(c, fedopt.FedAvgM(momentum=beta)):
            v = sum(beta**s * d for s, d in zip(range(len(deltas))[::-1], deltas))
            yield equal(server.v, v)
            yield equal(server.w, before + v)
            before = server.w
