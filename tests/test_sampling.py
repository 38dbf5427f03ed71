"""Plans: who takes part, with which rows; every stream of random numbers on its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import ConfigError
from fedref.proofs.sampling import compare_plan
from fedref.sampling import EPISODES, Sampling, make_plan, minibatches, stream

SIZES = np.array([9, 1, 14, 3, 30, 6])


@st.composite
def samplings(draw):
    """(n_k of every client, how rounds are drawn): clients of one row, B = 0."""
    sizes = np.array(draw(st.lists(st.sampled_from([1, 2, 3, 9, 14, 30]), min_size=1)))
    amount, kind = draw(st.integers(1, 5)), draw(st.sampled_from(["epochs", "steps"]))
    return sizes, Sampling(
        draw(st.integers(1, len(sizes))),
        batch_size=draw(st.sampled_from([0, 1, 2, 4, 10])),
        sampling=draw(st.sampled_from(["uniform", "by-samples"])),
        stragglers=draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
        support=draw(st.floats(0.01, 0.99)),
        **{kind: amount},
    )


@settings(max_examples=60)
@given(samplings(), st.integers(0, 99), st.integers(0, 9))
def test_a_plan_is_the_specification_s_for_any_options(drawn, seed, t):
    """Whose streams draw uniformly, or in proportion with repeats, is read in the specification."""
    sizes, config = drawn
    for roles in (("D", "D1", "D2"), ("S", "Q"), EPISODES):
        assert all(report.ok for report in compare_plan(config, sizes, roles, t, seed))
    plan = make_plan(config, sizes, t, seed, iter(("D", "D1")))
    n = sizes[plan.clients]
    assert (plan.round, list(plan.rows), plan.sizes.tolist()) == (t, ["D", "D1"], n.tolist())
    assert plan.steps.tolist() == (plan.amount * plan.per_epoch).tolist()
    widest = np.minimum(config.batch_size or n, n).max()
    for rows in plan.rows.values():
        assert (rows.shape, rows.dtype) == ((len(n), plan.steps.max(), widest), np.int32)


@pytest.mark.parametrize("B", [2, 5])
def test_how_rows_are_drawn_changes_above_64_batches(B):
    """Which rows a seed draws is part of what a run can be replayed by: up to n = 64·B a prefix of a
    permutation, above it a choice."""
    config = Sampling(1, steps=3, batch_size=B)

    def drawn(n):
        return minibatches(np.random.default_rng(7), n, config, 3)

    rng = np.random.default_rng(7)
    identity = np.tile(np.arange(64 * B, dtype=np.int32), (3, 1))
    np.testing.assert_array_equal(drawn(64 * B), rng.permuted(identity, axis=1)[:, :B])
    rng = np.random.default_rng(7)
    chosen = [rng.choice(64 * B + 1, B, replace=False) for _ in range(3)]
    np.testing.assert_array_equal(drawn(64 * B + 1), chosen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set epochs or steps"),
        ({"epochs": 1, "steps": 1}, "only one of them"),
        ({"epochs": 1, "clients_per_round": 7}, "is 7, but there are only 6 clients"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(Sampling(**options), SIZES, 0, 0)


def test_streams_differ_by_every_part_of_their_key():
    keys = [(s, name, a, b) for s in (0, 1) for name in ("D", "D1") for a in (0, 1) for b in (0, 1)]
    assert len({int(stream(*key).integers(2**62)) for key in keys}) == len(keys)
    # a change of these numbers would make every published run another one
    assert stream(3, "cohort", 5).integers(0, 1000, 4).tolist() == [745, 716, 485, 257]
    assert stream(3, "D", 2, 7).integers(0, 1000, 4).tolist() == [166, 0, 328, 803]
    assert make_plan(Sampling(6, epochs=1), SIZES, 0, 0).rows.keys() == {"D"}
