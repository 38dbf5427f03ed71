"""The folder is the queue: however its units are run, shared, killed and resumed, the bytes are the same."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from running import algorithms, contents, document, main, process, refused, wait_for, write

import fedref
from fedref.boundary import checkpoint
from fedref.experiments import parallel, run_directory
from fedref.experiments.unit import units

pytestmark = pytest.mark.usefixtures("here")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
#: Four units of some seconds: long enough to be stopped in the middle.
LONG = document(
    rounds=400, eval_every=50, seeds=[0, 1], keep_parameters=200,
    algorithms={"fedavg": {}, "apfl": {"z": 1}},
)  # fmt: skip
QUICK = document(rounds=2, seeds=[0, 1], keep_parameters=1, algorithms=algorithms("fedavg", "apfl"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What LONG leaves if nothing happens, but for the picture."""
    folder = tmp_path_factory.mktemp("whole")
    run = process("run", write(folder / "t.toml", LONG), "--out", folder / "a", "-q")
    assert run.communicate() == ("", "")
    return contents(folder / "a")


def started(*words, rounds: int = 2):
    """Start LONG as a process in the folder a; return it once some of its rounds are done."""
    run = process("run", write(Path("t.toml"), LONG), "--out", "a", "-q", *words)
    wait_for(lambda: run.poll() is not None or rounds_done("a") >= rounds)
    assert run.poll() is None, run.communicate()
    return run


