"""The equations of Per-FedAvg: the exact meta-gradient, and its two approximations."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithm import weighted_mean
from fedref.algorithms import per_fedavg
from fedref.checks import Report, relative_error
from fedref.models.numerics import Array
from fedref.proofs.case import Case, equal
from fedref.proofs.table import ONE, SMOOTH, proof


@proof("per-fedavg eq.1", "mean of grad = complex step of the mean loss over users")
def mean_gradient(c: Case) -> Iterator[Report]:
    batches, p = (c.D, c.D1, c.D2), np.full(3, 1 / 3)
    yield c.slope_of(
        lambda w: sum(c.model.loss(w, D) for D in batches) / 3,
        weighted_mean(p, np.stack([c.model.grad(c.w, D) for D in batches])),
    )


@proof("per-fedavg eq.2", "meta_objective = the specification's loss after its step")
def meta_objective(c: Case) -> Iterator[Report]:
    D, *_ = c.real_rows
    expected = c.f(spec.adapt(c.f.grad, c.w, D, 0.1), D)
    yield equal(per_fedavg.meta_objective(c.model, c.w, c.D, alpha=0.1), expected)


@proof("per-fedavg eq.3", "meta_gradient(D = D′ = D″) = complex step of meta_objective")
def meta_gradient(c: Case) -> Iterator[Report]:
    yield c.slope_of(
        lambda w: per_fedavg.meta_objective(c.model, w, c.D, alpha=0.1),
        per_fedavg.meta_gradient(c.model, c.w, c.D, c.D, c.D, alpha=0.1),
    )


@proof("per-fedavg eq.4", "grad(w, D) = mean of per-sample complex steps")
def mean_of_samples(c: Case) -> Iterator[Report]:
    D = spec.Batch(c.D.X, c.D.y)
    gs = [c.f.grad(c.w, D.rows([j])) for j in range(4)]
    yield equal(c.model.grad(c.w, c.D), spec.average(c.s / c.s.sum(), gs))


@proof("per-fedavg eq.5", "local_step = w − β∇F number by number", ONE)
def local_step(c: Case) -> Iterator[Report]:
    got = per_fedavg.local_step(c.w, c.vs[0], beta=0.2)
    yield equal(got, [w_j - 0.2 * v_j for w_j, v_j in zip(c.w.tolist(), c.vs[0].tolist())])


@proof("per-fedavg eq.6", "meta_gradient(D, D′, D″) = the specification, by complex steps")
def three_batches(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient(c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    yield equal(got, spec.meta_gradient(c.f, c.w, *c.real_rows, 0.1))


@proof("per-fedavg eq.6", "ν = 3 inner steps = complex step of the chained objective")
def three_steps(c: Case) -> Iterator[Report]:
    Ds = [c.D, c.D1, c.D2]

    def chained_loss(w: Array) -> Any:
        for D in Ds:
            w = w - 0.1 * c.model.grad(w, D)
        return c.model.loss(w, c.D1)

    got = per_fedavg.meta_gradient_steps(c.model, c.w, Ds, c.D1, Ds, alpha=0.1)
    yield c.slope_of(chained_loss, got)


@proof(
    ("per-fedavg eq.7", "per-fedavg eq.8"),
    "meta_gradient_hf = as printed, δ = 0.1 and the default; → eq.6 as δ²",
    SMOOTH,
)
def hessian_free(c: Case) -> Iterator[Report]:
    hf = partial(per_fedavg.meta_gradient_hf, c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    printed = partial(spec.meta_gradient_hf, c.f, c.w, *c.real_rows, 0.1)
    yield equal(hf(delta=0.1), printed(0.1))
    yield equal(hf(), printed())
    exact = spec.meta_gradient(c.f, c.w, *c.real_rows, 0.1)
    coarse, fine = (relative_error(hf(delta=delta), exact) for delta in (1e-2, 2e-3))
    assert 24 < coarse / fine < 26, f"a fifth of δ leaves 1/{coarse / fine:.1f} of the error"
