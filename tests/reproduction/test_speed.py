"""The report on speed: who is timed, and as what."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedref.boundary.errors import FedrefError
from reproduce.speed import report
from reproduce.speed.workloads import NAMES, workload

HERE = Path(report.__file__).parent


@pytest.fixture
def beside(monkeypatch):
    """The scripts of the report import each other by name."""
    monkeypatch.syspath_prepend(HERE)


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_that_keeps_one_flat_vector_is_refused(name, beside):
    from dense import dense
    from server import flatten

    w = dense(name, "float32").w
    assert [x.shape for x in w] == list(workload(name)[1].shapes)
    assert flatten("jax-map", name, w).shape == (sum(x.size for x in w),)
    assert flatten("jax-map", name, (w, w)).shape == (2 * sum(x.size for x in w),)  # Meta-SGD
    with pytest.raises(ValueError, match=f"holds {name}'s parameters not as arrays of the shapes"):
        flatten("jax-map", name, np.concatenate([x.ravel() for x in w]))


def test_padding_has_weights_only_where_a_batch_is_short(beside):
    from dense import dense

    assert {n: [p is None for p in dense(n, "float32").weights.values()] for n in NAMES} == {
        "W1": [False], "W2": [True] * 3, "W3": [True] * 2, "W4": [True], "W5": [False],
    }  # fmt: skip


class Fake:
    """An implementation that takes as long as it is told, and counts its rounds."""

    def __init__(self, how, milliseconds, result):
        self.how, self.milliseconds, self.result, self.asked = how, milliseconds, result, 0

    def ask(self, name, path=None):
        self.asked += 1
        if path:
            np.save(path, self.result)
        return [self.milliseconds / 1e3, 0.5, 100]


def test_what_computes_something_else_is_not_timed(tmp_path):
    servers = [Fake("fedref", 1, np.ones(3)), Fake("jax-map", 1, np.ones(3) + 1e-8)]
    report.agree(servers, "W1", "float32", tmp_path)
    assert [server.asked for server in servers] == [1, 1]
    with pytest.raises(FedrefError, match=r"jax-map differs from fedref by 1\.0e-08"):
        report.agree(servers, "W1", "float64", tmp_path)


def test_a_hopeless_way_takes_no_more_turns(tmp_path):
    times = {"fedref": 10, "torch-eager": 20, "torch-vmap": 90, "jax-vmap": 12, "jax-map": 5}
    servers = [Fake(how, ms, np.ones(3)) for how, ms in times.items()]
    found = report.rows(servers, "W1", "float32", report.take_turns(servers, "W1", 5))
    assert [server.asked for server in servers] == [5, 5, 3, 5, 5]  # 90 is more than 3 × 20
    text = report.write_up(found, 5, tmp_path)
    assert "| W1 | float32 | 10.0 | 2.00 (2.00–2.00) | 9.00 (9.00–9.00) | 1.20 " in text
    assert "| W1 | 0.50 s, 100 MB | " in text
    assert (tmp_path / "speed.png").exists()


def test_the_written_tables_are_of_the_numbers_beside_them():
    folder = HERE.parent / "results/speed"
    with open(folder / "numbers.csv") as file:
        head, *lines = csv.reader(file)
    assert head == report.HEAD
    found = [[*row[:3], *map(float, row[3:])] for row in lines]
    text = (folder / "table.md").read_text("utf-8")
    for table in (report.table, report.start_and_memory):
        assert table(found) in text


def test_the_machine_is_named_and_who_chose_the_kernels(monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    monkeypatch.delenv("OPENBLAS_L2_SIZE", raising=False)
    assert re.search(
        r"instruction sets up to .*OpenBLAS for .* \(chosen by", report.describe_machine()
    )
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert "(OPENBLAS_CORETYPE=Haswell)" in report.describe_machine()


def test_no_table_is_written_where_the_environment_forces_kernels(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reproduce.speed", "--quick", "--out", tmp_path / "out"],
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"}, cwd=HERE.parents[1],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "OPENBLAS_CORETYPE is set" in done.stderr
    assert not (tmp_path / "out").exists()
