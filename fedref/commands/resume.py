"""`fedref resume`: go on with an interrupted run."""

import argparse
from pathlib import Path
from typing import Any

from fedref.commands.console import say
from fedref.commands.progress import add_how, go, pool_of, resumable
from fedref.experiments.run_directory import locked, other_environment, resumed
from fedref.experiments.setting import Loader


def add_parser(commands: Any) -> None:
    """Add `resume` to the commands."""
    resume = commands.add_parser(
        "resume",
        help="go on with an interrupted run",
        description="Go on from the last checkpoints of a run directory. The files end up "
        "byte-identical to those of a run that was never interrupted. Give --data-dir again if the "
        "run was given one: it is not remembered.",
        allow_abbrev=False,
    )
    resume.add_argument("directory", type=Path, metavar="DIR", help="the run directory")
    add_how(resume)
    resume.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run what is left of the run in a directory."""
    made = resumed(arguments.directory)
    with locked(arguments.directory), pool_of(arguments) as pool:
        if differs := other_environment(arguments.directory):
            say(f"{arguments.directory}: {differs}")
        loader = Loader(arguments.data_dir, not arguments.data_unverified)
        with resumable(arguments.directory):
            return go(made, arguments.directory, arguments, loader, pool)
