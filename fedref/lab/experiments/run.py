"""Running experiments: to run is to complete the file of every unit; `fedref.run`.

A run directory has one owner, which completes the units itself or has it done by an executor: of worker
processes, which save in the directory, or any other, which sends units' files. To resume is to run again.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import make_folder, write_atomically
from fedref.boundary.values import Bounds, Entry
from fedref.lab.datasets import manifest_of, write_manifest
from fedref.lab.experiments import run_directory
from fedref.lab.experiments.config import Experiment, compose, setting_entries
from fedref.lab.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.lab.experiments.parallel import (
    run_single_threaded,
    run_unit,
    signals_blocked,
    worker_processes,
)
from fedref.lab.experiments.progress import SILENT, Progress, console_progress
from fedref.lab.experiments.results import Run, note_on_scales
from fedref.lab.experiments.unit import (
    LOCAL,
    Engine,
    LoadedExperiment,
    Record,
    Say,
    Unit,
    check_many,
    iterate_rounds,
    rounds_done,
    units,
)
from fedref.rounds.threads import available_threads, limit_threads

#: Seconds between two looks at how far workers are.
PAUSE = 0.1
EngineOf = Callable[[Unit, LoadedExperiment], Engine] | None


class Options(NamedTuple):
    """How units are completed; the numbers do not depend on it.

    every : seconds between savings of a unit, or more if one takes long; 0: after every round.
    changed_code : go on with units that other code or another version of fedref has begun. stays :
    whether the directory stays, and with it what clients keep.
    """

    directory: Path
    every: float = 10.0
    changed_code: bool = False
    engine: EngineOf = None
    stays: bool = True


# ---- one unit ------------------------------------------------------------------------------------


def complete_unit(
    unit: Unit, loader: Loader, how: Options, progress: Progress
) -> Generator[Record, None, None]:
    """Run the rounds that a unit's file does not have yet, and save it; yield the record after each.

    If an error, a signal or the caller ends it, what was done is saved.
    """
    directory, say, loaded = (
        how.directory,
        progress.message,
        load_experiment(unit.experiment, loader),
    )
    seal = run_directory.seal_of(unit, loaded, loader.split_hash(loaded.whole))
    record = begun = load_begun(unit, how, seal, say)
    if begun is not None and (gone := run_directory.missing_state(directory, unit, begun)):
        say(f"{gone}, so {unit.name} is run again")
        record = None
    if record is not None:
        run_directory.keep_state(directory, unit, record)
        yield record
        if record.status != "running":
            return
    newest, due = record, time.monotonic() + how.every
    engine = how.engine(unit, loaded) if how.engine else LOCAL
    try:
        for newest in iterate_rounds(unit, loaded, record, say, progress.watch(engine)):
            run_directory.keep_state(directory, unit, newest)
            began, ended = time.monotonic(), newest.status != "running"
            if begun is not None and newest.round < begun.round:
                continue  # it is repeated: the file has more
            if ended or began >= due:
                run_directory.save_record(directory, unit, newest, seal)
                now = time.monotonic()
                due = now + max(how.every, 20 * (now - began) * bool(how.every))
            yield newest
    except BaseException:
        before = -1 if begun is None else begun.round
        if newest is not None and newest.status == "running" and newest.round > before:
            with suppress(FedrefError, OSError):  # the first error says more
                run_directory.save_record(directory, unit, newest, seal)
        raise


def load_begun(unit: Unit, how: Options, seal: Mapping[str, str], say: Say) -> Record | None:
    """Return the record in a unit's file if it may go on; None if there is none, or a damaged one."""
    try:
        record = run_directory.load_record(how.directory, unit)
    except DataError as error:
        if not run_directory.record_path(how.directory, unit).is_file():
            raise
        say(f"{error}: {unit.name} starts anew")
        return None
    if record is not None:
        run_directory.check_seal(how.directory, unit, record.seal, seal, how.changed_code)
    return record


# ---- all units -----------------------------------------------------------------------------------


