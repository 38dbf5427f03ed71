"""Running jobs: one process each, several at once, each one resumed where it was left.

runtime.json {seconds, version, commit} says how long a run has taken so far, and what made it.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import cache
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import fedref
from fedref import plots
from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import read_json, write_atomically
from fedref.experiments import config, run_directory
from fedref.experiments.config import Experiment
from fedref.experiments.parallel import Processes
from fedref.experiments.progress import duration, report_by_lines
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.experiments.run import run as run_experiment
from fedref.experiments.unit import Record, Unit, units
from reproduce.catalogue import PACKAGE, Job

#: Seconds between two times that the time of a run at work is saved.
SAVE_EVERY = 10.0

Message = Callable[[str], None]


@contextmanager
def running(
    jobs: Sequence[Job],
    processes: int,
    data_dir: Path | None,
    begin: Callable[[], None] | None = None,
) -> Iterator[dict[Path, "Future[None]"]]:
    """Run what is left of these jobs in that many processes: run directory → its future.

    Leaving early ends those at work; what they have done is in their checkpoints. Processes
    that no other job needs work for a job. begin : what every process calls first.
    """
    left = [job for job in jobs if not is_finished(job)]
    workers = processes // max(len(left), 1)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), begin)
    try:
        yield {job.directory: pool.submit(work, job, data_dir, workers) for job in left}
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def wait_for(jobs: Sequence[Job], futures: dict[Path, "Future[None]"], message: Message) -> None:
    """Wait until these jobs are finished; one error, which names the job, if one of them fails."""
    for job in jobs:
        try:
            future = futures.pop(job.directory, None)
            if future is not None:
                future.result()
        except BrokenProcessPool:
            raise FedrefError(
                f"{job.name}: a process died before it was finished (out of memory?); what was saved "
                "is whole: the same command resumes it"
            ) from None
        except FedrefError as error:
            raise FedrefError(f"{job.name}: {error}") from error
        how = "finished before" if future is None else "finished"
        message(f"{job.name}: {how}, {runtime_in_words(job.directory)}")


def work(job: Job, data_dir: Path | None, workers: int = 1) -> None:
    """Run one job to its end, or resume it, in a process of the pool."""
    saved = time.monotonic()

    def save_time() -> None:
        nonlocal saved
        before, saved = saved, time.monotonic()
        add_runtime(job.directory, saved - before)

    def say(text: str) -> None:
        print(f"fedref: {job.name}: {text}", file=sys.stderr, flush=True)

    progress = report_by_lines(job.experiment, say)

    def report_round(unit: Unit, record: Record) -> None:
        progress.round(unit, record)
        if time.monotonic() - saved > SAVE_EVERY:
            save_time()

    with Processes(workers) if workers > 1 else nullcontext() as pool:
        how: dict[str, Any] = {
            "data_dir": data_dir, "executor": pool, "workers": workers,
            "progress": progress._replace(round=report_round),
        }  # fmt: skip
        if (job.directory / "config.toml").exists():
            with run_directory.lock_run_directory(job.directory):
                run = execute(run_directory.read_experiment(job.directory), job.directory, **how)
        else:
            with config.naming(str(job.file)):
                run = run_experiment(job.experiment, out=job.directory, **how)
    with run_directory.disk_errors(job.directory):
        plots.curves(run, job.directory / "curves.png")
    save_time()


# ---- what has been run ---------------------------------------------------------------------------


def is_finished(job: Job) -> bool:
    """Whether nothing is left to run."""
    if not (job.directory / "summary.md").exists():
        return False
    found = [record.status for _, record in records(job.directory, job.experiment)]
    return "running" not in found and len(found) == len(units(job.experiment))


def records(directory: Path, made: Experiment) -> Iterator[tuple[Unit, Record]]:
    """Yield the units that have begun and their records, one in memory at a time."""
    for unit in units(made):
        record = run_directory.load_record(directory, unit)
        if record is not None:
            yield unit, record


def results(directory: Path) -> Run:
    """Return a run as `load_run` does, without what takes most memory.

    What clients keep for themselves is left out, but not who keeps something; of the scores of single
    clients the last ones are there.
    """
    made = run_directory.read_experiment(directory)
    found, light = [], []
    for unit, record in records(directory, made):
        state = record.state._replace(clients=dict.fromkeys(record.state.clients))
        record = record._replace(rounds=record.rounds[-1:], scores=record.scores[-1:])
        found.append(unit)
        light.append(record._replace(state=state))
    if not light:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(made, found, light)


# ---- runtime.json --------------------------------------------------------------------------------


def add_runtime(directory: Path, seconds: float) -> None:
    """Add to the seconds of DIR/runtime.json, and this commit to those that made the run."""
    before = runtime(directory)
    commits = [*filter(None, str(before.get("commit", "")).split(", ")), git_commit()]
    found = {
        "seconds": round(float(before.get("seconds", 0)) + seconds, 3),
        "version": fedref.__version__,
        "commit": ", ".join(dict.fromkeys(commits)),
    }
    write_atomically(directory / "runtime.json", (json.dumps(found) + "\n").encode())


def runtime(directory: Path) -> dict[str, Any]:
    """Return what runtime.json holds; nothing if there is none."""
    path = directory / "runtime.json"
    return read_json(path, "an object of seconds, version and commit") if path.exists() else {}


def runtime_in_words(directory: Path) -> str:
    """Return how long a run has taken."""
    seconds = runtime(directory).get("seconds")
    return "runtime not recorded" if seconds is None else duration(float(seconds))


@cache
def git_commit() -> str:
    """Return the commit of the checkout that fedref runs from, "+ changes" if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PACKAGE.parent), *words],
            capture_output=True, text=True, check=True, timeout=30,
        ).stdout.strip()  # fmt: skip

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != PACKAGE.parent:
            return "unknown"  # installed somewhere inside another project
        ours = ("fedref", "reproduce/*/*.toml", "reproduce/*.py", "reproduce/*/*.py")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *ours)
        return git("rev-parse", "HEAD") + (" + changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def short(commit: str) -> str:
    """Return a commit, or several, with ten digits each."""
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit)
