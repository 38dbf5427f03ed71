"""Experiments are run, from the first round to the last, in a run directory or in memory alone."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from fedref.algorithms import ALGORITHMS
from fedref.errors import ConfigError, DataError
from fedref.experiments import checkpoint, config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.progress import SILENT, Progress, shown
from fedref.experiments.results import Run
from fedref.experiments.run_directory import (
    begun,
    disk_errors,
    light,
    recovered,
    same_split,
    write_tables,
)
from fedref.experiments.setting import Loader, Setting, setting, settled
from fedref.experiments.unit import (
    HERE,
    Engine,
    Record,
    Unit,
    problem_in_state,
    rounds,
    stamp,
    units,
)
from fedref.experiments.workers import Calm, calmly


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
    every : seconds between checkpoints (more where one takes long; 0: after every round). The
    tables are written after a unit, but not more than a twentieth of the time.
    """
    work = units(experiment)
    if not work:
        raise ConfigError("the experiment names no algorithm")
    calm = Calm(executor) if executor else None
    own = stamp(experiment)
    loader = loader or Loader(data_dir)

    def run_units() -> list[Record]:
        records: list[Record] = []
        now: Setting | None = None
        due = 0.0
        for unit in work:
            if now is None or unit.point != work[unit.number - 1].point:
                now = setting(config.at_point(experiment, unit.point), loader=loader)
            if directory is not None and not unit.number:
                same_split(directory, now.whole)
            how = calm, workers, every, progress, engine(unit, now)
            record = run_unit(unit, now, own, directory, *how)
            records.append(record if directory is None else light(record))
            if directory is not None and (unit is work[-1] or time.monotonic() >= due):
                began = time.monotonic()
                write_tables(Run(experiment, work[: len(records)], records), directory)
                due = began + 21 * (time.monotonic() - began)
        return records

    return Run(experiment, work, calmly(run_units))


def run_unit(
    unit: Unit,
    setting: Setting,
    own: str,
    directory: Path | None,
    executor: Executor | None,
    workers: int,
    every: float,
    progress: Progress,
    engine: Engine = HERE,
) -> Record:
    """One unit to its end, with checkpoints; own : the stamp of its experiment."""
    algorithm = names.make_algorithm(unit.label, setting.experiment.algorithms[unit.label])
    tell: dict[str, Any] = {
        "message": progress.message, "engine": engine, "spent": partial(progress.spent, unit)
    }  # fmt: skip
    if directory is None:
        for last in rounds(setting, algorithm, unit.seed, None, executor, workers, **tell):
            progress.round(unit, last)
        return last

    folder, path = directory, directory / "checkpoints" / unit.file
    found, warnings = recovered(folder, unit, setting.experiment, own)
    for warning in warnings:
        progress.message(warning)
    if found is not None and found.status != "running":
        checkpoint.old(path).unlink(missing_ok=True)  # as at the end of any other run
        progress.round(unit, found)
        return found

    if found is not None and (problem := problem_in_state(found.state, algorithm, setting.model)):
        raise DataError(f"{path}: {problem}; expected a checkpoint of {unit.name}")

    def save(record: Record) -> None:
        with disk_errors(folder):
            checkpoint.save(path, record._replace(experiment=own))

    due = time.monotonic() + every
    record: Record | None = None
    try:
        for record in rounds(setting, algorithm, unit.seed, found, executor, workers, **tell):
            now = time.monotonic()
            if record.status != "running" or now >= due:
                save(record)
                if record.status != "running":
                    with disk_errors(directory):
                        checkpoint.old(path).unlink(missing_ok=True)
                took = time.monotonic() - now
                due = time.monotonic() + max(every, 20 * took if every else 0)
            progress.round(unit, record)
    except (KeyboardInterrupt, BrokenPipeError):  # stopped: what has been done is not done again
        if record is not None and record.status == "running":
            save(record)
        raise
    assert record is not None
    return record


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
) -> Run:
    """`fedref run` from Python: the same numbers, as arrays.

    what : an experiment, a TOML file, a table as in one, or None for the built-in experiment on the
    digits. Wherever a table names an algorithm, a model or data, the class or the object itself may
    stand instead; data may be (X, y) or (X, y, client), a Source or a Federation.
    settings : values on top, as with --set (`rounds=20`, `mu=0.1`). `algorithm` (one, or several in
    a list), `model` and `data` take a name, a class or an object; `split` takes a rule.
    verify : refuse a named data set that differs from the published one.
    out : a run directory to write (None: nothing is written; the picture is left to `fedref plot`).
    progress : True for a bar (in a notebook, too) or lines; or a Progress, to be called.
    executor : any `concurrent.futures.Executor`, for `workers` parts of every cohort; without one,
    `workers` > 1 is refused.

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
    with config.naming(str(what) if isinstance(what, str | Path) else ""):
        table = with_named(table, settings)
        experiment = config.experiment_of(
            config.with_settings(config.completed(table), settings.items())
        )
    loader = Loader(data_dir, verify)
    how: dict[str, Any] = {"loader": loader, "executor": executor, "workers": workers}
    if out is not None:
        refuse_nameless(experiment)
        experiment = settled(experiment, loader)
    telling = nullcontext(progress or SILENT) if progress is not True else shown(experiment)
    place = nullcontext() if out is None else begun(experiment, Path(out))
    with place as directory, telling as told:
        return execute(experiment, directory, progress=told, **how)


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
