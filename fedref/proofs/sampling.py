"""Plans: who takes part in a round, with which rows, each from its own stream of random numbers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import Report
from fedref.models.numerics import Array
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import ONE, proof
from fedref.proofs.whole_runs import EPOCHS, STEPS
from fedref.sampling import EPISODES, PADDING, Sampling, cut, make_plan, minibatches

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
        drawn = spec.draw_batches(spec.stream(seed, "D", t, k), n, B, **what)
        episodes = [spec.split_episode(D, sampling.support) for D in drawn]
        return [list(part) for part in zip(*episodes)]
    return [spec.draw_batches(spec.stream(seed, role, t, k), n, B, **what) for role in roles]


@proof("plan", "make_plan: cohort, stragglers and rows = the specification's streams", ONE)
def plans(c: Setting) -> Iterator[Report]:
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
    B = np.array([sampling.batch_size or n for n in sizes[clients]])
    whole = bool(sampling.epochs) and "S" not in roles  # else one step is all
    yield equal(plan.per_epoch, np.where(whole, -(-sizes[clients] // B), 1), bound=0)
    got = plan.clients, plan.counts, plan.straggler, plan.amount
    yield equal(got, [clients, counts, straggler, amount], bound=0)
    for i, k in enumerate(clients.tolist()):
        expected = expected_rows(sampling, sizes[k], roles, seed, t, k, int(amount[i]))
        for role, batches in zip(roles, expected):
            assert len(batches) == plan.steps[i]
            for rows, batch in zip(plan.rows[role][i][: len(batches)], batches, strict=True):
                yield equal(rows[rows != PADDING], batch, bound=0)
            assert (plan.rows[role][i][len(batches) :] == PADDING).all(), "a row beyond its steps"


@proof("plan", "shares of stragglers and supports, and steps, over n and K from 1 to 9", ONE)
def edges(c: Setting) -> Iterator[Report]:
    seed = int(c.rng.integers(1 << 30))
    for n in range(1, 10):
        for share in (0.25, 0.5, 0.75):  # n · share is k + ½ for some
            sampling = Sampling(n, epochs=2, batch_size=2, stragglers=share, support=share)
            yield from compare_plan(sampling, np.arange(1, n + 1), ("S", "Q"), n, seed)
            got, order = cut(np.arange(n), share), np.arange(n)
            for rows, expected in zip(got, spec.split_episode(order, share), strict=True):
                yield equal(rows, expected, bound=0)
    for rows in minibatches(c.rng, 300, Sampling(1, steps=1000, batch_size=4), 1000):
        assert len(set(rows.tolist())) == 4, "a step has a row twice"
        assert set(rows.tolist()) <= set(range(300))
