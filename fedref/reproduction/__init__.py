"""Reproductions of the papers' experiments, by the public path only: an experiment file and
`fedref run`.

A reproduction is a folder NAME with any number of experiment files STEM.toml and a `report.py`:

    TITLE, PAPER      what is reproduced; which paper and section says it
    USES, STEMS       optional: another reproduction, whose runs this one reports on; which of them
    QUICK             settings on top for --quick, as with `fedref run --set`; a table under a STEM
                      is for that experiment alone
    CHECKS            what must hold in a quick run: {claim: check(runs) → (holds, what was measured)}
    DATA              data sets that the report itself reads; ("a", "b") is a or b
    report(runs, out, data_dir) → Markdown: {STEM: Run}; pictures and CSV files go to the folder out

Runs are in RUNS/NAME/STEM, with their runtime.json {seconds, version, commit}; what is reported is
in OUT/NAME: table.md, numbers.csv and pictures; OUT/../README.md gathers the tables.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedref.boundary.errors import ConfigError, DataError
from fedref.reproduction import catalogue
from fedref.reproduction.catalogue import default_out, find, names
from fedref.reproduction.jobs import SILENT, Runner, Tell, finished
from fedref.reproduction.parts import (
    at,
    at_best,
    best_point,
    how_often,
    late_changes,
    renamed,
    second_half,
    totals,
    unadapted,
    unadapted_scores,
)
from fedref.reproduction.reports import check_readme, gather, write_report
from fedref.reproduction.tables import (
    ROUNDING,
    Number,
    Values,
    claim,
    each_seed,
    listed,
    markdown,
    not_judged,
    number_table,
    shown,
    signed,
    spread,
    write_csv,
    write_numbers,
)

__all__ = [
    "ROUNDING",
    "Checked",
    "Number",
    "Tell",
    "Values",
    "at",
    "at_best",
    "best_point",
    "claim",
    "default_out",
    "each_seed",
    "find",
    "how_often",
    "late_changes",
    "listed",
    "markdown",
    "names",
    "not_judged",
    "number_table",
    "renamed",
    "reproduce",
    "second_half",
    "shown",
    "signed",
    "spread",
    "totals",
    "unadapted",
    "unadapted_scores",
    "write_csv",
    "write_numbers",
]


class Checked(NamedTuple):
    """A check of direction."""

    name: str
    claim: str
    holds: bool
    measured: str


def reproduce(
    wanted: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    seeds: Sequence[int] | None = None,
    data_dir: Path | None = None,
    jobs: int = 2,
    tell: Tell = SILENT,
) -> list[Checked]:
    """Run what is left, report on each, gather. Quick runs begin anew, and are reported on in
    RUNS/NAME-quick/results; the checks of direction are theirs."""
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, expected at least 1")
    chosen = [find(name) for name in wanted]
    runs, readme = out.parent / "runs", out.parent / "README.md"
    if not quick:
        check_readme(readme)
    work = {r.name: catalogue.jobs_of(r, runs, quick, seeds) for r in chosen}
    every = {job.directory: job for own in work.values() for job in own}
    if line := catalogue.missing_data(chosen, list(every.values()), data_dir):
        raise DataError(line)
    for job in every.values():
        if quick and job.directory.exists():
            shutil.rmtree(job.directory)  # what cannot be removed would pass for the new run
        elif not quick:
            catalogue.check_directory(job)
    checked = []
    left = sum(not finished(job) for job in every.values())
    with Runner(jobs, data_dir, tell, jobs // max(left, 1)) as runner:
        for job in every.values():
            runner.submit(job)
        for reproduction in chosen:
            own = work[reproduction.name]
            runner.wait(own)
            folder = out / reproduction.name
            if quick:
                folder = runs / f"{reproduction.name}-quick" / "results"
            found = write_report(reproduction, own, folder, data_dir)
            tell.message(f"{reproduction.name}: {folder / 'table.md'}")
            if quick:
                for text, check in reproduction.said("CHECKS", {}).items():
                    holds, measured = check(found)
                    checked.append(Checked(reproduction.name, text, bool(holds), measured))
            else:
                gather(out, readme)
    return checked
