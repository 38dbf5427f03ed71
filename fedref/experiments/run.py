"""Running experiments: to run is to complete the file of every unit; `fedref.run`.

The folder is the queue. A process takes the first unit that is not complete and that no other process
holds, goes on from its file, and takes the next. To resume is to do that again; a worker is another
process that does it, and two terminals may do it at once.

Long because a unit may be completed here, in a worker or in an executor.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.files import make_folder, write_atomically
from fedref.experiments import run_directory
from fedref.experiments.config import Experiment, compose
from fedref.experiments.loading import Loader, load_unit, resolve_experiment
from fedref.experiments.notes import DataFacts, facts_of
from fedref.experiments.parallel import (
    FAILED,
    Board,
    WorkerProcesses,
    run_single_threaded,
)
from fedref.experiments.progress import SILENT, Progress, console_progress
from fedref.experiments.results import Run
from fedref.experiments.unit import (
    LOCAL,
    Engine,
    LoadedExperiment,
    Record,
    Say,
    Unit,
    iterate_rounds,
    units,
)
from fedref.rounds.threads import available_threads, limit_threads

#: Seconds between two looks at units that other processes hold.
PAUSE = 0.1
EngineOf = Callable[[Unit, LoadedExperiment], Engine]


def local_engine(unit: Unit, loaded: LoadedExperiment) -> Engine:
    return LOCAL


class Options(NamedTuple):
    """Options units are completed; the numbers do not depend on it.

    every : seconds between savings of a unit, or more if one takes long; 0: after every round.
    changed_code : go on with units that other code or another version of fedref has begun.
    """

    directory: Path
    every: float = 10.0
    changed_code: bool = False
    engine: EngineOf = local_engine


# ---- one unit ------------------------------------------------------------------------------------


def complete_unit(
    unit: Unit, loader: Loader, how: Options, say: Say
) -> Generator[Record, None, None]:
    """Run the rounds that a unit's file does not have yet, and save it; yield the record after each.

    If an error, a signal or the caller ends it, what was done is saved.
    """
    directory, loaded = how.directory, load_unit(unit, loader)
    seal = run_directory.seal_of(unit, loaded, loader.split_hash(loaded.whole))
    record = begun = load_begun(unit, how, seal, say)
    if begun is not None and (path := run_directory.missing_state(directory, unit, begun)):
        say(f"{path}: is gone, so {unit.name} is run again")
        record = None
    if record is not None:
        if run_directory.is_kept(unit, record):
            run_directory.save_state(directory, unit, record)
        yield record
        if record.status != "running":
            return
    newest, due = record, time.monotonic() + how.every
    try:
        for newest in iterate_rounds(unit, loaded, record, say, how.engine(unit, loaded)):
            if run_directory.is_kept(unit, newest):
                run_directory.save_state(directory, unit, newest)
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
            with suppress(FedrefError):  # the first error says more
                run_directory.save_record(directory, unit, newest, seal)
        raise


def load_begun(unit: Unit, how: Options, seal: Mapping[str, str], say: Say) -> Record | None:
    """Return the record in a unit's file if it may go on; None if there is none, or a damaged one."""
    try:
        record = run_directory.load_record(how.directory, unit)
    except DataError as error:
        path = run_directory.record_path(how.directory, unit)
        if isinstance(error, run_directory.OtherUnitError) or not path.is_file():
            raise
        say(f"{error}: {unit.name} starts anew")
        return None
    if record is not None:
        run_directory.check_seal(how.directory, unit, record.seal, seal, how.changed_code)
    return record


# ---- all units -----------------------------------------------------------------------------------


def rounds_of(unit: Unit, record: Record) -> int:
    """Return how many rounds are done, the start included; all of them if the unit has ended."""
    return 1 + (record.round if record.status == "running" else unit.experiment.rounds)


def work_through(work: list[Unit], loader: Loader, how: Options) -> None:
    """Complete, as a worker, the units that nobody holds, in one pass."""
    board = Board(how.directory / run_directory.QUEUE, len(work))
    for unit in work:
        rounds, _ = board.read()[unit.number]
        if rounds > unit.experiment.rounds:
            continue
        with board.hold(unit.number) as mine:
            if mine:
                try:
                    for record in complete_unit(unit, loader, how, lambda text: None):
                        board.write(unit.number, rounds_of(unit, record))
                except Exception:
                    board.write(unit.number, FAILED)
                    raise


