"""The proofs of FedProx."""

import math
from collections.abc import Iterator
from statistics import fmean as mean
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import fedavg, fedprox
from fedref.checks import Report, check_gradient, stack_equals_loop
from fedref.models import LinearSVM
from fedref.models.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import (
    EPOCHS,
    SMALL,
    STEPS,
    ExpectedRound,
    Paper,
    TinyWorld,
    compare_models,
    compare_rounds,
    one_model,
)
from fedref.proofs.table import ONE, proof


@proof("fedprox alg.2", "objective = the specification's loss + (μ/2)‖w − wᵗ‖²")
def fedprox_objective(c: Case) -> Iterator[Report]:
    w0 = c.draw_vector()
    expected = c.f(c.w, c.real_rows[0]) + 0.35 * sum((a - b) ** 2 for a, b in zip(c.w, w0))
    yield equal(fedprox.objective(c.model, c.w, w0, c.D, mu=0.7), expected)
    stacks = c.draw_vectors(7), c.draw_vectors(7)
    yield stack_equals_loop(lambda w, w0: fedprox.objective(c.model, w, w0, c.D, mu=0.7), *stacks)


@proof("fedprox alg.2", "prox_gradient = complex step of objective")
def fedprox_gradient(c: Case) -> Iterator[Report]:
    w0 = c.draw_vector()
    yield check_gradient(
        lambda w: fedprox.objective(c.model, w, w0, c.D, mu=0.7),
        lambda w: fedprox.prox_gradient(c.model, w, w0, c.D, mu=0.7),
        c.w, c.vs,
    )  # fmt: skip


@proof("fedprox B", "B and variance = the specification over complex-step ∇F_k")
def fedprox_dissimilarity(c: Case) -> Iterator[Report]:
    for Ds, rows in (
        ([c.D1, c.D2], c.real_rows[1:]),
        ([c.D._replace(s=2 * c.s), c.D2], (c.real_rows[0], c.real_rows[2])),  # n_k by weights
    ):
        got = fedprox.dissimilarity(c.model, c.w, Ds)
        yield equal(got, spec.dissimilarity(c.f, c.w, rows))


@proof("fedprox B", "where f or F_k is stationary: B = ∞, or 1 if all are", [LinearSVM(4)])
def fedprox_stationary(c: Case) -> Iterator[Report]:
    far, near = c.D1._replace(y=np.ones(3, int)), c.D1._replace(y=-np.ones(3, int))
    w = np.zeros(5)  # ∇F_k is −(the mean of yx), and here of both signs
    got = fedprox.dissimilarity(c.model, w, [far, near])
    g = c.f.grad(w, oracle.real_rows(far))
    assert math.inf == got.B
    yield equal(got.variance, math.hypot(*g) ** 2)
    w = np.array([0, 0, 0, 0, 2.0])  # all margins above 1
    got = fedprox.dissimilarity(c.model, w, [far, far])
    yield equal([got.B, got.variance], [1, 0], bound=0)


@proof("fedprox γ", "where wᵗ is stationary: γ = 0 at wᵗ, ∞ elsewhere", [LinearSVM(4)])
def fedprox_gamma_stationary(c: Case) -> Iterator[Report]:
    D = c.D1._replace(y=np.ones(3, int))
    w0 = np.array([0, 0, 0, 0, 9.0])
    with np.errstate(all="raise"):  # nothing is divided by 0 on the way
        yield equal(fedprox.inexactness(c.model, w0, w0, D, mu=0.7), 0, bound=0)
        assert fedprox.inexactness(c.model, w0 + c.vs[0], w0, D, mu=0.7) == math.inf


@proof("fedprox μ", "FedProx.observe_loss = +0.1 on a rise, −0.1 after 5 falls, by hand", ONE)
def fedprox_mu(c: Case) -> Iterator[Report]:
    moves = "+" + 10 * "-" + "=" + 4 * "-" + "=" + 10 * "-" + "+"
    losses = 100.0 + np.cumsum([0, *({"+": 1, "-": -1, "=": 0}[move] for move in moves)])
    by_hand = [
        0.25, 0.35, *4 * [0.35], 0.25, *4 * [0.25], 0.15, 0.15, *4 * [0.15], 0.15,
        *4 * [0.15], 0.05, *4 * [0.05], 0.0, 0.1,
    ]  # fmt: skip
    for adaptive, expected in ((True, by_hand), (False, [0.25] * len(by_hand))):
        algorithm = fedprox.FedProx(mu=0.25, adaptive_mu=adaptive)
        server, got = algorithm.initial(c.model, c.w), []
        for loss in losses.tolist():
            server = algorithm.observe_loss(server, loss)
            got.append(algorithm.download(server).mu)
        yield equal(got, expected)
        assert algorithm.watches_loss == adaptive  # a loss that nobody needs is not evaluated


