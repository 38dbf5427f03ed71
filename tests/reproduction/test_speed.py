"""The report on speed: who is timed, and as what."""

import csv
import sys
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from runpy import run_module
from typing import NamedTuple

import numpy as np
import pytest

from fedref.boundary.errors import FedrefError
from reproduce.speed import timings
from reproduce.speed.server import Answer, parameters

HERE = Path(timings.__file__).parent


class Fake(NamedTuple):
    """A process whose implementation takes as long as it is told."""

    milliseconds: float
    result: np.ndarray

    def submit(self, work, *_):
        done, took = Future(), Answer(self.milliseconds / 1e3, 0.5, 100)
        done.set_result(self.result if work is parameters else took)
        return done


def test_what_computes_something_else_is_not_timed():
    servers = {"fedref": Fake(1, np.ones(3)), "jax-map": Fake(1, np.ones(3) + 1e-8)}
    timings.agree(servers, "W1", "float32")
    with pytest.raises(FedrefError, match=r"jax-map differs from fedref by 1\.0e-08"):
        timings.agree(servers, "W1", "float64")


def test_ratios_are_to_fedref_s_time_on_the_same_cores(tmp_path):
    rows = []
    for cores, times in (1, {"fedref": 10, "torch-eager": 20}), (2, {"fedref": 5, "jax-pmap": 4}):
        servers = {how: Fake(ms, np.ones(3)) for how, ms in times.items()}
        turns = timings.take_turns(servers, "W1", "float32", 5)
        rows += timings.rows_of(cores, "W1", "float32", turns)
    text = timings.write_up(rows, 5, tmp_path)
    assert "| W1 | float32 | 10.0 | 2.00 (2.00–2.00) |" in text.split("On 2 cores")[0]
    assert "| W1 | float32 | 5.0 | 0.80 (0.80–0.80) |" in text.split("On 2 cores")[1]
    assert (tmp_path / "speed.png").exists()


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("W2", "W5")]


@pytest.mark.parametrize("name", ["W1", "W3", *SLOW])
def test_numpy_by_hand_computes_the_same(name):
    ours, found = (parameters(how, "float64", name) for how in ("fedref", "numpy-by-hand"))
    np.testing.assert_allclose(found, ours, rtol=0, atol=1e-12 * np.abs(ours).max())


@pytest.mark.slow
def test_an_earlier_version_is_timed_from_its_own_checkout(tmp_path):
    module = tmp_path / "reproduce" / "speed" / "server.py"
    module.parent.mkdir(parents=True)
    (tmp_path / "reproduce" / "__init__.py").touch()
    module.write_text("start = print\ndef parameters(*words): return [__file__, *words]\n")
    with ExitStack() as stack:
        earlier = timings.server([0], stack, tmp_path)
        found = earlier.submit(parameters, "earlier", "float64", "W1").result()
    assert found == [str(module), "earlier", "float64", "W1"]
    assert str(tmp_path) not in sys.path


def test_the_written_tables_are_of_the_numbers_beside_them():
    folder = HERE.parent / "results/speed"
    with open(folder / "numbers.csv") as file:
        head, *lines = csv.reader(file)
    assert tuple(head) == timings.Row._fields
    rows = [timings.Row(int(n), *line[:3], *map(float, line[3:])) for n, *line in lines]
    text = (folder / "table.md").read_text("utf-8")
    for cores in (1, 2):
        assert timings.table(row for row in rows if row.cores == cores) in text


def test_no_table_is_written_where_the_environment_forces_kernels(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(sys, "argv", ["speed", "--quick", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        run_module("reproduce.speed", run_name="__main__")
    assert "OPENBLAS_CORETYPE is set" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert "(OPENBLAS_CORETYPE=Haswell" in timings.describe_machine()
