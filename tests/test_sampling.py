"""Plans: who takes part, with which rows; every stream of random numbers on its own.

Long because every stream is moved by its own key alone, one test a stream.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import ConfigError
from fedref.sampling import (
    PADDING,
    Sampling,
    adaptation_rows,
    cohort,
    episode,
    make_plan,
    minibatches,
    stream,
)

SIZES = np.array([9, 1, 14, 3, 30, 6])
ALL = Sampling(len(SIZES), epochs=3, batch_size=4)
ROLES = ("D", "D1", "D2")
EPISODES = ("S of D", "Q of D")


def batches(plan, role, k):
    """Client k's mini-batches without padding."""
    return [rows[rows != PADDING].tolist() for rows in plan.rows[role][k, : plan.steps[k]]]


def modes(batch_size=4, amount=3):
    return (
        Sampling(len(SIZES), epochs=amount, batch_size=batch_size),
        Sampling(len(SIZES), steps=amount, batch_size=batch_size),
    )


@given(st.integers(1, 40), st.integers(0, 12), st.integers(1, 4), st.integers(0, 99))
def test_an_epoch_is_every_row_once(n, batch_size, epochs, seed):
    config = Sampling(1, epochs=epochs, batch_size=batch_size)
    rows = minibatches(np.random.default_rng(seed), n, config, epochs)
    width = min(batch_size or n, n)
    per_epoch = -(-n // width)
    assert rows.shape == (epochs * per_epoch, width)
    for epoch in rows.reshape(epochs, -1):
        assert sorted(epoch[epoch != PADDING]) == list(range(n))
        assert (epoch[n:] == PADDING).all()  # only the last batch of an epoch is short


@given(st.integers(1, 700), st.integers(0, 12), st.integers(1, 4), st.integers(0, 99))
def test_a_step_takes_different_rows(n, batch_size, steps, seed):
    """n reaches past 64·B, where rows are drawn another way."""
    config = Sampling(1, steps=steps, batch_size=batch_size)
    rows = minibatches(np.random.default_rng(seed), n, config, steps)
    assert rows.shape == (steps, min(batch_size or n, n))
    for batch in rows:
        assert len(set(batch.tolist())) == len(batch)
        assert batch.min() >= 0
        assert batch.max() < n


@pytest.mark.parametrize("config", modes(batch_size=0))
def test_batch_size_0_is_all_local_rows(config):
    plan = make_plan(config, SIZES, 0, 0)
    for k, n in enumerate(SIZES):
        assert [sorted(rows) for rows in batches(plan, "D", k)] == [list(range(n))] * 3
    assert plan.per_epoch.tolist() == [1] * len(SIZES)


@given(st.integers(1, 50), st.floats(0.01, 0.99), st.integers(0, 99))
def test_support_and_query_are_disjoint_and_complete(n, support, seed):
    S, Q = episode(np.random.default_rng(seed), n, support)
    assert sorted([*S, *Q]) == list(range(n))
    if n == 1:
        assert (len(S), len(Q)) == (0, 1)
    else:
        assert min(len(S), len(Q)) >= 1
        assert len(S) == np.clip(round(support * n), 1, n - 1)


def test_plans_of_episodes():
    plan = make_plan(ALL, SIZES, 2, 5, ("S", "Q"))
    assert plan.steps.tolist() == [1] * len(SIZES)
    for k, n in enumerate(SIZES):
        (S,), (Q,) = batches(plan, "S", k), batches(plan, "Q", k)
        assert sorted(S + Q) == list(range(n))
    other = make_plan(ALL, SIZES, 3, 5, ("S", "Q"))  # drawn afresh each round
    assert batches(plan, "S", 2) != batches(other, "S", 2)


def test_an_episode_a_mini_batch_has_the_rows_of_that_mini_batch():
    """Disjoint, never without a query, and the mini-batches that other algorithms have."""
    config = replace(ALL, support=0.7)
    whole, plan = make_plan(config, SIZES, 2, 5), make_plan(config, SIZES, 2, 5, EPISODES)
    assert plan.steps.tolist() == whole.steps.tolist()
    assert plan.per_epoch.tolist() == whole.per_epoch.tolist()
    for k in range(len(SIZES)):
        parts = [batches(plan, role, k) for role in EPISODES]
        for D, S, Q in zip(batches(whole, "D", k), *parts, strict=True):
            assert S + Q == D
            assert len(S) == (min(max(round(0.7 * len(D)), 1), len(D) - 1))


@pytest.mark.parametrize("roles", [("D", "D1"), ("S", "Q"), EPISODES])
def test_roles_may_be_a_list_or_come_one_by_one(roles):
    expected = make_plan(ALL, SIZES, 2, 5, roles)
    for given_roles in (list(roles), iter(roles)):
        plan = make_plan(ALL, SIZES, 2, 5, given_roles)
        assert list(plan.rows) == list(roles)
        for role in roles:
            np.testing.assert_array_equal(plan.rows[role], expected.rows[role])


def test_shapes_and_fields():
    plan = make_plan(replace(ALL, clients_per_round=4), SIZES, 7, 0)
    K = len(plan.clients)
    assert plan.round == 7
    assert K == 4
    assert (np.diff(plan.clients) > 0).all()
    assert plan.sizes.tolist() == SIZES[plan.clients].tolist()
    assert plan.counts.tolist() == [1] * K
    per_epoch = -(-plan.sizes // np.minimum(4, plan.sizes))
    assert plan.per_epoch.tolist() == per_epoch.tolist()
    assert plan.steps.tolist() == (3 * per_epoch).tolist()
    assert plan.rows["D"].shape == (K, plan.steps.max(), 4)
    for k in range(K):
        assert (plan.rows["D"][k, plan.steps[k] :] == PADDING).all()


@pytest.mark.parametrize("config", modes(amount=5))
def test_a_straggler_does_a_prefix_of_what_it_would_have_done(config):
    full = make_plan(config, SIZES, 0, 0, ROLES)
    slow = make_plan(replace(config, stragglers=0.5), SIZES, 0, 0, ROLES)
    assert slow.straggler.sum() == 3
    assert not full.straggler.any()
    shorter = 0
    for k in range(len(SIZES)):
        for role in ROLES:
            assert batches(slow, role, k) == batches(full, role, k)[: slow.steps[k]]
        assert slow.steps[k] == slow.amount[k] * (slow.per_epoch[k] if config.epochs else 1)
        shorter += slow.steps[k] < full.steps[k]
        if not slow.straggler[k]:
            assert slow.amount[k] == 5
    assert shorter > 0


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.25, 1), (0.5, 3), (0.75, 5), (1, 6)])
def test_how_many_straggle(fraction, count):
    """⌊pK + ½⌋: 0.25·6 = 1.5 and 0.75·6 = 4.5 round up."""
    count += fraction == 0.25
    plan = make_plan(replace(ALL, stragglers=fraction), SIZES, 0, 0)
    assert plan.straggler.sum() == count