def complete_units(
    work: list[Unit], loader: Loader, how: Options, workers: int, progress: Progress, board: Board
) -> list[Record]:
    """Complete the files of all units in this process and `workers` − 1 others."""
    records: dict[int, Record] = {}
    left = list(work)
    new = {u.number for u in work if not run_directory.record_path(how.directory, u).exists()}
    arguments = work, Loader(loader.data_dir), how._replace(engine=local_engine)
    others = WorkerProcesses(min(workers, len(work)) - 1, work_through, *arguments)

    def look_around(own: Unit | None = None) -> Unit | None:
        """Report what other processes do; return a unit that has failed in one of them."""
        slots = board.read()
        elsewhere = {u.number: slots[u.number][0] for u in left if u is not own}
        progress.elsewhere({i: rounds for i, rounds in elsewhere.items() if rounds > 0})
        for pid, signal in others.take_dead():
            held = [unit.name for unit in left if slots[unit.number][1] == pid]
            what = f"the worker with {held[-1]}" if held else "a worker"
            progress.message(f"{what} died ({signal}): another process takes its place")
        return next((u for u in left if u is not own and slots[u.number][0] == FAILED), None)

    def complete(unit: Unit) -> bool:
        """Complete a unit; False if it is left because another one has failed."""
        alone = False  # whether this process has seen its first round
        with closing(complete_unit(unit, loader, how, progress.message)) as rounds:
            for record in rounds:
                if unit.number in new and not alone:
                    report_rows_before(unit, record, progress)
                alone = True
                board.write(unit.number, rounds_of(unit, record))
                progress.round(unit, record)
                if record.status == "running" and look_around(unit):
                    return False
        records[unit.number] = run_directory.drop_client_states(record)
        left.remove(unit)
        return True

    with others:
        while left:
            busy, failed = True, look_around()
            for unit in [failed] if failed else list(left):
                with board.hold(unit.number) as mine:
                    busy = busy and not mine
                    if mine and not complete(unit):
                        break
            if busy:
                time.sleep(PAUSE)
    return [records[unit.number] for unit in work]


def report_rows_before(unit: Unit, record: Record, progress: Progress) -> None:
    """Report the rounds of a unit that another process has run, one by one, but for the newest."""
    unknown: Any = None
    running = record._replace(status="running", state=unknown, reason="")
    for n in range(1, len(record.rows)):
        progress.round(unit, running._replace(round=n - 1, rows=record.rows[:n]))


# ---- units in an executor ------------------------------------------------------------------------

Files = dict[str, bytes]


def complete_apart(
    unit: Unit, loader: Loader, how: Options, begun: Files
) -> tuple[Files, list[str], Record]:
    """Complete a unit in a folder of its own, which begins with some files; return all files there."""
    messages: list[str] = []
    with TemporaryDirectory(prefix="fedref-") as folder:
        own = how._replace(directory=Path(folder), every=1e9)
        write_files(own.directory, begun)
        (newest,) = deque(complete_unit(unit, loader, own, messages.append), maxlen=1)
        record = run_directory.drop_client_states(newest)
        return files_of(own.directory, unit), messages, record


def files_of(directory: Path, unit: Unit) -> Files:
    """Return the files of a unit by their paths in the run directory."""
    stem = unit.file.removesuffix(".ckpt")
    paths = [p for p in directory.glob(f"*/{stem}*.ckpt") if p.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(paths)}


def write_files(directory: Path, files: Files) -> None:
    for name, content in files.items():
        with run_directory.disk_errors(directory):
            make_folder((directory / name).parent)
            write_atomically(directory / name, content)


def complete_in(
    executor: Executor,
    work: list[Unit],
    loader: Loader,
    how: Options,
    workers: int,
    progress: Progress,
) -> list[Record]:
    """Complete all units in an executor, `workers` at a time; their files come back as bytes."""
    records: dict[int, Record] = {}
    left, at_work = iter(work), dict[Future[Any], Unit]()
    try:
        while len(records) < len(work):
            while len(at_work) < workers and (unit := next(left, None)):
                begun = files_of(how.directory, unit)
                call = complete_apart, unit, loader, how, begun
                try:
                    at_work[executor.submit(run_single_threaded, *call)] = unit
                except BrokenExecutor as error:
                    raise death_of([*at_work.values(), unit], error, how) from error
            for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                try:
                    files, messages, record = future.result()
                except Exception as error:
                    if (
                        isinstance(error, BrokenExecutor | CancelledError)
                        or "Killed" in type(error).__name__
                    ):
                        raise death_of([*at_work.values()], error, how) from error
                    raise
                unit = at_work.pop(future)
                write_files(how.directory, files)
                for text in messages:
                    progress.message(text)
                report_rows_before(unit, record, progress)
                progress.round(unit, record)
                records[unit.number] = record
    finally:
        for future in at_work:
            future.cancel()
    return [records[unit.number] for unit in work]


