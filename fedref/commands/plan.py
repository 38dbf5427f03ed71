"""`fedref plan`: who takes part in the rounds of a run and on which rows, for other programs."""

import argparse
from pathlib import Path

from fedref.boundary.errors import ConfigError
from fedref.commands.options import DATA_DIR, DIRECTORY, Command, Option
from fedref.experiments import plans
from fedref.experiments.run_directory import resumed
from fedref.experiments.setting import Loader
from fedref.experiments.unit import units


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


EXPORT = Command(
    run,
    "Write the plans of a run, its data and its starts as npz.",
    (
        DIRECTORY,
        Option("-o --out OUT", "where to (default DIR/plans)", Path),
        Option("--rounds A:B", "rounds A to B−1, from 0 (default: all of the run)"),
        DATA_DIR,
    ),
    epilog="what is written\n\n" + (plans.__doc__ or "").partition("\n\n")[2],
)
COMMAND = Command(
    None,
    "Plans say who takes part in a round, how long, and on which rows.",
    commands={"export": EXPORT},
)
