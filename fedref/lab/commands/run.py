"""`fedref run` and `fedref resume`: train and compare algorithms."""

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated, Any

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, literal, with_dashes
from fedref.lab.commands.command_line import HELP_WIDTH, parse_setting
from fedref.lab.commands.console import say
from fedref.lab.datasets import RULES, SOURCES
from fedref.lab.datasets.describe import label_note, remarks
from fedref.lab.experiments import config, names, run_directory
from fedref.lab.experiments.config import Experiment, naming
from fedref.lab.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.lab.experiments.progress import SILENT, Progress, console_progress
from fedref.lab.experiments.results import Run, columns_help, idle_rounds
from fedref.lab.experiments.run import execute
from fedref.lab.experiments.seal import compare_environment
from fedref.lab.experiments.unit import Record, Unit, count_work, units
from fedref.models import MODELS

DIVERGED = 3
#: The keys that have a flag of the same name; all others are given by --set.
FLAGS = (
    "rounds", "clients_per_round", "epochs", "steps", "batch_size", "dtype", "lr", "alpha", "beta", "mu",
)  # fmt: skip


@dataclass(frozen=True)
class How:
    """How the units of a run are completed, and what is told of it; no number depends on it.

    workers : processes that share the run
    threads : threads for the clients of a round where the model is large (default: the processors,
      divided by the workers); 1: none
    checkpoint_every : seconds between checkpoints; 0: after every round
    quiet : no progress, no table
    json : one line of JSON per round on standard output
    """

    data_dir: Path | None = None
    workers: Annotated[int, Bounds(1)] = 1
    threads: Annotated[int, Bounds(1)] | None = None
    checkpoint_every: Annotated[float, Bounds(0)] = 10.0
    quiet: bool = False
    json: bool = False

    @property
    def silent(self) -> bool:
        return self.quiet or self.json


USUAL = How()


def run(
    *what: str,
    data: str | None = None,
    split: str | None = None,
    model: str | None = None,
    seeds: str | None = None,
    set: list[str] = (),  # type: ignore[assignment]
    out: Path | None = None,
    print_config: bool = False,
    help_columns: bool = False,
    list: bool = False,
    dry_run: bool = False,
    many: bool = False,
    how: How = USUAL,
    **settings: Any,
) -> int:
    """Train algorithms on the same clients and the same mini-batches, and compare them.
    A run prints a table and writes a run directory: config.toml, split.json, metrics.csv, clients.csv,
    summary.csv, curves.png.

    what : ALGORITHM|FILE.toml, algorithms, or a TOML file, or both; all: every algorithm
    data : data set (see `fedref data list`), or a path to your own (see `fedref data --help`)
    split : split rule (see `fedref data rules`), or a manifest.json
    model : logistic, binary-logistic, svm, mlp, cnn, lstm, or MODULE:NAME (a torch.nn.Module, too)
    seeds : one seed, or several: 0:3 is 0, 1, 2
    set : KEY=VALUE, any value, e.g. split.users=10; the keys are below; may be given several times
    out : run directory (default runs/TIME-NAME); a run that was begun there goes on
    print_config : print the experiment with every value, as a file to copy and edit, and do no more
    help_columns : explain the columns of the table and of the files, and do no more
    list : list algorithms, models, data and split rules, and do no more
    dry_run : check everything, print the experiment that would run and how much it is, and do no more
    many : allow a sweep of more than 10 000 units

    examples
      fedref run                                  the shipped digits: FedAvg beside Per-FedAvg
      fedref run fedavg per-fedavg --data digits --rounds 50 --clients-per-round 5 \\
          --steps 10 --batch-size 40 --alpha 0.01 --beta 0.05 --seeds 7 --out DIR
      fedref run apfl fedavg --data mnist --split fedprox-mnist --model logistic \\
          --data-dir ~/data --rounds 150 --epochs 5 --lr 0.03 --seeds 0:3
      fedref run experiment.toml --set mu=0.1 --set model.hidden=[40]
      fedref run per-fedavg --set "sweep.alpha=[0.01,0.1,0.5]" --seeds 0:3 --out DIR
      fedref plot DIR --against alpha             the result over the swept value

    The file is TOML: the keys of --set at the top level, and the tables [data] name, [split] rule and
    its parameters, [model] name and its parameters, [algorithms.NAME] with hyperparameters, [sweep]
    key = [values]. Every run writes one, config.toml, with every value. Options on the command line
    override the file; each is also such a key.

    exit code: 0 all went well; 2 wrong input; 3 an algorithm diverged (the others went on)
    """
    if help_columns or list:
        print(columns_help() if help_columns else listing())
        return 0
    file = file_of(what)
    given: dict[str, Any] = {"data": data, "split": split, "model": model, "seeds": seeds}
    given |= {"algorithms": [word for word in what if word != file] or None}
    given |= {key: literal(text) for key, text in settings.items() if text is not None}
    experiment = config.compose(file or None, [*given.items(), *map(parse_setting, set)])
    if print_config:
        print(config.toml_text(experiment), end="")
        return 0
    with ExitStack() as stack:
        with naming(file):
            report = report_on(experiment, how if not dry_run else How(quiet=True))
            progress = stack.enter_context(report)
            loader, tell = Loader(how.data_dir, phase=progress.phase), progress.message
            notes = SILENT.message if how.silent else tell
            experiment = resolve_experiment(experiment, loader, notes, many)
        if dry_run:
            show_plan(experiment, out, how)
            return 0
        out = out or run_directory.new_directory(experiment.name)
        with run_directory.resumable(out), run_directory.begin_run(experiment, out, tell):
            if not how.silent:
                for text in [*data_notes(experiment, loader), f"results go to {out}/"]:
                    tell(text)
            done, worked = complete(experiment, out, how, loader, progress)
    return tell_results(done, worked, out, how)


