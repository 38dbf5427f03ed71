"""The running of jobs: one process each, `jobs` at once, each one going on where it was."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

from fedref.boundary.errors import DataError, FedrefError
from fedref.experiments import config, run_directory
from fedref.experiments.config import Experiment
from fedref.experiments.parallel import Processes
from fedref.experiments.progress import Progress
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.experiments.run import run as run_experiment
from fedref.experiments.unit import Record, Unit, units
from fedref.reproduction.catalogue import Job
from fedref.reproduction.runtime import lasted, stopwatch


class Tell(NamedTuple):
    """Who is told how it goes: (job, rounds done) after every round, and lines of text."""

    progress: Callable[[Job, int], None] = lambda job, done: None
    message: Callable[[str], None] = lambda text: None


SILENT = Tell()


def finished(job: Job) -> bool:
    """Whether nothing is left to run."""
    if not (job.directory / "summary.md").exists():
        return False
    found = [record.status for _, record in records(job.directory, job.experiment)]
    return "running" not in found and len(found) == len(units(job.experiment))


def records(directory: Path, made: Experiment) -> Iterator[tuple[Unit, Record]]:
    """The units that have begun and their records, one in memory at a time."""
    for unit in units(made):
        record = run_directory.load_record(directory, unit)
        if record is not None:
            yield unit, record


def results(directory: Path) -> Run:
    """`load_run`, but light: what clients keep for themselves is left out (who keeps something
    stays known), and so are the scores of single clients, but for the last ones."""
    made = config.from_table(config.read(directory / "config.toml"), f"{directory}/config.toml")
    work, light = [], []
    for unit, record in records(directory, made):
        state = record.state._replace(clients=dict.fromkeys(record.state.clients))
        record = record._replace(rounds=record.rounds[-1:], scores=record.scores[-1:])
        work.append(unit)
        light.append(record._replace(state=state))
    if not light:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(made, work, light)


# ---- in a process of the pool --------------------------------------------------------------------

_told: Any = None  # a queue of (directory, rounds done)
_stop: Any = None  # an event: leave off after this round


def begin(told: Any, stop: Any) -> None:
    """What a process begins with. Ctrl-C at a terminal reaches it as well, and ends it silently."""
    global _told, _stop
    _told, _stop = told, stop
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))


def work(job: Job, data_dir: Path | None, workers: int = 1) -> str:
    """Run one job to its end, or go on with it; says how long it took. workers : its processes, where
    there are fewer jobs than processes."""
    from fedref import plots  # matplotlib takes its time

    if _stop.is_set():
        sys.exit(1)
    if finished(job):
        return f"{job.name}: finished before, {lasted(job.directory)}"
    with ExitStack() as stack:
        tick = stack.enter_context(stopwatch(job.directory))
        pool = stack.enter_context(Processes(workers)) if workers > 1 else None
        done: dict[int, int] = {}  # unit → rounds

        def told(unit: Unit, record: Record) -> None:
            each = job.experiment.rounds + 1
            done[unit.number] = each if record.status == "diverged" else record.round + 1
            _told.put((job.directory, sum(done.values())))
            tick()
            parent = parent_process()
            if parent is not None and not parent.is_alive():
                os._exit(1)  # nobody is left who would hand out work, or end this process
            if _stop.is_set():
                sys.exit(1)

        how: dict[str, Any] = {
            "data_dir": data_dir, "progress": Progress(told), "executor": pool, "workers": workers
        }  # fmt: skip
        if (job.directory / "config.toml").exists():
            with run_directory.lock_run_directory(job.directory):
                made = run_directory.read_experiment(job.directory)
                run = execute(made, job.directory, **how)
        else:
            with config.naming(str(job.file)):
                run = run_experiment(job.experiment, out=job.directory, **how)
        with run_directory.disk_errors(job.directory):
            plots.curves(run, job.directory / "curves.png")
    return f"{job.name}: finished, {lasted(job.directory)}"


# ---- the pool ------------------------------------------------------------------------------------


class Runner:
    """Jobs over a pool of processes; leaving it stops those that are still at work."""

    def __init__(self, processes: int, data_dir: Path | None, tell: Tell, workers: int = 1) -> None:
        context = get_context("spawn")
        self.data_dir, self.tell, self.workers = data_dir, tell, workers
        self.told, self.stop = context.SimpleQueue(), context.Event()
        self.pool = ProcessPoolExecutor(processes, context, begin, (self.told, self.stop))
        self.jobs: dict[Path, Job] = {}
        self.pending: dict[Future[str], Job] = {}

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()  # what has been done is in the checkpoints
        self.pool.shutdown(cancel_futures=True)

    def submit(self, job: Job) -> None:
        self.jobs[job.directory] = job
        self.pending[self.pool.submit(work, job, self.data_dir, self.workers)] = job

    def wait(self, wanted: Sequence[Job]) -> None:
        """Until these jobs are finished, or for the first error of any job."""
        while True:
            done, _ = wait(self.pending, timeout=0.1, return_when=FIRST_EXCEPTION)
            while not self.told.empty():
                directory, rounds = self.told.get()
                self.tell.progress(self.jobs[directory], rounds)
            for future in done:
                self.tell.message(result(future, self.pending.pop(future)))
            if not any(job in wanted for job in self.pending.values()):
                return


def result(future: "Future[str]", job: Job) -> str:
    """What `work` has said, or one error that names the job."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise FedrefError(
            f"{job.name}: a process died before it was finished (out of memory?); what was saved is "
            "whole: the same command goes on with it"
        ) from None
    except FedrefError as error:
        raise FedrefError(f"{job.name}: {error}") from error
