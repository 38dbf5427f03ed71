"""`fedref reproduce`: the papers' experiments, from data to tables and pictures."""

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import fill

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, seeds_of
from fedref.commands.console import say
from fedref.commands.options import DATA_DIR, REPEATED, Command, Option

INDENT = 22 * " "

EPILOG = """\
examples
  fedref reproduce --list
  fedref reproduce fedprox-stragglers                needs no data
  fedref reproduce per-fedavg-table --data-dir ~/data --seeds 0:5 --out more-seeds/results
  fedref reproduce all --quick                       minutes instead of hours: directions only
  fedref reproduce peers --checkout plato=DIR        other projects' code; see peers/table.md

To resume an interrupted reproduction, give the same command again. Results are in DIR/NAME/
(table.md, numbers.csv, claims.csv, pictures); README.md beside DIR sums them up. The runs are in
runs/NAME/ beside DIR: ordinary run directories, also for `fedref plot`. Runs with --quick always start
anew and write nothing to DIR.

exit code: 0 all went well; 1 a check of --quick failed; 2 wrong input, or data are missing
"""


def run(args: argparse.Namespace) -> int:
    """List the experiments, or reproduce some and print their checks."""
    import_reproduce()
    import reproduce  # it imports matplotlib, which is slow to import

    known = reproduce.names()
    if args.list:
        for name in known:
            experiment = reproduce.find(name)
            print(f"{name:<20}{experiment.title}")
            print(fill(experiment.paper, 100, initial_indent=INDENT, subsequent_indent=INDENT))
        return 0
    if not args.names:
        raise ConfigError(f"nothing to reproduce: give a NAME of {', '.join(known)}, or all")
    checks = reproduce.reproduce(
        known if "all" in args.names else list(dict.fromkeys(args.names)),
        args.out or reproduce.default_out(),
        quick=args.quick,
        seeds=None if args.seeds is None else seeds_of(args.seeds),
        data_dir=args.data_dir,
        processes=args.jobs,
        message=say,
        begin=begin_worker,
        checkouts=read_checkouts(args.checkout),
    )
    for check in checks:
        print(f"{'holds' if check.holds else 'FAILS'}: {check.claim}: {check.measured}")
    return 0 if all(check.holds for check in checks) else 1


def read_checkouts(given: list[str]) -> dict[str, Path]:
    """Return {NAME: DIR} of all --checkout NAME=DIR."""
    pairs = [text.partition("=") for text in given]
    for name, _, folder in pairs:
        if not Path(folder).is_dir() or not folder:
            raise ConfigError(f"--checkout {name}={folder}: expected NAME=DIR with a folder DIR")
    return {name: Path(folder) for name, _, folder in pairs}


def import_reproduce() -> None:
    """Import the package `reproduce`: in a checkout it is beside fedref, in a wheel inside it."""
    if "reproduce" in sys.modules:
        return
    package = Path(__file__).resolve().parents[1]
    inside = package / "_reproduce"
    folder = inside if inside.is_dir() else package.parent / "reproduce"
    spec = spec_from_file_location(
        "reproduce", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["reproduce"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["reproduce"])


def begin_worker() -> None:
    """Prepare a process that runs experiments: its parent handles Ctrl-C, and ends it."""
    from fedref.experiments.parallel import init_worker

    init_worker()
    import_reproduce()


COMMAND = Command(
    run,
    "Run the experiments behind a table or figure of a paper, and set its numbers beside those "
    "measured here.",
    (
        Option("names NAME", "what to reproduce, or all", many="*"),
        Option("--list", "list what can be reproduced"),
        Option("--quick", "a few rounds, one seed, and checks of direction only"),
        Option(
            "--seeds A:B|A,B,...",
            "these seeds (0:3 is 0, 1, 2), except for ablations (default: as in the experiment files)",
        ),
        DATA_DIR,
        Option(
            "--out DIR",
            "results (default: reproduce/results of the checkout, else of the current folder)",
            Path,
        ),
        Option(
            "--checkout NAME=DIR",
            "for `peers`: the folder of a project that pip does not install (may be repeated)",
            many=REPEATED,
        ),
        Option("--jobs N", "experiments at a time, one process each", int, 2, bounds=Bounds(1)),
    ),
    epilog=EPILOG,
)
