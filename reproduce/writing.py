"""table.md of one reproduction, from its report.md and what its report.py has measured; and the README
that gathers them all."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import fedref
from fedref.boundary.errors import FedrefError
from fedref.boundary.files import write_whole
from fedref.experiments import config
from fedref.experiments.results import Run
from fedref.experiments.run_directory import disk_errors
from reproduce import catalogue
from reproduce.catalogue import Job, Reproduction
from reproduce.claims import coverage
from reproduce.jobs import duration, git_commit, results, runtime, runtime_in_words, short
from reproduce.tables import markdown

MARK = "<!-- Made by `fedref reproduce`: whatever is changed by hand here is lost. -->"


def write_report(
    reproduction: Reproduction, jobs: Sequence[Job], out: Path, data_dir: Path | None
) -> dict[str, Run]:
    """Write table.md, numbers.csv and pictures to the folder `out`; return the runs."""
    began = time.monotonic()
    runs = {job.file.stem: results(job.directory) for job in jobs}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        parts = reproduction.module.report(runs, out, data_dir)
        made = provenance(jobs, time.monotonic() - began)
        text = f"{fill(reproduction, parts)}\n\n{made}\n"
        write_whole(out / "table.md", text.encode())
    return runs


def fill(reproduction: Reproduction, parts: Mapping[str, str]) -> str:
    """Return report.md with the parts, or report.py's own constants, in place of their {names};
    paragraphs that come out empty are left out."""
    names = {**vars(reproduction.module), **parts}
    paragraphs = [text.format_map(names).strip("\n") for text in reproduction.text.split("\n\n")]
    return "\n\n".join(filter(None, paragraphs))


def provenance(jobs: Sequence[Job], seconds: float) -> str:
    """Return which data, seeds, runtime, version and commit made it."""
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
                runtime_in_words(job.directory),
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
    """Refuse to overwrite somebody's own README."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise FedrefError(
            f"{path} was not made by fedref, and the tables are gathered there: give --out "
            "FOLDER/results with a FOLDER of its own"
        )


def gather(out: Path, readme: Path) -> None:
    """Write all tables that there are to one file, links and headings fitted to it."""
    title, _, introduction = INTRODUCTION.strip().partition("\n\n")
    covered = coverage(catalogue.root(), out)
    parts = [MARK, title, *([COVERED, covered] if covered else []), introduction]
    for path in sorted(out.glob("*/table.md")):
        text = path.read_text(encoding="utf-8").strip()
        text = re.sub(r"^#", "##", text, flags=re.MULTILINE)
        link = rf"](<{out.name}/{path.parent.name}/\1>)"
        parts.append(re.sub(r"\]\(<?([^()<>:/]+\.(?:png|svg|csv))>?\)", link, text))
    write_whole(readme, ("\n\n".join(parts) + "\n").encode())
