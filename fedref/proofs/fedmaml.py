"""FedMAML."""

from collections.abc import Iterator

from fedref import spec
from fedref.algorithms import fedmaml
from fedref.checks import Report, check_gradient
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import SMALL, After, Paper, World, adapted, one_model, rounds_agree
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
        yield equal(got, spec.adapt(c.f.grad, c.w, c.real_rows[0], 0.1, steps))


@proof("fedmaml §4.2", "worked example: θ + α(y − σ(θᵀx))x", [BinaryLogistic(4)])
def fedmaml_example(c: Case) -> Iterator[Report]:
    from scipy import special  # an import that not every command waits for

    (x, *_), (y, *_) = c.D1[:2]
    x = [*x.tolist(), 1.0]  # 1 for the bias
    r = y - special.expit(sum(a * b for a, b in zip(c.w, x)))
    got = fedmaml.adapt(c.model, c.w, Batch(c.D1.X[:1], c.D1.y[:1]), alpha=0.1, steps=1)
    yield equal(got, [w_j + 0.1 * r * x_j for w_j, x_j in zip(c.w, x)])


# Rounds


def paper(steps: int, evaluate: str = "theta") -> Paper:
    """FedMAML with α = 0.1, β = 0.2."""

    def rounds(world: World) -> Iterator[After]:
        states = spec.fedmaml(world.f, world.w, world.rounds(), 0.1, 0.2, steps)
        for theta, theta1 in states:
            tested = one_model(theta1), adapted(world, theta, 0.1, steps)
            yield After({"theta": theta, "theta1": theta1}, tested[evaluate == "theta"])

    return Paper(rounds, roles=("S", "Q"), adapts_on="S")


@proof("fedmaml §3.2", "4 rounds of FedMAML, s = 1, 2 = the specification", SMALL)
def fedmaml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, paper(steps))


@proof("fedmaml §4.3", "4 rounds tested with θ′ = (1/K) Σ θ*_k = the specification", SMALL)
def fedmaml_theta1_rounds(c: Case) -> Iterator[Report]:
    algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=2, evaluate="theta1")
    yield from rounds_agree(c, algorithm, paper(2, "theta1"))
