"""A real Dask cluster on this machine: the same bytes, data sent once, and deaths that are seen."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import ROOT, algorithms, contents, document, main, process, refused, wait_for, write

from fedref.algorithms.fedavg import FedAvg
from fedref.experiments import parallel
from fedref.experiments.parallel import Dask, Workers
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan
from tests.helpers import MODELS, make_federation, same, start

pytestmark = pytest.mark.usefixtures("here")

#: Where a process finds fedref and this file.
PATH = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
SWEEP = document(
    rounds=4, seeds=[0, 1], algorithms=algorithms("apfl", "fedcurv") | {"fedcurv": {"lam": 0.001}}
)


@dataclass(frozen=True)
class Slow(FedAvg):
    def step(self, model, sent, local, *batches):
        time.sleep(0.05)
        return super().step(model, sent, local, *batches)


class Cluster:
    """A scheduler and its workers, each a process, on loopback."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen] = []
        self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show")
        wait_for(lambda: self.file.exists() and self.file.stat().st_size > 0)
        self.address = json.loads(self.file.read_text("utf-8"))["address"]
        for _ in range(workers):
            self.worker()
        if workers:
            wait_for(lambda: self.count() == workers)

    def start(self, module: str, *words: str) -> subprocess.Popen:
        one = subprocess.Popen(
            [
                sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard",
                "--scheduler-file", str(self.file), *words,
            ],
            env={**os.environ, **PATH},
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.processes.append(one)
        return one

    def worker(self) -> subprocess.Popen:
        return self.start("dask_worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")

    def count(self) -> int:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return len(client.nthreads())

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.processes:
            one.kill()
        for one in self.processes:
            one.wait(30)


@pytest.fixture
def two(tmp_path_factory):
    pytest.importorskip("distributed")
    with Cluster(tmp_path_factory.mktemp("dask"), 2) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    "table", [SWEEP, document(algorithms=algorithms("apfl"))], ids=["units", "rounds"]
)
def test_a_cluster_gives_the_same_bytes(two, here, table):
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--quiet") == 0
    assert main("run", path, "--out", "b", "--quiet", "--executor", f"dask:{two.address}") == 0
    assert contents(here / "a") == contents(here / "b")


@pytest.mark.slow
def test_a_worker_killed_in_mid_run_is_made_good_for(two, here):
    slow = {"algorithm": "tests.experiments.test_dask:Slow"}
    table = document(rounds=6, algorithms={"one": slow, "two": slow, "three": slow})
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--quiet") == 0
    run = process(
        "run", path, "--out", "b", "--quiet", "--executor", f"dask:{two.address}",
        "--checkpoint-every", "0", env_more=PATH,
    )  # fmt: skip
    wait_for(lambda: run.poll() is not None or list((here / "b" / "checkpoints").glob("*.ckpt")))
    two.processes[-1].send_signal(signal.SIGKILL)
    _, errors = run.communicate(timeout=120)
    assert (run.returncode, errors) == (0, "")
    assert contents(here / "a") == contents(here / "b")


@pytest.mark.slow
def test_work_that_kills_every_worker_waits_for_another_and_says_how_to_resume(
    two, here, capsys, monkeypatch
):
    monkeypatch.setattr(parallel, "PATIENCE", 2.0)
    table = {"algorithm": "tests.helpers:Dies"}
    path = write(here / "t.toml", document(clients_per_round=4, algorithms={"dies": table}))
    how = ("--quiet", "--executor", f"dask:{two.address}")
    assert main("run", path, "--out", "a", *how) == 2
    waits, line = capsys.readouterr().err.splitlines()
    assert waits == f"fedref: dask:{two.address}: no worker is left; waiting 2 s for another one"
    assert "round 1: the worker with clients 0, 1" in line
    assert "died (no worker is left); go on with `fedref resume a`" in line
    assert "has no worker, expected" in refused(capsys, "run", path, "--out", "b", *how)
    assert not (here / "b").exists()


@pytest.mark.slow
def test_a_scheduler_that_goes_is_said_with_how_to_resume(two, here):
    slow = {"algorithm": "tests.experiments.test_dask:Slow"}
    table = document(rounds=50, algorithms={"one": slow, "two": slow})
    path = write(here / "t.toml", table)
    run = process(
        "run", path, "--out", "b", "--quiet", "--executor", f"dask:{two.address}",
        "--checkpoint-every", "0", env_more=PATH,
        first="from fedref.experiments import parallel; parallel.PATIENCE = 3.0",
    )  # fmt: skip
    wait_for(lambda: run.poll() is not None or (here / "b" / "split.json").exists())
    time.sleep(1)  # the units are at work, or on their way
    two.processes[0].send_signal(signal.SIGKILL)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 2
    line = errors.splitlines()[-1]  # it may be said before that no worker is left
    assert line.startswith("fedref: error: the worker with one (seed 0) or two (seed 0) died (")
    assert errors.count("\n") <= 2
    assert line.endswith("go on with `fedref resume b`")


@pytest.mark.slow
def test_a_round_over_a_cluster_is_the_round_here(two):
    model = MODELS["mlp"]
    federated, algorithm = make_federation(model, (50, 60, 10)), FedAvg()
    plan = make_plan(Sampling(3, epochs=1, batch_size=10), federated.train.sizes, 0, 0)
    expected, _ = run_round(algorithm, model, start(algorithm, model), plan, federated)
    with Dask(two.address) as executor:
        work = Workers(executor, 2)
        state, _ = run_round(algorithm, model, start(algorithm, model), plan, federated, work=work)
    assert same(state, expected)


# ---- what is refused -----------------------------------------------------------------------------


def test_without_distributed_it_is_said_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = write(here / "t.toml", document())
    line = refused(capsys, "run", path, "--out", "a", "--executor", "dask:tcp://127.0.0.1:1")
    assert "expected `pip install 'fedref[dask]'`" in line
    assert not (here / "a").exists()


@pytest.mark.slow
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1:notaport"])
def test_a_scheduler_that_does_not_answer_is_one_line(here, capsys, monkeypatch, address):
    pytest.importorskip("distributed")
    monkeypatch.setattr(parallel, "CONNECT_SECONDS", 1.0)
    path = write(here / "t.toml", document())
    line = refused(capsys, "run", path, "--out", "a", "--executor", f"dask:{address}")
    assert f"dask:{address}: no scheduler answers (" in line
    assert not (here / "a").exists()
