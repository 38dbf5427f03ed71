"""However a run's units are run, shared, killed and resumed, the bytes are the same."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from running import ROOT, algorithms, contents, document, main, process, refused, wait_for, write

import fedref

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


def started(*words, units: int = 2):
    """Start LONG as a process in the folder a; return it once so many of its units have begun."""
    path = write(Path("t.toml"), LONG)
    run = process("run", path, "--out", "a", "-q", *words, start_new_session=True)
    begun = Path("a", "parameters").glob  # the states before their first rounds
    wait_for(lambda: run.poll() is not None or len([*begun("*-round000000.ckpt")]) >= units)
    assert run.poll() is None, run.communicate()
    return run


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


def cpu_seconds(pid: int) -> float:
    """How long a process has computed, in user mode."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(times[11]) / os.sysconf("SC_CLK_TCK")


@posix
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"), (signal.SIGKILL, -9, ""),
    ],
)  # fmt: skip
def test_a_stopped_run_ends_saves_says_so_and_goes_on(whole, number, code, words):
    if code > 0 and signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored here, as under nohup, and so by a run")
    run = started("--workers", 2, "--checkpoint-every", 1000 if code > 0 else 0)
    below = children(run)
    assert len(below) == 2
    before = [*map(cpu_seconds, below)]  # then some rounds, which are not saved
    wait_for(lambda: all(cpu_seconds(pid) > was + 0.1 for pid, was in zip(below, before)))
    if number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    if number != signal.SIGINT:  # a second Ctrl-C ends at once
        time.sleep(0.05)
        run.send_signal(number)
    err = run.communicate(timeout=60)[1]
    if code > 0:  # else Python's own process may tell of semaphores
        assert err == f"fedref: {words}; resume with: fedref resume a\n"
    assert run.returncode == code
    wait_for(lambda: not any(map(is_running, below)))
    if code > 0:  # no round is lost, of two units at least; a third may just have begun
        stopped = fedref.load_run("a")
        assert sorted(record.round for record in stopped.records)[-2] > 0
        assert any(row["status"].startswith("stopped (") for row in stopped.summary())
        assert "Not all units are done" in str(stopped)
        assert all(np.isnan(row["final_sd"]) for row in stopped.summary() if row["seeds"] == 1)
    assert main("resume", "a", "-q") == 0
    assert contents(Path("a")) == whole


#: A step that never ends, and says so: on a thread, which no exception reaches, or in a call of C.
STUCK = """
import os, time
from dataclasses import dataclass
from fedref.algorithms.fedavg import FedAvg

@dataclass(frozen=True)
class Stuck(FedAvg):
    def step(self, model, sent, local, D):
        os.write(1, b"%d\\n" % os.getpid())  # whole, whichever thread writes
        {wait}
"""


LARGE = ["--threads", 2, "--set", "model.hidden=[6000]"]


