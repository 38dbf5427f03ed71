"""The equations of pFedMe."""

from collections.abc import Iterator
from functools import partial

from fedref import spec
from fedref.algorithms import pfedme
from fedref.checks import Report
from fedref.proofs.case import Case, equal
from fedref.proofs.table import SMOOTH, proof


@proof("pfedme envelope", "λ(w − θ̂) = complex step of min_θ f(θ) + (λ/2)‖θ − w‖²", SMOOTH)
def envelope(c: Case) -> Iterator[Report]:
    solve = partial(pfedme.personalise, c.model, D=c.D, lam=15.0, alpha=0.06, steps=60)
    yield c.slope_of(
        lambda w: pfedme.objective(c.model, solve(w), w, c.D, lam=15.0),
        pfedme.envelope_gradient(c.w, solve(c.w), lam=15.0),
    )


@proof("pfedme alg.1", "θ̃ = steps along the complex step of f(θ) + (λ/2)‖θ − w‖²")
def personalise(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = pfedme.personalise(c.model, c.w, c.D, lam=2.0, alpha=0.1, steps=steps)
        yield equal(got, spec.moreau_point(c.f, c.w, c.real_rows[0], 2.0, 0.1, steps))