def file_of(words: Sequence[str]) -> str:
    """Return the TOML file among the words; "" if there is none."""
    files = [word for word in words if word.endswith(".toml")]
    if len(files) > 1:
        raise ConfigError(f"{len(files)} files are given, expected one at most")
    return files[0] if files else ""


def show_plan(experiment: Experiment, out: Path | None, how: How) -> None:
    """Print the experiment that would run and how much it is; refuse a folder where it could not."""
    if out is not None:
        run_directory.is_begun(experiment, out)  # or refused
    if not how.quiet:
        print(config.toml_text(experiment), end="")
        say(count_work(experiment))


def data_notes(experiment: Experiment, loader: Loader) -> list[str]:
    """Return what is remarkable of the rows that a run trains on, a line each."""
    first = load_experiment(units(experiment)[0].experiment, loader)
    notes = remarks(first.whole)
    if experiment.classes == "all":  # else each client's own count from 0
        notes.append(label_note(first.whole.source, first.model.labels))
    return [*filter(None, notes)]


def resume(directory: Path, *, changed_code: bool = False, how: How = USUAL) -> int:
    """Go on with a run from what its units have saved.
    The files become byte-identical to those of a run that was never interrupted.

    directory : the run directory; if the run had a --data-dir, give it again: it is not saved
    changed_code : go on although fedref's version or code of yours has changed; the run says so
    """
    experiment = config.read_experiment(directory)
    held, again = run_directory.hold_directory(directory), run_directory.resumable(directory)
    with held, again:
        (directory / run_directory.MARK).touch()  # a copy may lack it
        if differs := compare_environment(directory):
            say(f"{directory}: {differs}")
        with report_on(experiment, how) as progress:
            loader = Loader(how.data_dir, phase=progress.phase)
            done, worked = complete(experiment, directory, how, loader, progress, changed_code)
    return tell_results(done, worked, directory, how)


def report_on(experiment: Experiment, how: How) -> AbstractContextManager[Progress]:
    """Return the progress report of a run."""
    if how.silent:
        return nullcontext(Progress(print_json_line, say) if how.json else Progress(message=say))
    return console_progress(experiment, say)


