"""FedAvg and the centralised baseline, with the tags of APFL, which states them."""

from collections.abc import Iterator

import numpy as np

from fedref.algorithm import Server
from fedref.algorithms import centralised, fedavg, fedcurv
from fedref.batch import Batch
from fedref.checks import Report
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_grad, slow_steps
from fedref.proofs.table import proof


@proof("apfl eq.1", "FedAvg round = Σ n_k/n w_k by plain loops")
def apfl_eq1(c: Case) -> Iterator[Report]:
    batches, eta = (c.D1, c.D2, c.batch(7)), 0.3
    ws = [c.w - eta * slow_grad(c.model, c.w, D) for D in batches]
    algorithm = fedavg.FedAvg(lr=eta)
    server, _ = one_round(algorithm, c, [[[D]] for D in batches])
    yield equal(server.w, loop_sum([3 / 15, 5 / 15, 7 / 15], ws))


@proof("apfl eq.2", "local_step, adapt = steps along the complex step of f_k")
def apfl_eq2(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        expected = slow_steps(c.model, c.w, c.D, 0.3, steps)
        yield equal(fedavg.adapt(c.model, c.w, c.D, alpha=0.3, steps=steps), expected)
    yield equal(fedavg.local_step(c.model, c.w, c.D, lr=0.3), slow_steps(c.model, c.w, c.D, 0.3, 1))


@proof("apfl §4.1.1", "Centralised step on pooled rows = step along Σ p_k ∇f_k")
def apfl_centralised(c: Case) -> Iterator[Report]:
    pooled = Batch(*(np.concatenate(pair) for pair in zip(c.D1[:2], c.D2[:2])))
    got = centralised.Centralised(lr=0.3).step(c.model, Server(c.w), c.w, pooled)
    g = loop_sum([3 / 8, 5 / 8], [slow_grad(c.model, c.w, D) for D in (c.D1, c.D2)])
    yield equal(got, c.w - 0.3 * g)


@proof("apfl §4.1.2", "FedCurv in its first round = FedAvg, bit for bit")
def fedcurv_first_round(c: Case) -> Iterator[Report]:
    clients = [[[c.D1]], [[c.D2]]]
    one, other = fedcurv.FedCurv(lr=0.3), fedavg.FedAvg(lr=0.3)
    (got, _), (expected, _) = (one_round(algorithm, c, clients) for algorithm in (one, other))
    yield equal(got.w, expected.w, bound=0)
