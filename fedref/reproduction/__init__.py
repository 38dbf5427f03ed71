"""Reproductions of the documents' experiments, by the public path only: an experiment file and
`fedref run`.

A reproduction is a folder NAME with any number of experiment files STEM.toml and a `report.py`:

    TITLE, DOCUMENT   what is reproduced; which document and section says it
    USES, STEMS       optional: another reproduction, whose runs this one reports on; which of them
    QUICK             settings on top for --quick, as with `fedref run --set`; a table under a STEM
                      is for that experiment alone
    CHECKS            what must hold in a quick run: {claim: check(runs) → (holds, what was measured)}
    DATA              data sets that the report itself reads; ("a", "b") is a or b
    report(runs, out, data_dir) → Markdown: {STEM: Run}; pictures and CSV files go to the folder out

Runs are in RUNS/NAME/STEM, with their runtime.json {seconds, version, commit}; what is reported is
in OUT/NAME: table.md, numbers.csv and pictures; OUT/../README.md gathers the tables.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

import numpy as np

import fedref
from fedref.algorithm import Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.datasets import sources
from fedref.errors import ConfigError, DataError, FedrefError, unknown
from fedref.evaluation import evaluate, sample_mean
from fedref.experiments import checkpoint, config
from fedref.experiments import unit as experiment
from fedref.experiments.config import Experiment
from fedref.experiments.results import Run, cell, csv_text
from fedref.experiments.runs import disk_errors, saved
from fedref.experiments.unit import Record, Setting, Unit
from fedref.numerics import Array

PACKAGE = Path(__file__).resolve().parents[1]
MARK = "<!-- Made by `fedref reproduce`: whatever is changed by hand here is lost. -->"
SAVE_EVERY = 10.0  # seconds between writing how long a run has taken so far


# ---- what there is to reproduce ----------------------------------------------------------------


@dataclass(frozen=True)
class Reproduction:
    """One folder: its name, where it is, and its report.py as a module."""

    name: str
    folder: Path
    module: ModuleType

    def said(self, name: str, default: Any) -> Any:
        return getattr(self.module, name, default)

    @property
    def owner(self) -> str:
        """Whose runs are reported on."""
        return str(self.said("USES", self.name))

    @property
    def files(self) -> list[Path]:
        """The experiment files."""
        files = sorted((self.folder.parent / self.owner).glob("*.toml"))
        return [file for file in files if file.stem in self.said("STEMS", [f.stem for f in files])]


def root() -> Path:
    """The folder of all reproductions: in the package if installed, beside it in a checkout."""
    inside = PACKAGE / "_reproduce"
    return inside if inside.is_dir() else PACKAGE.parent / "reproduce"


def default_out() -> Path:
    """reproduce/results: of the checkout, or under the current folder in an ordinary install."""
    base = Path("reproduce") if (PACKAGE / "_reproduce").is_dir() else root()
    return base / "results"


def names() -> list[str]:
    return sorted(path.parent.name for path in root().glob("*/report.py"))


def find(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in names():
        raise ConfigError(unknown("reproduction", name, [*names(), "all"]))
    folder = root() / name
    spec = spec_from_file_location(
        f"fedref_reproduce_{re.sub('[^a-z0-9]', '_', name)}", folder / "report.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # no __pycache__ beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return Reproduction(name, folder, module)


# ---- what has to be run ------------------------------------------------------------------------


class Job(NamedTuple):
    """One experiment file, with settings on top, and its run directory."""

    name: str  # NAME/STEM
    file: Path
    directory: Path
    settings: Mapping[str, Any]
    experiment: Experiment

    @property
    def rounds(self) -> int:
        """Rounds of all units together, each with its round 0."""
        return (self.experiment.rounds + 1) * len(experiment.units(self.experiment))


def run_directory(reproduction: Reproduction, stem: str, runs: Path, quick: bool) -> Path:
    return runs / (reproduction.owner + "-quick" * quick) / stem


def jobs_of(
    reproduction: Reproduction, runs: Path, quick: bool = False, seeds: int | None = None
) -> list[Job]:
    """Its experiments, checked; those that are finished as well."""
    owner = reproduction if reproduction.owner == reproduction.name else find(reproduction.owner)
    jobs = []
    for file in reproduction.files:
        settings = quick_settings(owner.said("QUICK", {}), file.stem) if quick else {}
        if seeds is not None and not file.stem.startswith("ablation-"):
            settings["seeds"] = list(range(seeds))
        directory = run_directory(reproduction, file.stem, runs, quick)
        made = experiment_of(file, settings)
        jobs.append(Job(f"{owner.name}/{file.stem}", file, directory, settings, made))
    return jobs


def quick_settings(quick: Mapping[str, Any], stem: str) -> dict[str, Any]:
    common = {key: value for key, value in quick.items() if not isinstance(value, Mapping)}
    return {**common, **quick.get(stem, {})}


def experiment_of(file: Path, settings: Mapping[str, Any]) -> Experiment:
    """What `fedref run FILE --set ...` will run."""
    table = config.underscored(config.read(file))
    table.setdefault("name", file.stem)
    with config.naming(str(file)):
        table = config.completed(table)
        for key, value in settings.items():
            table = config.with_setting(table, key, value)
        return config.from_table(table)


def check_directory(job: Job) -> None:
    """A directory that is gone on with must hold the same experiment."""
    path = job.directory / "config.toml"
    if not path.exists():
        return
    found = config.resolved(config.from_table(config.read(path), str(path)))
    wanted = config.resolved(job.experiment)
    # config.toml also has the values of the split that were found from the data
    split = {key: value for key, value in found["split"].items() if key in wanted["split"]}
    found = {**found, "split": split}
    if other := sorted(key for key in wanted if found.get(key) != wanted[key]):
        raise ConfigError(
            f"{job.directory} holds another experiment than {job.file} (other: "
            f"{', '.join(other)}): move it away, or give another --out"
        )


def missing_data(
    reproductions: Sequence[Reproduction], jobs: Sequence[Job], data_dir: Path | None
) -> str:
    """One line that says what is not here and where to put it; "" if all is here."""
    wanted = [(str(job.experiment.data["name"]), job.experiment.data) for job in jobs]
    choices = [
        (choice,) if isinstance(choice, str) else choice
        for reproduction in reproductions
        for choice in reproduction.said("DATA", ())
    ]
    absent = {name: name for name, table in wanted if not here(name, table, data_dir)}
    for choice in choices:
        if not any(here(name, {}, data_dir) for name in choice):
            absent[choice[-1]] = " or ".join(choice)
    lines = [str(sources.missing(name, "not found")) for name in absent]
    for i, (name, shown) in enumerate(absent.items()):
        lines[i] = lines[i].replace(name, shown, 1)
        if sources.SOURCES[name].remotes:
            lines[i] += f", or `fedref data prepare {name}` downloads it"
    return "; ".join(lines)


def here(name: str, table: Mapping[str, Any], data_dir: Path | None) -> bool:
    """Whether a data set can be read without downloading it; a path is left to `fedref run`."""
    more = {key: value for key, value in table.items() if key != "name"}
    call = sources.parse_name(name, more)
    return call is None or sources.locate(*call, data_dir) is not None


# ---- running -----------------------------------------------------------------------------------


class Tell(NamedTuple):
    """Who is told how it goes: (job, rounds done) after every round, and lines of text."""

    progress: Callable[[Job, int], None] = lambda job, done: None
    message: Callable[[str], None] = lambda text: None


SILENT = Tell()


def finished(job: Job) -> bool:
    """Whether nothing is left to run."""
    if not (job.directory / "summary.md").exists():
        return False
    found = [record.status for _, record in records(job.directory, job.experiment)]
    return "running" not in found and len(found) == len(experiment.units(job.experiment))


def records(directory: Path, made: Experiment) -> Iterator[tuple[Unit, Record]]:
    """The units that have begun and their records, one in memory at a time."""
    for unit in experiment.units(made):
        record = saved(directory, unit)
        if record is not None:
            yield unit, record


def results(directory: Path) -> Run:
    """`load_run`, but light: what clients keep for themselves is left out (who keeps something
    stays known), and so are the scores of single clients, but for the last ones."""
    made = config.from_table(config.read(directory / "config.toml"), f"{directory}/config.toml")
    work, light = [], []
    for unit, record in records(directory, made):
        state = record.state._replace(clients=dict.fromkeys(record.state.clients))
        record = record._replace(rounds=record.rounds[-1:], scores=record.scores[-1:])
        work.append(unit)
        light.append(record._replace(state=state))
    if not light:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Run(made, work, light)


def command(job: Job, data_dir: Path | None) -> list[str]:
    """`fedref run FILE --out DIR`, or `fedref resume DIR`."""
    words = ["resume", str(job.directory)]
    if not (job.directory / "config.toml").exists():
        words = ["run", str(job.file), "--out", str(job.directory)]
        for key, value in job.settings.items():
            words += ["--set", f"{key}={json.dumps(value)}"]
    if data_dir is not None:
        words += ["--data-dir", str(data_dir)]
    return [sys.executable, "-m", "fedref", *words, "--json"]


def environment() -> dict[str, str]:
    """So that the subprocess imports this very fedref."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Runner:
    """Runs jobs as subprocesses, `jobs` at once; leaving it ends those that are still at work."""

    def __init__(self, jobs: int, data_dir: Path | None, tell: Tell) -> None:
        self.data_dir, self.tell = data_dir, tell
        self.executor = ThreadPoolExecutor(jobs)
        self.processes: set[subprocess.Popen[str]] = set()
        self.lock, self.ended = threading.Lock(), False

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.ended = True
            for process in self.processes:
                process.terminate()  # what it has done is in its checkpoints
        self.executor.shutdown(cancel_futures=True)

    def submit(self, job: Job) -> "Future[None]":
        return self.executor.submit(self.run, job)

    def run(self, job: Job) -> None:
        """One job to its end."""
        if finished(job):
            self.tell.message(f"{job.name}: finished before, {lasted(job.directory)}")
            return
        job.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.started(job) as process, stopwatch(job.directory) as tick:
            assert process.stdout is not None
            assert process.stderr is not None
            errors: list[str] = []
            reader = threading.Thread(target=lambda e: errors.extend(e), args=(process.stderr,))
            reader.start()
            for done in rounds_done(process.stdout, job.experiment.rounds):
                self.tell.progress(job, done)
                tick()
            reader.join()
            code = process.wait()
        if self.ended:
            raise FedrefError(f"{job.name}: interrupted")
        if code not in (0, 3):  # 3: an algorithm diverged, which is a result as well
            last = errors[-1].strip() if errors else f"exit code {code}"
            raise FedrefError(f"{job.name}: {last.removeprefix('fedref: error: ')}")
        self.tell.message(f"{job.name}: finished, {lasted(job.directory)}")

    @contextmanager
    def started(self, job: Job) -> Iterator["subprocess.Popen[str]"]:
        with self.lock:
            if self.ended:
                raise FedrefError(f"{job.name}: interrupted")
            process = subprocess.Popen(
                command(job, self.data_dir),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                encoding="utf-8",
                errors="replace",
            )
            self.processes.add(process)
        try:
            with process:
                yield process
        finally:
            with self.lock:
                self.processes.discard(process)


