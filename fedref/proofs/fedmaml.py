"""The equations of FedMAML."""

from collections.abc import Iterator
from typing import Any

from fedref import spec
from fedref.algorithms import fedmaml
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.table import proof


@proof("fedmaml §3.2", "meta_gradient after 1, 2, 5 steps = complex step of meta_objective")
def meta_gradient(c: Case) -> Iterator[Report]:
    for steps in (1, 2, 5):
        more: Any = {"alpha": 0.1, "steps": steps}
        yield c.slope_of(
            lambda w: fedmaml.meta_objective(c.model, w, c.D, c.D1, **more),
            fedmaml.meta_gradient(c.model, c.w, c.D, c.D1, **more)[0],
        )
    S, Q, _ = c.real_rows
    got = fedmaml.meta_objective(c.model, c.w, c.D, c.D1, alpha=0.1, steps=2)
    yield equal(got, c.f(spec.adapt(c.f.grad, c.w, S, 0.1, 2), Q))


@proof("fedmaml §4.2", "adapt = θ − α∇L_k by complex step, 1 and 3 steps")
def adapt(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = fedmaml.adapt(c.model, c.w, c.D, alpha=0.1, steps=steps)
        yield equal(got, spec.adapt(c.f.grad, c.w, c.real_rows[0], 0.1, steps))
