"""The equations of FedMeta: MAML, first-order MAML and Meta-SGD."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from fedref import spec
from fedref.algorithms import fedmeta
from fedref.checks import Report
from fedref.proofs.case import Case, equal, replace_block
from fedref.proofs.table import proof


def steps_of(n: int) -> dict[str, int]:
    """Return the keyword argument `steps=n`, or none if n is 1, so that the default is tested too."""
    return {} if n == 1 else {"steps": n}


@proof("fedmeta MAML", "maml_objective = the specification's loss after 1 and 2 steps")
def objective(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_objective(c.model, c.w, c.D, c.D1, alpha=0.1, **steps_of(steps))
        S, Q, _ = c.real_rows
        yield equal(got, c.f(spec.adapt(c.f.grad, c.w, S, 0.1, steps), Q))


@proof("fedmeta MAML", "maml_gradient after 1, 2, 5 steps = complex step of maml_objective")
def maml(c: Case) -> Iterator[Report]:
    for steps in (1, 2, 5):
        more: Any = {"alpha": 0.1, **steps_of(steps)}
        yield c.slope_of(
            lambda w: fedmeta.maml_objective(c.model, w, c.D, c.D1, **more),
            fedmeta.maml_gradient(c.model, c.w, c.D, c.D1, **more),
        )


@proof("fedmeta Meta-SGD", "∂/∂θ and ∂/∂α after 1 and 3 steps = complex steps of the objective")
def meta_sgd(c: Case) -> Iterator[Report]:
    at = [c.w, c.rng.uniform(0.05, 0.2, c.model.d)]  # θ, α
    for steps in (1, 3):
        more: Any = steps_of(steps)
        got = fedmeta.meta_sgd_gradient(c.model, at[0], at[1], c.D, c.D1, **more)
        for block, g in enumerate(got):
            put = partial(replace_block, at, block)

            def objective(x: Any) -> Any:
                theta, alpha = put(x)
                return fedmeta.maml_objective(c.model, theta, c.D, c.D1, alpha=alpha, **more)

            yield c.slope_of(objective, g, at[block])
