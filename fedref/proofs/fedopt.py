"""The proofs of FedAdagrad, FedYogi, FedAdam and FedAvgM."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithm import AnyAlgorithm, Cohort
from fedref.algorithms import fedopt
from fedref.checks import Report
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import SMALL, ExpectedRound, Paper, TinyWorld, compare_rounds, one_model
from fedref.proofs.table import ONE, proof

SERVERS = {
    "fedadagrad": fedopt.FedAdagrad(lr=0.3),
    "fedyogi": fedopt.FedYogi(lr=0.3),
    "fedadam": fedopt.FedAdam(lr=0.3),
}


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
def fedopt_moments(c: Case) -> Iterator[Report]:
    for name in ("fedadam", "fedadagrad"):
        algorithm = SERVERS[name]
        for server, deltas in server_steps(c, algorithm):
            ages = range(len(deltas))[::-1]
            m = sum(algorithm.beta1**s * d for s, d in zip(ages, deltas)) * (1 - algorithm.beta1)
            yield equal(server.m, m)
            start, decay, gain = 1e-3**2, 0.99, 0.01  # τ², β₂, 1 − β₂
            if name == "fedadagrad":
                decay = gain = 1.0
            squares = sum(decay**s * d**2 for s, d in zip(ages, deltas))
            yield equal(server.v, decay ** len(deltas) * start + gain * squares)


@proof("fedopt alg.2", "v of Yogi moves towards Δ² by (1 − β₂)Δ², by hand", ONE)
def fedopt_yogi(c: Case) -> Iterator[Report]:
    delta = np.array([0.5, 2.0, 0.0, 1.0])
    got = fedopt.yogi(np.array([1.0, 1.0, 1.0, 1.0]), delta, 0.9)
    yield equal(got, [1 - 0.1 * 0.25, 1 + 0.1 * 4, 1.0, 1.0])


@proof("fedopt fedavgm", "v = Σ_s βˢ Δ, and β = 0 is FedAvg", ONE)
def fedavgm_momentum(c: Case) -> Iterator[Report]:
    for beta in (0.9, 0.0):
        before = c.w
        for server, deltas in server_steps(c, fedopt.FedAvgM(momentum=beta)):
            v = sum(beta**s * d for s, d in zip(range(len(deltas))[::-1], deltas))
            yield equal(server.v, v)
            yield equal(server.w, before + v)
            before = server.w


# Rounds


@proof("fedopt alg.2", "4 rounds of FedAdagrad, FedYogi, FedAdam = the specification", SMALL)
def fedopt_rounds(c: Case) -> Iterator[Report]:
    for name, algorithm in SERVERS.items():

        def rounds(
            world: TinyWorld, name: str = name, algorithm: Any = algorithm
        ) -> Iterator[ExpectedRound]:
            run = spec.fedopt(world.f, world.w, world.rounds(), 0.3, name, beta1=algorithm.beta1)
            for w, m, v in run:
                yield ExpectedRound({"w": w, "m": m, "v": v}, one_model(w))

        yield from compare_rounds(c, algorithm, Paper(rounds))


@proof("fedopt fedavgm", "4 rounds of FedAvgM = the specification", SMALL)
def fedavgm_rounds(c: Case) -> Iterator[Report]:
    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        for w, v in spec.fedavgm(world.f, world.w, world.rounds(), 0.3, 0.8):
            yield ExpectedRound({"w": w, "v": v}, one_model(w))

    yield from compare_rounds(c, fedopt.FedAvgM(lr=0.3, momentum=0.8), Paper(rounds))
