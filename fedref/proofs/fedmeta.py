"""FedMeta: MAML, its first order, Meta-SGD, and the server."""

import math
from collections.abc import Iterator

import numpy as np

from fedref.algorithm import Cohort
from fedref.algorithms import fedmeta
from fedref.batch import Batch
from fedref.checks import Report, check_gradient, complex_step_gradient
from fedref.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_grad, slow_steps, with_block
from fedref.proofs.table import ONE, Compare, proof


def maml(steps: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        yield check_gradient(
            lambda w: fedmeta.maml_objective(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            lambda w: fedmeta.maml_gradient(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            c.w, c.vs,
        )  # fmt: skip

    return compare


for _n in (1, 2, 5):
    proof("fedmeta MAML", f"maml_gradient, steps = {_n} = complex step of maml_objective")(maml(_n))


@proof("fedmeta MAML", "maml_objective = oracle loss after complex-step steps")
def fedmeta_objective(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_objective(c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps)
        yield equal(got, oracle.loss(c.model, slow_steps(c.model, c.w, c.D, 0.1, steps), c.D1))


@proof("fedmeta MAML", "FOMAML: first order = complex step of f(·; Q) at θ_u")
def fedmeta_fomaml(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_gradient(
            c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps, second_order=False
        )
        yield equal(got, slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, steps), c.D1))


def meta_sgd(steps: int, block: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        at = [c.w, c.rng.uniform(0.05, 0.2, c.model.d)]  # θ, α

        def objective(x: Array) -> Array:
            theta, alpha = with_block(at, block, x)
            return fedmeta.maml_objective(c.model, theta, c.D, c.D1, alpha=alpha, steps=steps)

        def gradient(x: Array) -> Array:
            theta, alpha = with_block(at, block, x)
            return fedmeta.meta_sgd_gradient(c.model, theta, alpha, c.D, c.D1, steps=steps)[block]

        yield check_gradient(objective, gradient, at[block], c.vs)

    return compare


for _n in (1, 3):
    for _i, _of in enumerate("θα"):
        proof("fedmeta Meta-SGD", f"∂/∂{_of}, steps = {_n} = complex step of its objective")(
            meta_sgd(_n, _i)
        )


@proof("fedmeta server", "SGD: a round of 2 clients = θ − (β/m) Σ g_u by plain loops")
def fedmeta_server(c: Case) -> Iterator[Report]:
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]

    def slow(S: Batch, Q: Batch) -> Array:
        return complex_step_gradient(
            lambda w: fedmeta.maml_objective(c.model, w, S, Q, alpha=0.1), c.w
        )

    gs = [slow(S, Q) for [(S, Q)] in clients]
    algorithm = fedmeta.MAML(alpha=0.1, beta=0.2)
    server, _ = one_round(algorithm, c, clients)
    yield equal(server.learner.theta, c.w - 0.2 * loop_sum([0.5, 0.5], gs))


@proof("fedmeta server", "Adam, 3 rounds = number by number, moments kept", ONE)
def fedmeta_adam(c: Case) -> Iterator[Report]:
    algorithm = fedmeta.MAML(beta=0.2, server="adam")
    server, gs = algorithm.initial(c.model, c.w), c.vectors(3)
    for g in gs:
        upload = server.learner._replace(theta=g[None])  # of a single client
        cohort = Cohort(np.arange(1), np.ones(1, int), np.ones(1, int))
        server = algorithm.combine(c.model, server, upload, cohort)
    expected = []
    for x_j, column in zip(c.w.tolist(), gs.T.tolist()):
        m = v = 0.0
        for t, g_j in enumerate(column, 1):
            m, v = 0.9 * m + 0.1 * g_j, 0.999 * v + 0.001 * g_j**2
            x_j -= 0.2 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        expected.append(x_j)
    yield equal(server.learner.theta, expected)
