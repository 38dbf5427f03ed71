"""However a run's units are run, shared, killed and resumed, the bytes are the same."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest
from running import ROOT, algorithms, contents, document, main, process, refused, wait_for, write

import fedref
from fedref.lab.experiments import parallel, run_directory

pytestmark = pytest.mark.usefixtures("here")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
QUICK = document(rounds=2, seeds=[0, 1], keep_parameters=1, algorithms=algorithms("fedavg", "apfl"))

#: Algorithms whose steps tell who computes; after 150 of them a process waits for the file `go`.
TELLING = """
import os, time
from dataclasses import dataclass
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.scaffold import Scaffold

STEPS = [0]

class Telling:
    def step(self, model, sent, local, D):
        if "TELL" in os.environ:
            os.write(1, b"%d\\n" % os.getpid())  # whole, whichever thread writes
            STEPS[0] += 1
            while STEPS[0] > 150 and not os.path.exists("go"):
                time.sleep(0.01)
        {then}

@dataclass(frozen=True)
class Mean(Telling, FedAvg):
    pass

@dataclass(frozen=True)
class Variates(Telling, Scaffold):
    pass
"""
TELL, GO_ON = {"TELL": "1"}, "return super().step(model, sent, local, D)"
PLAIN = "from fedref.lab import plots; plots.curves = plots.save = lambda *_: None"  # no pictures
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def telling(name: str, then: str = GO_ON) -> str:
    """Write a module of these algorithms; return the name of the first."""
    Path(f"{name}.py").write_text(TELLING.format(then=then))
    return f"{name}:Mean"


def started(*words):
    """Start a command with two workers; return it and their numbers when both have done some rounds."""
    run = process(*words, "-q", "--workers", 2, first=PLAIN, start_new_session=True, env_more=TELL)
    told = Counter()
    while len(told) < 2 or min(told.values()) < 60:
        line = run.stdout.readline()
        assert line, run.communicate()
        told[int(line)] += 1
    return run, [*told]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def rounds_saved() -> dict[str, int]:
    run = fedref.load_run("a")
    return {unit.name: record.round for unit, record in zip(run.units, run.records)}


def assert_owned(run, capsys):
    """A second command says who is there, and writes nothing."""
    before = contents(Path("a"))
    other = write(Path("other.toml"), QUICK)
    for words in (["resume", "a"], ["run", other, "--out", "a"]):
        line = refused(capsys, *words, "-q")
        owner = rf"a: process {run.pid}, running since \d\d:\d\d:\d\d, writes here"
        assert re.search(owner, line)
    # reading needs no ownership
    told = {row["status"].partition(" (")[0] for row in fedref.load_run("a").summary()}
    assert told <= {"running", "done"}
    assert contents(Path("a"))["config.toml"] == before["config.toml"]


SIGNALS = {
    signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "stopped by SIGTERM"),
    signal.SIGHUP: (129, "stopped by SIGHUP"),
}  # fmt: skip


@posix
@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], pytest.param([*SIGNALS], marks=pytest.mark.slow)], ids=len
)
def test_a_run_that_is_stopped_in_every_way_one_after_the_other_ends_with_the_same_bytes(
    numbers, capsys
):
    """It saves, says so, and goes on: four units of which two are at work at a time."""
    tables = {"mean": {"algorithm": telling("tells")}, "variates": {"algorithm": "tells:Variates"}}
    table = document(rounds=160, eval_every=50, seeds=[0, 1], algorithms=tables, keep_parameters=99)
    path, words, before = write(Path("t.toml"), table), ["run", "t.toml", "--out", "a"], {}
    assert main("run", path, "--out", "whole", "-q") == 0
    for number in numbers:
        code, told = SIGNALS[number]
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # as under nohup, and so by a run
        run, workers = started(*words, "--checkpoint-every", 1000)
        # a terminal sends two of them to all
        os.kill(run.pid, number) if number == signal.SIGTERM else os.killpg(run.pid, number)
        if number != signal.SIGINT:  # a second Ctrl-C ends at once
            time.sleep(0.05)
            run.send_signal(number)
        err = run.communicate(timeout=60)[1]
        assert (run.returncode, err) == (code, f"fedref: {told}; resume with: fedref resume a\n")
        wait_for(lambda workers=workers: not any(map(is_running, workers)))
        now = rounds_saved()  # no round is lost, of two units at least; a third may just have begun
        assert sum(now[name] > before.get(name, 0) for name in now) >= 2
        stopped = fedref.load_run("a")
        assert any(row["status"].startswith("stopped (") for row in stopped.summary())
        assert "Not all units are done" in str(stopped)
        assert all(np.isnan(row["final_sd"]) for row in stopped.summary() if row["seeds"] == 1)
        words, before = ["resume", "a"], now

    run, workers = started(*words, "--checkpoint-every", 0)
    assert_owned(run, capsys)
    run.kill()  # it leaves no lock, and no worker
    run.communicate(timeout=60)
    wait_for(lambda: not any(map(is_running, workers)))

    run, workers = started(*words, "--checkpoint-every", 0.2)
    os.kill(workers[0], signal.SIGKILL)
    Path("go").touch()
    err = run.communicate(timeout=60)[1]
    # only what was lost is named: the other worker's unit is saved, and goes on
    lost = r"fedref: a worker died \(at work: (mean|variates) \(seed .\)\): others go on with its unit\n"
    assert run.returncode == 0
    assert re.fullmatch(lost, err)
    assert contents(Path("a")) == contents(Path("whole"))


#: On threads, which no exception reaches, and in a call of C.
LARGE = ["--threads", 2, "--set", "model.hidden=[6000]"]


@posix
@pytest.mark.parametrize(
    ("then", "words", "number"),
    [("time.sleep(1e6)", [*LARGE, "--workers", 1], signal.SIGINT),
     ("sum(range(10**15))", ["--workers", 2], signal.SIGINT),
     ("sum(range(10**15))", ["--workers", 2], signal.SIGKILL)],
    ids=["thread", "C", "C, killed"],
)  # fmt: skip
def test_whatever_a_step_does_the_first_ctrl_c_and_a_kill_end_the_run(then, words, number):
    words = ["run", telling("stuck_in_a_step", then), "-q", "--out", "a", *words]
    impatient = "from fedref.lab.experiments import parallel; parallel.PATIENCE = 0.2"
    run = process(*words, first=f"{INTERRUPTIBLE}\n{impatient}", env_more=TELL)
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
def test_a_saving_that_takes_long_is_waited_for():
    """Encoding takes longer than an interrupted command lives."""
    slow = (
        "import time\nfrom fedref.boundary import files\nfrom fedref.lab.experiments import checkpoint\n"
        "real = checkpoint.dumps\n"
        "def slow(value):\n    time.sleep(1)\n    return real(value)\n"
        "checkpoint.dumps, files.end_soon.__defaults__ = slow, (0.2,)"
    )
    path = write(Path("t.toml"), document(rounds=400))
    words = ["--json", "--checkpoint-every", 1000, "--out", "a"]
    run = process("run", path, *words, first=f"{INTERRUPTIBLE}\n{slow}")
    for _ in range(3):
        assert run.stdout.readline()
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=60)[1].endswith("resume with: fedref resume a\n")
    assert fedref.load_run("a").records[0].round > 0


@posix
@pytest.mark.parametrize(
    ("guard", "line"),
    [("__name__ == '__main__'", r"Error: worker processes died again and again \(at work: Mean \(seed"),
     ("True", r"Error: no worker process could begin: .*__main__")],
)  # fmt: skip
def test_a_unit_that_kills_its_worker_twice_is_an_error_that_names_no_lost_folder(guard, line):
    name = telling("kills_itself", "os._exit(1)")
    call = f"import fedref\nif {guard}:\n    fedref.run([{name!r}], rounds=1, workers=2)"
    Path("script.py").write_text(call)
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"}
    ended = subprocess.run([sys.executable, "script.py"], env=env, capture_output=True)
    told = ended.stderr.decode()
    assert re.search(line, told), told
    assert told.count("Traceback") == 2, told  # of Python's own pool, and this
    assert "resume" not in told


def too_many(number):
    def start(self):
        raise OSError(number, os.strerror(number))

    return start


def no_thread(self):
    raise RuntimeError("can't start new thread")


def killed_at_birth(times, real=SpawnProcess.start):
    """Return a start that kills the first processes at once."""
    left = [*range(times)]

    def start(self):
        real(self)
        if left:
            left.pop()
            os.kill(self.pid, signal.SIGKILL)

    return start


CANNOT_START = (
    r"error: worker processes cannot be started \({}\); expected fewer workers, or higher limits"
)
BIRTHS = {
    "files": (SpawnProcess, "start", too_many(errno.EMFILE), 2, CANNOT_START.format("Too many open files")),
    "processes": (SpawnProcess, "start", too_many(errno.EAGAIN), 2, CANNOT_START.format("Resource temp.*")),
    "shared memory": (
        parallel.Spawned, "RawArray", lambda self, *_: too_many(errno.ENOSPC)(self), 2,
        CANNOT_START.format("No space left on device"),
    ),
    "threads": (ProcessPoolExecutor, "submit", lambda self, *_: no_thread(self), 2,
                CANNOT_START.format("can't start new thread")),
    "killed once": (SpawnProcess, "start", killed_at_birth(1), 0, r"a worker died \(at work: no unit\)"),
    "killed always": (SpawnProcess, "start", killed_at_birth(9), 2,
                      r"error: worker processes died again and again \(at work: no unit\)"),
}  # fmt: skip


@posix
@pytest.mark.parametrize("birth", BIRTHS)
def test_a_worker_that_cannot_start_says_why(birth, here, capsys, monkeypatch):
    where, name, change, code, told = BIRTHS[birth]
    path = write(here / "t.toml", QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, change)
        assert main("run", path, "-q", "-o", "D", "--workers", "2") == code
    err = capsys.readouterr().err
    assert re.search(told, err), err
    assert "__main__" not in err
    assert "standard output" not in err
    assert main("resume", "D", "-q") == 0


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


@pytest.mark.filterwarnings("ignore:.*fork")
def test_whoever_runs_the_units_the_bytes_are_those_of_one_process(here, capsys):
    """Workers, which report every round, and executors, of whose units whole files come back."""
    wild = {"algorithm": "fedavg", "lr": 1e200}  # it diverges
    more = {"algorithms": {"fedavg": {}, "wild": wild}, "model": {"name": "mlp", "hidden": [4]}}
    path = write(here / "t.toml", QUICK | more)
    assert main("run", path, "-o", "a", "--json") == 3
    alone = capsys.readouterr().out.splitlines()
    assert main("run", path, "-o", "b", "--json", "--workers", 2) == 3
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(alone)
    assert any('"diverged"' in line for line in alone)
    assert contents(here / "b") == contents(here / "a")
    spawned = ProcessPoolExecutor(1, get_context("spawn"))
    for out, pool in (("c", ThreadPoolExecutor(2)), ("d", spawned)):
        with pool as executor:
            fedref.run(path, out=out, executor=executor, workers=2)
            X, client = np.random.default_rng(0).normal(size=(60, 3)), np.repeat(np.arange(6), 10)
            data = {
                "data": (X, (X[:, 0] > 0).astype(int), client),
                "rounds": 2,
                "algorithm": "fedavg",
            }
            far = fedref.run(**data, executor=executor)
        assert contents(here / out) == contents(here / "a")
        assert far.records[0].rows == fedref.run(**data).records[0].rows


def test_a_unit_that_fails_in_a_worker_is_the_error_of_the_run(here, capsys):
    bad = {"algorithm": telling("mine_fails", "raise ZeroDivisionError('no')")}
    path = write(here / "t.toml", document(rounds=300, algorithms=algorithms("fedavg", bad=bad)))
    line = refused(capsys, "run", path, "-q", "-o", "a", "--workers", 2)
    assert re.search(r"client \d failed in round 1: .*ZeroDivisionError: no", line)


def test_a_folder_that_another_thread_has_just_left_is_looked_past(here, monkeypatch):
    """Threads of an executor own a temporary folder each, and one may close its own while others look."""
    for name in run_directory.REQUIRED:
        (here / name).touch()
    left = os.open(here, os.O_RDONLY)
    os.close(left)
    monkeypatch.setattr(run_directory, "HELD", {left})
    with pytest.raises(run_directory.ResumableError, match="another folder"):
        run_directory.require_run(here)
