"""The proofs of FedMAML."""

from collections.abc import Iterator

from fedref import spec
from fedref.algorithms import fedmaml
from fedref.checks import Report, check_gradient
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import (
    SMALL,
    ExpectedRound,
    Paper,
    TinyWorld,
    adapted_model,
    compare_rounds,
    one_model,
)
from fedref.proofs.table import Compare, proof


def fedmaml_gradient(steps: int) -> Compare:
    """Return the proof of the gradient through `steps` inner steps."""

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


# Rounds


def paper(steps: int, evaluate: str = "theta") -> Paper:
    """Return the expected rounds of FedMAML with α = 0.1, β = 0.2."""

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        states = spec.fedmaml(world.f, world.w, world.rounds(), 0.1, 0.2, steps)
        for theta, theta1 in states:
            adapted = adapted_model(world, theta, 0.1, steps)
            evaluated = adapted if evaluate == "theta" else one_model(theta1)
            yield ExpectedRound({"theta": theta, "theta1": theta1}, evaluated)

    return Paper(rounds, roles=("S", "Q"), adapts_on="S")


@proof("fedmaml §3.2", "4 rounds of FedMAML, s = 1, 2 = the specification", SMALL)
def fedmaml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from compare_rounds(c, algorithm, paper(steps))


@proof("fedmaml §4.3", "4 rounds tested with θ′ = (1/K) Σ θ*_k = the specification", SMALL)
def fedmaml_theta1_rounds(c: Case) -> Iterator[Report]:
    algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=2, evaluate="theta1")
    yield from compare_rounds(c, algorithm, paper(2, "theta1"))
