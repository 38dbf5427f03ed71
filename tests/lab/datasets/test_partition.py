"""The moves that split rules are made of, beside plain lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedref.lab.datasets import partition, split_clients
from fedref.rounds.federation import Part

sizes = st.lists(st.integers(0, 8), min_size=1, max_size=6)


def as_lists(part):
    return [part.rows_of(k).tolist() for k in range(len(part.offsets) - 1)]


def whole(n):
    return Part(np.arange(sum(n)) + 100, partition.offsets(np.array(n)))


def test_every_order_of_a_client_is_as_likely():
    part = whole([3] * 6000)
    rows = partition.shuffle_clients(part, np.random.default_rng(0)).rows.reshape(-1, 3)
    np.testing.assert_array_equal(np.sort(rows, 1), part.rows.reshape(-1, 3))
    _, counts = np.unique(rows.argsort(1), axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 120  # four standard deviations


@given(sizes, st.floats(0, 1), st.integers(0, 9))
def test_cut_gives_every_row_to_one_side(n, fraction, seed):
    part = whole(n)
    train, test = partition.split_rows(part, fraction, np.random.default_rng(seed))
    for rows, a, b in zip(as_lists(part), as_lists(train), as_lists(test)):
        assert sorted(a + b) == rows
        assert (a, b) == (sorted(a), sorted(b))
        assert (len(a) >= 1, len(b) >= 1) == (len(rows) >= 1, len(rows) >= 2)
    for percent in range(1, 100):  # 0.29 · 100 is 28.999999999999996
        assert partition.train_sizes(np.array([100]), percent / 100)[0] == percent


@given(sizes, st.floats(0, 0.99), st.integers(0, 9))
def test_validation_rows_are_a_share_of_a_client_s_rows_and_some_are_left(n, share, seed):
    part = whole(n)
    rest, held = partition.hold_back(part, share, np.random.default_rng(seed))
    for rows, a, b in zip(as_lists(part), as_lists(rest), as_lists(held)):
        assert sorted(a + b) == rows
        wanted = round(share * len(rows))
        assert len(b) == (wanted if wanted < len(rows) else 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.data())
def test_deal_is_the_loop_over_holdings(n, data):
    pools = whole(n)
    holding = st.tuples(st.integers(0, len(n) - 1), st.integers(0, 3), st.integers(0, 5))
    holdings = data.draw(st.lists(holding, max_size=10))
    pool, client, count = np.array(holdings, np.int64).reshape(-1, 3).T
    left = as_lists(pools)
    expected: list[list[int]] = [[], [], [], []]
    for c, k, m in holdings:
        expected[k] += left[c][:m]
        left[c] = left[c][m:]
    assert as_lists(partition.deal(pools, pool, client, count, 4)) == expected


@given(st.integers(0, 300), st.integers(0, 9))
def test_clients_are_split_into_disjoint_sets(n, seed):
    groups = split_clients(n, seed)
    assert sorted(np.concatenate(groups)) == list(range(n))
    for group, fraction, same in zip(groups, (0.8, 0.1, 0.1), split_clients(n, seed)):
        assert abs(len(group) - fraction * n) <= 1
        assert (np.diff(group) > 0).all()
        np.testing.assert_array_equal(group, same)
