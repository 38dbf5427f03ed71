"""The moves that split rules are made of, beside plain lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedref.lab.datasets import partition
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
