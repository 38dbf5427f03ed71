"""Many clients and many rows: what a split may cost in time and memory."""

import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pytest

from fedref.datasets import RULES, split
from fedref.datasets.synthetic import generate
from fedref.datasets.types import Federation, Source

GENERAL = ("natural", "iid", "quantity", "shards", "dirichlet")


def many(clients: int, rows: int) -> Source:
    """Synthetic(1, 1) with equally many rows of four features for each client."""
    n = np.full(clients, rows // clients)
    return Source(*generate(1, 1, users=clients, features=4, n=n))


def seconds_of_a_round(federation: Federation, cohort: int = 100) -> float:
    """Draw a cohort, a mini-batch of ten rows each, and gather them: median of 50."""
    rng, times = np.random.default_rng(0), []
    for _ in range(50):
        start = perf_counter()
        chosen = rng.choice(federation.clients, cohort, replace=False)
        n, first = federation.train.sizes[chosen], federation.train.offsets[chosen]
        rows = federation.train.rows[first[:, None] + rng.integers(0, n[:, None], (cohort, 10))]
        assert federation.batch(rows).X.shape == (cohort, 10, 4)
        times.append(perf_counter() - start)
    return float(np.median(times))


@pytest.mark.parametrize("rule", GENERAL)
def test_ten_thousand_clients(rule: str) -> None:
    users = {"users": 10_000} if "users" in RULES[rule].parameters else {}
    found = split(rule, many(10_000, 200_000), **users)
    assert found.clients == 10_000
    assert found.train.sizes.sum() + found.test.sizes.sum() == 200_000
    assert found.train.rows.dtype == np.int64


@pytest.mark.slow
@pytest.mark.parametrize("rule", GENERAL)
def test_a_hundred_thousand_clients_and_five_million_rows(rule: str) -> None:
    """Ten times the rows: some ten times the time (more once out of the cache), not a hundred."""
    took, rounds = [], []
    for clients in (10_000, 100_000):
        users = {"users": clients} if "users" in RULES[rule].parameters else {}
        source = many(clients, 50 * clients)
        start = process_time()  # other processes may be at work
        found = split(rule, source, **users)
        took.append(process_time() - start)
        rounds.append(seconds_of_a_round(found))
    print(f"{rule}: {took[0]:.2f} s and {took[1]:.2f} s; rounds {rounds[0]:.4f} {rounds[1]:.4f}")
    assert took[1] < 40 * took[0]
    assert rounds[1] < 4 * rounds[0] + 0.01


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory needs Linux's /proc"
)
def test_mnist_with_a_thousand_clients_fits_in_memory(real: Path) -> None:
    """Pixels stay bytes: loading, splitting and describing peak far below 600 MB."""
    program = (
        "import re, sys\n"
        "from fedref.datasets import load, split\n"
        "split('fedprox-mnist', load('mnist', sys.argv[1])).manifest()\n"
        # not ru_maxrss, in which a child starts with its parent's peak
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    command = [sys.executable, "-c", program, str(real)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300_000
