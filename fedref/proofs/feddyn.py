"""The equations of FedDyn."""

from collections.abc import Iterator

import numpy as np

from fedref.algorithms import feddyn
from fedref.checks import Report
from fedref.models.batch import Batch
from fedref.proofs.case import Case, equal
from fedref.proofs.rounds import SMALL, STEPS, TRAIN, TinyWorld, run_rounds
from fedref.proofs.table import ONE, proof


@proof("feddyn objective", "gradient = complex step of L_k(θ) − ⟨h_k, θ⟩ + (α/2)‖θ − θᵗ‖²")
def gradient(c: Case) -> Iterator[Report]:
    w0, h_k = c.draw_vectors(2)
    yield c.slope_of(
        lambda w: c.model.loss(w, c.D) - (h_k * w).sum() + 0.35 * ((w - w0) ** 2).sum(),
        feddyn.gradient(c.model, c.w, w0, h_k, c.D, alpha=0.7),
    )
    two = np.stack([c.w, c.w + c.vs[0]])  # leading axes
    D = Batch(*(np.stack([x, x]) for x in (c.D.X, c.D.y, c.s)))
    each = [c.f(w, c.real_rows[0]) - h_k @ w + 0.35 * np.sum((w - w0) ** 2) for w in two]
    yield equal(feddyn.objective(c.model, two, w0, h_k, D, alpha=0.7), each)


@proof("feddyn alg.1", "where θ_k minimises the local objective, h_k⁺ = ∇L_k(θ_k)", ONE)
def minimum(c: Case) -> Iterator[Report]:
    (h_k,), theta = c.draw_vectors(1), c.w
    for _ in range(200):
        theta = theta - 0.3 * feddyn.gradient(c.model, theta, c.w, h_k, c.D, alpha=1.0)
    got = feddyn.renewed_gradient(h_k, theta, c.w, alpha=1.0)
    yield equal(got, c.f.grad(theta, c.real_rows[0]))


@proof(
    "feddyn alg.1",
    "after every round h = the mean of all N h_k, whichever clients took part",
    SMALL,
)
def mean(c: Case) -> Iterator[Report]:
    algorithm = feddyn.FedDyn(lr=0.3, alpha=0.4)
    for state, *_ in run_rounds(TinyWorld(c, algorithm, STEPS, 4)):
        own = [own.h_k for own in state.clients.values()]
        yield equal(state.server.h, np.sum(own, axis=0) / len(TRAIN))
