"""Jobs in processes: progress, errors, and interruption."""

import multiprocessing
import os
from pathlib import Path

import pytest
from reproducing import change, command

from fedref import FedrefError, load_run, reproduction
from fedref.reproduction import catalogue, jobs, runtime


def test_interrupted_and_resumed(tiny: Path) -> None:
    change("one.toml", "rounds = 2", "rounds = 100")  # long enough to be interrupted
    (job,) = catalogue.jobs_of(catalogue.find("tiny"), tiny.parent / "runs")

    def interrupt(job: catalogue.Job, done: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduction.reproduce(["tiny"], tiny, tell=reproduction.Tell(interrupt))
    assert not multiprocessing.active_children()
    assert not (tiny / "tiny").exists()
    assert not jobs.finished(job)
    before = runtime.runtime(job.directory)["seconds"]
    assert before > 0
    dones: list[int] = []
    reproduction.reproduce(
        ["tiny"], tiny, tell=reproduction.Tell(lambda job, done: dones.append(done))
    )
    assert dones == sorted(dones)
    assert dones[-1] == job.rounds == 4 * 101
    assert runtime.runtime(job.directory)["seconds"] > before
    whole = tiny.parent / "whole" / "results"
    reproduction.reproduce(["tiny"], whole, jobs=1)
    for name in ("metrics.csv", "clients.csv", "summary.md"):
        again = whole.parent / "runs" / "tiny" / "one" / name
        assert (job.directory / name).read_bytes() == again.read_bytes()
    assert (job.directory / "curves.png").exists()


def test_progress_counts_the_rounds_of_all_units(tiny: Path) -> None:
    change("one.toml", "steps = 1", "steps = 2")
    change(
        "one.toml", "[algorithms.fedprox]\nlr = 0.1", "[algorithms.fedprox]\nlr = 1e300\nmu = 1e300"
    )
    dones: list[int] = []
    reproduction.reproduce(
        ["tiny"], tiny, tell=reproduction.Tell(lambda job, done: dones.append(done))
    )
    assert dones == [1, 2, 3, 4, 6, 7, 8, 9, 10, 12]  # what has diverged counts as whole
    assert load_run(tiny.parent / "runs" / "tiny" / "one").diverged


def test_a_process_that_dies_is_one_line(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = catalogue.jobs_of(catalogue.find("tiny"), tiny.parent / "runs")
    with jobs.Runner(1, None, jobs.SILENT) as runner:
        runner.pending[runner.pool.submit(os._exit, 1)] = job
        with pytest.raises(FedrefError, match=r"^tiny/one: a process died"):
            runner.wait([job])


def test_a_job_that_has_not_begun_is_not_begun_when_all_are_told_to_stop(tiny: Path) -> None:
    (job,) = catalogue.jobs_of(catalogue.find("tiny"), tiny.parent / "runs")
    with jobs.Runner(1, None, jobs.SILENT) as runner:
        runner.stop.set()
        runner.submit(job)
        with pytest.raises(SystemExit):
            runner.wait([job])
    assert not job.directory.exists()


def test_what_the_run_says_is_passed_on(tiny: Path) -> None:
    change("one.toml", "clients-per-round = 3", "clients-per-round = 3000")
    with pytest.raises(FedrefError, match=r"^tiny/one: .*one.toml: clients-per-round is 3000"):
        command("tiny", "--out", tiny)


def test_a_diverged_algorithm_is_a_result(tiny: Path) -> None:
    change("one.toml", "steps = 1", "steps = 2")
    change(
        "one.toml", "[algorithms.fedprox]\nlr = 0.1", "[algorithms.fedprox]\nlr = 1e300\nmu = 1e300"
    )
    assert command("tiny", "--seeds", 1, "--out", tiny) == 0
    run = load_run(tiny.parent / "runs" / "tiny" / "one")
    assert run.diverged
    assert run.experiment.seeds == (1,)  # as of `fedref run --seeds 1`: seed 1, not one seed


def test_processes_that_no_other_job_needs_work_for_a_job(tiny: Path, monkeypatch) -> None:
    given: list[int] = []
    real = jobs.Runner.__init__

    def watched(self, processes, data_dir, tell, workers) -> None:
        given.append(workers)
        real(self, processes, data_dir, tell, workers)

    monkeypatch.setattr(jobs.Runner, "__init__", watched)
    reproduction.reproduce(["tiny"], tiny, jobs=3)
    reproduction.reproduce(["tiny"], tiny.parent / "other" / "results", jobs=1)
    assert given == [3, 1]
