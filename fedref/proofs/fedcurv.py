"""The equations of FedCurv."""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.algorithms import fedcurv, importance
from fedref.checks import Report, stack_equals_loop
from fedref.proofs.case import Case, equal
from fedref.proofs.table import ONE, proof


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def penalty(c: Case) -> Iterator[Report]:
    I, thetas = c.draw_vectors(3) ** 2, c.draw_vectors(3)
    u, v, me = I.sum(0), (I * thetas).sum(0), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    yield c.slope_of(
        lambda w: fedcurv.penalty(w, others, lam=0.7),
        fedcurv.penalty_gradient(c.w, u, v, I[me], I[me] * thetas[me], lam=0.7),
    )
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
    for estimate in (importance.fisher, importance.mas):
        whole = estimate(c.model, c.w, c.D2)
        for rows in (1, 2, 3):
            with patch.object(importance, "BLOCK_NUMBERS", rows * c.model.d):
                yield equal(estimate(c.model, c.w, c.D2), whole)
        none = c.D1._replace(s=np.zeros(3))
        yield equal(estimate(c.model, c.w, none), np.zeros(c.model.d), bound=0)