def rounds_done(lines: IO[str], rounds: int) -> Iterator[int]:
    """Rounds done of all units together, after each of the JSON lines of `fedref run --json`."""
    seen: dict[tuple[Any, ...], int] = {}
    total = 0
    for line in lines:
        row = json.loads(line)
        sweep = (value for key, value in row.items() if key.startswith("sweep."))
        unit = (row["algorithm"], row["seed"], *map(str, sweep))
        done = rounds + 1 if row["status"] == "diverged" else int(row["round"]) + 1
        total += done - seen.get(unit, 0)
        seen[unit] = done
        yield total


# ---- runtime.json ------------------------------------------------------------------------------


@contextmanager
def stopwatch(directory: Path) -> Iterator[Callable[[], None]]:
    """Adds the time that passes to DIR/runtime.json, now and then and at the end."""
    path, began = directory / "runtime.json", time.monotonic()
    before = runtime(directory)
    commits = [*filter(None, str(before.get("commit", "")).split(", ")), git_commit()]
    commit = ", ".join(dict.fromkeys(commits))
    saved = began

    def write() -> None:
        nonlocal saved
        saved = time.monotonic()
        seconds = float(before.get("seconds", 0)) + saved - began
        found = {"seconds": round(seconds, 1), "version": fedref.__version__, "commit": commit}
        if directory.is_dir():  # `fedref run` makes it once its input is checked
            checkpoint.write_whole(path, (json.dumps(found) + "\n").encode())

    def tick() -> None:
        if time.monotonic() - saved > SAVE_EVERY:
            write()

    try:
        yield tick
    finally:
        write()


