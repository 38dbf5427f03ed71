"""Running experiments: to run is to complete the file of every unit; `fedref.run`.

A run directory has one owner. It completes the units itself, or an executor does: worker processes save in
the directory, any other executor sends back the units' files. To resume is to run again.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import closing, nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.values import Bounds, Entry, quote
from fedref.lab.datasets import manifest_of, write_manifest
from fedref.lab.experiments import run_directory
from fedref.lab.experiments.config import Experiment, compose, setting_entries
from fedref.lab.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.lab.experiments.own_code import errors_of_own_code
from fedref.lab.experiments.parallel import run_in_executor, run_in_workers, run_single_threaded
from fedref.lab.experiments.progress import SILENT, Progress, console_progress, ignore
from fedref.lab.experiments.results import Run, note_on_scales
from fedref.lab.experiments.seal import numeric_rooms, seal_of
from fedref.lab.experiments.unit import LOCAL, EngineOf, Record, Unit, iterate_rounds, units
from fedref.rounds.threads import available_threads, limit_threads


class Options(NamedTuple):
    """How units are completed; the numbers do not depend on it.

    loader : holds what `resolve_experiment` has loaded. directory : None: nothing is saved. every : seconds
    between savings of a unit, or more if one takes long; 0: after every round. changed_code : go on with
    units that other code or another version of fedref has begun. workers : processes of this machine that
    share the units; executor : runs whole units in their place. threads : how many run the clients of a
    round where the model is large, divided by the workers (None: one a processor). rooms : what
    `numeric_rooms` returns, if another process has it.
    """

    loader: Loader
    directory: Path | None = None
    every: float = 10.0
    changed_code: bool = False
    engine: EngineOf = None
    workers: int = 1
    executor: Executor | None = None
    threads: int | None = None
    progress: Progress = SILENT
    rooms: Mapping[str, str] | None = None


#: What another process sends back of a unit: files by their paths, and messages.
Sent = tuple[dict[str, bytes], list[str]]

# ---- one unit ------------------------------------------------------------------------------------


def complete_unit(unit: Unit, how: Options) -> Generator[Record, None, None]:
    """Run the rounds that a unit's file does not have yet, and save it; yield the record after each.

    If an error, a signal or the caller ends it, what was done is saved.
    """
    loader, directory, progress = how.loader, how.directory, how.progress
    loaded = load_experiment(unit.experiment, loader)
    engine = progress.watch(how.engine(unit, loaded) if how.engine else LOCAL)
    run = partial(iterate_rounds, unit, loaded, say=progress.message, engine=engine)
    with errors_of_own_code(unit.algorithm, loaded.model):
        if directory is None:
            yield from run()
            return
        seal = seal_of(unit, loaded, loader.split_hash(loaded.whole), how.rooms or numeric_rooms())
        files = run_directory.UnitFiles(directory, unit)
        record = newest = files.load_begun(seal, how.changed_code, progress.message)
        saved, due = newest, time.monotonic() + how.every
        if newest is not None:
            files.keep_state(newest)
            yield newest
            if newest.status != "running":
                return
        try:
            run_directory.require_run(directory)
            for newest in run(record, score_file=files.scores()):
                files.keep_state(newest)
                began, ended = time.monotonic(), newest.status != "running"
                if ended or began >= due:
                    files.save(newest, seal)
                    saved, now = newest, time.monotonic()
                    due = now + max(how.every, 20 * (now - began) * bool(how.every))
                yield newest
        except BaseException as error:
            if isinstance(error, OSError):
                run_directory.require_run(directory)  # that the folder is gone says more
            # what is done is saved, too: its last saving may have been cut off
            if newest is not None and newest is not saved:
                with suppress(FedrefError, OSError):  # the first error says more
                    files.save(newest, seal)
            raise


def complete_elsewhere(unit: Unit, tell: Callable[[int], None] = ignore, *, how: Options) -> Sent:
    """Complete a unit in another process than the run's; return its files, unless `how` has a directory."""
    messages = list[str]()
    with run_directory.temporary_directory() if how.directory is None else nullcontext() as folder:
        if folder:
            run_directory.make_folders(folder, [unit])
        report = Progress(message=messages.append)
        here = how._replace(directory=folder or how.directory, progress=report)
        for record in complete_unit(unit, here):
            tell(unit.rounds_done(record))
        if not folder:
            return {}, messages
        # scores first, as a record counts on them
        paths = [p for end in ("scores", "ckpt") for p in sorted(folder.glob(f"*/*.{end}"))]
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}, messages


# ---- all units -----------------------------------------------------------------------------------


def complete_units(work: list[Unit], how: Options) -> Iterator[Record]:
    """Complete all units: in this process, in `workers` of this machine, or in an executor."""
    place, progress = how.directory, how.progress
    saved = {u.number for u in work if place and run_directory.UnitFiles(place, u).record.exists()}
    new = [unit for unit in work if unit.number not in saved]

    def run_elsewhere() -> Generator[tuple[Unit, Sent], None, None]:
        if how.executor is not None:
            call = partial(complete_elsewhere, how=Options(how.loader, every=inf))
            yield from run_in_executor(how.executor, call, new)
        elif how.workers > 1:
            theirs = how._replace(engine=None, progress=SILENT, rooms=numeric_rooms())
            call = partial(complete_elsewhere, how=theirs)
            yield from run_in_workers(how.workers, call, work, progress.elsewhere, progress.message)

    with closing(run_elsewhere()) as results:
        for unit, (files, messages) in results:
            for name, content in files.items():
                path = Path(place or "") / name
                with run_directory.disk_errors(path.parent):
                    run_directory.write_below(Path(place or ""), path, content)
            for text in messages:
                progress.message(text)
            progress.elsewhere({unit.number: unit.experiment.rounds + 1})
    for unit in work:  # of those that others have run, what follows has only to read the files
        with closing(complete_unit(unit, how)) as rounds:
            for i, record in enumerate(rounds):
                if i == 0 and unit.number not in saved:
                    for earlier in record.earlier():
                        progress.round(unit, earlier)
                progress.round(unit, record)
        yield record


