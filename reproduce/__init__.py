"""The papers' experiments: run what is left, read cells off the runs, and write the pages.

    papers/NAME.toml    what is run, what is read off it, what the paper claims, tables and pictures
    papers/NAME.md      the page's text; papers/claims.md: that of the page of all claims
    results/NAME/       cells.csv (every number), runs.csv (what made them), README.md (the page), pictures
    results/claims.md   every claim of every paper
    README.md           the first screen: papers/README.md with the claims of papers/headlines.csv
    runs/NAME/RUN       ordinary run directories, as of `fedref run`

Runs → cells.csv → pages, by these modules: runs (experiments, and all contact with the runner),
quantities (what is read off a run), cells, claims (the rule that judges them), pages, pictures, and
writing (numbers as text). It is the repository's tool: `python -m reproduce NAME` from a clone; speed
and peers beside it are `python -m reproduce.speed` and `python -m reproduce.peers`.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedref.boundary.files import claim_folder, write_atomically
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.results import Run
from reproduce import cells, pages, pictures, runs
from reproduce.claims import decide_claims
from reproduce.runs import read_spec, report_names
from reproduce.writing import duration, write_csv

__all__ = ["RESULTS", "read_spec", "report_names", "reproduce", "title_of"]
Message = Callable[[str], None]
#: The file that says that a folder of quick runs may be removed.
MARK = ".fedref-quick"
RESULTS = Path(__file__).resolve().parent / "results"


def title_of(name: str) -> str:
    """Return the title of a report's page."""
    return (runs.PAPERS / f"{name}.md").read_text("utf-8").partition("\n")[0].removeprefix("# ")


def reproduce(
    wanted: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    seeds: Sequence[int] | None = None,
    data_dir: Path | None = None,
    workers: int = 2,
    message: Message = lambda text: None,
) -> list[str]:
    """Run what is left of some reports and write their pages.

    Return the claims that a quick run contradicts in their direction. Runs go to OUT/../runs. Quick
    runs begin anew and are reported on in runs/NAME-quick/results.
    """
    specs = {name: read_spec(name) for name in wanted}
    made = {name: runs.compose_experiments(spec, quick, seeds) for name, spec in specs.items()}
    data = [one.data for own in made.values() for one in own.values()]
    more = [{"name": w["load"]} for s in specs.values() for w in s.get("splits", {}).values()]
    runs.check_data([*data, *more], data_dir)
    bases = {name: out.parent / "runs" / (f"{name}-quick" if quick else name) for name in specs}
    for base in bases.values() if quick else ():
        claim_folder(base, MARK)  # or it is refused
    failed = []
    for name, spec in specs.items():
        base = bases[name]
        if quick:
            shutil.rmtree(base)
            claim_folder(base, MARK)
        results = {}
        for run, experiment in made[name].items():
            results[run] = runs.complete(experiment, base / run, data_dir, workers)
            message(f"{name}/{run}: finished, {duration_of(base / run)}")
        folder = base / "results" if quick else out / name
        found = report(name, spec, results, base, folder, data_dir)
        message(f"{name}: {folder / 'README.md'}")
        if quick:
            asked = (j for j in decide_claims(spec, found) if cells.fits(j.place, j.claim.quick))
            wrong = [j for j in asked if not j.has_direction]
            failed += [f"{j.claim.what}, {j.place}: {pages.show_findings(j)}" for j in wrong]
        else:
            write_atomically(out / "claims.md", pages.make_claims(out).encode())
            if out == RESULTS:
                write_first_screen(out)
    return failed


def write_first_screen(out: Path) -> None:
    """Write README.md beside OUT, and its picture for light and dark pages, once all reports are there."""
    if all((out / row["report"] / "cells.csv").exists() for row in pages.headline_rows()):
        found, judged = pages.read_headlines(out)
        write_atomically(out.parent / "README.md", pages.make_readme(found, judged).encode())
        pictures.draw_forest(found, out / "headlines.png", {})
        pictures.draw_forest(found, out / "headlines-dark.png", pictures.DARK)


def report(
    name: str,
    spec: runs.Spec,
    results: Mapping[str, Run],
    base: Path,
    out: Path,
    data_dir: Path | None,
) -> cells.Cells:
    """Write cells.csv, runs.csv, pictures and the page of these runs; return the cells."""
    out.mkdir(parents=True, exist_ok=True)
    measured = [
        *cells.measure_splits(spec, data_dir), *cells.measure_cells(spec, results, data_dir)
    ]  # fmt: skip
    found = cells.Cells([*measured, *cells.derive_cells(spec, cells.Cells(measured))])
    cells.write_cells(out / "cells.csv", found)
    made = [provenance(base / run, results[run].experiment) for run in results]
    write_csv(out / "runs.csv", pages.PROVENANCE, made)
    pictures.draw_pictures(spec, results, found, out, data_dir)
    write_atomically(out / "README.md", pages.make_page(name, spec, out).encode())
    return found


def provenance(directory: Path, experiment: Experiment) -> list[str]:
    """Return which data, seeds, runtime, version and commits made a run."""
    split = json.loads((directory / "split.json").read_text("utf-8"))
    took, source = runs.read_runtime(directory), split["source"]
    return [
        directory.name, source["name"], source["sha256"][:12],
        f"{split['rule']}, seed {split['seed']}", ", ".join(map(str, experiment.seeds)),
        duration_of(directory), took["version"], took["commit"], took.get("date", ""),
        took.get("machine", ""),
    ]  # fmt: skip


def duration_of(directory: Path) -> str:
    return duration(runs.read_runtime(directory)["seconds"])
