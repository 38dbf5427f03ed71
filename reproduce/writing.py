"""table.md of one reproduction, from its report.md and what its report.py has measured."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import fedref
from fedref.boundary.files import write_atomically
from fedref.experiments.progress import duration
from fedref.experiments.results import Run
from fedref.experiments.run_directory import disk_errors, read_experiment
from reproduce.catalogue import Job, Reproduction
from reproduce.jobs import git_commit, results, runtime, runtime_in_words, short
from reproduce.tables import markdown


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
        write_atomically(out / "table.md", text.encode())
    return runs


def fill(reproduction: Reproduction, parts: Mapping[str, str]) -> str:
    """Return report.md with the parts, or report.py's own constants, in place of their {names}.

    Paragraphs that come out empty are left out.
    """
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
        made = read_experiment(job.directory)
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
