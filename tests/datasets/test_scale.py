"""Many clients and many rows: what a split may cost in time and memory."""

import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pytest

from fedref.algorithm import State
from fedref.algorithms import FedAvg
from fedref.datasets import RULES, split
from fedref.datasets.synthetic import generate
from fedref.models import Logistic
from fedref.rounds.federation import Federation, Source
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

GENERAL = ("natural", "iid", "quantity", "shards", "dirichlet")


def many(clients: int, rows: int) -> Source:
    """Synthetic(1, 1) with equally many rows of four features for each client."""
    n = np.full(clients, rows // clients)
    return Source(*generate(1, 1, users=clients, features=4, n=n))


def seconds_of_a_round(federation: Federation, cohort: int = 100) -> float:
    """Plan and run rounds of FedAvg, one step on ten rows a client: median of 50."""
    model, algorithm, times = Logistic(4, 10), FedAvg(), []
    state = State(algorithm.initial(model, np.zeros(model.d)), {})
    config = Sampling(cohort, steps=1, batch_size=10)
    for round in range(50):
        start = perf_counter()
        plan = make_plan(config, federation.train.sizes, round, 0, algorithm.roles)
        state, log = run_round(algorithm, model, state, plan, federation)
        times.append(perf_counter() - start)
        assert log.counts.grads == cohort
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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "program",
    [
        "from fedref.datasets import load, manifest_of, split\n"
        "manifest_of(split('fedprox-mnist', load('mnist', sys.argv[1])))\n",
        pytest.param(
            "from fedref.commands import main\n"
            "words = ['run', 'apfl', '--data', 'mnist', '--split', 'fedprox-mnist', '--model']\n"
            "words += ['logistic', '--rounds', '2', '--quiet', '--data-dir', sys.argv[1]]\n"
            "assert main([*words, '--out', sys.argv[2]]) == 0\n",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["split", "run"],
)
def test_mnist_with_a_thousand_clients_takes_300_MB(
    real: Path, tmp_path: Path, program: str
) -> None:
    """Pixels stay bytes in loading, splitting and describing, and in all of `fedref run`."""
    # not ru_maxrss, in which a child starts with its parent's peak
    peak = (
        "import re\nprint(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    command = [
        sys.executable,
        "-c",
        f"import sys\n{program}{peak}",
        str(real),
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 300_000
