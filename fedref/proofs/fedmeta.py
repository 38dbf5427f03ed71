# ruff: noqa: B023 (what is defined in a loop is called before its next turn)
"""FedMeta: MAML, its first order, Meta-SGD, and the server."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedref.algorithms import fedmeta
from fedref.checks import Report, check_gradient
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, slow_grad, slow_gradients, slow_steps, with_block
from fedref.proofs.rounds import SMALL, After, Paper, World, rounds_agree, shares
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


# Rounds


def inner(model: Model, theta: Array, alpha: Any, S: Batch, steps: int) -> Array:
    """θ_u after some steps θ ← θ − α ⊙ ∇f(θ; S); takes complex numbers."""
    for _ in range(steps):
        theta = theta - alpha * model.grad(theta, S)
    return theta


def adam_by_loops(x: Array, gs: Sequence[Array]) -> tuple[Array, Array, Array]:
    """(x, m, v) after Adam has followed the gradients gs, β = 0.2, number by number."""
    ends = []
    for x_j, column in zip(x.tolist(), np.transpose(gs).tolist()):
        m = v = 0.0
        for t, g_j in enumerate(column, 1):
            m, v = 0.9 * m + 0.1 * g_j, 0.999 * v + 0.001 * g_j**2
            x_j -= 0.2 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        ends.append((x_j, m, v))
    x, m, v = np.transpose(ends)
    return x, m, v


def by_loops(
    steps: int = 1,
    weighting: str = "uniform",
    server: str = "sgd",
    second_order: bool = True,
    learn_alpha: bool = False,
    roles: tuple[str, str] = ("S", "Q"),
) -> Paper:
    """Each client sends g_u = ∂f(θ_u; Q)/∂θ, and ∂/∂α if α is learnt: the sum of those of its
    episodes, each from where a step of β = 0.2 along the last has led. The server steps along their
    mean, β = 0.2; tested with θ_u of a support set. α = 0.1, or starts there."""

    def loops(world: World) -> Iterator[After]:
        model = world.model
        start = [world.w, np.full(model.d, 0.1)] if learn_alpha else [world.w]
        learner, history = start, list[list[Array]]()
        for cohort in world.cohorts():
            sent = []
            for one in cohort:
                here, gs = learner, []
                for S, Q in one.steps:

                    def f(theta: Array, alpha: Any = 0.1) -> Any:
                        return model.loss(inner(model, theta, alpha, S, steps), Q)

                    g = slow_gradients(f, here)
                    if not second_order:
                        g = [slow_grad(model, slow_steps(model, here[0], S, 0.1, steps), Q)]
                    here = [x - 0.2 * g_x for x, g_x in zip(here, g)]
                    gs.append(g)
                sent.append([loop_sum(np.ones(len(gs)), part) for part in zip(*gs)])
            p = shares(cohort, weighting)
            history.append([loop_sum(p, gs) for gs in zip(*sent)])
            if server == "adam":
                ends = [adam_by_loops(x, gs) for x, gs in zip(start, zip(*history))]
                xs, ms, vs = (tuple(part) for part in zip(*ends))
                learner, moments = list(xs), (ms, vs, len(history))
            else:
                learner, moments = [x - 0.2 * g for x, g in zip(learner, history[-1])], None

            def personal(k: int | None, D: Batch | None) -> Array:
                theta, *alpha = learner
                if D is None:
                    return theta
                return slow_steps(model, theta, D, alpha[0] if alpha else 0.1, steps)

            yield After({"learner": tuple(learner), "adam": moments}, personal)

    return Paper(loops, roles=roles, adapts_on="S")


@proof("fedmeta MAML", "4 rounds of MAML and FOMAML, 1 and 2 inner steps = plain loops", SMALL)
def maml_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, by_loops(steps))
        first_order = fedmeta.FOMAML(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, first_order, by_loops(steps, second_order=False))


@proof("fedmeta Meta-SGD", "4 rounds of Meta-SGD, 1 and 2 inner steps = plain loops", SMALL)
def meta_sgd_rounds(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, inner_steps=steps)
        yield from rounds_agree(c, algorithm, by_loops(steps, learn_alpha=True))


@proof("fedmeta MAML", "4 rounds of MAML and Meta-SGD in epochs of episodes = plain loops", SMALL)
def rounds_of_epochs(c: Case) -> Iterator[Report]:
    roles = ("S of D", "Q of D")
    for kind, learn_alpha in ((fedmeta.MAML, False), (fedmeta.MetaSGD, True)):
        algorithm = kind(alpha=0.1, beta=0.2, episodes="epochs")
        yield from rounds_agree(c, algorithm, by_loops(learn_alpha=learn_alpha, roles=roles))


@proof("fedmeta server", "4 rounds, SGD and Adam, uniform and by samples = number by number", SMALL)
def server_rounds(c: Case) -> Iterator[Report]:
    for server in ("sgd", "adam"):
        algorithm = fedmeta.MAML(alpha=0.1, beta=0.2, server=server, weighting="samples")
        yield from rounds_agree(c, algorithm, by_loops(1, "samples", server))
    algorithm = fedmeta.MetaSGD(alpha=0.1, beta=0.2, server="adam")
    yield from rounds_agree(c, algorithm, by_loops(server="adam", learn_alpha=True))
