"""A dead worker costs its round, not the run; and workers compute what the main process would."""

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from fedref.algorithms.fedavg import FedAvg
from fedref.experiments import parallel
from fedref.experiments.parallel import Processes, SharedArray, Workers
from fedref.rounds import LocalData, run_round
from fedref.rounds.threads import blas
from fedref.sampling import Sampling, make_plan
from tests.helpers import MODELS, make_federation, same, start
from tests.running import wait_for


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


def sigint_is_blocked(*_: object) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def write_whether_blocked(path: Path) -> None:
    path.write_text(str(sigint_is_blocked()))


def handles_interrupts() -> bool:
    return signal.getsignal(signal.SIGINT) is parallel.interrupt_once


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_is_blocked_until_a_worker_can_end_silently(tmp_path):
    with Processes(1) as executor:
        new = get_context("spawn")
        executor.pool = ProcessPoolExecutor(
            1, new, initializer=write_whether_blocked, initargs=(tmp_path / "a",)
        )
        executor.submit(double, 4).result()
        assert (tmp_path / "a").read_text() == "True"  # until `init_worker` has made it harmless
        assert not sigint_is_blocked()
    with Processes(1) as executor:
        assert executor.submit(sigint_is_blocked).result() is False
        assert executor.submit(handles_interrupts).result()


def test_a_worker_does_its_sums_with_one_thread_and_without_warnings():
    def work():
        return [m["num_threads"] for m in blas().info()], np.float64(1e300) * 1e300

    before = [m["num_threads"] for m in blas().info()]
    parallel.run_single_threaded(
        work
    )  # only the first thread that sets limits can: it is this one now
    with ThreadPoolExecutor(1) as pool:
        threads, product = parallel.submit(pool, 1, work).result()
    assert set(threads) <= {1}
    assert [m["num_threads"] for m in blas().info()] == before
    assert product == np.inf


def describe(X) -> tuple:
    return X.tolist(), X.flags.writeable, X.flags.f_contiguous, X.ctypes.data % 64


@pytest.mark.parametrize("X", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3))])
def test_an_array_is_written_once_and_mapped_by_a_worker(X):
    with Processes(1) as executor:
        shared = executor.share(X)
        assert executor.share(X) is shared
        assert executor.share(X.copy()) is not shared
        expected = X.tolist(), False, X.flags.f_contiguous, 0
        assert executor.submit(describe, shared).result() == expected
        assert Path(shared.path).exists()
    assert not Path(shared.path).exists()


def test_a_unit_is_sent_to_a_worker_without_its_rows():
    federated = make_federation(MODELS["logistic"], (50, 60))
    federated = replace(federated, parameters=MappingProxyType({"a": 1}))
    with Processes(1) as executor:
        sent = executor.share_rows(federated)
        assert len(pickle.dumps(sent)) < federated.source.X.nbytes
        arrived = executor.submit(identity, sent).result()
    assert arrived.parameters == {"a": 1}
    for name in ("X", "y"):
        expected = getattr(federated.source, name)
        np.testing.assert_array_equal(getattr(arrived.source, name), expected)


def identity(value):
    return value


def test_each_round_sends_a_worker_references_not_arrays():
    model = MODELS["logistic"]
    federated, algorithm = make_federation(model, (50, 60)), FedAvg()
    sizes = federated.train.sizes
    plan = make_plan(Sampling(2, epochs=1, batch_size=10), sizes, 0, 0)
    expected, _ = run_round(algorithm, model, start(algorithm, model), plan, federated)
    travelled = []

    class Watched(Processes):
        def submit(self, work, /, *args, **kwargs):
            travelled.extend(arg for arg in args if isinstance(arg, LocalData))
            return super().submit(work, *args, **kwargs)

    with Watched(2) as executor:
        work = Workers(executor, 2)
        for _ in range(2):
            state, _ = run_round(
                algorithm, model, start(algorithm, model), plan, federated, work=work
            )
            assert same(state, expected)
        assert len(executor.shared) == 2
    assert len(travelled) == 4  # 2 rounds × 2 workers
    assert all(type(x) is SharedArray for data in travelled for x in (data.X, data.y))


#: A parent with a busy worker, which writes its pid to a file, and an idle one.
PARENT = """
import os, sys, time
from tests.experiments.test_parallel import double, report
from fedref.experiments.parallel import Processes
if __name__ == "__main__":
    executor = Processes(2)
    future = executor.submit(report, sys.argv[1])
    executor.submit(double, 1).result()  # by the other worker, which is idle from then on
    print("ready", flush=True)
    future.result()
"""


def report(path: str) -> None:
    Path(path).write_text(str(os.getpid()), "utf-8")
    time.sleep(60)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent_and_say_nothing(how, tmp_path):
    script, pid_file = tmp_path / "parent.py", tmp_path / "pid"
    script.write_text(PARENT, "utf-8")
    root = Path(parallel.__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, script, pid_file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(root)}, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout.readline() == "ready\n"
    wait_for(lambda: pid_file.exists() and pid_file.read_text("utf-8"))
    worker = int(pid_file.read_text("utf-8"))
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)  # as Ctrl-C does: to all of them
    else:
        parent.kill()
    _, errors = parent.communicate(timeout=30)
    wait_for(lambda: not alive(worker))
    # the parent's own KeyboardInterrupt is for the command line to catch
    assert "SpawnProcess" not in errors
    assert errors.count("Traceback") == (how == signal.SIGINT)


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
