"""FedCurv."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedref.algorithms import fedcurv, importance
from fedref.batch import Batch
from fedref.checks import Report, check_gradient, complex_step_gradient
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_grad, slow_steps
from fedref.proofs.table import ONE, proof


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def fedcurv_penalty(c: Case) -> Iterator[Report]:
    I, thetas = c.vectors(3) ** 2, c.vectors(3)
    u, v, me = I.sum(0), (I * thetas).sum(0), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    yield check_gradient(
        lambda w: fedcurv.penalty(w, others, lam=0.7),
        lambda w: fedcurv.penalty_gradient(w, u, v, I[me], I[me] * thetas[me], lam=0.7),
        c.w, c.vs,
    )  # fmt: skip
    j_sum = loop_sum([0.7, 0.7], [I_j * (c.w - theta_j) ** 2 for I_j, theta_j in others])
    yield equal(fedcurv.penalty(c.w, others, lam=0.7), math.fsum(j_sum))


@proof("fedcurv penalty", "the second round's step = complex step of f_s + penalty")
def fedcurv_round(c: Case) -> Iterator[Report]:
    algorithm, clients = fedcurv.FedCurv(lr=0.2, lam=0.7), [[[c.D1]], [[c.D2]]]
    server, client_states = one_round(algorithm, c, clients)
    thetas = [slow_steps(c.model, c.w, D, 0.2, 1) for [[D]] in clients]
    I = loop_fisher(c.model, thetas[1], c.D2)

    def objective(w: Array) -> Any:  # of client 0: only client 1 pulls
        return c.model.loss(w, c.D1) + fedcurv.penalty(w, [(I, thetas[1])], lam=0.7)

    w = loop_sum([3 / 8, 5 / 8], thetas)
    after, _ = one_round(algorithm, c, clients[:1], server, client_states[:1])
    yield equal(after.w, w - 0.2 * complex_step_gradient(objective, w))


def loop_fisher(model: Model, w: Array, D: Batch) -> Array:
    """The mean over samples of squared complex-step gradients."""
    s = [1.0] * len(D.y) if D.s is None else D.s
    gs = [slow_grad(model, w, Batch(D.X[j : j + 1], D.y[j : j + 1])) for j in range(len(D.y))]
    return loop_sum(np.asarray(s) / sum(s), [g**2 for g in gs])


@proof("fedcurv Fisher", "fisher = plain loop over samples, complex-step gradients squared")
def fedcurv_fisher(c: Case) -> Iterator[Report]:
    for D in (c.D, c.D1):
        yield equal(importance.fisher(c.model, c.w, D), loop_fisher(c.model, c.w, D))