def death_of(lost: list[Unit], error: BaseException, how: Options) -> FedrefError:
    """Return the error that names the units on which a dead worker may have worked."""
    names = " or ".join(unit.name for unit in sorted(lost, key=lambda unit: unit.number))
    return FedrefError(
        f"the worker with {names} died ({error or 'no worker is left'}); what was saved before is "
        f"whole: go on with `fedref resume {how.directory}`"
    )


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
    engine: EngineOf = local_engine,
    changed_code: bool = False,
) -> Run:
    """Run every unit; go on from its file, if there is one; write the tables at the end.

    executor : runs whole units, `workers` at a time. threads : how many run the clients of a round
    where the model is large, divided by the workers (None: one a processor). every, changed_code,
    engine : as in `Options`. loader : holds what `resolve_experiment` has loaded.
    """
    loader, work = loader or Loader(), units(experiment)

    def run_in(folder: Path, facts: DataFacts) -> Run:
        how = Options(folder, every, changed_code, engine)
        board = Board(folder / run_directory.QUEUE, len(work))
        run = None
        try:
            if executor is not None:
                records = complete_in(executor, work, loader, how, workers, progress)
            else:
                records = complete_units(work, loader, how, workers, progress, board)
            run = Run(experiment, work, records, directory, facts)
            if directory is not None:
                run.write(directory)
                if board.is_alone():
                    run_directory.remove_partial_files(directory)
            return run
        finally:
            board.close(finished=run is not None)

    def run_all() -> Run:
        first = load_unit(work[0], loader)
        facts = facts_of(first)
        if directory is not None:
            run_directory.refuse_strangers(directory, work)
            run_directory.check_split(directory, first.whole)
            return run_in(directory, facts)
        if workers == 1 and executor is None:  # nothing to share: no file is needed
            records = [*run_in_memory(work, loader, progress, engine)]
            return Run(experiment, work, records, None, facts)
        with TemporaryDirectory(prefix="fedref-") as folder:
            return run_in(Path(folder), facts)

    with limit_threads(threads), limit_threads(max(1, available_threads() // workers)):
        run: Run = run_single_threaded(run_all)
    return run


def run_in_memory(
    work: list[Unit], loader: Loader, progress: Progress, engine: EngineOf
) -> Iterator[Record]:
    """Run all units without files; yield their records."""
    for unit in work:
        loaded = load_unit(unit, loader)
        for record in iterate_rounds(unit, loaded, None, progress.message, engine(unit, loaded)):
            progress.round(unit, record)
        yield record


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
    settings : values that override it, as with --set (`rounds=20`, `mu=0.1`). `algorithm` or
    `algorithms` (one, several in a list, or {LABEL: one}), `model` and `data` take names, classes or
    objects; `split` takes a rule.
    out : a run directory to write, without a picture, for which there is `fedref plot` (None: write
    nothing). A run that was begun there goes on.
    progress : True for a bar (also in a notebook) or lines, or a Progress with functions to call.
    workers : processes on this machine that share the units.
    executor : any `concurrent.futures.Executor` in their place. It runs `workers` units at a time,
    each to its end; units that have not ended leave nothing for `fedref resume`.
    threads : how many run the clients of a round where the model is large, divided by the workers
    (None: one a processor). The numbers do not depend on it.

    >>> result = run(algorithm="fedavg", lr=0.1, rounds=2)
    >>> t, accuracy = result.curve("fedavg", "accuracy")
    >>> t, accuracy.shape
    (array([0, 1, 2]), (1, 3))
    """
    if "algorithm" in settings:
        if settings.get("algorithms") is not None:
            raise ConfigError("both algorithm and algorithms are given, expected one of them")
        settings["algorithms"] = settings.pop("algorithm")
    experiment, loader = compose(what, settings.items()), Loader(data_dir)
    if out is None and experiment.keep_parameters is not None:
        raise ConfigError("keep-parameters needs a run directory, expected `out`, too")
    console = console_progress(experiment) if progress is True else nullcontext(progress or SILENT)
    with console as report:
        how: dict[str, Any] = {"executor": executor, "workers": workers, "threads": threads}
        experiment = resolve_experiment(experiment, loader, report.message)
        if out is not None:
            run_directory.begin_run(experiment, Path(out))
        return execute(
            experiment, None if out is None else Path(out), loader=loader, progress=report, **how
        )
