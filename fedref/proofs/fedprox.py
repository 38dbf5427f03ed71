"""The equations of FedProx."""

import math
from collections.abc import Iterator

import numpy as np

from fedref import spec
from fedref.algorithms import fedprox
from fedref.checks import Report, stack_equals_loop
from fedref.models import LinearSVM
from fedref.proofs.case import Case, equal
from fedref.proofs.table import ONE, proof


@proof("fedprox alg.2", "objective, prox_gradient = the specification's, by complex steps")
def penalty(c: Case) -> Iterator[Report]:
    w0, D = c.draw_vector(), c.real_rows[0]
    expected = c.f(c.w, D) + 0.35 * ((c.w - w0) ** 2).sum()
    yield equal(fedprox.objective(c.model, c.w, w0, c.D, mu=0.7), expected)
    got = fedprox.prox_gradient(c.model, c.w, w0, c.D, mu=0.7)
    yield equal(got, spec.prox_gradient(c.f, c.w, w0, D, 0.7))
    stacks = c.draw_vectors(7), c.draw_vectors(7)
    yield stack_equals_loop(lambda w, w0: fedprox.objective(c.model, w, w0, c.D, mu=0.7), *stacks)


@proof("fedprox B", "B and variance = the specification over complex-step ∇F_k")
def dissimilarity(c: Case) -> Iterator[Report]:
    weighted = c.D._replace(s=2 * c.s)  # n_k by weights
    for Ds, rows in (
        ([c.D1, c.D2], c.real_rows[1:]),
        ([weighted, c.D2], (c.real_rows[0], c.real_rows[2])),
    ):
        got = fedprox.dissimilarity(c.model, c.w, Ds)
        yield equal(got, spec.dissimilarity(c.f, c.w, rows))


@proof("fedprox B", "where f or F_k is stationary: B = ∞, or 1 if all are", [LinearSVM(4)])
def stationary(c: Case) -> Iterator[Report]:
    far, near = (c.D1._replace(y=np.full(3, label)) for label in (1, -1))
    got = fedprox.dissimilarity(c.model, np.zeros(5), [far, near])
    assert math.inf == got.B
    yield equal(got.variance, np.sum(c.f.grad(np.zeros(5), spec.Batch(*far[:2])) ** 2))
    w = np.array([0, 0, 0, 0, 2.0])  # all margins above 1
    yield equal(fedprox.dissimilarity(c.model, w, [far, far]), [1, 0], bound=0)


@proof("fedprox γ", "where wᵗ is stationary: γ = 0 at wᵗ, ∞ elsewhere", [LinearSVM(4)])
def gamma_where_stationary(c: Case) -> Iterator[Report]:
    far, w0 = c.D1._replace(y=np.ones(3, int)), np.array([0, 0, 0, 0, 9.0])
    with np.errstate(all="raise"):  # nothing is divided by 0 on the way
        yield equal(fedprox.inexactness(c.model, w0, w0, far, mu=0.7), 0, bound=0)
        assert fedprox.inexactness(c.model, w0 + c.vs[0], w0, far, mu=0.7) == math.inf


@proof(
    "fedprox γ",
    "inexactness = ratio of norms of ∇h_k; FedProx.stop where it is ≤ `until_gamma`",
    ONE,
)
def inexactness(c: Case) -> Iterator[Report]:
    w0 = c.draw_vector()
    now, start = (spec.prox_gradient(c.f, w, w0, c.real_rows[0], 0.7) for w in (c.w, w0))
    gamma = float(fedprox.inexactness(c.model, c.w, w0, c.D, mu=0.7))
    yield equal(gamma, math.hypot(*now) / math.hypot(*start))
    for until, stops in ((0.99 * gamma, False), (gamma, True), (1.01 * gamma, True)):
        algorithm = fedprox.FedProx(until_gamma=until)
        assert algorithm.stop(c.model, fedprox.ProxSent(w0, 0.7), c.w, lambda: c.D) is stops
    stacks = c.draw_vectors(7), c.draw_vectors(7)
    yield stack_equals_loop(lambda w, w0: fedprox.inexactness(c.model, w, w0, c.D, mu=0.7), *stacks)


@proof("fedprox μ", "adapt_mu, observe_loss = the specification over 60 losses, and as said", ONE)
def adaptive_mu(c: Case) -> Iterator[Report]:
    moves = [*c.rng.choice([-1.0, -1.0, -1.0, -1.0, 0.0, 1.0], 40), *20 * [-1.0]]
    losses = 100.0 + np.cumsum(moves)
    for adaptive in (True, False):
        algorithm = fedprox.FedProx(mu=0.25, adaptive_mu=adaptive)
        server = algorithm.initial(c.model, c.w)
        mu, falls, before = 0.25, 0, math.nan
        for loss in losses.tolist():
            ours = fedprox.adapt_mu(mu, falls, before, loss)
            server = algorithm.observe_loss(server, loss)
            if adaptive:
                (mu, falls), before = spec.adapt_mu(mu, falls, before, loss), loss
                yield equal(ours, [mu, falls])
            yield equal(algorithm.download(server).mu, mu)
        assert algorithm.watches_loss == adaptive  # a loss that nobody needs is not evaluated
    for falls, change, expected in (
        (4, -1, (0.2, 0)), (3, -1, (0.3, 4)), (4, 0, (0.3, 0)), (3, 1, (0.4, 0)),
    ):  # fmt: skip
        yield equal(spec.adapt_mu(0.3, falls, 7.0, 7.0 + change), expected)
    yield equal(spec.adapt_mu(0.05, 4, 7.0, 6.0), (0, 0), bound=0)
