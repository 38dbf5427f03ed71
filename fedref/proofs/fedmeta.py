"""FedMeta: MAML, its first order, Meta-SGD, and the server."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import fedmeta
from fedref.checks import Report, check_gradient
from fedref.models.numerics import Array
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, with_block
from fedref.proofs.rounds import SMALL, After, Paper, World, adapted, rounds_agree
from fedref.proofs.table import Compare, proof


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


@proof("fedmeta MAML", "one inner step where nothing is said of steps")
def fedmeta_one_step(c: Case) -> Iterator[Report]:
    m, w, S, Q, alpha = c.model, c.w, c.D, c.D1, c.rng.uniform(0.05, 0.2, c.model.d)
    loss = fedmeta.maml_objective(m, w, S, Q, alpha=alpha)
    yield equal(loss, fedmeta.maml_objective(m, w, S, Q, alpha=alpha, steps=1), bound=0)
    g = fedmeta.maml_gradient(m, w, S, Q, alpha=0.1)
    yield equal(g, fedmeta.maml_gradient(m, w, S, Q, alpha=0.1, steps=1), bound=0)
    both = fedmeta.meta_sgd_gradient(m, w, alpha, S, Q)
    yield equal(both, fedmeta.meta_sgd_gradient(m, w, alpha, S, Q, steps=1), bound=0)


@proof("fedmeta MAML", "maml_objective = the specification's loss after its steps")
def fedmeta_objective(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_objective(c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps)
        S, Q, _ = c.real_rows
        yield equal(got, c.f(spec.adapt(c.f.grad, c.w, S, 0.1, steps), Q))


@proof("fedmeta MAML", "FOMAML: first order = complex step of f(·; Q) at θ_u")
def fedmeta_fomaml(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_gradient(
            c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps, second_order=False
        )
        yield equal(got, spec.fomaml(c.f, c.w, *c.real_rows[:2], 0.1, steps))


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


# Rounds


def paper(
    meta_gradient: Any,
    steps: int = 1,
    weights: Any = spec.uniform_weights,
    adam: bool = False,
    roles: tuple[str, str] = ("S", "Q"),
) -> Paper:
    """FedMeta with α = 0.1 (or learnt from there, by Meta-SGD) and β = 0.2."""
    learnt = meta_gradient is spec.meta_sgd
    gradient = partial(meta_gradient, steps=steps, **({} if learnt else {"alpha": 0.1}))

    def rounds(world: World) -> Iterator[After]:
        x = np.stack([world.w, np.full_like(world.w, 0.1)]) if learnt else world.w
        states = spec.fedmeta(world.f, x, world.rounds(), 0.2, gradient, adam, weights)
        for t, (x, m, v) in enumerate(states, 1):
            theta, alpha = x if learnt else (x, 0.1)
            moments = (parts(m), parts(v), t) if adam else None
            yield After({"learner": parts(x), "adam": moments}, adapted(world, theta, alpha, steps))

    return Paper(rounds, roles=roles, adapts_on="S")


def parts(x: Array) -> tuple[Array, ...]:
    """θ, or θ and α."""
    return tuple(np.atleast_2d(x))


@proof(
    "fedmeta MAML", "4 rounds of MAML and FOMAML, 1 and 2 inner steps = the specification", SMALL
)
def maml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, paper(spec.maml, steps))
        first_order = fedmeta.FOMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, first_order, paper(spec.fomaml, steps))


@proof("fedmeta Meta-SGD", "4 rounds of Meta-SGD, 1 and 2 inner steps = the specification", SMALL)
def meta_sgd_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, paper(spec.meta_sgd, steps))


@proof(
    "fedmeta MAML", "4 rounds of MAML and Meta-SGD in epochs of episodes = the specification", SMALL
)
def rounds_of_epochs(c: Case) -> Iterator[Report]:
    roles = ("S of D", "Q of D")
    for kind, meta_gradient in ((fedmeta.MAML, spec.maml), (fedmeta.MetaSGD, spec.meta_sgd)):
        algorithm = kind(alpha=0.1, beta=0.2, episodes="epochs")
        yield from rounds_agree(c, algorithm, paper(meta_gradient, roles=roles))


@proof(
    "fedmeta server", "4 rounds, SGD and Adam, uniform and by samples = the specification", SMALL
)
def server_rounds(c: Case) -> Iterator[Report]:
    for server in ("sgd", "adam"):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, server=server, weighting="samples")
        expected = paper(spec.maml, weights=spec.sample_weights, adam=server == "adam")
        yield from rounds_agree(c, algorithm, expected)
    algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, server="adam")
    yield from rounds_agree(c, algorithm, paper(spec.meta_sgd, adam=True))
