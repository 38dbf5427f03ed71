"""`fedref plan`: who takes part in the rounds of a run and on which rows, for other programs."""

import argparse
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.experiments import plans
from fedref.experiments.run_directory import resumed
from fedref.experiments.setting import Loader
from fedref.experiments.unit import units


def add_parser(commands: Any) -> None:
    """Add `plan` to the commands."""
    plan = commands.add_parser(
        "plan",
        help="write the plans of a run for programs in other languages",
        description="Plans say who takes part in a round, how long, and on which rows.",
        allow_abbrev=False,
    )
    export = plan.add_subparsers(metavar="COMMAND", required=True).add_parser(
        "export",
        help="write them as npz",
        description="Write the plans of a run, its data and its starts as npz.",
        epilog="what is written\n\n" + (plans.__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    export.add_argument("directory", type=Path, metavar="DIR", help="the run directory")
    export.add_argument(
        "-o", "--out", type=Path, metavar="OUT", help="where to (default DIR/plans)"
    )
    export.add_argument(
        "--rounds", metavar="A:B", help="rounds A to B−1, from 0 (default: all of the run)"
    )
    export.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where data is (else FEDREF_DATA)"
    )
    export.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write them, and say where."""
    made = resumed(arguments.directory)
    out = arguments.out or arguments.directory / "plans"
    T = max(unit.point.get("rounds", made.rounds) for unit in units(made))
    rounds = rounds_of(arguments.rounds, T)
    if (out / "index.json").exists():
        raise ConfigError(f"{out} already holds plans, expected another --out")
    folders = plans.export(made, out, rounds, Loader(arguments.data_dir))
    for folder in folders:
        print(out / folder)
    return 0


def rounds_of(text: str | None, T: int) -> range:
    """0:5 → 0 to 4, within the T rounds of the run."""
    if text is None:
        return range(T)
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last) <= T):
        raise ConfigError(f"--rounds is {text!r}, expected A:B with 0 ≤ A < B ≤ {T}")
    return range(int(first), int(last))
