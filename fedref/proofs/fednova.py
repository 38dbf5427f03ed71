"""The equations of FedNova."""

from collections.abc import Iterator

import numpy as np

from fedref.algorithm import Cohort, Server
from fedref.algorithms import fednova
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.table import ONE, proof


@proof("fednova alg.1", "d_k = the mean of ∇f_k along τ_k steps")
def change(c: Case) -> Iterator[Report]:
    w, gradients = c.w, []
    for D in c.real_rows:
        gradients.append(c.f.grad(w, D))
        w = w - 0.3 * gradients[-1]
    yield equal(fednova.normalised_change(c.w, w, tau=3, lr=0.3), np.mean(gradients, axis=0))


@proof("fednova alg.1", "with equal τ_k, w = Σ_k p_k w_k: FedAvg", ONE)
def equal_steps(c: Case) -> Iterator[Report]:
    ends, tau = c.draw_vectors(3), np.array([4, 4, 4])
    d = np.stack([fednova.normalised_change(c.w, end, tau=4, lr=0.05) for end in ends])
    cohort = Cohort(np.arange(3), np.ones(3, int), np.array([1, 2, 5]), N=3)
    got = fednova.FedNova().combine(c.model, Server(c.w), fednova.Upload(d, tau), cohort)
    yield equal(got.w, np.average(ends, axis=0, weights=[1, 2, 5]))
