"""The proofs of FedCurv."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import fedavg, fedcurv, importance
from fedref.checks import Report, check_gradient, stack_equals_loop
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


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def fedcurv_penalty(c: Case) -> Iterator[Report]:
    I, thetas = c.draw_vectors(3) ** 2, c.draw_vectors(3)
    u, v, me = I.sum(0), (I * thetas).sum(0), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    yield check_gradient(
        lambda w: fedcurv.penalty(w, others, lam=0.7),
        lambda w: fedcurv.penalty_gradient(w, u, v, I[me], I[me] * thetas[me], lam=0.7),
        c.w, c.vs,
    )  # fmt: skip
    terms = (I_j @ (c.w - theta_j) ** 2 for I_j, theta_j in others)
    yield equal(fedcurv.penalty(c.w, others, lam=0.7), 0.7 * sum(terms))
    yield stack_equals_loop(lambda w: fedcurv.penalty(w, others, lam=0.7), c.draw_vectors(7))


@proof(
    ("fedcurv Fisher", "apfl eq.5"),
    "fisher, mas = the means over samples of squared, and of absolute, complex-step gradients",
)
def estimates(c: Case) -> Iterator[Report]:
    for D, rows in zip((c.D, c.D1), c.real_rows):
        yield equal(importance.fisher(c.model, c.w, D), spec.fisher(c.f, c.w, rows))
        yield equal(importance.mas(c.model, c.w, D), spec.mas(c.f, c.w, rows))


@proof(
    "fedcurv Fisher", "fisher and MAS in blocks of 1, 2 and 3 samples = at once; 0 without weight"
)
def blocks(c: Case) -> Iterator[Report]:
    from unittest.mock import patch  # takes a while, and every command imports the proofs

    for estimate in (importance.fisher, importance.mas):
        whole = estimate(c.model, c.w, c.D2)
        for rows in (1, 2, 3):
            with patch.object(importance, "BLOCK_NUMBERS", rows * c.model.d):
                yield equal(estimate(c.model, c.w, c.D2), whole)
        none = c.D1._replace(s=np.zeros(3))
        yield equal(estimate(c.model, c.w, none), np.zeros(c.model.d), bound=0)


# Rounds


def paper(lam: float, weights: Any = spec.sample_weights, drop: bool = True) -> Paper:
    """Return FedCurv with η = 0.2. A client keeps I, I ⊙ θ̂ and t of its last round."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        kept = dict[int, list[Any]]()
        states = spec.fedcurv(world.f, world.w, world.rounds(), 0.2, lam, weights)
        for t, (w, ends) in enumerate(states):
            kept |= {s: [I, I * theta, t] for s, (I, theta) in ends.items()}
            u, v = (sum(kept[s][i] for s in ends) for i in (0, 1))
            yield ExpectedRound({"w": w, "u": u, "v": v, "t": t + 1}, one_model(w), dict(kept))

    return Paper(rounds, drop)


@proof(
    "fedcurv penalty",
    "5 rounds of FedCurv, clients absent from the last = the specification",
    SMALL,
)
def fedcurv_rounds(c: Case) -> Iterator[Report]:
    for sampling in (EPOCHS, STEPS):
        algorithm = fedcurv.FedCurv(lr=0.2, lam=0.7)
        yield from compare_rounds(c, algorithm, paper(0.7), sampling, rounds=5)
    algorithm = fedcurv.FedCurv(lr=0.2, lam=0.7, weighting="uniform", drop=False)
    yield from compare_rounds(c, algorithm, paper(0.7, spec.uniform_weights, drop=False), rounds=5)


@proof("apfl §4.1.2", "4 rounds of FedCurv with λ = 0 = FedAvg, bit for bit", SMALL)
def baselines_rounds(c: Case) -> Iterator[Report]:
    one, other = fedcurv.FedCurv(lr=0.3, lam=0.0), fedavg.FedAvg(lr=0.3)
    yield from compare_models(c, paper(0.0), one, other)
