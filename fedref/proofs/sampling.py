"""Plans: who takes part in a round, with which rows, each from its own stream of random numbers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import Report
from fedref.models.numerics import Array
from fedref.proofs.case import Case, equal
from fedref.proofs.rounds import EPOCHS, STEPS
from fedref.proofs.table import ONE, proof
from fedref.sampling import EPISODES, PADDING, Sampling, adaptation_rows, make_plan

SIZES = np.array([1, 4, 17, 3, 9, 2])


def expected_rows(
    sampling: Sampling, n: int, roles: tuple[str, ...], seed: int, t: int, k: int, amount: int
) -> list[list[Array]]:
    """Return each role's mini-batches of client k, of n rows, by the specification."""
    B = sampling.batch_size or n
    what: Any = {"epochs": amount} if sampling.epochs else {"steps": amount}
    if roles == ("S", "Q"):
        order = spec.stream(seed, "S", t, k).permutation(n)
        return [[rows] for rows in spec.split_episode(order, sampling.support)]
    if roles == EPISODES:
        batches = spec.draw_batches(spec.stream(seed, "D", t, k), n, B, **what)
        return [
            list(part) for part in zip(*(spec.split_episode(D, sampling.support) for D in batches))
        ]
    return [spec.draw_batches(spec.stream(seed, role, t, k), n, B, **what) for role in roles]


@proof("plan", "make_plan: cohort, stragglers and rows = the specification's streams", ONE)
def plans(c: Case) -> Iterator[Report]:
    seed = int(c.rng.integers(1 << 30))
    for sampling in (EPOCHS, STEPS, replace(EPOCHS, batch_size=0, stragglers=0.9)):
        for t, roles in enumerate((("D", "D1", "D2"), ("S", "Q"), EPISODES), 1):
            yield from compare_plan(sampling, SIZES, roles, t, seed)


def compare_plan(
    sampling: Sampling, sizes: Array, roles: tuple[str, ...], t: int, seed: int
) -> Iterator[Report]:
    """Compare a plan for clients of `sizes` (N,) rows with the specification's streams."""
    plan = make_plan(sampling, sizes, t, seed, roles)
    drawn = sampling.clients_per_round, sampling.sampling == "by-samples"
    clients, counts = spec.draw_cohort(seed, t, sizes, *drawn)
    share = sampling.stragglers, sampling.amount
    straggler, amount = spec.draw_stragglers(seed, t, len(clients), *share)
    got = plan.clients, plan.counts, plan.straggler, plan.amount
    yield equal(got, [clients, counts, straggler, amount], bound=0)
    for i, k in enumerate(clients.tolist()):
        expected = expected_rows(sampling, sizes[k], roles, seed, t, k, int(amount[i]))
        for role, batches in zip(roles, expected):
            assert len(batches) == plan.steps[i]
            for rows, batch in zip(plan.rows[role][i], batches):
                yield equal(rows[rows != PADDING], batch, bound=0)


@proof("plan", "adaptation_rows: fresh training rows = the specification's stream", ONE)
def adaptation(c: Case) -> Iterator[Report]:
    seed = int(c.rng.integers(1 << 30))
    for k, n in enumerate(SIZES.tolist()):
        order = spec.stream(seed, "adapt", 3, k).permutation(n)
        got = {role: adaptation_rows(EPOCHS, role, n, k, 3, seed) for role in ("D", "S")}
        yield equal(got["D"], order[: EPOCHS.batch_size], bound=0)
        yield equal(got["S"], spec.split_episode(order, EPOCHS.support)[0], bound=0)
