"""Many clients and many rows: what a split may cost in time."""

from time import process_time

import numpy as np
import pytest

from fedref.lab.datasets import split
from fedref.lab.datasets.synthetic import Synthetic, generate
from fedref.rounds.federation import Source


def split_seconds(rule, clients, rows):
    """Split equally many rows of four features a client over as many clients; return the CPU time."""
    n = np.full(clients, rows // clients)
    source = Source(*generate(Synthetic(1, 1, users=clients, features=4), n=n))
    users = {} if rule == "natural" else {"users": clients}
    start = process_time()
    found = split(rule, source, **users)
    took = process_time() - start
    assert found.clients == clients
    assert found.train.sizes.sum() + found.test.sizes.sum() == rows
    return took


@pytest.mark.parametrize("rule", ["natural", "iid", "quantity", "shards", "dirichlet"])
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_clients_take_time_in_proportion(rule, many):
    """Ten times the rows: some ten times the time (more once out of the cache), not a hundred."""
    few = split_seconds(rule, many // 10, 2 * many)
    assert split_seconds(rule, many, 20 * many) < 40 * few + 0.1