# ---- a run ---------------------------------------------------------------------------------------


def execute(
    experiment: Experiment, directory: Path | None = None, loader: Loader | None = None, **how: Any
) -> Run:
    """Run every unit; go on from its file, if there is one; write the tables at the end.

    loader, how : as in `Options`.
    """
    options, work = Options(loader or Loader(), directory, **how), units(experiment)
    workers = 1 if options.executor is not None else options.workers
    shared = directory is None and (workers > 1 or options.executor is not None)

    def run_all() -> Run:
        first = load_experiment(work[0].experiment, options.loader)
        options.progress.phase("training")
        if directory is not None:
            run_directory.refuse_other_units(directory, work)
        with run_directory.temporary_directory() if shared else nullcontext() as folder:
            place = folder or directory
            if place is not None:
                run_directory.make_folders(place, work)
            done = complete_units(work, options._replace(directory=place))
            if directory is None:  # the files, if there are any, go
                records = [record._replace(scores=list(record.scores)) for record in done]
            else:
                records = [*map(run_directory.drop_client_states, done)]
        run = Run(experiment, work, records, directory, note_on_scales(first))
        if directory is not None:
            run_directory.require_run(directory)
            write_manifest(manifest_of(first.whole), directory / "split.json")
            run.write(directory)
            run_directory.remove_partial_files(directory)
        return run

    files = nullcontext() if directory is None else run_directory.resumable(directory)
    threads = options.threads
    with files, limit_threads(threads), limit_threads(max(1, available_threads() // workers)):
        run: Run = run_single_threaded(run_all)
    return run


def run(
    what: Any = None,
    data: Any = None,
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    threads: int | None = None,
    progress: Progress | bool = False,
    many: bool = False,
    **settings: Any,
) -> Run:
    """Run an experiment as `fedref run` does: the same numbers, as arrays.

    what : an experiment, a TOML file, a table like that of a file, one or several algorithms, or None
    for the built-in experiment on the digits; where a table names an algorithm, a model or data, the
    class or the object itself may stand instead.
    data : a name, a path, (X, y) or (X, y, client), {client: (X, y)}, {"X": X, "y": y, ...}, a
    DataFrame, a Source or a Federation.
    out : a run directory to write, without a picture (`fedref plot` draws one); a run that was begun
    there goes on (None: write nothing).
    data_dir : the folder where data sets are looked for (default: FEDREF_DATA).
    executor : any `concurrent.futures.Executor`, in the place of workers; it runs each unit to its end,
    and units that have not ended leave nothing for `fedref resume`.
    workers : processes on this machine that share the units, ≥ 1.
    threads : how many run the clients of a round where the model is large, ≥ 1, divided by the workers
    (None: one a processor); the numbers do not depend on it.
    progress : True for a bar (also in a notebook) or lines, or a Progress with functions to call.
    many : allow a sweep of more than 10 000 units.
    settings : values that override `what`, as with --set (`rounds=20`, `mu=0.1`); `algorithm` or
    `algorithms` (one, several in a list, or {LABEL: one}), `model` and `data` take names, classes or
    objects; `split` takes a rule.

    Raises ConfigError where a setting is unknown or out of its range, and DataError where the data
    cannot be read.

    >>> result = run(algorithm="fedavg", lr=0.1, rounds=2)
    >>> t, accuracy = result.curve("fedavg", "accuracy")
    >>> t, accuracy.shape
    (array([0, 1, 2]), (1, 3))
    """
    settings |= {"data": data}
    for name, number in (("workers", workers), ("threads", 1 if threads is None else threads)):
        Entry(name, int, bounds=Bounds(1)).check(number)
    if not isinstance(out, str | Path | None):
        raise ConfigError(f"out is {quote(out)}, expected the path of a run directory")
    experiment = compose(what, settings.items())
    if out is None and experiment.keep_parameters is not None:
        raise ConfigError("keep-parameters needs a run directory, expected `out`, too")
    console = console_progress(experiment) if progress is True else nullcontext(progress or SILENT)
    with console as report:
        loader = Loader(data_dir, phase=report.phase)
        how: dict[str, Any] = {"executor": executor, "workers": workers, "threads": threads}
        experiment = resolve_experiment(experiment, loader, report.message, many)
        if out is None:
            return execute(experiment, None, loader=loader, progress=report, **how)
        place = Path(out).absolute()
        with run_directory.begin_run(experiment, place, report.message):
            return execute(experiment, place, loader=loader, progress=report, **how)


if run.__doc__:  # not with python -OO
    run.__doc__ += "\n    All settings but tables:\n" + "".join(
        f"      {name} : {entry.describe()}\n" for name, entry in setting_entries().items()
    )
