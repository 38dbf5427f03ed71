"""Running all units of an experiment, in this process or in workers; `fedref.run`."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.datasets import manifest_of
from fedref.datasets.sources import is_in_memory
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import (
    Loader,
    load_experiment,
    resolve_experiment,
    usual_cohort,
)
from fedref.experiments.parallel import (
    Processes,
    WorkerDeath,
    Workers,
    is_death,
    reason_of,
    run_single_threaded,
    submit,
)
from fedref.experiments.progress import SILENT, Progress, console_progress
from fedref.experiments.results import DataFacts, Run, facts_of, write_tables
from fedref.experiments.resume import UnitRun, check_split, seal_of
from fedref.experiments.run_directory import create_run_directory, drop_client_states
from fedref.experiments.unit import LOCAL, Engine, LoadedExperiment, Record, Unit, stamp, units
from fedref.rounds.federation import Federation
from fedref.rounds.threads import limit_threads

# ---- units in other processes --------------------------------------------------------------------


class UnitDone(NamedTuple):
    """The result of a unit that was run to its end in another process."""

    record: Record
    rows: list[int]  # how many rows the record had after each round
    messages: list[str]


def finish_unit(loaded: LoadedExperiment, run: UnitRun) -> UnitDone:
    """Run a unit to its end, in a worker; write checkpoints if there is a directory."""
    rows, messages = list[int](), list[str]()
    progress = Progress(lambda unit, record: rows.append(len(record.rows)), messages.append)
    run = replace(run, loaded=loaded, progress=progress)
    run.run()
    assert run.record is not None
    saved = run.directory is not None
    return UnitDone(drop_client_states(run.record) if saved else run.record, rows, messages)


def send_unit(executor: Executor, workers: int, run: UnitRun) -> Future[UnitDone]:
    """Submit a unit to an executor.

    On this machine the worker maps the data and writes checkpoints. Elsewhere it receives the data
    and returns the whole record.
    """
    nothing: Any = None
    bare = replace(run, loaded=nothing, progress=nothing, directory=None)
    if isinstance(executor, Processes):
        bare.directory = run.directory and run.directory.absolute()
        return submit(executor, workers, finish_unit, share_rows(executor, run.loaded), bare)
    return submit(executor, workers, finish_unit, run.loaded, bare)


def share_rows(executor: Processes, loaded: LoadedExperiment) -> LoadedExperiment:
    """Return the experiment as it is sent to a worker on this machine, with references to rows."""
    nothing: Any = None
    federation, unseen = executor.share_rows(loaded.federation), loaded.unseen
    if unseen is not None:
        unseen = executor.share_rows(unseen[0]), unseen[1]
    return replace(loaded, whole=nothing, federation=federation, unseen=unseen)


def receive_unit(run: UnitRun, done: UnitDone, saved: bool) -> None:
    """Take a unit's record from a worker, save it unless the worker has, and report its rounds."""
    for text in done.messages:
        run.progress.message(text)
    run.record = done.record
    if not saved:
        run.save()
    unknown: Any = None
    running = done.record._replace(status="running", state=unknown, reason="")
    for n in done.rows[:-1]:
        so_far = running._replace(round=n - 1, rows=done.record.rows[:n])
        run.progress.round(run.unit, so_far)
    run.progress.round(run.unit, done.record)


def spread_units(
    runs: Iterator[UnitRun], executor: Executor, workers: int, finish: Callable[[UnitRun], None]
) -> None:
    """Run every unit to its end in a worker, `workers` units at a time; stop at the first that fails."""
    at_work: dict[Future[UnitDone], UnitRun] = {}
    try:
        while True:
            while len(at_work) < workers and (run := next(runs, None)):
                if run.has_ended:
                    finish(run)
                else:
                    at_work[send_unit(executor, workers, run)] = run
            if not at_work:
                break
            for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                try:
                    done = future.result()
                except Exception as error:
                    if is_death(error):
                        raise unit_death_error([*at_work.values()], error) from error
                    raise
                run = at_work.pop(future)
                receive_unit(run, done, saved=isinstance(executor, Processes))
                finish(run)
    finally:
        for future in at_work:
            future.cancel()


