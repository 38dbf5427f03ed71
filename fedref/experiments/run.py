"""Experiments are run, from the first round to the last, in a run directory or in memory alone."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.keeping import Book
from fedref.experiments.outcome import Outcome
from fedref.experiments.progress import SILENT, Progress, shown
from fedref.experiments.results import Run
from fedref.experiments.run_directory import begun, light, same_split, write_tables
from fedref.experiments.setting import Loader, Setting, setting, settled
from fedref.experiments.turns import take_turns
from fedref.experiments.unit import HERE, Engine, Record, Unit, rounds, stamp, units
from fedref.experiments.workers import Calm, Workers, calmly
from fedref.experiments.worth import Chosen, Enough
from fedref.rounds.loop import RunClients


def here(unit: Unit, setting: Setting) -> Engine:
    """This process does the rounds of every unit."""
    return HERE


def execute(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    data_dir: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    every: float = 10.0,
    progress: Progress = SILENT,
    loader: Loader | None = None,
    engine: Callable[[Unit, Setting], Engine] = here,
) -> Run:
    """Run every unit, going on from the checkpoints that are there.

    loader : what `settled` has loaded already. engine : what does the rounds of a unit.
    executor : for the units, where there are as many as `workers`, else for parts of a cohort.
    every : seconds between checkpoints (more where one takes long; 0: after every round). The
    tables are written after a unit, but not more than a twentieth of the time.
    """
    work = units(experiment)
    if not work:
        raise ConfigError("the experiment names no algorithm")
    calm = Calm(executor) if executor else None
    own = stamp(experiment)
    loader = loader or Loader(data_dir)

    def books() -> Iterator[Book]:
        now: Setting | None = None
        for unit in work:
            if now is None or unit.point != work[unit.number - 1].point:
                now = setting(config.at_point(experiment, unit.point), loader=loader)
            if directory is not None and not unit.number:
                same_split(directory, now.whole)
            yield Book(unit, now, own, directory, every, progress)

    def run_units() -> list[Record]:
        found: dict[int, Record] = {}
        due = 0.0

        def ended(book: Book) -> None:
            nonlocal due
            assert book.record is not None
            number = book.unit.number
            found[number] = book.record if directory is None else light(book.record)
            so_far = [found[i] for i in takewhile(found.__contains__, range(len(work)))]
            last = len(found) == len(work)
            if directory is not None and so_far and (last or time.monotonic() >= due):
                began = time.monotonic()
                write_tables(Run(experiment, work[: len(so_far)], so_far), directory)
                due = began + 21 * (time.monotonic() - began)

        run_books(books(), experiment, work, calm, workers, ended, progress, engine)
        return [found[unit.number] for unit in work]

    return Run(experiment, work, calmly(run_units))


def run_books(
    books: Iterator[Book],
    experiment: Experiment,
    work: Sequence[Unit],
    executor: Calm | None,
    workers: int,
    ended: Callable[[Book], None],
    progress: Progress,
    engine: Callable[[Unit, Setting], Engine],
) -> None:
    """Every unit to its end: one after the other, or spread over the workers where there are at
    least as many as workers, and enough work."""
    for book in books:
        left = len(work) - book.unit.number
        if book.ended:
            ended(book)
        elif executor is None or not 1 < workers <= left:
            run_unit(book, executor, workers, engine(book.unit, book.setting))
            ended(book)
        else:
            ahead = [unit.point.get("rounds", experiment.rounds) + 1 for unit in work[-left:]]
            ahead[0] -= len(book.record.rows) if book.record else 0
            enough = Enough(ahead, workers, 0.0 if executor.started else executor.starting)
            if enough.at_once or not run_unit(book, enough=enough):
                progress.detail(f"{left} units over {workers} processes{enough.why}")
                take_turns(chain([book], books), executor, workers, ended)
                return
            ended(book)


def run_unit(
    book: Book,
    executor: Calm | None = None,
    workers: int = 1,
    engine: Engine = HERE,
    enough: Callable[[Record], bool] = lambda record: False,
) -> bool:
    """One unit to its end, with checkpoints, or (False) until it is enough."""
    tell, setting = book.progress, book.setting
    work = clients_work(setting.experiment, executor, workers, tell)
    steps = rounds(
        setting, book.algorithm, book.unit.seed, book.record, work, tell.message, engine,
        partial(tell.spent, book.unit),
    )  # fmt: skip
    try:
        for record in steps:
            book.keep(record)
            book.progress.round(book.unit, record)
            if not book.ended and enough(record):
                return False
    except (KeyboardInterrupt, BrokenPipeError):  # stopped: what has been done is not done again
        book.leave()
        raise
    return True


def clients_work(
    experiment: Experiment, executor: Calm | None, workers: int, progress: Progress
) -> RunClients | None:
    """What runs the clients of a unit's rounds: where workers take their time to start, they must
    prove to be faster."""
    if executor is None:
        return None
    work = Workers(executor, workers, experiment.on_failure, message=progress.message)
    measured = executor.starting and workers > 1
    return Chosen(work, executor, experiment.rounds, progress.detail) if measured else work


def run(
    what: Experiment | str | Path | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress | bool = SILENT,
    **settings: Any,
) -> Outcome:
    """`fedref run` from Python: the same numbers, as arrays.

    what : an experiment, a TOML file, a table as in one, or None for the built-in experiment on the
    digits. Wherever a table names an algorithm, a model or data, the class or the object itself may
    stand instead; data may be (X, y) or (X, y, client), a Source or a Federation.
    settings : values on top, as with --set (`rounds=20`, `mu=0.1`). `algorithm` (one, or several in
    a list), `model` and `data` take a name, a class or an object; `split` takes a rule.
    verify : refuse a named data set that differs from the published one.
    out : a run directory to write (None: nothing is written; the picture is left to `fedref plot`).
    progress : True for a bar (in a notebook, too) or lines; or a Progress, to be called.
    executor : any `concurrent.futures.Executor`, for `workers` units at a time, or for as many parts
    of every cohort where there are fewer units; without one, `workers` > 1 is refused.

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
        table = config.read(Path(what)) if what is not None else config.built_in()
    if what is None and "data" in settings and not isinstance(settings["data"], Mapping):
        table["name"] = names.called(settings["data"])
    with config.naming(str(what) if isinstance(what, str | Path) else ""):
        table = with_named(table, settings)
        experiment = config.experiment_of(
            config.with_settings(config.completed(table), settings.items())
        )
    loader = Loader(data_dir, verify)
    how: dict[str, Any] = {"loader": loader, "executor": executor, "workers": workers}
    if out is None and experiment.keep_parameters is not None:
        raise ConfigError("keep-parameters needs a run directory, expected `out`, too")
    if out is not None:
        refuse_nameless(experiment)
        experiment = settled(experiment, loader)
    telling = nullcontext(progress or SILENT) if progress is not True else shown(experiment)
    place = nullcontext() if out is None else begun(experiment, Path(out))
    with place as directory, telling as told:
        found = execute(experiment, directory, progress=told, **how)
    return Outcome(*found[:3], directory)


