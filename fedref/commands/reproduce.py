"""`fedref reproduce`: the papers' experiments, from data to tables and pictures."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import fill
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import seeds_of
from fedref.commands.console import whole_number

INDENT = 22 * " "

EPILOG = """\
examples
  fedref reproduce --list
  fedref reproduce fedprox-stragglers                needs no data
  fedref reproduce per-fedavg-table --data-dir ~/data --seeds 0:5 --out more-seeds/results
  fedref reproduce all --quick                       minutes instead of hours: directions only

To resume an interrupted reproduction, give the same command again. Results are in DIR/NAME/
(table.md, numbers.csv, pictures) and gathered in README.md beside DIR. The runs are in runs/NAME/
beside DIR: ordinary run directories, for `fedref plot` and the rest. Quick runs start afresh every
time and leave DIR alone.

exit code: 0 all went well; 1 a check of --quick failed; 2 wrong input, or data is missing
"""


def add_parser(subparsers: Any) -> None:
    """Add `reproduce` to the commands."""
    parser = subparsers.add_parser(
        "reproduce",
        help="repeat the papers' experiments and compare the numbers",
        description="Run the experiments behind a table or figure of a paper, and set its numbers beside "
        "those measured here.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to reproduce, or all")
    parser.add_argument("--list", action="store_true", help="list what can be reproduced")
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds, one seed, and checks of direction only"
    )
    parser.add_argument(
        "--seeds",
        metavar="A:B | A,B,...",
        help="these seeds (0:3 is 0, 1, 2), except for ablations (default: as in the experiment files)",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where the data are (default: FEDREF_DATA)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="results (default: reproduce/results of the checkout, else of the current folder)",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number,
        default=2,
        metavar="N",
        help="experiments at a time, one process each (default 2)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, or reproduce and say what came out."""
    from fedref import reproduction  # the reports bring matplotlib along, which takes its time

    known = reproduction.names()
    if args.list:
        for name in known:
            found = reproduction.find(name)
            print(f"{name:<20}{found.said('TITLE', '')}")
            paper = found.said("PAPER", "")
            print(fill(paper, 100, initial_indent=INDENT, subsequent_indent=INDENT))
        return 0
    if not args.names:
        raise ConfigError(f"nothing to reproduce: give a NAME of {', '.join(known)}, or all")
    names = known if "all" in args.names else list(dict.fromkeys(args.names))
    with ExitStack() as stack:
        tell = bars(stack) if sys.stderr.isatty() else {"message": line}
        checked = reproduction.reproduce(
            names,
            args.out or reproduction.default_out(),
            quick=args.quick,
            seeds=None if args.seeds is None else seeds_of(args.seeds),
            data_dir=args.data_dir,
            jobs=args.jobs,
            tell=reproduction.Tell(**tell),
        )
    for check in checked:
        print(f"{'holds' if check.holds else 'FAILS'}: {check.claim}: {check.measured}")
    return 0 if all(check.holds for check in checked) else 1


def line(text: str) -> None:
    """Not on a terminal: a line for each finished experiment."""
    print(text, file=sys.stderr, flush=True)


def bars(stack: ExitStack) -> dict[str, Any]:
    """On a terminal: a progress bar for each experiment that is at work."""
    from tqdm import tqdm

    shown: dict[Path, Any] = {}

    def progress(job: Any, done: int) -> None:
        bar = shown.get(job.directory)
        if bar is None:
            bar = tqdm(
                total=job.rounds, desc=job.name, unit="round", dynamic_ncols=True, leave=False
            )
            shown[job.directory] = stack.enter_context(bar)
        bar.update(done - bar.n)
        if done == job.rounds:
            bar.close()

    def message(text: str) -> None:
        tqdm.write(text, file=sys.stderr)

    return {"progress": progress, "message": message}