def runtime(directory: Path) -> dict[str, Any]:
    """What runtime.json holds; nothing if there is none."""
    path = directory / "runtime.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, TypeError):
        raise DataError(f"{path}: is no JSON object, expected seconds, version, commit") from None


def lasted(directory: Path) -> str:
    seconds = runtime(directory).get("seconds")
    return "runtime not recorded" if seconds is None else duration(float(seconds))


def duration(seconds: float) -> str:
    """1 h 05 min, 12 min 3 s, 8.2 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def git_commit() -> str:
    """The commit of the checkout that fedref runs from, "+ changes" if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PACKAGE.parent), *words],
            capture_output=True, text=True, check=True, timeout=30,
        ).stdout.strip()  # fmt: skip

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != PACKAGE.parent:
            return "unknown"  # installed somewhere inside another project
        ours = ("fedref", "reproduce/*/*.toml", "reproduce/*/report.py")  # they decide the numbers
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *ours)
        return git("rev-parse", "HEAD") + (" + changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


# ---- everything --------------------------------------------------------------------------------


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
    seeds: int | None = None,
    data_dir: Path | None = None,
    jobs: int = 2,
    tell: Tell = SILENT,
) -> list[Checked]:
    """Run what is left, report on each, gather. Quick runs begin anew, and are reported on in
    RUNS/NAME-quick/results; the checks of direction are theirs."""
    if jobs < 1 or (seeds is not None and seeds < 1):
        raise ConfigError(f"jobs is {jobs} and seeds {seeds}, expected at least 1")
    chosen = [find(name) for name in wanted]
    runs, readme = out.parent / "runs", out.parent / "README.md"
    if not quick:
        check_readme(readme)
    work = {r.name: jobs_of(r, runs, quick, seeds) for r in chosen}
    every = {job.directory: job for own in work.values() for job in own}
    if line := missing_data(chosen, list(every.values()), data_dir):
        raise DataError(line)
    for job in every.values():
        if quick:
            shutil.rmtree(job.directory, ignore_errors=True)
        else:
            check_directory(job)
    checked = []
    with Runner(jobs, data_dir, tell) as runner:
        pending = {directory: runner.submit(job) for directory, job in every.items()}
        for reproduction in chosen:
            for job in work[reproduction.name]:
                wait(pending[job.directory], list(pending.values()))
            own = work[reproduction.name]
            folder = out / reproduction.name
            if quick:
                folder = runs / f"{reproduction.name}-quick" / "results"
            found = write_report(reproduction, own, folder, data_dir)
            tell.message(f"{reproduction.name}: {folder / 'table.md'}")
            if quick:
                for claim, check in reproduction.said("CHECKS", {}).items():
                    holds, measured = check(found)
                    checked.append(Checked(reproduction.name, claim, bool(holds), measured))
            else:
                gather(out, readme)
    return checked


