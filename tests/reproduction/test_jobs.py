"""Jobs: what is left is run, errors name the job, and runtime.json."""

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from reproducing import change, command

import reproduce
from fedref import FedrefError, load_run
from fedref.commands.reproduce import begin_worker
from fedref.experiments.progress import Progress
from fedref.experiments.unit import Record, Unit
from reproduce import catalogue, jobs

DIVERGES = ("[algorithms.fedprox]\nlr = 0.1", "[algorithms.fedprox]\nlr = 1e300\nmu = 1e300")


def job_of(out: Path) -> catalogue.Job:
    (job,) = catalogue.jobs_of(catalogue.find("tiny"), out.parent / "runs")
    return job


def test_interrupted_and_resumed(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tiny)

    def interrupt(unit: Unit, record: Record) -> None:
        if unit.number == 2 and record.round == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "report_by_lines", lambda *_: Progress(interrupt))
        with pytest.raises(KeyboardInterrupt):
            jobs.work(job, None)
    assert not jobs.is_finished(job)
    assert list((job.directory / "checkpoints").iterdir())
    assert command("tiny", "--out", tiny) == 0
    assert jobs.is_finished(job)
    whole = tiny.parent / "whole" / "results"
    assert command("tiny", "--out", whole) == 0
    for name in ("metrics.csv", "clients.csv", "summary.md"):
        again = whole.parent / "runs" / "tiny" / "one" / name
        assert (job.directory / name).read_bytes() == again.read_bytes()
    assert (job.directory / "curves.png").exists()


def test_whoever_stops_ends_the_processes(tiny: Path, processes: None) -> None:
    """In processes: one job is done, the other is far from it when the first is told of."""
    text = (catalogue.root() / "tiny" / "one.toml").read_text()
    (catalogue.root() / "tiny" / "two.toml").write_text(text.replace("rounds = 2", "rounds = 9999"))

    def stop(text: str) -> None:
        assert text.startswith("tiny/one: finished, ")
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(["tiny"], tiny, message=stop, begin=begin_worker)
    assert not multiprocessing.active_children()
    assert time.monotonic() - began < 60
    assert load_run(tiny.parent / "runs" / "tiny" / "one").experiment.rounds == 2
    assert not (tiny / "tiny").exists()


PARENT = """\
import multiprocessing, time
from fedref.commands.reproduce import begin_worker

def child():
    begin_worker()
    print(multiprocessing.current_process().pid, flush=True)
    time.sleep(60)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=child).start()
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    words = [sys.executable, tmp_path / "parent.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_dies_is_one_line(tiny: Path) -> None:
    job, future = job_of(tiny), Future[None]()
    future.set_exception(BrokenProcessPool("killed"))
    with pytest.raises(FedrefError, match=r"^tiny/one: a process died before it was finished"):
        jobs.wait_for([job], {job.directory: future}, print)


def test_what_the_run_says_is_passed_on(tiny: Path) -> None:
    change("one.toml", "clients-per-round = 3", "clients-per-round = 3000")
    with pytest.raises(FedrefError, match=r"^tiny/one: .*one.toml: clients-per-round is 3000"):
        command("tiny", "--out", tiny)


def test_a_diverged_algorithm_is_a_result(tiny: Path) -> None:
    change("one.toml", "steps = 1", "steps = 2")
    change("one.toml", *DIVERGES)
    assert command("tiny", "--seeds", 1, "--out", tiny) == 0
    run = load_run(tiny.parent / "runs" / "tiny" / "one")
    assert run.diverged_units
    assert run.experiment.seeds == (1,)  # as of `fedref run --seeds 1`: seed 1, not one seed
    assert jobs.is_finished(job_of(tiny)._replace(experiment=run.experiment))


def test_processes_that_no_other_job_needs_work_for_a_job(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(jobs, "work", lambda job, data_dir, workers: given.append(workers))
    every = [job_of(tiny), job_of(tiny.parent / "other" / "results")]
    for own, processes in ((every[:1], 3), (every[:1], 1), (every, 5)):
        with jobs.running(own, processes, None):
            pass
    assert given == [3, 1, 2, 2]


# ---- runtime.json --------------------------------------------------------------------------------


def test_runtime_adds_up_and_names_all_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime.json").write_text('{"seconds": 100.0, "version": "0", "commit": "a"}')
    monkeypatch.setattr(jobs, "git_commit", lambda: "b")
    for _ in range(2):
        jobs.add_runtime(tmp_path, 1.5)
    assert jobs.runtime(tmp_path)["seconds"] == 103
    assert jobs.runtime(tmp_path)["commit"] == "a, b"
    (tmp_path / "runtime.json").write_text("[1]")
    with pytest.raises(FedrefError, match="holds a list; expected an object of seconds"):
        jobs.runtime(tmp_path)


def test_changes_of_experiments_and_reports_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    ours = ["fedref/a.py", "reproduce/x.py", "reproduce/one/x.toml", "reproduce/one/report.py"]
    files = [*ours, "README.md"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(jobs, "PACKAGE", tmp_path.resolve() / "fedref")
    find_commit = jobs.git_commit.__wrapped__  # without its cache
    for name in files:
        (tmp_path / name).write_text("changed")
        assert find_commit().endswith(" + changes") == (name in ours), name
        (tmp_path / name).write_text("")
    assert len(find_commit()) == 40