def with_named(table: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The table with `algorithm`, `data`, `split` and `model` taken out of the settings: each a
    name, a class or an object, or (but for the algorithm) a whole table."""
    table = dict(table)
    chosen = settings.pop("algorithm", None)
    if chosen is not None:
        several = chosen if isinstance(chosen, list | tuple) else [chosen]
        own = table.get("algorithms", {})
        found = dict(config.named_algorithm(one, own) for one in several)
        if len(found) < len(several):
            raise ConfigError("two algorithms have the same name, expected algorithms={NAME: ...}")
        table["algorithms"] = found
    for head, key in (("data", "name"), ("split", "rule"), ("model", "name")):
        if head in settings:
            value = settings.pop(head)
            table[head] = value if isinstance(value, Mapping) else {key: value}
    return table


def refuse_nameless(experiment: Experiment) -> None:
    """ConfigError for what config.toml could not name, so that the run could not be resumed."""
    if names.is_given(experiment.data["name"]):
        raise ConfigError(
            "data given as arrays have no name for config.toml, so the run could not be resumed; "
            "expected a file or a MODULE:FUNCTION that returns them, or no `out`"
        )
    things = [experiment.model["name"], experiment.data["name"]]
    things += [table["algorithm"] for table in experiment.algorithms.values()]
    for thing in things:
        name = names.written(thing)
        if isinstance(thing, str):
            continue
        if name.startswith("__main__:") or "<locals>" in name or "<lambda>" in name:
            raise ConfigError(
                f"{name} cannot be imported again, so the run could not be resumed; expected it at "
                "the top of a module, or no `out`"
            )
