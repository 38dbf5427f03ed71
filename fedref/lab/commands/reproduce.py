"""`fedref reproduce`: the papers' experiments, from data to tables and pictures."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, seeds_of
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

    reports : what to reproduce, or all
    list : list what can be reproduced
    quick : a few rounds, one seed, and the direction of the main claims only
    seeds : these seeds (0:3 is 0, 1, 2), except for ablations (default: as in the report's file)
    out : results (default: reproduce/results of the checkout, else of the current folder)
    workers : processes that work on a run

    examples
      fedref reproduce --list
      fedref reproduce fedprox                         needs no data
      fedref reproduce per-fedavg --data-dir ~/data --seeds 0:5 --out more-seeds/results
      fedref reproduce all --quick                     minutes instead of hours: directions only

    To resume an interrupted report, give the same command again. Results are in DIR/NAME/ (README.md,
    cells.csv, runs.csv, pictures); claims.md in DIR sums them up. The runs are in runs/NAME/ beside DIR:
    ordinary run directories. Runs with --quick always start anew and write nothing to DIR.

    exit code: 0 all went well; 1 a claim of --quick has not its direction; 2 wrong input, or data are missing
    """
    import_reproduce()
    import reproduce as package  # it imports matplotlib, which is slow to import

    known = package.report_names()
    if list:
        for name in known:
            print(f"{name:<16}{package.title_of(name)}")
        return 0
    if not reports:
        raise ConfigError(f"nothing to reproduce: give a NAME of {', '.join(known)}, or all")
    failed = package.reproduce(
        known if "all" in reports else [*dict.fromkeys(reports)],
        out or package.default_out(),
        quick=quick,
        seeds=None if seeds is None else seeds_of(seeds),
        data_dir=data_dir,
        workers=workers,
        message=say,
    )
    for claim in failed:
        print(f"FAILS: {claim}")
    return 1 if failed else 0


def import_reproduce() -> None:
    """Import the package `reproduce`: in a checkout it is beside fedref, in a wheel inside it."""
    if "reproduce" in sys.modules:
        return
    package = Path(__file__).resolve().parents[2]
    inside = package / "_reproduce"
    folder = inside if inside.is_dir() else package.parent / "reproduce"
    spec = spec_from_file_location(
        "reproduce", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["reproduce"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["reproduce"])