def test_straggler_epochs_are_uniform_from_1_to_E():
    config = Sampling(len(SIZES), epochs=3, stragglers=1.0)
    amounts = np.concatenate([make_plan(config, SIZES, t, 0).amount for t in range(300)])
    counts = np.bincount(amounts, minlength=4)
    assert counts[0] == 0
    assert len(counts) == 4
    np.testing.assert_allclose(counts[1:] / len(amounts), 1 / 3, atol=0.05)
    assert make_plan(replace(config, epochs=1), SIZES, 0, 0).amount.tolist() == [1] * len(SIZES)


@pytest.mark.parametrize("config", modes())
def test_the_three_batches_differ(config):
    """D, D′, D″ are drawn on their own: no two are the same where the client has enough rows."""
    plan = make_plan(config, SIZES, 0, 0, ROLES)
    k = int(np.argmax(SIZES))
    drawn = [batches(plan, role, k) for role in ROLES]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert drawn[a] != drawn[b]
        for x, y in zip(drawn[a], drawn[b]):
            assert x != y
    alone = make_plan(config, SIZES, 0, 0, ("D1",))  # nor does one depend on the others
    assert batches(alone, "D1", k) == drawn[1]


@pytest.mark.parametrize("config", modes(batch_size=10))
def test_small_clients_take_part_fully(config):
    """n_k = 1 and n_k < B give whole batches in each of D, D′, D″: nobody is skipped."""
    plan = make_plan(config, SIZES, 0, 0, ROLES)
    for k, n in enumerate(SIZES):
        if n <= 10:
            for role in ROLES:
                assert [sorted(rows) for rows in batches(plan, role, k)] == [list(range(n))] * 3


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
    assert drawn(64 * B).dtype == drawn(64 * B + 1).dtype == np.int32


def test_with_steps_an_epoch_is_one_step():
    plan = make_plan(Sampling(len(SIZES), steps=5, batch_size=4), SIZES, 0, 0)
    assert plan.per_epoch.tolist() == [1] * len(SIZES)
    assert plan.steps.tolist() == [5] * len(SIZES)
    episodes = make_plan(ALL, SIZES, 0, 0, ("S", "Q"))
    assert episodes.per_epoch.tolist() == [1] * len(SIZES)


