"""One dead worker costs its round, not the run."""

import os
from concurrent.futures import BrokenExecutor

import pytest

from fedref.workers import Processes


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
