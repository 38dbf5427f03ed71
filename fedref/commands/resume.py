"""`fedref resume`: continues an interrupted run."""

import argparse

from fedref.commands.console import say
from fedref.commands.execution import HOW, open_pool, run_and_report, tell_how_to_resume
from fedref.commands.options import DIRECTORY, Command, Option
from fedref.experiments.loading import Loader
from fedref.experiments.resume import compare_environment
from fedref.experiments.run_directory import lock_run_directory, read_experiment


def run(arguments: argparse.Namespace) -> int:
    """Run the rounds that a run directory does not have yet."""
    experiment = read_experiment(arguments.directory)
    with lock_run_directory(arguments.directory), open_pool(arguments) as pool:
        if differs := compare_environment(arguments.directory):
            say(f"{arguments.directory}: {differs}")
        loader = Loader(arguments.data_dir)
        with tell_how_to_resume(arguments.directory):
            return run_and_report(experiment, arguments.directory, arguments, loader, pool)


COMMAND = Command(
    run,
    "Go on from the last checkpoints of a run directory. The files become byte-identical to those of "
    "a run that was never interrupted. If the run had a --data-dir, give it again: it is not saved.",
    (
        DIRECTORY,
        Option(
            "--changed-code",
            "go on although fedref, or your own MODULE:NAME, has changed; environment.json and "
            "summary.md then say so",
        ),
    ),
    HOW,
)
