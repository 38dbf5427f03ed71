"""`fedref resume`: continue an interrupted run."""

import argparse

from fedref.commands.console import say
from fedref.commands.execution import HOW, open_pool, run_and_report, tell_how_to_resume
from fedref.commands.options import DIRECTORY, Command
from fedref.experiments.loading import Loader
from fedref.experiments.resume import compare_environment
from fedref.experiments.run_directory import lock_run_directory, read_experiment


def run(arguments: argparse.Namespace) -> int:
    """Run what is left of the run in a directory."""
    made = read_experiment(arguments.directory)
    with lock_run_directory(arguments.directory), open_pool(arguments) as pool:
        if differs := compare_environment(arguments.directory):
            say(f"{arguments.directory}: {differs}")
        loader = Loader(arguments.data_dir, not arguments.data_unverified)
        with tell_how_to_resume(arguments.directory):
            return run_and_report(made, arguments.directory, arguments, loader, pool)


COMMAND = Command(
    run,
    "Go on from the last checkpoints of a run directory. The files end up byte-identical to those of "
    "a run that was never interrupted. Give --data-dir again if the run was given one: it is not "
    "remembered.",
    (DIRECTORY,),
    HOW,
)