def complete_units(
    work: list[Unit],
    loader: Loader,
    how: Options,
    progress: Progress,
    workers: int,
    executor: Executor | None,
) -> list[Record]:
    """Complete the files of all units: in this process, in `workers` of this machine, or in an executor."""
    new = {u.number for u in work if not run_directory.record_path(how.directory, u).exists()}
    if executor is not None:  # then what follows has only to read what comes back
        complete_in(executor, [u for u in work if u.number in new], loader, how, progress)
    elif workers > 1:
        complete_in_workers(workers, work, loader, how, progress)
    records = []
    for unit in work:
        with closing(complete_unit(unit, loader, how, progress)) as rounds:
            for i, record in enumerate(rounds):
                # of a unit that another process has run, the rounds are reported one by one, too
                for n in range(1, len(record.rows) * (i == 0 and unit.number in new)):
                    before = record._replace(status="running", round=n - 1, rows=record.rows[:n])
                    progress.round(unit, before._replace(reason=""))
                progress.round(unit, record)
        records.append(run_directory.drop_client_states(record) if how.stays else record)
    return records


def complete_in_workers(
    workers: int, work: list[Unit], loader: Loader, how: Options, progress: Progress
) -> None:
    """Complete units in processes of this machine, which write them; a unit whose worker dies, once more."""
    left, before = dict(enumerate(work)), set[int]()
    call = partial(complete_here, loader=loader, how=how._replace(engine=None))
    while left:
        with worker_processes(min(workers, len(left)), call, work) as (pool, shared):
            with signals_blocked():
                calls = {pool.submit(run_unit, place): place for place in left}
            try:
                while calls:
                    for future in wait(calls, PAUSE, FIRST_COMPLETED).done:
                        for text in future.result():
                            progress.message(text)
                        del left[calls.pop(future)]
                    progress.elsewhere(
                        {work[i].number: n for i, n in enumerate(shared.rounds) if n}
                    )
            except BrokenProcessPool as error:
                died = {place for place in left if shared.pids[place]}
                names = ", ".join(work[place].name for place in sorted(died)) or "none"
                if died & before or not died:
                    raise FedrefError(
                        f"worker processes died again and again (at work: {names}); what was saved is whole: "
                        f"go on with `fedref resume {how.directory}`"
                    ) from error
                before |= died
                progress.message(f"a worker died (at work: {names}): others go on with its unit")


def complete_here(
    unit: Unit, tell: Callable[[int], None], loader: Loader, how: Options
) -> list[str]:
    """Complete the file of a unit as a worker; return messages."""
    messages: list[str] = []
    for record in complete_unit(unit, loader, how, Progress(message=messages.append)):
        tell(rounds_done(unit, record))
    return messages


def complete_apart(unit: Unit, loader: Loader) -> tuple[dict[str, bytes], list[str]]:
    """Run a unit in a folder of its own; return its files by their paths, and messages."""
    with TemporaryDirectory(prefix="fedref-") as folder:
        messages = complete_here(
            unit, lambda rounds: None, loader, Options(Path(folder), every=1e9)
        )
        paths = sorted(Path(folder).glob("*/*.ckpt"))
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}, messages


def complete_in(
    executor: Executor, work: list[Unit], loader: Loader, how: Options, progress: Progress
) -> None:
    """Run units in an executor, and write the files that come back."""
    calls = dict[Future[Any], Unit]()
    try:
        for unit in work:
            call = complete_apart, unit, loader
            calls[executor.submit(run_single_threaded, *call)] = unit
        for future in as_completed(calls):
            files, messages = future.result()
            unit = calls.pop(future)
            for name, content in files.items():
                with run_directory.disk_errors(how.directory, resumable=True):
                    make_folder((how.directory / name).parent)
                    write_atomically(how.directory / name, content)
            for text in messages:
                progress.message(text)
            progress.elsewhere({unit.number: unit.experiment.rounds + 1})
    except FedrefError:
        raise
    except Exception as error:  # each executor has its own for a worker that died
        raise FedrefError(
            f"the executor failed ({type(error).__name__}: {error}); units that had ended are whole: "
            f"go on with `fedref resume {how.directory}`"
        ) from error
    finally:
        for future in calls:
            future.cancel()


# ---- a run ---------------------------------------------------------------------------------------