def complete(
    experiment: Experiment, out: Path, how: How, loader: Loader, progress: Progress,
    changed_code: bool = False,
) -> tuple[Run, bool]:  # fmt: skip
    """Complete all units and draw the curves; return the results, and whether there was work left."""
    path = out.absolute()  # an algorithm may change the working directory
    before = run_directory.times_of_saving(path)
    done = execute(
        experiment, path, loader=loader, progress=progress, workers=how.workers,
        threads=how.threads, every=how.checkpoint_every, changed_code=changed_code,
    )  # fmt: skip
    done.draw(path)
    return done, before != run_directory.times_of_saving(path)


def tell_results(done: Run, worked: bool, out: Path, how: How) -> int:
    """Print the table and what it does not show; return the exit code."""
    if not how.silent:
        files = f"{out}/  metrics.csv  clients.csv  curves.png  config.toml  split.json"
        print(f"\n{done}\n\n{files}")
        if not worked:
            say(f"{out}/ was complete before: no round was run")
    for text in done.notes_on_losses if how.silent else ():  # else it stands below the table
        say(text)
    for unit, record in zip(done.units, done.records):
        if idle := idle_rounds(record):
            message = f"in {idle} of {record.round} rounds no client's work arrived"
            say(f"{unit.name}: {message}: the model did not move")
    for unit, reason in done.diverged_units:
        say(f"{unit.name} diverged: {reason}")
    return DIVERGED if done.diverged_units else 0


def print_json_line(unit: Unit, record: Record) -> None:
    """Print the newest row as a line of JSON, where numbers that are not finite become null."""
    newest = dict(sorted(record.rows[-1].items()))  # in a file they have no order
    row = {**unit.columns, "round": record.round, **newest, "status": record.status}
    row |= {"reason": record.reason} if record.reason else {}
    finite = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in row.items()}
    print(json.dumps(finite, allow_nan=False), flush=True)


# ---- lists to choose from ------------------------------------------------------------------------


def listing() -> str:
    """List algorithms, models, data and split rules, a line each, also those of other packages."""
    parts = {
        "algorithms": {name: first_line(cls) for name, cls in ALGORITHMS.items()},
        "models (--model)": {n: first_line(sys.modules[c.__module__]) for n, c in MODELS.items()},
        "data (--data), or a file of your own": {name: one.help for name, one in SOURCES.items()},
        "split rules (--split)": {name: rule.help for name, rule in RULES.items()},
    }
    lines = []
    for kind, (title, known) in zip(("algorithm", "model", "data", ""), parts.items()):
        more = names.entry_points_of(kind) if kind else {}
        known |= {name: f"from {value}" for name, value in more.items()}
        width = max(map(len, known)) + 2
        lines += ["", title, *(f"  {name:<{width}}{text}" for name, text in known.items())]
    return "\n".join(lines[1:])


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return (thing.__doc__ or "").partition("\n")[0]


def keys_help() -> str:
    """Return the algorithms, and a line or more for each key that has no flag."""
    names_only = fill(", ".join(ALGORITHMS), HELP_WIDTH - 2, break_on_hyphens=False)
    rest = {with_dashes(k): entry.describe() for k, entry in KEYS.items() if k not in FLAGS}
    shape: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": " " * 22}
    lines = [fill(f"{key:<20}{text}", HELP_WIDTH, **shape) for key, text in rest.items()]
    lines.append("  and split.KEY, model.KEY, data.KEY, ALGORITHM.KEY, sweep.KEY=[VALUE, ...]")
    return "\n".join(["algorithms", indent(names_only, "  "), "", "--set KEY=VALUE", *lines])


#: Every key of --set, but tables and seeds, which have options.
KEYS = {name: entry for name, entry in config.setting_entries().items() if name != "seeds"}
THE_EXPERIMENT = "the experiment (the same defaults with and without a file)"
run.settings = {THE_EXPERIMENT: [KEYS[name] for name in FLAGS]}  # type: ignore[attr-defined]
run.below = keys_help  # type: ignore[attr-defined]
