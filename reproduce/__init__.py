"""Reproductions of the papers' experiments.

They take the public path only: an experiment file and `fedref run`.

A reproduction is a folder NAME with any number of experiment files STEM.toml and

    report.md         the text: title, which paper and section says it, and {names} of parts
    report.py         what is measured:
        report(runs, out, data_dir) → {name of a part: Markdown}, of {STEM: Run}; pictures and CSV
                          files go to the folder out
        USES, STEMS       optional: another reproduction, whose runs this one reports on; which of them
        QUICK             settings on top for --quick, as with `fedref run --set`; a table under a STEM
                          is for that experiment alone
        CHECKS            what must hold in a quick run: {claim: check(runs) → (holds, what was measured)}
        CHECKOUTS         {}, filled with what --checkout NAME=DIR gives
        DATA              data sets that the report itself reads; ("a", "b") is a or b

Runs are in RUNS/NAME/STEM, with their runtime.json {seconds, version, commit}; what is reported is
in OUT/NAME: table.md, numbers.csv, claims.csv and pictures. OUT/../README.md has a line for everything
that papers.toml lists, read off them.

Beside them: catalogue (what there is), jobs (how it is run), measures (what is read off runs), claims
(the papers' sentences and the rule that judges them), tables, writing and readme (how it is written
down).
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedref.boundary.errors import DataError
from reproduce import catalogue, jobs
from reproduce.catalogue import default_out, find, names
from reproduce.readme import check_readme, write_readme
from reproduce.writing import write_report

__all__ = ["Check", "default_out", "find", "names", "reproduce"]


class Check(NamedTuple):
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
    processes: int = 2,
    message: jobs.Message = lambda text: None,
    begin: Callable[[], None] | None = None,
    checkouts: Mapping[str, Path] | None = None,
) -> list[Check]:
    """Run what is left, report on each, and write the README; return the checks of quick runs.

    Quick runs begin anew, and are reported on in RUNS/NAME-quick/results. begin : what every process
    calls first; checkouts : what reports with CHECKOUTS read other projects from.
    """
    chosen = [find(name) for name in wanted]
    for one in chosen:
        one.get("CHECKOUTS", {}).update(checkouts or {})
    runs, readme = out.parent / "runs", out.parent / "README.md"
    if not quick:
        check_readme(readme)
    jobs_of = {r.name: catalogue.jobs_of(r, runs, quick, seeds) for r in chosen}
    every = {job.directory: job for own in jobs_of.values() for job in own}
    if line := catalogue.missing_data(chosen, list(every.values()), data_dir):
        raise DataError(line)
    for job in every.values():
        if quick and job.directory.exists():
            shutil.rmtree(job.directory)  # what cannot be removed would pass for the new run
        elif not quick:
            catalogue.check_directory(job)
    checked = []
    with jobs.running(list(every.values()), processes, data_dir, begin) as futures:
        for one in chosen:
            jobs.wait_for(jobs_of[one.name], futures, message)
            folder = runs / f"{one.name}-quick" / "results" if quick else out / one.name
            found = write_report(one, jobs_of[one.name], folder, data_dir)
            message(f"{one.name}: {folder / 'table.md'}")
            if quick:
                for text, check in one.get("CHECKS", {}).items():
                    holds, measured = check(found)
                    checked.append(Check(one.name, text, bool(holds), measured))
            else:
                write_readme(out, readme)
    return checked