@posix
@pytest.mark.parametrize(
    ("wait", "words", "number"),
    [("time.sleep(1e6)", [*LARGE, "--workers", 1], signal.SIGINT),
     ("time.sleep(1e6)", [*LARGE, "--workers", 2], signal.SIGKILL),
     ("sum(range(10**15))", ["--workers", 2], signal.SIGINT),
     ("sum(range(10**15))", ["--workers", 2], signal.SIGKILL)],
    ids=["thread", "threads of workers", "C", "C, killed"],
)  # fmt: skip
def test_whatever_a_step_does_the_first_ctrl_c_and_a_kill_end_the_run(here, wait, words, number):
    (here / "stuck_in_a_step.py").write_text(STUCK.format(wait=wait))
    first = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    run = process("run", "stuck_in_a_step:Stuck", "-q", "--out", "a", *words, first=first)
    pid = int(run.stdout.readline())
    try:
        run.send_signal(number)
        err = run.communicate(timeout=60)[1]
        wait_for(lambda: not is_running(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if number == signal.SIGINT:
        line = "fedref: interrupted; resume with: fedref resume a\n"
        assert (run.returncode, err) == (130, line)


@posix
def test_a_saving_that_takes_long_is_waited_for(here):
    """Encoding takes longer than an interrupted command lives."""
    first = (
        "import signal, time\nfrom fedref.boundary import checkpoint\nreal = checkpoint.dumps\n"
        "def slow(value):\n    time.sleep(3)\n    return real(value)\n"
        "checkpoint.dumps = slow\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    )
    words = ["--json", "--checkpoint-every", 1000, "--out", "a"]
    run = process("run", write(here / "t.toml", LONG), *words, first=first)
    for _ in range(3):
        assert run.stdout.readline()
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=60)[1].endswith("resume with: fedref resume a\n")
    assert fedref.load_run("a").records[0].round > 0


@posix
def test_a_worker_that_is_killed_costs_its_last_rounds_and_is_named(whole):
    """Only what was lost is named: the other worker's unit is saved, and goes on."""
    run = started("--workers", 2, "--checkpoint-every", 0.2)
    os.kill(children(run)[0], signal.SIGKILL)
    err = run.communicate()[1]
    assert run.returncode == 0
    line = (
        r"fedref: a worker died \(at work: (fedavg|apfl) \(seed .\)\): others go on with its unit\n"
    )
    assert re.fullmatch(line, err)
    assert contents(Path("a")) == whole


@posix
def test_a_unit_that_kills_its_worker_twice_is_an_error_that_names_no_lost_folder(here):
    (here / "kills_itself.py").write_text(STUCK.format(wait="os._exit(1)"))
    call = "import fedref\n{} fedref.run(['fedavg', 'kills_itself:Stuck'], rounds=1, workers=2)"
    again = r"Error: worker processes died again and again \(at work: Stuck \(seed"
    without = r"Error: no worker process could begin: .*__main__"
    for guard, line in (("if __name__ == '__main__':", again), ("if True:", without)):
        (here / "script.py").write_text(call.format(guard))
        env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{here}"}
        ended = subprocess.run([sys.executable, "script.py"], env=env, capture_output=True)
        told = ended.stderr.decode()
        assert re.search(line, told), told
        assert told.count("Traceback") == 2, told  # of Python's own pool, and this
        assert "resume" not in told


@posix
def test_a_run_directory_has_one_owner_at_a_time(whole, capsys):
    """A second command says who is there, and writes nothing; a killed owner leaves no lock."""
    first = started(units=1)
    before = (Path("a") / "config.toml").read_bytes()
    other = write(Path("other.toml"), QUICK)
    for words in (["resume", "a"], ["run", other, "--out", "a"]):
        line = refused(capsys, *words, "-q")
        assert re.search(
            rf"a: process {first.pid}, running since \d\d:\d\d:\d\d, writes here", line
        )
    assert (Path("a") / "config.toml").read_bytes() == before
    with suppress(fedref.DataError):  # of a run that has saved nothing yet
        read = fedref.load_run("a")  # reading needs no ownership
        assert {row["status"].partition(" (")[0] for row in read.summary()} <= {
            "running",
            "done",
        }
    first.kill()
    first.communicate()
    assert main("resume", "a", "-q") == 0
    assert contents(Path("a")) == whole


@posix
def test_a_forked_process_does_not_own_the_directory_of_a_killed_one(here):
    """As the processes of an executor are, which outlive it."""
    script = (
        "import os, pathlib, time\nfrom fedref.lab.experiments.run_directory import hold_directory\n"
        "with hold_directory(pathlib.Path('a')):\n    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n    time.sleep(1000)"
    )
    owner = process(first=script)
    child = int(owner.stdout.readline())
    try:
        owner.kill()
        owner.wait(60)
        assert main("run", write(here / "t.toml", QUICK), "-q", "-o", "a") == 0
    finally:
        os.kill(child, signal.SIGKILL)


def test_threads_of_one_process_are_told_too():
    def run(lr):
        try:
            return fedref.run(QUICK, lr=lr, out="b")
        except fedref.FedrefError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(run, (0.1, 0.2))]
    refusals = [text for text in done if isinstance(text, str)]
    assert refusals
    assert all("writes here" in text or "already holds a run" in text for text in refusals)


def test_a_disk_that_fails_is_one_line_that_names_the_file(here, capsys, monkeypatch):
    path = write(here / "t.toml", QUICK)
    assert main("run", path, "-q", "-o", "whole") == 0
    expected, real = contents(here / "whole"), os.fsync
    for at, number in ((1, errno.EIO), (3, errno.EROFS), (6, errno.EIO), (14, errno.ENOSPC)):
        calls, out = [], here / f"{at}"

        def fails(descriptor, calls=calls, at=at, number=number):
            calls.append(descriptor)
            if len(calls) >= at:
                raise OSError(number, os.strerror(number))
            real(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            line = refused(capsys, "run", path, "-q", "-o", out)
        assert os.strerror(number) in line
        assert "standard output" not in line
        if (out / "config.toml").exists():
            assert "what was saved before is whole: go on with `fedref resume" in line
        again = ["resume", out] if (out / "config.toml").exists() else ["run", path, "-o", out]
        assert main(*again, "-q") == 0
        assert contents(out) == expected, at
        capsys.readouterr()


def test_workers_give_the_bytes_of_one_process_and_report_every_round(here, capsys):
    wild = {"algorithm": "fedavg", "lr": 1e200}  # it diverges
    more = {"algorithms": {"fedavg": {}, "wild": wild}, "model": {"name": "mlp", "hidden": [4]}}
    path = write(here / "t.toml", QUICK | more)
    assert main("run", path, "-o", "a", "--json") == 3
    alone = capsys.readouterr().out.splitlines()
    assert main("run", path, "-o", "b", "--json", "--workers", 2) == 3
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(alone)
    assert any('"diverged"' in line for line in alone)
    assert contents(here / "a") == contents(here / "b")


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
    tables = algorithms("fedavg", bad={"algorithm": "mine_fails:Fails"})
    path = write(here / "t.toml", document(rounds=300, algorithms=tables))
    line = refused(capsys, "run", path, "-q", "-o", "a", "--workers", 2)
    assert re.search(r"client \d failed in round 1: .*ZeroDivisionError: no", line)
