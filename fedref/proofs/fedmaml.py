# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""FedMAML."""

from collections.abc import Iterator
from typing import Any

from fedref.algorithms import fedmaml
from fedref.checks import Report, check_gradient
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, slow_gradient, slow_steps
from fedref.proofs.rounds import SMALL, After, Paper, World, rounds_agree
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


@proof("fedmaml §4.2", "adapt = θ − α∇L_k by complex step, s = 1, 3")
def fedmaml_adapt(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = fedmaml.adapt(c.model, c.w, c.D, alpha=0.1, steps=steps)
        yield equal(got, slow_steps(c.model, c.w, c.D, 0.1, steps))


@proof("fedmaml §4.2", "worked example: θ + α(y − σ(θᵀx))x", [BinaryLogistic(4)])
def fedmaml_example(c: Case) -> Iterator[Report]:
    from scipy import special  # an import that not every command waits for

    (x, *_), (y, *_) = c.D1[:2]
    x = [*x.tolist(), 1.0]  # 1 for the bias
    r = y - special.expit(sum(a * b for a, b in zip(c.w, x)))
    got = fedmaml.adapt(c.model, c.w, Batch(c.D1.X[:1], c.D1.y[:1]), alpha=0.1, steps=1)
    yield equal(got, [w_j + 0.1 * r * x_j for w_j, x_j in zip(c.w, x)])


# Rounds


def by_loops(steps: int, evaluate: str = "theta") -> Paper:
    """Each client goes from θ to θ*_k in s steps of size α; θ ← θ − β Σ_k ∇_θ L_k(θ*_k; D_val), a
    client counting as often as it was drawn, and θ′ is the mean of the θ*_k. α = 0.1, β = 0.2."""

    def loops(world: World) -> Iterator[After]:
        model, theta = world.model, world.w
        for cohort in world.cohorts():
            drawn = [one.times for one in cohort]
            stars = [slow_steps(model, theta, one.steps[0][0], 0.1, steps) for one in cohort]

            def total(x: Array) -> Any:
                f = 0.0
                for one in cohort:
                    [(tr, val)] = one.steps
                    star = x
                    for _ in range(steps):
                        star = star - 0.1 * model.grad(star, tr)
                    f = f + one.times * model.loss(star, val)
                return f

            theta = theta - 0.2 * slow_gradient(total, theta)
            theta1 = loop_sum([n / sum(drawn) for n in drawn], stars)

            def personal(k: int | None, D: Batch | None) -> Array:
                if evaluate == "theta1":
                    return theta1
                return theta if D is None else slow_steps(model, theta, D, 0.1, steps)

            yield After({"theta": theta, "theta1": theta1}, personal)

    return Paper(loops, roles=("S", "Q"), adapts_on="S")


@proof("fedmaml §3.2", "4 rounds of FedMAML, s = 1, 2 = plain loops", SMALL)
def fedmaml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, by_loops(steps))


@proof("fedmaml §4.3", "4 rounds tested with θ′ = (1/K) Σ θ*_k = plain loops", SMALL)
def fedmaml_theta1_rounds(c: Case) -> Iterator[Report]:
    algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=2, evaluate="theta1")
    yield from rounds_agree(c, algorithm, by_loops(2, "theta1"))