def execute(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    loader: Loader | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    threads: int | None = None,
    every: float = 10.0,
    progress: Progress = SILENT,
    engine: EngineOf = None,
    changed_code: bool = False,
) -> Run:
    """Run every unit; go on from its file, if there is one; write the tables at the end.

    executor : runs whole units in the place of workers. threads : how many run the clients of a round
    where the model is large, divided by the workers (None: one a processor). every, changed_code,
    engine : as in `Options`. loader : holds what `resolve_experiment` has loaded.
    """
    loader, work = loader or Loader(), units(experiment)
    workers = 1 if executor is not None else workers

    def run_all() -> Run:
        first = load_experiment(work[0].experiment, loader)
        progress.phase("rounds")
        done = partial(Run, experiment, work, directory=directory, note=note_on_scales(first))
        if directory is not None:
            run_directory.refuse_strangers(directory, work)
        elif workers == 1 and executor is None:  # nothing to share: no file is needed
            return done([*run_in_memory(work, loader, progress)])
        folder = nullcontext(directory) if directory else TemporaryDirectory(prefix="fedref-")
        with folder as place:
            how = Options(Path(place), every, changed_code, engine, directory is not None)
            run = done(complete_units(work, loader, how, progress, workers, executor))
            if directory is not None:
                write_manifest(manifest_of(first.whole), directory / "split.json")
                run.write(directory)
                run_directory.remove_partial_files(directory)
        return run

    files = nullcontext() if directory is None else run_directory.disk_errors(directory, True)
    with files, limit_threads(threads), limit_threads(max(1, available_threads() // workers)):
        run: Run = run_single_threaded(run_all)
    return run


def run_in_memory(work: list[Unit], loader: Loader, progress: Progress) -> Iterator[Record]:
    """Run all units without files; yield their records."""
    for unit in work:
        loaded = load_experiment(unit.experiment, loader)
        for record in iterate_rounds(unit, loaded, None, progress.message, progress.watch(LOCAL)):
            progress.round(unit, record)
        yield record


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
    for the built-in experiment on the digits. Wherever a table names an algorithm, a model or data, the
    class or the object itself may stand instead.
    data : a name, a path, (X, y) or (X, y, client), {client: (X, y)}, {"X": X, "y": y, ...}, a
    DataFrame, a Source or a Federation.
    settings : values that override it, as with --set (`rounds=20`, `mu=0.1`). `algorithm` or
    `algorithms` (one, several in a list, or {LABEL: one}), `model` and `data` take names, classes or
    objects; `split` takes a rule.
    out : a run directory to write, without a picture, for which there is `fedref plot` (None: write
    nothing). A run that was begun there goes on.
    progress : True for a bar (also in a notebook) or lines, or a Progress with functions to call.
    workers : processes on this machine that share the units.
    executor : any `concurrent.futures.Executor` in their place. It runs each unit to its end; units
    that have not ended leave nothing for `fedref resume`.
    threads : how many run the clients of a round where the model is large, divided by the workers
    (None: one a processor). The numbers do not depend on it.
    many : allow a sweep of more than 10 000 units.

    >>> result = run(algorithm="fedavg", lr=0.1, rounds=2)
    >>> t, accuracy = result.curve("fedavg", "accuracy")
    >>> t, accuracy.shape
    (array([0, 1, 2]), (1, 3))
    """
    settings |= {"data": data}
    if "algorithm" in settings:
        if settings.get("algorithms") is not None:
            raise ConfigError("both algorithm and algorithms are given, expected one of them")
        settings["algorithms"] = settings.pop("algorithm")
    for name, number in (("workers", workers), ("threads", 1 if threads is None else threads)):
        Entry(name, int, bounds=Bounds(1)).check(number)
    if not isinstance(out, str | Path | None):
        raise ConfigError(f"out is {out!r}, expected the path of a run directory")
    experiment = compose(what, settings.items())
    check_many(experiment, many)
    if out is None and experiment.keep_parameters is not None:
        raise ConfigError("keep-parameters needs a run directory, expected `out`, too")
    console = console_progress(experiment) if progress is True else nullcontext(progress or SILENT)
    with console as report:
        loader = Loader(data_dir, phase=report.phase)
        how: dict[str, Any] = {"executor": executor, "workers": workers, "threads": threads}
        experiment = resolve_experiment(experiment, loader, report.message)
        if out is None:
            return execute(experiment, None, loader=loader, progress=report, **how)
        place = Path(out).absolute()
        with run_directory.hold_directory(place):
            run_directory.begin_run(experiment, place, report.message)
            return execute(experiment, place, loader=loader, progress=report, **how)


if run.__doc__:  # not with python -OO
    run.__doc__ += "\n    All settings but tables:\n" + "".join(
        f"      {name} : {entry.describe()}\n" for name, entry in setting_entries().items()
    )