@proof(
    "fedprox γ",
    "inexactness = ratio of norms of ∇h_k; FedProx.stop where it is ≤ `until_gamma`",
    ONE,
)
def fedprox_stop(c: Case) -> Iterator[Report]:
    w0 = c.draw_vector()
    now, start = (spec.prox_gradient(c.f, w, w0, c.real_rows[0], 0.7) for w in (c.w, w0))
    gamma = float(fedprox.inexactness(c.model, c.w, w0, c.D, mu=0.7))
    yield equal(gamma, math.hypot(*now) / math.hypot(*start))
    sent = fedprox.ProxSent(w0, 0.7)
    for until, stops in ((0.99 * gamma, False), (gamma, True), (1.01 * gamma, True)):
        algorithm = fedprox.FedProx(until_gamma=until)
        assert algorithm.stop(c.model, sent, c.w, lambda: c.D) is stops
    stacks = c.draw_vectors(7), c.draw_vectors(7)
    yield stack_equals_loop(lambda w, w0: fedprox.inexactness(c.model, w, w0, c.D, mu=0.7), *stacks)


# Rounds


def paper(
    mu: float,
    weights: Any = spec.sample_weights,
    lr: float = 0.3,
    adaptive: bool = False,
    gamma: float = 0.0,
    measure_gamma: bool = True,
    drop: bool = False,
) -> Paper:
    """Return FedProx. adaptive : μ follows the training loss."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        def train_loss(w: Array) -> float:
            return world.train_loss(lambda k: w)

        observed = train_loss if adaptive else None
        at = world.f, world.w, world.rounds(), lr, mu, gamma, observed, weights
        for w, mu_t, gammas, penalties in spec.fedprox(*at):
            measured = {"gamma": mean(gammas)} if measure_gamma else {}
            measured |= {"penalty": mean(penalties), "mu": mu_t}
            yield ExpectedRound({"w": w, "mu": mu_t}, one_model(w), measured=measured)

    return Paper(rounds, drop)


@proof(
    "fedprox alg.2",
    "4 rounds of FedProx, μ = 0.7, stragglers kept or dropped = the specification",
    SMALL,
)
def fedprox_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        yield from compare_rounds(c, fedprox.FedProx(lr=0.3, mu=0.7), paper(0.7), sampling)
    algorithm = fedprox.FedProx(
        lr=0.3, mu=0.7, weighting="uniform", drop=True, measure_gamma=False
    )  # fmt: skip
    yield from compare_rounds(
        c, algorithm, paper(0.7, spec.uniform_weights, measure_gamma=False, drop=True)
    )


@proof("fedprox alg.2", "4 rounds of FedProx with μ = 0 = FedAvg, bit for bit", SMALL)
def fedprox_mu_zero(c: Case) -> Iterator[Report]:
    one, other = fedprox.FedProx(lr=0.3, mu=0.0), fedavg.FedAvg(lr=0.3, drop=False)
    yield from compare_models(c, paper(0.0), one, other)


@proof("fedprox μ", "8 rounds of FedProx with adaptive μ = the specification", SMALL[:1])
def fedprox_mu_rounds(c: Case) -> Iterator[Report]:
    algorithm = fedprox.FedProx(lr=0.02, mu=0.15, adaptive_mu=True)
    yield from compare_rounds(c, algorithm, paper(0.15, lr=0.02, adaptive=True), rounds=8)


@proof("fedprox γ", "4 rounds of FedProx until γ = the specification", SMALL)
def fedprox_gamma_rounds(c: Case) -> Iterator[Report]:
    algorithm = fedprox.FedProx(lr=0.3, mu=0.7, until_gamma=0.6)
    yield from compare_rounds(c, algorithm, paper(0.7, gamma=0.6))
