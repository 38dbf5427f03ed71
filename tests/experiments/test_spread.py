"""Units over workers: the same files and the same end as in one process, whatever happens."""

import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import Dies
from running import algorithms, contents, document, main, process, refused, write

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments.parallel import Processes
from fedref.experiments.progress import Progress

#: More units than workers, some with what clients keep, at points with other data.
SWEEP = document(
    rounds=6,
    seeds=[0, 1],
    algorithms=algorithms("apfl", "fedcurv", "centralised") | {"fedcurv": {"lam": 0.001}},
    sweep={"split.users": [4, 6]},
)

pytestmark = pytest.mark.usefixtures("here")


def test_units_over_threads_give_the_same_bytes_and_tell_the_same_rounds(here):
    """Also of a unit that diverges."""
    bad = {"algorithm": "fedprox", "lr": 1e300, "mu": 1e300}
    table = {**SWEEP, "algorithms": {**SWEEP["algorithms"], "bad": bad}}
    told: dict[str, dict[int, list]] = {"a": {}, "b": {}}

    def progress(name):
        def round(unit, record):
            said = (record.status, record.reason, record.round, len(record.rows))
            told[name].setdefault(unit.number, []).append(said)

        return Progress(round)

    alone = fedref.run(table, out="a", progress=progress("a"))
    with ThreadPoolExecutor(3) as pool:
        run = fedref.run(table, out="b", executor=pool, workers=3, progress=progress("b"))
    assert contents(here / "a") == contents(here / "b")
    assert told["a"] == told["b"]
    assert [u.number for u in run.units] == list(range(16)) == sorted(told["b"])
    assert all(a.rows == b.rows for a, b in zip(alone.records, run.records))
    rounds = [("running", "", t, t + 1) for t in range(6)] + [("done", "", 6, 7)]
    for unit in run.units:
        if unit.label == "bad":
            assert told["b"][unit.number][-1][0] == "diverged"
        else:
            assert told["b"][unit.number] == rounds


def test_units_over_processes_give_the_same_bytes(here, capsys):
    """Parameters of chosen rounds, too; and JSON has every round."""
    path = write(here / "t.toml", {**SWEEP, "keep-parameters": 4})
    assert main("run", path, "--out", "a", "--json") == 0
    alone = capsys.readouterr().out.splitlines()
    assert main("run", path, "--out", "b", "--json", "--workers", "2") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(alone)
    assert contents(here / "a") == contents(here / "b")


def test_states_of_chosen_rounds_are_kept_over_any_executor(here):
    path = write(here / "t.toml", document(rounds=5, keep_parameters=2, seeds=[0, 1], eval_every=3))
    assert main("run", path, "-q", "-o", "whole") == 0
    with ThreadPoolExecutor(2) as executor:
        fedref.run(path, out="a", executor=executor, workers=2)
    assert contents(here / "a") == contents(here / "whole")
    assert len(list((here / "a" / "parameters").iterdir())) == 2 * 4


# ---- failures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SaysItIsAtWork(FedAvg):
    def finish(self, model, sent, local, client_state, data):
        Path("at-work").touch()
        return super().finish(model, sent, local, client_state, data)


@dataclass(frozen=True)
class FailsBesideAnother(FedAvg):
    def finish(self, model, sent, local, client_state, data):
        while not Path("at-work").exists():
            time.sleep(0.01)
        raise ZeroDivisionError("beside")


def test_a_worker_that_dies_is_one_line_with_its_unit(here, capsys, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "dies", Dies)
    path = write(here / "t.toml", document(algorithms=algorithms("dies"), seeds=[3, 4]))
    line = refused(capsys, "run", path, "--out", "a", "--quiet", "--workers", "2")
    assert "the worker with dies (seed 3) or dies (seed 4) died (" in line
    assert line.endswith("; go on with `fedref resume a`\n")


def test_a_unit_that_fails_stops_the_others_with_a_checkpoint(here):
    module = "tests.experiments.test_spread"
    tables = {"bad": {"algorithm": f"{module}:FailsBesideAnother"}}
    tables["good"] = {"algorithm": f"{module}:SaysItIsAtWork"}
    table = document(rounds=100000, eval_every=1000, algorithms=tables)
    with Processes(2) as executor, pytest.raises(fedref.FedrefError, match="beside"):
        fedref.run(table, out="a", executor=executor, workers=2)
    assert (here / "a" / "checkpoints" / "0001-good-seed0.ckpt").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        signal.SIGINT,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (signal.SIGTERM, "worker")),
    ],
)
def test_units_over_workers_are_stopped_and_gone_on_with(here, capsys, how):
    """Stopped by Ctrl-C or SIGTERM, they lose no round; however stopped, they go on to the same."""
    table = {key: value for key, value in SWEEP.items() if key != "sweep"}
    path = write(here / "t.toml", {**table, "rounds": 50, "eval-every": 25})
    assert main("run", path, "--out", "whole", "--quiet") == 0
    every = "1000" if how in (signal.SIGINT, signal.SIGTERM) else "0.02"
    run = process(
        "run", path, "--out", "a", "--quiet", "--checkpoint-every", every, "--workers", "2",
        start_new_session=True,
    )  # fmt: skip
    checkpoints = here / "a" / "checkpoints"
    while run.poll() is None and not list(checkpoints.glob("*.ckpt")):
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.2))
    if how == "worker":
        kill_a_child(run.pid)
    elif how == signal.SIGINT:
        os.killpg(run.pid, how)  # as Ctrl-C does: to all of them
    else:
        run.send_signal(how)
    _, errors = run.communicate(timeout=60)
    assert "Traceback" not in errors
    expected = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143, "worker": 2}[how]
    assert run.returncode == expected, errors
    if how != signal.SIGKILL:  # the system's own words on what is left are no matter
        assert errors.count("\n") == 1
    assert (" died (" in errors) == (how == "worker")
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
