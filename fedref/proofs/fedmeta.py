"""FedMeta: MAML, first-order MAML, Meta-SGD, and the server."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import fedmeta
from fedref.checks import Report, check_gradient
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, replace_block
from fedref.proofs.rounds import (
    SMALL,
    ExpectedRound,
    Paper,
    TinyWorld,
    adapted_model,
    compare_rounds,
)
from fedref.proofs.table import Compare, proof


def steps_of(n: int) -> dict[str, int]:
    """Return the keyword argument `steps=n`, or none if n is 1, so that the default is tested too."""
    return {} if n == 1 else {"steps": n}


def compare_maml(steps: int) -> Compare:
    """Compare MAML's gradient through `steps` inner steps with the complex step of its objective."""
    more: dict[str, Any] = {"alpha": 0.1, **steps_of(steps)}

    def compare(c: Case) -> Iterator[Report]:
        yield check_gradient(
            lambda w: fedmeta.maml_objective(c.model, w, c.D, c.D1, **more),
            lambda w: fedmeta.maml_gradient(c.model, w, c.D, c.D1, **more),
            c.w, c.vs,
        )  # fmt: skip

    return compare


for _n in (1, 2, 5):
    proof("fedmeta MAML", f"maml_gradient, steps = {_n} = complex step of maml_objective")(
        compare_maml(_n)
    )


@proof("fedmeta MAML", "maml_objective = the specification's loss after its steps")
def fedmeta_objective(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_objective(c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps)
        S, Q, _ = c.real_rows  # D and D1 without padding
        yield equal(got, c.f(spec.adapt(c.f.grad, c.w, S, 0.1, steps), Q))


def compare_meta_sgd(steps: int, block: int) -> Compare:
    """Compare Meta-SGD's gradient in θ (block 0) or α (block 1) with the complex step of its objective."""
    more = steps_of(steps)

    def compare(c: Case) -> Iterator[Report]:
        at = [c.w, c.rng.uniform(0.05, 0.2, c.model.d)]  # θ, α

        def objective(x: Array) -> Array:
            theta, alpha = replace_block(at, block, x)
            return fedmeta.maml_objective(c.model, theta, c.D, c.D1, alpha=alpha, **more)

        def gradient(x: Array) -> Array:
            theta, alpha = replace_block(at, block, x)
            return fedmeta.meta_sgd_gradient(c.model, theta, alpha, c.D, c.D1, **more)[block]

        yield check_gradient(objective, gradient, at[block], c.vs)

    return compare


for _n in (1, 3):
    for _i, _of in enumerate("θα"):
        proof("fedmeta Meta-SGD", f"∂/∂{_of}, steps = {_n} = complex step of its objective")(
            compare_meta_sgd(_n, _i)
        )


# Rounds


def paper(
    meta_gradient: Any,
    steps: int = 1,
    weights: Any = spec.uniform_weights,
    adam: bool = False,
    roles: tuple[str, str] = ("S", "Q"),
) -> Paper:
    """Return the specification's FedMeta with α = 0.1 (Meta-SGD's initial α) and β = 0.2."""
    learnt = meta_gradient is spec.meta_sgd
    gradient = partial(meta_gradient, steps=steps, **({} if learnt else {"alpha": 0.1}))

    def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
        x = np.stack([world.w, np.full_like(world.w, 0.1)]) if learnt else world.w
        states = spec.fedmeta(world.f, x, world.rounds(), 0.2, gradient, adam, weights)
        for t, (x, m, v) in enumerate(states, 1):
            theta, alpha = x if learnt else (x, 0.1)
            moments = (parts(m), parts(v), t) if adam else None
            yield ExpectedRound(
                {"learner": parts(x), "adam": moments}, adapted_model(world, theta, alpha, steps)
            )

    return Paper(rounds, roles=roles, adapts_on="S")


def parts(x: Array) -> tuple[Array, ...]:
    """Split a learner, or a moment of it, into its blocks: (θ,), or (θ, α) for Meta-SGD."""
    return tuple(np.atleast_2d(x))


@proof(
    "fedmeta MAML", "4 rounds of MAML and FOMAML, 1 and 2 inner steps = the specification", SMALL
)
def maml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from compare_rounds(c, algorithm, paper(spec.maml, steps))
        first_order = fedmeta.FOMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from compare_rounds(c, first_order, paper(spec.fomaml, steps))


@proof("fedmeta Meta-SGD", "4 rounds of Meta-SGD, 1 and 2 inner steps = the specification", SMALL)
def meta_sgd_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from compare_rounds(c, algorithm, paper(spec.meta_sgd, steps))


@proof(
    "fedmeta MAML",
    "4 rounds of MAML and Meta-SGD, an episode for each mini-batch = the specification",
    SMALL,
)
def rounds_of_epochs(c: Case) -> Iterator[Report]:
    roles = ("S of D", "Q of D")
    for kind, meta_gradient in ((fedmeta.MAML, spec.maml), (fedmeta.MetaSGD, spec.meta_sgd)):
        algorithm = kind(alpha=0.1, beta=0.2, episodes="epochs")
        yield from compare_rounds(c, algorithm, paper(meta_gradient, roles=roles))


@proof(
    "fedmeta server",
    "4 rounds with a server of SGD or Adam, weighted by samples or uniformly = the specification",
    SMALL,
)
def server_rounds(c: Case) -> Iterator[Report]:
    for server in ("sgd", "adam"):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, server=server, weighting="samples")
        expected = paper(spec.maml, weights=spec.sample_weights, adam=server == "adam")
        yield from compare_rounds(c, algorithm, expected)
    algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, server="adam")
    yield from compare_rounds(c, algorithm, paper(spec.meta_sgd, adam=True))
