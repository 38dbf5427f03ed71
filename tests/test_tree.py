"""Trees: nested tuples of arrays."""

import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import MODELS, make_federation, same, start

from fedref import tree
from fedref.algorithm import Cohort, weighted_mean
from fedref.algorithms import ALGORITHMS
from fedref.rounds.local_data import gather
from fedref.rounds.loop import run_clients
from fedref.sampling import Sampling, make_plan


class Pair(NamedTuple):
    x: Any
    y: Any


A, B = np.arange(3.0), np.ones((2, 2))
TREE = Pair(A, (None, B, Pair(2.0, None)))


def test_map_keeps_the_shape_of_the_tree():
    assert same(tree.map(lambda x: x * 2, TREE), Pair(A * 2, (None, B * 2, Pair(4.0, None))))
    assert same(tree.map(lambda x, y: x - 3 * y, TREE, TREE), tree.map(lambda x: x - 3 * x, TREE))
    assert tree.map(np.negative, None) is None


def test_map_refuses_trees_of_other_shape():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tree.map(np.add, (A, A), (A, A, A))


def test_leaves_are_in_order_and_leave_none_out():
    x, y, z = tree.leaves(TREE)
    assert x is A
    assert y is B
    assert z == 2.0
    assert list(tree.leaves(None)) == []


def test_stack_puts_a_leading_axis_in_front():
    stacked = tree.stack([Pair(A, None), Pair(-A, None)])
    assert same(stacked, Pair(np.stack([A, -A]), None))


def test_rows_of_one_array_are_stacked_without_a_copy_and_cannot_be_written_to():
    x = np.arange(12.0).reshape(3, 4).copy()
    whole = tree.stack([(row, 1.5) for row in x])[0]
    assert np.shares_memory(whole, x)
    assert not whole.flags.writeable
    assert x.flags.writeable
    copied = ([x[1], x[0], x[2]], x[:2], [x[0], x[0], x[0]], x[:, :2], x.T[:3], [x[0], x[1], +x[2]])
    for rows in copied:
        stacked = tree.stack([*rows])
        assert not np.shares_memory(stacked, x)
        np.testing.assert_array_equal(stacked, np.array([*rows]))


def test_own_copies_views_alone():
    whole, number = np.arange(6.0), 3
    view, same, none, it = tree.copy_views((whole[:2], whole, None, number))
    assert view.base is None
    assert view.tolist() == [0.0, 1.0]
    assert (same is whole, none, it is number) == (True, None, True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_finite(bad):
    assert tree.finite(Pair(A, ("name", None, 1)))
    assert not tree.finite(Pair(A, (np.array([0.0, bad]), None)))
    assert not tree.finite((A, float(bad)))


def test_freeze_makes_every_array_read_only():
    value = Pair(np.zeros(2), (None, 1.0, np.zeros(3)))
    assert tree.freeze(value) is value
    for x in (value.x, value.y[2]):
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1.0


# ---- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if not kind.pooled])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_clients_sent_is_combined_from_a_stream_to_the_bit(name, dtype):
    model, algorithm = MODELS["mlp"], ALGORITHMS[name]()
    federated = make_federation(model, (9, 30, 12, 20, 5))
    plan = make_plan(
        Sampling(5, epochs=2, batch_size=5), federated.train.sizes, 0, 0, algorithm.roles
    )
    server = tree.map(
        lambda x: x.astype(dtype) if isinstance(x, np.ndarray) else x,
        start(algorithm, model).server,
    )
    data = gather(plan, federated, dtype, np.arange(5))
    results, _ = run_clients(algorithm, model, algorithm.download(server), [None] * 5, data)
    uploads = [result.upload for result in results]
    cohort = Cohort(plan.clients, plan.counts, plan.sizes, 5)
    whole = algorithm.combine(model, server, tree.stack(uploads), cohort)
    read = tree.stream(lambda: iter(uploads), 5)
    assert same(algorithm.combine(model, server, read, cohort), whole)


def test_a_streamed_sum_does_not_grow_with_the_clients():
    d = 20_000
    base = np.random.default_rng(0).normal(size=2 * d)

    def peak(K):
        uploads = tree.stream(lambda: (base[k : k + d] for k in range(K)), K)
        tracemalloc.start()
        total = weighted_mean(np.full(K, 1 / K), uploads)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, total

    (few, _), (many, total) = peak(10), peak(2000)
    assert many < few + 100_000 < 5 * 8 * d
    stacked = np.stack([base[k : k + d] for k in range(2000)])
    np.testing.assert_array_equal(total, weighted_mean(np.full(2000, 1 / 2000), stacked))
    backwards = tree.stream(lambda: iter(stacked[::-1]), 2000)
    assert not same(weighted_mean(np.full(2000, 1 / 2000), backwards), total)
