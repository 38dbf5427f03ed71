"""One dead worker costs its round, not the run; and workers work as the process itself does."""

import os
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from fedref.experiments import workers
from fedref.experiments.workers import Processes


def double(x: int) -> int:
    return 2 * x


def die() -> None:
    os._exit(1)


def test_a_broken_pool_is_replaced_by_a_new_one():
    with Processes(1) as executor:
        assert executor.submit(double, 4).result() == 8
        with pytest.raises(BrokenExecutor):
            executor.submit(die).result()
        assert executor.submit(double, 5).result() == 10


def test_a_worker_does_its_sums_with_one_thread_and_without_warnings():
    def work():
        return [m["num_threads"] for m in workers.blas().info()], np.float64(1e300) * 1e300

    with ThreadPoolExecutor(1) as pool:
        threads, product = workers.Calm(pool).submit(work).result()
    assert set(threads) <= {1}
    assert product == np.inf
