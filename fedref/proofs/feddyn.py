"""The proofs of FedDyn."""

from collections.abc import Iterator

import numpy as np

from fedref import spec
from fedref.algorithms import feddyn
from fedref.checks import Report, check_gradient
from fedref.models.batch import Batch
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


@proof("feddyn objective", "gradient = complex step of L_k(θ) − ⟨h_k, θ⟩ + (α/2)‖θ − θᵗ‖²")
def feddyn_gradient(c: Case) -> Iterator[Report]:
    w0, h_k = c.draw_vectors(2)
    yield check_gradient(
        lambda w: feddyn.objective(c.model, w, w0, h_k, c.D, alpha=0.7),
        lambda w: feddyn.gradient(c.model, w, w0, h_k, c.D, alpha=0.7),
        c.w, c.vs,
    )  # fmt: skip
    two = np.stack([c.w, c.w + c.vs[0]])  # leading axes
    D = Batch(*(np.stack([x, x]) for x in (c.D.X, c.D.y, c.s)))
    each = [feddyn.objective(c.model, w, w0, h_k, c.D, alpha=0.7) for w in two]
    yield equal(feddyn.objective(c.model, two, w0, h_k, D, alpha=0.7), each)


@proof("feddyn alg.1", "where θ_k minimises the local objective, h_k⁺ = ∇L_k(θ_k)", ONE)
def feddyn_minimum(c: Case) -> Iterator[Report]:
    (h_k,), theta = c.draw_vectors(1), c.w
    for _ in range(200):
        theta = theta - 0.3 * feddyn.gradient(c.model, theta, c.w, h_k, c.D, alpha=1.0)
    got = feddyn.renewed_gradient(h_k, theta, c.w, alpha=1.0)
    yield equal(got, c.f.grad(theta, c.real_rows[0]))


# Rounds


def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
    run = spec.feddyn(world.f, world.w, world.rounds(), 0.3, 0.4, len(TRAIN))
    for theta, h, own in run:
        after = {"w": theta, "h": h}
        yield ExpectedRound(after, one_model(theta), {k: [h_k] for k, h_k in own.items()})


@proof("feddyn alg.1", "4 rounds = the specification", SMALL)
def feddyn_rounds(c: Case) -> Iterator[Report]:
    yield from compare_rounds(c, feddyn.FedDyn(lr=0.3, alpha=0.4), Paper(rounds))
    yield from compare_rounds(c, feddyn.FedDyn(lr=0.3, alpha=0.4), Paper(rounds), STEPS)


@proof(
    "feddyn alg.1",
    "after every round h = the mean of all N h_k, whichever clients took part",
    SMALL,
)
def feddyn_mean(c: Case) -> Iterator[Report]:
    for state, _ in run_rounds(
        TinyWorld(c, Paper(rounds), STEPS, 4), feddyn.FedDyn(lr=0.3, alpha=0.4)
    ):
        yield equal(
            state.server.h, np.sum([own.h_k for own in state.clients.values()], axis=0) / len(TRAIN)
        )
