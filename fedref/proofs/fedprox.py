"""FedProx."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fedref.algorithms import fedavg, fedprox
from fedref.checks import Report, check_gradient, complex_step_gradient
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_grad
from fedref.proofs.table import ONE, proof


@proof("fedprox alg.2", "objective = oracle loss + (μ/2)‖w − wᵗ‖² by plain loops")
def fedprox_objective(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    expected = oracle.loss(c.model, c.w, c.D) + 0.35 * sum((a - b) ** 2 for a, b in zip(c.w, w0))
    yield equal(fedprox.objective(c.model, c.w, w0, c.D, mu=0.7), expected)


@proof("fedprox alg.2", "prox_gradient = complex step of objective")
def fedprox_gradient(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    yield check_gradient(
        lambda w: fedprox.objective(c.model, w, w0, c.D, mu=0.7),
        lambda w: fedprox.prox_gradient(c.model, w, w0, c.D, mu=0.7),
        c.w, c.vs,
    )  # fmt: skip


@proof("fedprox alg.2", "FedProx with μ = 0 = FedAvg, bit for bit")
def fedprox_mu_zero(c: Case) -> Iterator[Report]:
    clients = [[[c.D1], [c.D2]], [[c.D2], [c.D1]]]
    one, other = fedprox.FedProx(lr=0.3, mu=0.0), fedavg.FedAvg(lr=0.3)
    (got, _), (expected, _) = (one_round(algorithm, c, clients) for algorithm in (one, other))
    yield equal(got.w, expected.w, bound=0)


@proof("fedprox γ", "inexactness = ratio of norms of complex-step ∇h_k")
def fedprox_gamma(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    now, start = (
        complex_step_gradient(lambda w: fedprox.objective(c.model, w, w0, c.D, mu=0.7), w)
        for w in (c.w, w0)
    )
    got = fedprox.inexactness(c.model, c.w, w0, c.D, mu=0.7)
    yield equal(got, math.hypot(*now) / math.hypot(*start))
    yield equal(fedprox.inexactness(c.model, w0, w0, c.D, mu=0.7), 1.0)


@proof("fedprox B", "B and variance = plain loops over complex-step ∇F_k")
def fedprox_dissimilarity(c: Case) -> Iterator[Report]:
    p, gs = (3 / 8, 5 / 8), [slow_grad(c.model, c.w, D) for D in (c.D1, c.D2)]
    g = loop_sum(p, gs)
    got = fedprox.dissimilarity(c.model, c.w, [c.D1, c.D2])
    mean_square = sum(p_k * math.hypot(*g_k) ** 2 for p_k, g_k in zip(p, gs))
    yield equal(got.B, math.sqrt(mean_square) / math.hypot(*g))
    yield equal(got.variance, sum(p_k * math.hypot(*(g_k - g)) ** 2 for p_k, g_k in zip(p, gs)))


@proof("fedprox μ", "adapt_mu = +0.1 on a rise, −0.1 after 5 falls, by hand", ONE)
def fedprox_mu(c: Case) -> Iterator[Report]:
    moves = "+" + 10 * "-" + "=" + 4 * "-" + "=" + 10 * "-" + "+"
    losses = 100.0 + np.cumsum([0, *({"+": 1, "-": -1, "=": 0}[move] for move in moves)])
    by_hand = [
        0.35, *4 * [0.35], 0.25, *4 * [0.25], 0.15, 0.15, *4 * [0.15], 0.15,
        *4 * [0.15], 0.05, *4 * [0.05], 0.0, 0.1,
    ]  # fmt: skip
    mu, falls, got = 0.25, 0, []
    for before, loss in pairwise(losses.tolist()):
        mu, falls = fedprox.adapt_mu(mu, falls, before, loss)
        got.append(mu)
    yield equal(got, by_hand)
