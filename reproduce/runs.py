"""The runs of a report: experiments from its file, run or continued with `fedref run`, and read.

What reports need of fedref's runner is in this file alone. papers/NAME.toml has [base], an experiment
as in a file for `fedref run`, and [runs], where a line is a run: the values in which it differs.
"""

import io
import json
import os
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

import fedref
from fedref import load_run
from fedref.algorithm import Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.boundary.errors import ConfigError, DataError
from fedref.boundary.files import write_atomically
from fedref.experiments import config
from fedref.experiments.loading import Loader, load_experiment
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Scores, evaluate, evaluate_unseen

PAPERS = Path(__file__).resolve().parent / "papers"
Table = Mapping[str, Any]
Command = Callable[[Sequence[str]], int]


def report_names() -> list[str]:
    """Return what can be reproduced."""
    return sorted(path.stem for path in PAPERS.glob("*.toml"))


def read_spec(name: str) -> dict[str, Any]:
    """Return papers/NAME.toml: what is run, what is read off it, and what the paper claims."""
    if name not in report_names():
        raise ConfigError(
            f"no report is called {name!r}, expected one of {', '.join(report_names())}"
        )
    return tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8"))


# ---- experiments ---------------------------------------------------------------------------------


def compose_experiments(
    spec: Table, quick: bool = False, seeds: Sequence[int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return run → its experiment, a table as `fedref run` takes it from a file.

    A run differs from [base], or from the run that `from` names; `only` are patterns of the algorithms
    it has. quick : with the values of [quick], where tables are for runs of that pattern. seeds : in
    place of the file's, but in ablations.
    """
    tables: dict[str, dict[str, Any]] = {}
    for run, sets in spec["runs"].items():
        table = tables[sets["from"]] if "from" in sets else dict(spec["base"])
        if "only" in sets:
            own = table["algorithms"]
            kept = [m for pattern in sets["only"] for m in own if fnmatchcase(m, pattern)]
            table = {**table, "algorithms": {m: own[m] for m in kept}}
        for key, value in sets.items():
            table = table if key in ("from", "only") else assign(table, key, value)
        tables[run] = {**table, "name": run}
    for run in tables:
        sets = {}
        if quick:
            sets = {k: v for k, v in spec["quick"].items() if not isinstance(v, dict)}
            for pattern, more in spec["quick"].items():
                sets |= more if isinstance(more, dict) and fnmatchcase(run, pattern) else {}
        elif seeds is not None and not run.startswith("ablation-"):
            sets = {"seeds": list(seeds)}
        for key, value in sets.items():
            tables[run] = assign(tables[run], key, value)
    return tables


def assign(table: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return the table with one value changed: KEY, TABLE.KEY or algorithms.PATTERN.KEY.

    PATTERN names algorithms; of these the value is set where the key is, or if it is nowhere, in all.
    """
    head, _, rest = key.partition(".")
    if not rest:
        return {**table, key: value}
    if head != "algorithms":
        return {**table, head: {**table.get(head, {}), rest: value}}
    pattern, _, name = rest.rpartition(".")
    own = table[head]
    meant = [label for label in own if fnmatchcase(label, pattern)]
    there = [label for label in meant if name in own[label]] or meant
    return {**table, head: own | {label: own[label] | {name: value} for label in there}}


def check_data(tables: Sequence[Table], more: Sequence[str], data_dir: Path | None) -> None:
    """Raise one error that names all data sets that are missing and where to put them."""
    wanted = {repr(t["data"]): t["data"] for t in tables} | {name: {"name": name} for name in more}
    missing = {}
    for table in wanted.values():
        keywords = {key: value for key, value in table.items() if key != "name"}
        try:
            fedref.datasets.load(table["name"], data_dir, download=False, **keywords)
        except DataError as error:
            missing[table["name"]] = str(error)
    if missing:
        raise DataError("; ".join(missing.values()))


# ---- running -------------------------------------------------------------------------------------


def complete(
    table: Table, directory: Path, data_dir: Path | None, workers: int, command: Command
) -> None:
    """Run what is left of an experiment, units side by side in `workers` processes.

    command : `fedref` with these words. Beside the directory is its experiment as a file.
    DIR/runtime.json has {seconds, version, commit}.
    """
    file, text = directory.parent / f"{directory.name}.toml", tomli_w.dumps(dict(table))
    if (directory / "config.toml").exists() and file.read_text("utf-8") != text:
        raise ConfigError(
            f"{directory} holds another experiment than {directory.name} is now ({file} is what it "
            "was): move it away, or give another --out"
        )
    before = read_runtime(directory)
    if before.get("finished"):
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text.encode())
    resumed = (directory / "config.toml").exists()
    words = ["resume", directory] if resumed else ["run", file, "--out", directory]
    words += ["--workers", workers] + (["--data-dir", data_dir] if data_dir else [])
    began, code = time.monotonic(), 1
    try:
        with redirect_stdout(io.StringIO()):
            code = command(list(map(str, words)))
    finally:
        if directory.is_dir():
            commits = [*filter(None, str(before.get("commit", "")).split(", ")), git_commit()]
            took = {
                "seconds": round(before.get("seconds", 0.0) + time.monotonic() - began, 1),
                "version": fedref.__version__,
                "commit": ", ".join(dict.fromkeys(commits)),
                "finished": code == 0,
            }
            write_atomically(directory / "runtime.json", (json.dumps(took) + "\n").encode())
    if code:
        raise SystemExit(code)  # it has said why


def read_runtime(directory: Path) -> dict[str, Any]:
    path = directory / "runtime.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


@cache
def git_commit() -> str:
    """Return the commit of the checkout, "+ changes" if files differ from it."""
    root = PAPERS.parents[1]

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    try:
        if not os.path.samefile(git("rev-parse", "--show-toplevel"), root):
            return "unknown"  # installed somewhere inside another project
        ours = ("fedref", "reproduce/*.py", "reproduce/papers/*.toml")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *ours)
        return git("rev-parse", "HEAD")[:10] + (" + changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


# ---- reading -------------------------------------------------------------------------------------


class Trial(NamedTuple):
    """One algorithm with one seed at one point of the sweep, and how it went.

    rows : of metrics.csv. scores : of the last evaluation. server : its last state. diverged : the
    round after which it did. cohorts : the clients of every round.
    """

    label: str
    seed: int
    point: dict[str, Any]
    rows: list[dict[str, Any]]
    scores: Scores
    server: Any
    diverged: int | None
    cohorts: Callable[[], list[Array]]


class Results(NamedTuple):
    """A run as reports read it: its experiment, trials, and what loads the data of a point."""

    table: Table
    trials: list[Trial]
    load: Callable[[Mapping[str, Any]], Any]


def read_results(table: Table, directory: Path, data_dir: Path | None) -> Results:
    """Return what a run directory holds; clients' own states are left out."""
    run = load_run(directory)
    trials = []
    for unit, record in zip(run.units, run.records):
        point = {
            key.removeprefix("sweep."): value
            for key, value in unit.columns.items()
            if key.startswith("sweep.")
        }
        ended = record.round if record.status == "diverged" else None

        def cohorts(unit: Any = unit, record: Any = record) -> list[Array]:
            how = {"label": unit.label, "seed": unit.seed, **unit.point}
            return [run.plan(t, **how).clients for t in range(record.round)]

        one = (unit.label, unit.seed, point, record.rows, record.scores[-1], record.state.server)
        trials.append(Trial(*one, ended, cohorts))
    return Results(table, trials, loader_of(table, data_dir))


def loader_of(table: Table, data_dir: Path | None) -> Callable[[Mapping[str, Any]], Any]:
    """Return what loads (experiment, its data) at a point of the sweep; alike points share theirs."""
    made, shared = config.compose(table, []), Loader(data_dir)

    @cache
    def load(point: tuple[tuple[str, Any], ...]) -> Any:
        one = config.at_point(made, dict(point))
        return one, load_experiment(one, shared)

    return lambda point: load(tuple(sorted(point.items())))


def sweep_points(table: Table) -> list[dict[str, Any]]:
    """Return every point of an experiment's sweep."""
    sweep = table.get("sweep", {})
    return [dict(zip(sweep, values)) for values in product(*sweep.values())]


def score_unadapted(results: Results, trial: Trial, unseen: bool) -> Scores:
    """Return the final test scores of the parameters that the server sends, as they are.

    unseen : on the clients that never trained.
    """
    made, data = results.load(trial.point)
    algorithm = made.algorithms[trial.label]
    sent = algorithm.download(trial.server)
    state = State(Server(algorithm.personalised_params(data.model, sent, None, None)), {})
    if unseen:
        how = {"support": made.unseen, "seed": trial.seed, "dtype": np.dtype(made.dtype)}
        return evaluate_unseen(FedAvg(), data.model, state, *data.unseen, **how)
    last = trial.rows[-1]["round"]
    how = {"round": last, "seed": trial.seed, "train": False}
    sampling = made.plan_of(data.federation.clients)
    return evaluate(FedAvg(), data.model, state, data.federation, sampling, **how)