def test_streams_differ_by_every_part_of_their_key():
    keys = [
        (seed, name, *key)
        for seed in (0, 1)
        for name in ("cohort", "D", "D1")
        for key in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    draws = {int(stream(*key).integers(2**62)) for key in keys}
    assert len(draws) == len(keys)


def test_by_samples_draws_in_proportion_with_repeats():
    """[fedprox alg.2]: K draws with replacement; a client drawn twice is there once, counted 2."""
    config = Sampling(5, epochs=1, sampling="by-samples")
    counts, repeats = np.zeros(len(SIZES)), 0
    for t in range(2000):
        clients, times = cohort(config, SIZES, t, 0)
        assert times.sum() == 5
        assert (np.diff(clients) > 0).all()
        counts[clients] += times
        repeats += times.max() > 1
    p = SIZES / SIZES.sum()
    deviation = np.sqrt(10_000 * p * (1 - p))  # of 10 000 draws; the smallest share is 1 in 63
    assert (np.abs(counts - 10_000 * p) < 4 * deviation).all()
    assert repeats > 1000
    # more draws than clients are possible with replacement in number, but not more than clients
    plan = make_plan(replace(config, epochs=2), SIZES, 0, 0)
    assert plan.counts.sum() == 5
    assert len(plan.clients) == len(plan.rows["D"]) <= 5


@settings(max_examples=20)
@given(st.integers(2, 20), st.integers(0, 9))
def test_adaptation_rows_are_fresh_training_rows(n, seed):
    config = Sampling(1, epochs=1, batch_size=5, support=0.5)
    rows = adaptation_rows(config, "D", n, 3, 1, seed)
    assert len(set(rows.tolist())) == len(rows) == min(5, n)
    assert set(rows.tolist()) <= set(range(n))
    everything = adaptation_rows(replace(config, batch_size=0), "D", n, 3, 1, seed)
    assert sorted(everything.tolist()) == list(range(n))
    S = adaptation_rows(config, "S", n, 3, 1, seed)
    assert len(set(S.tolist())) == len(S) == np.clip(round(n / 2), 1, n - 1)
    assert set(S.tolist()) <= set(range(n))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set epochs or steps"),
        ({"epochs": 1, "steps": 1}, "only one of them"),
        ({"epochs": 0}, "epochs is 0, expected a whole number, at least 1"),
        ({"steps": -2}, "steps is -2, expected a whole number, at least 1"),
        ({"epochs": 1, "clients_per_round": 0}, "clients-per-round is 0"),
        ({"epochs": 1, "batch_size": -1}, "batch-size is -1, expected a whole number, at least 0"),
        ({"epochs": 1, "sampling": "by-sample"}, "did you mean 'by-samples'"),
        ({"epochs": 1, "stragglers": 1.5}, "stragglers is 1.5"),
        ({"epochs": 1, "stragglers": -0.5}, "stragglers is -0.5"),
        ({"epochs": 1, "stragglers": float("nan")}, "stragglers is nan"),
        ({"epochs": 1, "support": 1.0}, "support is 1.0"),
        ({"epochs": 1, "support": 0.0}, "support is 0.0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Sampling(**options)


def test_defaults_and_what_is_just_allowed():
    assert Sampling(epochs=2) == Sampling(10, 2, None, 10, "uniform", 0.0, 0.8)
    assert Sampling(1, epochs=1, batch_size=0, stragglers=1.0).amount == 1
    assert Sampling(steps=7, stragglers=0.0).amount == 7
    assert make_plan(Sampling(6, epochs=1), SIZES, 0, 0).rows.keys() == {"D"}
    assert len(make_plan(Sampling(6, epochs=1), SIZES, 0, 0).clients) == 6
    assert PADDING == -1


def test_a_cohort_larger_than_the_federation_is_refused():
    with pytest.raises(ConfigError, match="clients-per-round is 7, but there are only 6 clients"):
        make_plan(Sampling(7, epochs=1), SIZES, 0, 0)


@pytest.mark.parametrize(
    ("name", "key", "numbers"),
    [
        ("cohort", (5,), [745, 716, 485, 257]),
        ("D", (2, 7), [166, 0, 328, 803]),
        ("init", (), [770, 927, 929, 723]),
    ],
)
def test_a_stream_is_keyed_by_seed_purpose_round_and_client(name, key, numbers):
    """A change of these numbers would make every published run another one."""
    assert stream(3, name, *key).integers(0, 1000, 4).tolist() == numbers
