"""Units over workers: the same files and the same end as in one process, whatever happens."""

import importlib
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers import Dies
from running import algorithms, contents, document, main, process, refused, rows, write

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments import config, setting, turns, unit
from fedref.experiments.progress import Progress
from fedref.experiments.workers import Processes, Shared, laid_down

RUN = importlib.import_module("fedref.experiments.run")

#: More units than workers, some with what clients keep, at points with other data.
SWEEP = document(
    rounds=6,
    seeds=[0, 1],
    algorithms=algorithms("apfl", "fedcurv", "centralised") | {"fedcurv": {"lam": 0.001}},
    sweep={"split.users": [4, 6]},
)

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def at_once(monkeypatch):
    """Workers are used from the first round on."""
    monkeypatch.setattr(Processes, "starting", 0.0)


@pytest.mark.parametrize("length", [0.0, 0.02, 60.0])
def test_units_over_threads_give_the_same_bytes(here, monkeypatch, length):
    monkeypatch.setattr(turns, "TURN", length)
    monkeypatch.setattr(turns, "SENDING", 0)
    told: dict[tuple, list] = {}

    def round(unit, record):
        told.setdefault(unit.number, []).append((record.status, record.round, len(record.rows)))

    alone = fedref.run(SWEEP, out="a")
    with ThreadPoolExecutor(3) as pool:
        run = fedref.run(SWEEP, out="b", executor=pool, workers=3, progress=Progress(round))
    assert contents(here / "a") == contents(here / "b")
    assert [u.number for u in run.units] == list(range(12)) == sorted(told)
    assert all(a.rows == b.rows for a, b in zip(alone.records, run.records))
    expected = [("running", t, t + 1) for t in range(6)] + [("done", 6, 7)]
    assert all(seen == expected for seen in told.values())


@pytest.mark.usefixtures("at_once")
def test_units_over_processes_give_the_same_bytes(here, capsys):
    path = write(here / "t.toml", {**SWEEP, "unseen": 0.0})
    assert main("run", path, "--out", "a", "--json") == 0
    alone = capsys.readouterr().out.splitlines()
    assert main("run", path, "--out", "b", "--json", "--workers", "2") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(alone)
    assert contents(here / "a") == contents(here / "b")


def test_what_diverges_ends_the_same(here):
    table = document(
        rounds=4,
        algorithms=algorithms("fedavg", bad={"algorithm": "fedprox", "lr": 1e300, "mu": 1e300}),
    )
    told: dict[str, list] = {"a": [], "b": []}

    def round(name):
        def told_of(unit, record):
            if unit.label == "bad":
                told[name].append((record.status, record.reason, record.round, len(record.rows)))

        return Progress(told_of)

    fedref.run(table, out="a", progress=round("a"))
    with ThreadPoolExecutor(2) as pool:
        fedref.run(table, out="b", executor=pool, workers=2, progress=round("b"))
    assert contents(here / "a") == contents(here / "b")
    assert told["a"] == told["b"]
    assert told["a"][-1][0] == "diverged"


def test_setting_travels_without_its_data_and_arrives_whole():
    made = setting.setting(
        config.from_table(document(unseen=0.3, split={"rule": "iid", "users": 10}))
    )
    bare = turns.without_data(made)
    assert bare.federation.source.X is None
    assert bare.unseen[0].source.X is None
    source = made.federation.source
    whole = turns.with_data(bare, source.X, source.y)
    algorithm = FedAvg(lr=0.05)
    one, other = (list(unit.rounds(s, algorithm, 0)) for s in (made, whole))
    assert [record.rows for record in one] == [record.rows for record in other]
    assert "unseen_accuracy" in one[-1].rows[-1]


def test_what_is_laid_down_is_found_as_it_was(here):
    value = {
        "a": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.eye(3)), "none": np.zeros((0, 4)),
        "part": np.arange(10)[::2], "bytes": np.arange(5, dtype=np.uint8), "more": (1, "two", None),
    }  # fmt: skip
    shared = laid_down(value, str(here / "x"))
    got = Shared(shared.path).value()
    assert got["more"] == value["more"]
    for key in ("a", "f", "none", "part", "bytes"):
        np.testing.assert_array_equal(got[key], value[key])
        assert got[key].dtype == value[key].dtype
    assert got["f"].flags.f_contiguous
    assert not got["a"].flags.writeable
    assert got["a"].ctypes.data % 64 == 0


