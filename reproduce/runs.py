"""The runs of a report: experiments from its file, run or continued as `fedref run` does.

papers/NAME.toml has [base], an experiment as in a file for `fedref run`, and [runs], where a line is a
run: the values in which it differs.
"""

import json
import os
import platform
import re
import subprocess
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

import fedref
from fedref.boundary.errors import ConfigError, DataError
from fedref.boundary.files import write_atomically
from fedref.lab.experiments import config
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.results import Run

PAPERS = Path(__file__).resolve().parent / "papers"
Spec = Mapping[str, Any]


def report_names() -> list[str]:
    """Return what can be reproduced."""
    return sorted(path.stem for path in PAPERS.glob("*.toml"))


def read_spec(name: str) -> dict[str, Any]:
    """Return papers/NAME.toml: what is run, what is read off it, and what the paper claims.

    methods : label → its name on the page; algorithms : label → its hyperparameters.
    """
    if name not in report_names():
        raise ConfigError(
            f"no report is called {name!r}, expected one of {', '.join(report_names())}"
        )
    spec = tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8"))
    rows = {k: x if isinstance(x, dict) else {"name": x} for k, x in spec["methods"].items()}
    return spec | {
        "methods": {label: row.pop("name") for label, row in rows.items()},
        "algorithms": rows,
    }


# ---- experiments ---------------------------------------------------------------------------------


def compose_experiments(
    spec: Spec, quick: bool = False, seeds: Sequence[int] | None = None
) -> dict[str, Experiment]:
    """Return run → its experiment: assignments to keys, as `fedref.lab.experiments.config` has them.

    A run has those of [base], then those of what `from` names ([sets] or other runs), then its own.
    quick : then those of [quick], where tables are for runs of that pattern. seeds : in place of the
    file's, but in ablations.
    """
    sets = {**spec.get("sets", {}), **spec["runs"]}

    def groups(name: str) -> Iterator[Mapping[str, Any]]:
        for one in as_list(sets[name].get("from", [])):
            yield from groups(one)
        yield {key: value for key, value in sets[name].items() if key != "from"}

    made = {}
    for run in spec["runs"]:
        last: dict[str, Any] = {"name": run}
        if quick:
            last |= {k: v for k, v in spec["quick"].items() if not isinstance(v, dict)}
            for pattern, own in spec["quick"].items():
                last |= own if isinstance(own, dict) and fnmatchcase(run, pattern) else {}
        elif seeds is not None and not run.startswith("ablation-"):
            last["seeds"] = list(seeds)
        each = {"algorithms": spec["algorithms"]}, spec["base"], *groups(run), last
        made[run] = config.experiment_of(*(group.items() for group in each))
    return made


def as_list(value: Any) -> list[Any]:
    """Return a list; a text is a list of one."""
    return [value] if isinstance(value, str) else list(value)


def check_data(data: Iterable[Spec], data_dir: Path | None) -> None:
    """Raise one error that names all data sets that are missing and where to put them.

    data : tables like [data] of an experiment.
    """
    missing = {}
    for table in {repr(one): one for one in data}.values():
        keywords = {key: value for key, value in table.items() if key != "name"}
        try:
            fedref.lab.datasets.load(table["name"], data_dir, download=False, **keywords)
        except DataError as error:
            missing[table["name"]] = str(error)
    if missing:
        raise DataError("; ".join(missing.values()))


# ---- running -------------------------------------------------------------------------------------


def complete(experiment: Experiment, out: Path, data_dir: Path | None, workers: int) -> Run:
    """Run what is left of an experiment, units side by side in `workers` processes.

    OUT/runtime.json has {seconds, version, commit, date, machine, finished}.
    """
    before, began, finished = read_runtime(out), time.monotonic(), False
    try:
        run = fedref.run(experiment, out=out, data_dir=data_dir, workers=workers, progress=True)
        finished = True
    finally:
        if out.is_dir() and not before.get("finished"):
            commits = [*filter(None, str(before.get("commit", "")).split(", ")), git_commit()]
            took = {
                "seconds": round(before.get("seconds", 0.0) + time.monotonic() - began, 1),
                "version": fedref.__version__,
                "commit": ", ".join(dict.fromkeys(commits)),
                "date": git(PAPERS, "show", "-s", "--format=%cs", "HEAD"),
                "machine": describe_machine(),
                "finished": finished,
            }
            write_atomically(out / "runtime.json", (json.dumps(took) + "\n").encode())
    return run


def read_runtime(directory: Path) -> dict[str, Any]:
    path = directory / "runtime.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


@cache
def git_commit() -> str:
    """Return the commit of the checkout, "+ changes" if files differ from it."""
    root = PAPERS.parents[1]
    top, head = git(root, "rev-parse", "--show-toplevel"), git(root, "rev-parse", "HEAD")
    if not head or not os.path.samefile(top, root):
        return "unknown"  # installed somewhere inside another project
    ours = ("fedref", "reproduce/*.py", "reproduce/papers/*.toml")
    changed = git(root, "status", "--porcelain", "--untracked-files=no", "--", *ours)
    return f"{head[:10]} + changes" if changed else head[:10]


def git(folder: Path, *words: str) -> str:
    """Return what git says of a folder, "" if it says nothing or is not there."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def describe_machine(packages: Sequence[str] = ()) -> str:
    """Return the processor, what NumPy and its BLAS make of it, and versions: NumPy's and of `packages`."""
    try:
        processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        processor = None
    name = processor[1] if processor else platform.processor()
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    simd = extensions.get("found") or extensions["baseline"]
    blas = {info["architecture"] for info in threadpool_info() if "architecture" in info}
    names = "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"
    forced = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    kernels = f"OpenBLAS for {', '.join(blas)} ({', '.join(forced) or 'chosen by itself'})"
    versions = ", ".join(f"{p} {version(p)}" for p in ("numpy", *packages) if find_spec(p))
    return f"{name}; instruction sets up to {simd[-1]}, {kernels}; {versions}"
