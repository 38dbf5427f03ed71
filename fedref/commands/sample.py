"""`fedref sample`: text that a run's models write, before and after adaptation to a client."""

import argparse
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.commands.console import whole_number
from fedref.experiments import writing
from fedref.experiments.writing import Written


def add_parser(commands: Any) -> None:
    """Add `sample` to the commands."""
    parser = commands.add_parser(
        "sample",
        help="print text that the models of a run write",
        description="Print text that the models of a run on characters write, before and after "
        "they are adapted to one client (a role of Shakespeare's).",
        allow_abbrev=False,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--characters", type=whole_number, default=200, metavar="N", help="how many (default 200)"
    )
    parser.add_argument(
        "--client",
        metavar="NAME",
        help="e.g. hamlet__HAMLET (default: the one with most test rows)",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="go on from this (default: the client's first test window)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.5,
        metavar="X",
        help="0: always the likeliest character, 1: as the model has it (default 0.5)",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="S", help="of the draws (default 0)"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where data is (else FEDREF_DATA)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what every algorithm of the run writes."""
    for name, least in (("characters", 1), ("temperature", 0), ("seed", 0)):
        value = getattr(arguments, name)
        if not least <= value < 1e6:
            raise ConfigError(f"--{name} is {value}, expected a number from {least} to 1000000")
    written = writing.texts(
        arguments.directory,
        arguments.characters,
        client=arguments.client,
        prompt=arguments.prompt,
        temperature=arguments.temperature,
        seed=arguments.seed,
        data_dir=arguments.data_dir,
    )
    some = False
    for one in written:
        print(shown(one), flush=True)
        some = True
    if not some:
        raise ConfigError(f"{arguments.directory}: no finished round yet, expected checkpoints")
    return 0


def shown(one: Written) -> str:
    """A paragraph for each text."""
    lines = [f"{one.unit} after {one.round} rounds, {one.client}", f"  prompt: {one.prompt}"]
    lines.append(f"  before: {one.before}")
    if one.after is not None:
        lines.append(f"  after:  {one.after}")
    return "\n".join(lines) + "\n"