def test_data_are_written_once_for_all_units_and_turns(monkeypatch):
    monkeypatch.setattr(turns, "TURN", 0.0)
    monkeypatch.setattr(turns, "SENDING", 0)
    written = []
    with Processes(2) as executor:
        real = executor.share
        monkeypatch.setattr(executor, "share", lambda x: written.append(id(x)) or real(x))
        executor.starting = 0.0
        fedref.run(document(seeds=[0, 1, 2], rounds=2), executor=executor, workers=2)
        assert len(written) == 3 * 9
        assert len(executor.shared) == 3  # X, y and the setting


# ---- failures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailsAtOnce(FedAvg):
    def finish(self, model, sent, local, client_state, data):
        raise ZeroDivisionError("at once")


@dataclass(frozen=True)
class FailsLate(FedAvg):
    """Fails in what is the third round of this model, after some time."""

    def finish(self, model, sent, local, client_state, data):
        if abs(sent.w).max() > 0:
            time.sleep(0.05)
        if abs(sent.w).max() > 0.02:
            raise ZeroDivisionError("late")
        return super().finish(model, sent, local, client_state, data)


@pytest.fixture
def failing(monkeypatch):
    for name, kind in {"at-once": FailsAtOnce, "late": FailsLate, "dies": Dies}.items():
        monkeypatch.setitem(ALGORITHMS, name, kind)


@pytest.mark.usefixtures("failing")
def test_the_first_unit_that_fails_ends_the_run_as_in_one_process(here):
    """Though a later one fails earlier; and what others have done is saved."""
    tables = algorithms("fedavg", "late", "at-once", "fedprox")
    table = document(algorithms=tables, clients_per_round=4, rounds=8)
    with pytest.raises(fedref.FedrefError, match="ZeroDivisionError: late") as alone:
        fedref.run(table, out="a")
    with ThreadPoolExecutor(4) as pool, pytest.raises(fedref.FedrefError) as apart:
        fedref.run(table, out="b", executor=pool, workers=4)
    assert str(apart.value) == str(alone.value)
    assert {row["algorithm"] for row in rows(here / "b" / "metrics.csv")} == {"fedavg"}
    assert (here / "b" / "checkpoints" / "0003-fedprox-seed0.ckpt").exists()
    assert (here / "b" / "checkpoints" / "0000-fedavg-seed0.ckpt").read_bytes() == (
        here / "a" / "checkpoints" / "0000-fedavg-seed0.ckpt"
    ).read_bytes()


@pytest.mark.usefixtures("failing", "at_once")
def test_a_worker_that_dies_is_one_line_with_its_unit(here, capsys):
    path = write(here / "t.toml", document(algorithms=algorithms("dies"), seeds=[3, 4]))
    line = refused(capsys, "run", path, "--out", "a", "--quiet", "--workers", "2")
    assert "the worker with dies (seed 3) or dies (seed 4) died (" in line


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(x, marks=pytest.mark.slow) for x in (signal.SIGINT, "worker"))],
)
def test_units_over_workers_are_stopped_and_gone_on_with(here, capsys, how):
    path = write(here / "t.toml", {**SWEEP, "rounds": 60})
    assert main("run", path, "--out", "whole", "--quiet") == 0
    first = "from fedref.experiments.workers import Processes; Processes.starting = 0.0"
    words = ["run", path, "--out", "a"]
    for _ in range(2):
        run = process(
            *words, "--quiet", "--checkpoint-every", "0.05", "--workers", "2",
            first=f"if __name__ == '__main__': {first}", start_new_session=True,
        )  # fmt: skip
        began, ckpts = time.time_ns(), here / "a" / "checkpoints"
        while run.poll() is None and not any(
            p.stat().st_mtime_ns > began for p in ckpts.glob("*.ckpt")
        ):
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
        if how == "worker":
            kill_a_child(run.pid)
        elif how == signal.SIGINT:
            os.killpg(run.pid, how)  # as Ctrl-C does: to all of them
        else:
            run.kill()
        _, errors = run.communicate(timeout=60)
        assert "Traceback" not in errors
        if run.returncode == 0:
            break
        expected = {signal.SIGKILL: -9, signal.SIGINT: 130, "worker": 2}[how]
        assert run.returncode == expected, errors
        if how == "worker":
            assert errors.count("\n") == 1
            assert " died (" in errors
        words = ["resume", "a"]
    capsys.readouterr()
    assert main("resume", "a", "--quiet") == 0
    assert capsys.readouterr().err == ""
    assert contents(here / "a") == contents(here / "whole")


def kill_a_child(parent: int) -> None:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("utf-8").split()
    command = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    workers = [int(pid) for pid in children if b"spawn_main" in command[pid]]
    if workers:
        os.kill(workers[-1], signal.SIGKILL)