def rounds_done(folder) -> int:
    path = Path(folder) / ".lock"
    data = path.read_bytes() if path.exists() else b""
    return sum(n for n, _ in parallel.SLOT.iter_unpack(data[: len(data) // 16 * 16]))


def children(run) -> list[int]:
    """The processes of fedref that a process has started."""
    text = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(run.pid)], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in text.splitlines() if "spawn_main" in line]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


# ---- kills: one each -----------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "fedref: interrupted; resume with: fedref resume a\n"),
        (signal.SIGTERM, 143, "fedref: stopped by SIGTERM; resume with: fedref resume a\n"),
        (signal.SIGHUP, 129, "fedref: stopped by SIGHUP; resume with: fedref resume a\n"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_a_stopped_run_ends_at_once_saves_and_goes_on(whole, number, code, said, workers):
    run = started("--workers", workers, "--checkpoint-every", 1000 if code > 0 else 0)
    below, before, began = children(run), rounds_done("a"), time.monotonic()
    assert len(below) == workers - 1
    run.send_signal(number)
    assert run.communicate()[1] == said
    assert run.returncode == code
    assert time.monotonic() - began < 10  # a second or two on a quiet machine
    wait_for(lambda: not any(map(is_running, below)))
    if code > 0:  # no round is lost
        records = [fedref.load_run("a")] if any(Path("a/checkpoints").iterdir()) else []
        assert sum(r.round + 1 for run in records for r in run.records) >= before
    assert main("resume", "a", "-q") == 0
    assert contents(Path("a")) == whole


@posix
def test_a_worker_that_is_killed_costs_its_last_rounds_and_is_named(whole):
    run = started("--workers", 2, rounds=3)
    wait_for(lambda: children(run) and worker_has_a_unit(children(run)[0]))
    os.kill(children(run)[0], signal.SIGKILL)
    _, said = run.communicate()
    assert run.returncode == 0
    line = (
        r"fedref: the worker with (fedavg|apfl) \(seed .\) died \(SIGKILL\): another process .*\n"
    )
    assert re.fullmatch(line, said)
    assert contents(Path("a")) == whole


def worker_has_a_unit(pid: int) -> bool:
    data = Path("a/.lock").read_bytes()
    return pid in {p for _, p in parallel.SLOT.iter_unpack(data[: len(data) // 16 * 16])}


@posix
def test_two_commands_share_a_run(whole):
    first = started()
    second = process("resume", "a", "-q")
    assert [run.communicate()[1] for run in (first, second)] == ["", ""]
    assert (first.returncode, second.returncode) == (0, 0)
    assert contents(Path("a")) == whole


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_is_one_line_that_names_the_file(here, capsys, monkeypatch, number):
    path = write(here / "t.toml", QUICK)
    assert main("run", path, "-q", "-o", "whole") == 0
    expected, real = contents(here / "whole"), os.fsync
    for at in (1, 3, 6, 9, 14, 17):
        calls, out = [], here / f"{at}"

        def fails(descriptor, calls=calls, at=at):
            calls.append(descriptor)
            if len(calls) >= at:
                raise OSError(number, os.strerror(number))
            real(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            line = refused(capsys, "run", path, "-q", "-o", out)
        assert os.strerror(number) in line
        if (out / "config.toml").exists() and (out / "split.json").exists():
            hint = "make room, then" if number == errno.ENOSPC else "when it can be"
            assert f"what was saved before is whole: {hint}" in line
        again = ["resume", out] if (out / "config.toml").exists() else ["run", path, "-o", out]
        assert main(*again, "-q") == 0
        assert contents(out) == expected, at
        capsys.readouterr()


# ---- workers and executors -----------------------------------------------------------------------


def test_workers_give_the_bytes_of_one_process_and_report_every_round(here, capsys):
    path = write(here / "t.toml", QUICK)
    assert main("run", path, "-o", "a", "--json") == 0
    alone = capsys.readouterr().out.splitlines()
    assert main("run", path, "-o", "b", "--json", "--workers", 3) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(alone)
    assert len(alone) == 4 * 3
    assert contents(here / "a") == contents(here / "b")
    assert fedref.run(QUICK | {"keep-parameters": 9}, out="c").metrics.keys()
    run = fedref.run({k: v for k, v in QUICK.items() if k != "keep-parameters"}, workers=2)
    for one, other in zip(fedref.load_run("a").records, run.records):
        assert one.rows == other.rows


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_unit_comes_back_from_an_executor_as_bytes(here, pool):
    fedref.run(QUICK, out="a")
    how = {"mp_context": get_context("spawn")} if pool is ProcessPoolExecutor else {}
    with pool(2, **how) as executor:
        fedref.run(QUICK, out="b", executor=executor, workers=2)
        X, client = np.random.default_rng(0).normal(size=(60, 3)), np.repeat(np.arange(6), 10)
        data = {"data": (X, (X[:, 0] > 0).astype(int), client), "rounds": 2, "algorithm": "fedavg"}
        far = fedref.run(**data, executor=executor)
    assert contents(here / "a") == contents(here / "b")
    assert far.records[0].rows == fedref.run(**data).records[0].rows


def test_a_unit_that_fails_in_a_worker_is_the_error_of_the_run(here, capsys):
    code = "from fedref.algorithms.fedavg import FedAvg\nimport os, dataclasses\n" + (
        "@dataclasses.dataclass(frozen=True)\nclass Fails(FedAvg):\n"
        "    def step(self, model, sent, local, D):\n        raise ZeroDivisionError('no')\n"
    )
    (here / "mine_fails.py").write_text(code)
    table = document(
        rounds=300, algorithms=algorithms("fedavg", bad={"algorithm": "mine_fails:Fails"})
    )
    path = write(here / "t.toml", table)
    for workers in (1, 2):
        line = refused(capsys, "run", path, "-q", "-o", f"{workers}", "--workers", workers)
        assert re.search(r"client \d failed in round 1: ZeroDivisionError: no", line)
    # code that has changed is named, and taken only if that is said
    (here / "mine_fails.py").write_text(code + "# another\n")
    assert main("run", write(here / "u.toml", document()), "-q", "-o", "u") == 0


# ---- what is sealed with a unit ------------------------------------------------------------------

MINE = """
from dataclasses import dataclass
from fedref.algorithms.fedavg import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    pass
"""


@pytest.fixture
def stopped(here, monkeypatch):
    """A run of a user's algorithm over two files, stopped in the second point of its sweep."""
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        X = rng.normal(size=(40, 2))
        np.savez(f"{name}.npz", X=X, y=(X[:, 0] > 0).astype(int), client=np.arange(40) % 4)
    (here / "mine_sealed.py").write_text(MINE)
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "mine_sealed", raising=False)
    table = document(
        rounds=4, algorithms={"mine": {"algorithm": "mine_sealed:Mine"}}, split={"rule": "natural"},
        sweep={"data.name": [str(here / "one.npz"), str(here / "two.npz")]},
    )  # fmt: skip
    real = run_directory.save_record

    def interrupted(directory, unit, record, seal):
        real(directory, unit, record, seal)
        if unit.number == 1 and record.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_directory, "save_record", interrupted)
        words = ["-q", "-o", "a", "--checkpoint-every", 0]
        assert main("run", write(here / "t.toml", table), *words) == 130
    return here / "a"


def test_data_that_changed_are_refused_at_every_point_of_a_sweep(stopped, here, capsys):
    arrays = dict(np.load("two.npz"))
    np.savez("two.npz", **(arrays | {"y": 1 - arrays["y"]}))
    assert "the data or the split changed after mine" in refused(capsys, "resume", "a", "-q")


def test_code_that_changed_is_refused_unless_told_and_then_recorded(
    stopped, here, capsys, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(fedref, "__version__", "9.9")
        assert "a: fedref changed after mine" in refused(capsys, "resume", "a", "-q")
    (here / "mine_sealed.py").write_text(MINE + "# other code\n")
    line = refused(capsys, "resume", "a", "-q")
    assert "mine_sealed:Mine changed after mine" in line
    assert "--changed-code" in line
    assert main("resume", "a", "-q", "--changed-code") == 0
    changed = json.loads((stopped / "environment.json").read_text())["changed"]
    assert "mine_sealed:Mine was " in changed[0]
    assert (
        "Code changed during the run: mine_sealed:Mine was " in (stopped / "summary.md").read_text()
    )


def test_a_file_in_another_unit_s_place_or_a_damaged_one(stopped, here, capsys):
    one, two = sorted((stopped / "checkpoints").iterdir())
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    assert "holds mine (seed 0" in refused(capsys, "resume", "a", "-q")
    with pytest.raises(fedref.DataError, match=r"holds mine \(seed 0"):
        fedref.load_run("a")
    one.write_bytes(kept[:-1])
    assert main("resume", "a", "-q") == 0
    assert "is damaged" in capsys.readouterr().err
    assert one.read_bytes()[:20] == kept[:20]


def test_what_is_missing_or_not_fedref_s_own_is_mended_or_refused(here, capsys):
    path = write(here / "t.toml", QUICK)
    assert main("run", path, "-q", "-o", "a") == 0
    expected = contents(here / "a")
    for name in ("environment.json", "metrics.csv", "clients.csv", "summary.csv", "split.json"):
        (here / "a" / name).unlink()
    min((here / "a" / "parameters").iterdir()).unlink()
    assert main("resume", "a", "-q") == 0
    said = capsys.readouterr().err
    assert "environment.json was gone or damaged" in said
    assert "is gone, so apfl (seed 0) is run again" in said
    assert contents(here / "a") == expected
    (here / "mine").mkdir()
    (here / "mine" / "metrics.csv").write_text("mine")
    assert "which fedref did not write" in refused(capsys, "run", path, "-q", "-o", "mine")
    assert (here / "mine" / "metrics.csv").read_text() == "mine"
    os.mkfifo(here / "a" / "x")
    os.replace(here / "a" / "x", here / "a" / ".lock")
    assert "is not a regular file" in refused(capsys, "resume", "a", "-q")


def test_nothing_saved_may_be_begun_anew_with_other_values(here, capsys):
    table = {key: value for key, value in QUICK.items() if key != "keep-parameters"}
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    for file in (here / "a" / "checkpoints").iterdir():
        file.unlink()
    assert main("run", write(here / "t.toml", {**table, "rounds": 1}), "-q", "-o", "a") == 0
    made = run_directory.config.read_experiment(here / "a")
    assert made.rounds == 1
    record = checkpoint.loads((here / "a" / "checkpoints" / units(made)[0].file).read_bytes())
    assert record.seal["unit"] == "fedavg (seed 0)"