def unit_death_error(lost: list[UnitRun], error: Exception) -> WorkerDeath:
    """Return the error that names the units on which the dead worker may have worked."""
    names = " or ".join(run.unit.name for run in sorted(lost, key=lambda run: run.unit.number))
    return WorkerDeath(f"the worker with {names} died ({reason_of(error)})")


# ---- all units -----------------------------------------------------------------------------------


def execute(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    threads: int | None = None,
    every: float = 10.0,
    progress: Progress = SILENT,
    loader: Loader | None = None,
    engine: Callable[[Unit, LoadedExperiment], Engine] = lambda unit, loaded: LOCAL,
    changed_code: bool = False,
) -> Run:
    """Run every unit; go on from its checkpoint, if there is one.

    executor : runs whole units as long as there are `workers` of them or more, else the parts of a
    cohort. threads : how many run the clients of a round where the model is large, divided by the
    workers (None: one a processor). every : seconds between checkpoints. loader : holds what
    `resolve_experiment` has loaded. engine : returns the engine of a unit. changed_code : as in
    `UnitRun`.

    The tables are written after a unit, if that takes no more than a twentieth of the time.
    """
    work = units(experiment)
    loader = loader or Loader(data_dir)
    records: dict[int, Record] = {}
    facts: DataFacts | None = None
    due = 0.0

    def unit_runs() -> Iterator[UnitRun]:
        nonlocal facts
        loaded: LoadedExperiment | None = None
        whole: Federation | None = None
        manifest: dict[str, Any] = {}
        for unit in work:
            if loaded is None or unit.point != work[unit.number - 1].point:
                loaded = load_experiment(config.at_point(experiment, unit.point), loader)
                if directory is None:  # else `resolve_experiment` has given the message
                    usual_cohort(loaded, progress.message)
            if not unit.number:
                facts = facts_of(loaded)
            algorithm = names.make_algorithm(unit.label, loaded.experiment.algorithms[unit.label])
            sealed: dict[str, str] = {}
            if directory is not None:
                if whole is not loaded.whole:
                    whole, manifest = loaded.whole, manifest_of(loaded.whole)
                if not unit.number:
                    check_split(directory, manifest)
                load = names.data_function(loaded.experiment.data["name"])
                code = (type(algorithm), type(loaded.model), load)
                sealed = seal_of(unit, own_stamp, manifest["sha256"], code)
            run = UnitRun(unit, loaded, algorithm, sealed, directory, every, progress, changed_code)
            run.resume()
            yield run

    def finish(run: UnitRun) -> None:
        nonlocal due
        assert run.record is not None
        record = run.record if directory is None else drop_client_states(run.record)
        records[run.unit.number] = record
        so_far = [records[i] for i in takewhile(records.__contains__, range(len(work)))]
        last = len(records) == len(work)
        if directory is not None and so_far and (last or time.monotonic() >= due):
            began = time.monotonic()
            write_tables(Run(experiment, work[: len(so_far)], so_far, data=facts), directory)
            due = began + 21 * (time.monotonic() - began)

    def run_units() -> None:
        runs = unit_runs()
        for run in runs:
            if run.has_ended:
                finish(run)
            elif executor is not None and 1 < workers <= len(work) - run.unit.number and apart:
                spread_units(chain([run], runs), executor, workers, finish)
            else:
                run.run(split_cohort(run), engine(run.unit, run.loaded))
                finish(run)

    def split_cohort(run: UnitRun) -> Workers | None:
        on_failure, message = run.loaded.experiment.on_failure, run.progress.message
        return Workers(executor, workers, on_failure, message=message) if executor else None

    own_stamp = stamp(experiment)
    # workers on other machines cannot write the states that `keep_parameters` asks for
    apart = experiment.keep_parameters is None or isinstance(executor, Processes)
    try:
        with limit_threads(threads):
            run_single_threaded(run_units)
    except BaseException as error:
        if isinstance(executor, Processes):
            executor.stop()
        if isinstance(error, WorkerDeath) and directory is not None:
            raise WorkerDeath(f"{error}; go on with `fedref resume {directory}`") from error
        raise
    return Run(experiment, work, [records[unit.number] for unit in work], directory, facts)


