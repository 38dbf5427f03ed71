"""`python -m reproduce`, from a clone: the papers' experiments, from data to tables and pictures."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import reproduce as package
from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, seeds_of
from fedref.lab import commands
from fedref.lab.commands.command_line import call_of
from fedref.lab.commands.console import say


def reproduce(
    *reports: str,
    list: bool = False,
    quick: bool = False,
    seeds: str | None = None,
    data_dir: Path | None = None,
    out: Path | None = None,
    workers: Annotated[int, Bounds(1)] = 2,
) -> int:
    """Run a paper's experiments, set its numbers beside those measured here, and judge its claims.

    reports : NAME, what to reproduce, or all
    list : list what can be reproduced
    quick : a few rounds, one seed, and the direction of the main claims only
    seeds : these seeds (0:3 is 0, 1, 2), except for ablations (default: as in the report's file)
    out : results (default: reproduce/results of the clone)
    workers : processes that work on a run

    examples
      python -m reproduce --list
      python -m reproduce fedprox                      needs no data
      python -m reproduce per-fedavg --data-dir ~/data --seeds 0:5 --out more-seeds/results
      python -m reproduce all --quick                  minutes instead of hours: directions only

    To resume an interrupted report, give the same command again. Results are in DIR/NAME/ (README.md,
    cells.csv, runs.csv, pictures); claims.md in DIR sums them up. The runs are in runs/NAME/ beside DIR:
    ordinary run directories. Runs with --quick always start anew and write nothing to DIR.

    exit code: 0 all went well; 1 a claim of --quick has not its direction; 2 wrong input, or data are missing
    """
    known = package.report_names()
    if list:
        for name in known:
            print(f"{name:<16}{package.title_of(name)}")
        return 0
    if not reports:
        raise ConfigError(f"nothing to reproduce: give a NAME of {', '.join(known)}, or all")
    failed = package.reproduce(
        known if "all" in reports else [*dict.fromkeys(reports)],
        out or package.RESULTS,
        quick=quick,
        seeds=None if seeds is None else seeds_of(seeds),
        data_dir=data_dir,
        workers=workers,
        message=say,
    )
    for claim in failed:
        print(f"FAILS: {claim}")
    return 1 if failed else 0


def main(words: Sequence[str]) -> int:
    """Run the reports that these words name. Wrong input gives one line and exit code 2."""
    return commands.main(words, partial(call_of, reproduce, "python -m reproduce"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