def wait(one: "Future[None]", all_: "Sequence[Future[None]]") -> None:
    """For one job, or for the first error of any."""
    while True:
        for future in all_:
            if future.done():
                future.result()
        try:
            return one.result(timeout=0.1)
        except TimeoutError:
            continue


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
        text = [head, reproduction.said("DOCUMENT", ""), body.strip(), made]
        write_text(out / "table.md", "\n\n".join(text) + "\n")
    return runs


def write_text(path: Path, text: str) -> None:
    checkpoint.write_whole(path, text.encode())


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
    return "What made these numbers (one process an experiment):\n\n" + markdown(rows, left=4)


def short(commit: str) -> str:
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit)


# ---- the README that gathers the tables --------------------------------------------------------

INTRODUCTION = """\
# The documents' experiments, and what fedref measures

Each section is made by `fedref reproduce NAME` (`fedref reproduce --list`) from the experiment files
in `NAME/`, with the hyperparameters of the documents, or of the papers they are about where a document
is silent; nothing is tuned towards a number. *Document* is
what the document prints, *ours* is mean ± standard deviation over the seeds (divided by their
number), *difference* is ours − document. Accuracies are test accuracies weighted by samples;
*average* is over all evaluated rounds, the start (round 0) included. A comment states what was
measured; where it says nothing, we know nothing.
"""


def check_readme(path: Path) -> None:
    """Never overwrite somebody's own README."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise FedrefError(
            f"{path} was not made by fedref, and the tables are gathered there: give --out "
            "FOLDER/results with a FOLDER of its own"
        )


def gather(out: Path, readme: Path) -> None:
    """All tables that there are in one file, links and headings fitted to it."""
    parts = [MARK, INTRODUCTION.strip()]
    for path in sorted(out.glob("*/table.md")):
        text = path.read_text(encoding="utf-8").strip()
        text = re.sub(r"^#", "##", text, flags=re.MULTILINE)
        link = rf"](<{out.name}/{path.parent.name}/\1>)"
        parts.append(re.sub(r"\]\(<?([^()<>:/]+\.(?:png|svg|csv))>?\)", link, text))
    write_text(readme, "\n\n".join(parts) + "\n")


# ---- what reports are written with -------------------------------------------------------------


class Number(NamedTuple):
    """One line of a table: what it is, the document's value, ours a seed, and a comment."""

    what: tuple[str, ...]
    ours: Sequence[float]
    document: float | None = None
    comment: str = ""
    more: tuple[Sequence[float], ...] = ()  # further columns of ours
    digits: int = 2

    @property
    def difference(self) -> float | None:
        return None if self.document is None else float(np.mean(self.ours)) - self.document