# ---- from Python ---------------------------------------------------------------------------------


def run(
    what: Experiment | str | Path | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    threads: int | None = None,
    progress: Progress | bool = SILENT,
    **settings: Any,
) -> Run:
    """Run an experiment as `fedref run` does: the same numbers, as arrays.

    what : an experiment, a TOML file, a table like that of a file, or None for the built-in
    experiment on the digits. Wherever a table names an algorithm, a model or data, the class or the
    object itself may stand instead. Data may be (X, y) or (X, y, client), {"X": X, "y": y, ...}, a
    DataFrame, a Source or a Federation.
    settings : values that override it, as with --set (`rounds=20`, `mu=0.1`). `algorithm` (one),
    `algorithms` (several in a list), `model` and `data` take names, classes or objects; `split` takes
    a rule.
    out : a run directory to write, without a picture, for which there is `fedref plot` (None: write
    nothing).
    progress : True for a bar (also in a notebook) or lines, or a Progress with functions to call.
    executor : any `concurrent.futures.Executor`. It runs `workers` units at a time, or if there are
    fewer units, as many parts of every cohort. Unless it is fedref's own, units that have not ended
    leave nothing for `fedref resume`. workers > 1 needs an executor.
    threads : how many run the clients of a round where the model is large, divided by the workers
    (None: one a processor). The numbers do not depend on it.

    >>> result = run(algorithm="fedavg", lr=0.1, rounds=2)
    >>> t, accuracy = result.curve("fedavg", "accuracy")
    >>> t, accuracy.shape
    (array([0, 1, 2]), (1, 3))
    """
    if executor is None and workers > 1:
        raise ConfigError(f"workers is {workers}, expected an executor to run them on")
    if isinstance(what, Experiment):
        table = config.as_table(what)
    elif isinstance(what, Mapping):
        table = dict(what)
    elif isinstance(what, str) and what in ALGORITHMS:
        raise ConfigError(f"{what}: is an algorithm; expected a TOML file, or algorithm={what!r}")
    else:
        table = config.read(Path(what)) if what is not None else config.built_in_table()
    if what is None and "data" in settings:
        data = settings["data"]
        named = isinstance(data, Mapping) and not is_in_memory(data)
        table["name"] = names.default_run_name(data.get("name", "digits") if named else data)
    several = settings.get("algorithms")
    key = "algorithm" if several is None or isinstance(several, Mapping) else "algorithms"
    if key == "algorithms" and "algorithm" in settings:
        raise ConfigError("both algorithm and algorithms are given, expected one of them")
    chosen = settings.pop(key, ())
    choices = {head: settings.pop(head, None) for head, _ in config.NAME_KEYS}
    with config.naming(str(what) if isinstance(what, str | Path) else ""):
        algorithms = chosen if isinstance(chosen, list | tuple) else [chosen]
        experiment = config.compose(table, algorithms, choices, settings.items())
    loader = Loader(data_dir)
    if out is None and experiment.keep_parameters is not None:
        raise ConfigError("keep-parameters needs a run directory, expected `out`, too")
    console = console_progress(experiment) if progress is True else nullcontext(progress or SILENT)
    with console as report:
        how: dict[str, Any] = {
            "executor": executor, "workers": workers, "threads": threads, "progress": report
        }  # fmt: skip
        if out is None:
            return execute(experiment, loader=loader, **how)
        experiment = resolve_experiment(experiment, loader, report.message)
        with create_run_directory(experiment, Path(out)) as directory:
            return execute(experiment, directory, loader=loader, **how)
