"""The common part of `run` and `resume`: options, workers, progress, and the table at the end."""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from pathlib import Path

import fedref
from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.values import Bounds
from fedref.commands.console import say
from fedref.commands.options import DATA_DIR, Option
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader
from fedref.experiments.parallel import Processes
from fedref.experiments.progress import Progress, console_progress, report_to_log
from fedref.experiments.results import idle_rounds
from fedref.experiments.run import execute
from fedref.experiments.run_directory import disk_errors
from fedref.experiments.unit import Record, Unit

DIVERGED = 3

HOW = {
    "how it is run (the numbers do not depend on it)": (
        DATA_DIR,
        Option("--workers N", "processes", int, 1, bounds=Bounds(1)),
        Option(
            "--threads N",
            "threads for the clients of a round where the model is large (default: the processors, "
            "divided by the workers); 1: none",
            int,
            bounds=Bounds(1),
        ),
        Option(
            "--checkpoint-every S",
            "seconds between checkpoints; 0: after every round",
            float,
            10.0,
            bounds=Bounds(0),
        ),
        Option("-q --quiet", "no progress, no table"),
        Option("-v --verbose", "write a log to DIR/log.txt, a line per round"),
        Option("--json", "one line of JSON per round on standard output"),
    )
}


def run_and_report(
    experiment: Experiment,
    directory: Path,
    arguments: argparse.Namespace,
    loader: Loader,
    pool: "Pool",
) -> int:
    """Run the units, report progress, draw the curves and print the table. Return the exit code."""
    from fedref import plots  # matplotlib is slow to import

    executor, workers = pool
    with ExitStack() as stack:
        run = execute(
            experiment,
            directory,
            loader=loader,
            executor=executor,
            workers=workers,
            threads=arguments.threads,
            every=arguments.checkpoint_every,
            changed_code=getattr(arguments, "changed_code", False),
            progress=choose_progress(experiment, directory, arguments, stack),
        )
    nothing_to_draw = (ConfigError,) if run.diverged_units else ()  # at a loss that is not finite
    with disk_errors(directory), suppress(*nothing_to_draw):
        plots.curves(run, directory / "curves.png")
    if not arguments.quiet and not arguments.json:
        files = f"{directory}/  metrics.csv  clients.csv  curves.png  config.toml  split.json"
        print(f"\n{run}\n\n{files}")
    for unit, record in zip(run.units, run.records):
        if idle := idle_rounds(record):
            message = f"in {idle} of {record.round} rounds no client's work arrived"
            say(f"{unit.name}: {message}: the model did not move")
    for unit, reason in run.diverged_units:
        say(f"{unit.name} diverged: {reason}")
    return DIVERGED if run.diverged_units else 0


@contextmanager
def tell_how_to_resume(directory: Path) -> Iterator[None]:
    """If the run is interrupted, add the command that resumes it to the message."""
    again = f"resume with: fedref resume {shlex.quote(str(directory))}"
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (*(stop.args or ("interrupted",)), again)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        what = f"{error.filename or 'standard output'}: {error.strerror or error}"
        raise FedrefError(f"{what}; {again}") from error


#: An executor and the number of its workers; None: this process does all the work.
Pool = tuple[Executor | None, int]


@contextmanager
def open_pool(arguments: argparse.Namespace) -> Iterator[Pool]:
    """Open the pool for --workers."""
    if arguments.workers == 1:
        yield None, 1
    else:
        with Processes(arguments.workers) as processes:
            yield processes, arguments.workers


def choose_progress(
    experiment: Experiment,
    directory: Path,
    arguments: argparse.Namespace,
    stack: ExitStack,
) -> Progress:
    """Return the reports for the flags: JSON lines, none, or a bar or lines; with -v a log, too."""
    if arguments.json:
        progress = Progress(print_json_line, say)
    elif arguments.quiet:
        progress = Progress(message=say)
    else:
        progress = stack.enter_context(console_progress(experiment, say))
    if arguments.verbose:
        with disk_errors(directory):
            heading = f"fedref {fedref.__version__}: {shlex.join(sys.argv)}"
            log = report_to_log(directory / "log.txt", heading, progress)
            progress = stack.enter_context(log)
    return progress


def print_json_line(unit: Unit, record: Record) -> None:
    """Print the newest row as a line of JSON, where numbers that are not finite become null."""
    row = {"algorithm": unit.label, **unit.columns, "seed": unit.seed, **record.rows[-1]}
    row |= {"status": record.status, **({"reason": record.reason} if record.reason else {})}
    finite = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in row.items()}
    print(json.dumps(finite, allow_nan=False), flush=True)