def spread(values: Sequence[float], digits: int = 2) -> str:
    """mean ± sd over seeds; the mean alone of one seed."""
    x = np.asarray(values, float)
    if not x.size or np.isnan(x).all():
        return "–"
    mean = shown(float(x.mean()), digits)
    return mean if x.size == 1 else f"{mean} ± {shown(float(x.std()), digits)}"


def shown(value: float | None, digits: int = 2, sign: str = "") -> str:
    """With a minus sign that is one, and none before 0; sign="+": with its sign."""
    if value is None:
        return "–"
    text = f"{round(value, digits) + 0.0:{sign}.{digits}f}"
    return text.replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    return shown(value, digits, "+")


def number_table(heads: Sequence[str], numbers: Sequence[Number], more: Sequence[str] = ()) -> str:
    """The Markdown table: what | document | ours | difference | further columns | comment."""
    rows = [[*heads, "document", "ours", "difference", *more, "comment"]]
    for number in numbers:
        d = number.digits
        extra = [spread(values, d) for values in number.more]
        cells = [shown(number.document, d), spread(number.ours, d), signed(number.difference, d)]
        rows.append([*number.what, *cells, *extra, number.comment])
    return markdown(rows, left=len(heads), last=True)


def markdown(rows: Sequence[Sequence[str]], left: int = 1, last: bool = False) -> str:
    """A Markdown table: the first `left` columns (and the last one) to the left, else right."""
    aligned = [i < left or (last and i == len(rows[0]) - 1) for i in range(len(rows[0]))]
    rule = ["---" if is_left else "--:" for is_left in aligned]
    lines = ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]
    return "\n".join(lines)


def write_csv(path: Path, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Numbers as they are: the shortest text that reads back the same; nothing for NaN."""
    write_text(path, csv_text([heads, *([cell(value) for value in row] for row in rows)]))


def write_numbers(path: Path, heads: Sequence[str], numbers: Sequence[Number]) -> None:
    """numbers.csv: document, mean, sd, and the value of every seed."""
    rows = [
        [
            *number.what,
            number.document,
            float(np.mean(number.ours)),
            float(np.std(number.ours)),
            number.difference,
            each_seed(number.ours),
        ]
        for number in numbers
    ]
    write_csv(path, [*heads, "document", "mean", "sd", "difference", "each seed"], rows)


def each_seed(values: Sequence[float]) -> str:
    """One cell of a CSV file."""
    return " ".join(repr(float(x)) for x in values)


def claim(text: str, holds: bool, detail: str) -> str:
    """A sentence of a document, whether it holds here, and what was measured: a Markdown item."""
    return f"- {'Holds' if holds else 'Does not hold'}: *{text}*; {detail}."


def renamed(run: Run, names: Mapping[str, str]) -> Run:
    """The same with other labels, for pictures; what `names` leaves out is left out."""
    kept = [(u, r) for u, r in zip(run.units, run.records) if u.label in names]
    units = [unit._replace(label=names[unit.label]) for unit, _ in kept]
    return Run(run.experiment, units, [record for _, record in kept])


def unadapted(
    run: Run, label: str, data: Setting, mean: Callable[[Array, Array], float] = sample_mean
) -> list[float]:
    """Final accuracy of the parameters that the server sends, as they are: a seed each, in %.

    mean : over clients, of (accuracy, samples): `evaluation.weighted` or `plain`.
    """
    algorithm, untouched = config.algorithm(run.experiment, label), FedAvg()
    made = []
    for unit, record in zip(run.units, run.records):
        if unit.label == label:
            sent = algorithm.download(record.state.server)
            state = State(Server(algorithm.personal(data.model, sent, None, None)), {})
            scores = evaluate(
                untouched, data.model, state, data.federation, run.experiment.plan,
                round=record.round, seed=unit.seed, train=False,
            )  # fmt: skip
            made.append(100 * mean(scores.accuracy, scores.n_test))
    return made


def at(run: Run, **point: Any) -> Run:
    """The part of a run at these values of its sweep (dashes as underscores), as a run of its own."""
    wanted = {key.replace("_", "-"): value for key, value in point.items()}
    units, found = [], []
    for unit, record in zip(run.units, run.records):
        own = {key.replace("_", "-"): value for key, value in unit.point.items()}
        if all(own.get(key) == value for key, value in wanted.items()):
            rest = {key: value for key, value in own.items() if key not in wanted}
            units.append(unit._replace(point=rest))
            found.append(record)
    if not units:
        raise ConfigError(f"this run has nothing at {point}")
    return Run(run.experiment, units, found)
