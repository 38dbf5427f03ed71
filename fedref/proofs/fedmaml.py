"""FedMAML."""

from collections.abc import Iterator
from typing import Any

from scipy import special

from fedref.algorithms import fedmaml
from fedref.batch import Batch
from fedref.checks import Report, check_gradient, complex_step_gradient
from fedref.models import BinaryLogistic
from fedref.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_steps
from fedref.proofs.table import Compare, proof


def fedmaml_gradient(steps: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        yield check_gradient(
            lambda w: fedmaml.meta_objective(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            lambda w: fedmaml.meta_gradient(c.model, w, c.D, c.D1, alpha=0.1, steps=steps)[0],
            c.w, c.vs,
        )  # fmt: skip

    return compare


for _n in (1, 2, 5):
    proof("fedmaml §3.2", f"meta_gradient, s = {_n} = complex step of meta_objective")(
        fedmaml_gradient(_n)
    )


@proof("fedmaml §3.2", "a round of 2 clients = θ − β × complex step of the *sum*")
def fedmaml_sum(c: Case) -> Iterator[Report]:
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]

    def total(w: Array) -> Any:
        return sum(
            fedmaml.meta_objective(c.model, w, tr, val, alpha=0.1, steps=2)
            for [(tr, val)] in clients
        )

    algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=2)
    server, _ = one_round(algorithm, c, clients)
    yield equal(server.theta, c.w - 0.2 * complex_step_gradient(total, c.w))


@proof("fedmaml §4.2", "adapt = θ − α∇L_k by complex step, s = 1, 3")
def fedmaml_adapt(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = fedmaml.adapt(c.model, c.w, c.D, alpha=0.1, steps=steps)
        yield equal(got, slow_steps(c.model, c.w, c.D, 0.1, steps))


@proof("fedmaml §4.2", "worked example: θ + α(y − σ(θᵀx))x", [BinaryLogistic(4)])
def fedmaml_example(c: Case) -> Iterator[Report]:
    (x, *_), (y, *_) = c.D1[:2]
    x = [*x.tolist(), 1.0]  # 1 for the bias
    r = y - special.expit(sum(a * b for a, b in zip(c.w, x)))
    got = fedmaml.adapt(c.model, c.w, Batch(c.D1.X[:1], c.D1.y[:1]), alpha=0.1, steps=1)
    yield equal(got, [w_j + 0.1 * r * x_j for w_j, x_j in zip(c.w, x)])


@proof("fedmaml §4.3", "θ′ = (1/K) Σ θ*_k by plain loops")
def fedmaml_theta1(c: Case) -> Iterator[Report]:
    algorithm = fedmaml.FedMAML(alpha=0.1, inner_steps=2)
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]
    server, _ = one_round(algorithm, c, clients)
    stars = [slow_steps(c.model, c.w, tr, 0.1, 2) for [(tr, _)] in clients]
    yield equal(server.theta1, loop_sum([0.5, 0.5], stars))
