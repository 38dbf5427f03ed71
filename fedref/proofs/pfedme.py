"""The proofs of pFedMe."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from fedref import spec
from fedref.algorithms import pfedme
from fedref.checks import Report, check_gradient
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.rounds import SMALL, ExpectedRound, Paper, TinyWorld, compare_rounds
from fedref.proofs.table import SMOOTH, proof


@proof("pfedme envelope", "λ(w − θ̂) = complex step of min_θ f(θ) + (λ/2)‖θ − w‖²", SMOOTH)
def pfedme_envelope(c: Case) -> Iterator[Report]:
    solve = partial(pfedme.personalise, c.model, D=c.D, lam=15.0, alpha=0.06, steps=60)
    yield check_gradient(
        lambda w: pfedme.objective(c.model, solve(w), w, c.D, lam=15.0),
        lambda w: pfedme.envelope_gradient(w, solve(w), lam=15.0),
        c.w, c.vs,
    )  # fmt: skip


@proof("pfedme alg.1", "θ̃ = steps along the complex step of f(θ) + (λ/2)‖θ − w‖²")
def pfedme_personalise(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = pfedme.personalise(c.model, c.w, c.D, lam=2.0, alpha=0.1, steps=steps)
        yield equal(got, spec.moreau_point(c.f, c.w, c.real_rows[0], 2.0, 0.1, steps))


# Rounds


def rounds(world: TinyWorld) -> Iterator[ExpectedRound]:
    for w in spec.pfedme(world.f, world.w, world.rounds(), 0.1, 2.0, 0.2, steps=3, mixing=0.8):

        def personal(k: int | None, D: spec.Batch | None, w: Any = w) -> Any:
            return w if D is None else spec.moreau_point(world.f, w, D, 2.0, 0.2, 3)

        yield ExpectedRound({"w": w}, personal)


@proof("pfedme alg.1", "4 rounds = the specification", SMALL)
def pfedme_rounds(c: Case) -> Iterator[Report]:
    algorithm = pfedme.PFedMe(lr=0.1, lam=2.0, alpha=0.2, inner_steps=3, beta=0.8)
    yield from compare_rounds(c, algorithm, Paper(rounds, adapts_on="D"))
