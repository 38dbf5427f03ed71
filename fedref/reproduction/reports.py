"""Reports: what one reproduction has found, and the README that gathers them all."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import fedref
from fedref.boundary.errors import FedrefError
from fedref.boundary.files import write_whole
from fedref.experiments import config
from fedref.experiments.results import Run
from fedref.experiments.run_directory import disk_errors
from fedref.reproduction import catalogue, coverage
from fedref.reproduction.catalogue import Job, Reproduction
from fedref.reproduction.jobs import results
from fedref.reproduction.runtime import duration, git_commit, lasted, runtime, short
from fedref.reproduction.tables import markdown

MARK = "<!-- Made by `fedref reproduce`: whatever is changed by hand here is lost. -->"


def write_report(
    reproduction: Reproduction, jobs: Sequence[Job], out: Path, data_dir: Path | None
) -> dict[str, Run]:
    """table.md, numbers.csv and pictures in the folder `out`; the runs."""
    began = time.monotonic()
    runs = {job.file.stem: results(job.directory) for job in jobs}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        body = reproduction.module.report(runs, out, data_dir)
        made = provenance(jobs, time.monotonic() - began)
        head = f"# {reproduction.said('TITLE', reproduction.name)}"
        text = [head, reproduction.said("PAPER", ""), body.strip(), made]
        write_whole(out / "table.md", ("\n\n".join(text) + "\n").encode())
    return runs


def provenance(jobs: Sequence[Job], seconds: float) -> str:
    """Which data, seeds, runtime, version and commit made it."""
    if not jobs:
        return (
            f"Made by fedref {fedref.__version__}, commit {short(git_commit())}, in "
            f"{duration(seconds)}; there is nothing to train."
        )
    rows = [["experiment", "data", "SHA-256", "split", "seeds", "runtime", "fedref", "commit"]]
    for job in jobs:
        manifest = json.loads((job.directory / "split.json").read_bytes())
        source, took = manifest["source"], runtime(job.directory)
        made = config.from_table(config.read(job.directory / "config.toml"))
        rows.append(
            [
                job.file.stem,
                source["name"],
                source["sha256"][:12],
                f"{manifest['rule']}, seed {manifest['seed']}",
                ", ".join(map(str, made.seeds)),
                lasted(job.directory),
                str(took.get("version", "unknown")),
                short(str(took.get("commit", "unknown"))),
            ]
        )
    return "What made these numbers:\n\n" + markdown(rows, left=4)


# ---- the README that gathers the tables --------------------------------------------------------

INTRODUCTION = """\
# The papers' experiments, and what fedref measures

Each section is made by `fedref reproduce NAME` (`fedref reproduce --list`) from the experiment files
in `NAME/`, with the papers' hyperparameters; nothing is tuned towards a number. *Paper* is what the
paper prints, *ours* the mean ± standard deviation over the seeds (divided by their number),
*difference* is ours − paper. Accuracies are test accuracies weighted by samples; *average* is over
all evaluated rounds, the start (round 0) included. A comment says what was measured; where it says
nothing, we know nothing. A runtime is by the clock, in one process or two, whatever else ran beside it.
"""

COVERED = """\
Every table, figure and claim of the five papers, the section below that is about it, and what came out.
A claim *holds* where it does in every seed and beyond the threshold printed there; *places* are data sets
and settings. What has one seed says so, and so does what our measurements cannot decide."""


def check_readme(path: Path) -> None:
    """Never overwrite somebody's own README."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise FedrefError(
            f"{path} was not made by fedref, and the tables are gathered there: give --out "
            "FOLDER/results with a FOLDER of its own"
        )


def covered(out: Path) -> str:
    """Every table, figure and claim of the papers, and where it is; "" where no list of them is."""
    table = coverage.table(catalogue.root(), out)
    return f"{COVERED}\n\n{table}" if table else ""


def gather(out: Path, readme: Path) -> None:
    """All tables that there are in one file, links and headings fitted to it."""
    title, _, introduction = INTRODUCTION.strip().partition("\n\n")
    parts = [MARK, title, *filter(None, [covered(out)]), introduction]
    for path in sorted(out.glob("*/table.md")):
        text = path.read_text(encoding="utf-8").strip()
        text = re.sub(r"^#", "##", text, flags=re.MULTILINE)
        link = rf"](<{out.name}/{path.parent.name}/\1>)"
        parts.append(re.sub(r"\]\(<?([^()<>:/]+\.(?:png|svg|csv))>?\)", link, text))
    write_whole(readme, ("\n\n".join(parts) + "\n").encode())
