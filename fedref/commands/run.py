"""`fedref run`: trains and compares algorithms."""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from typing import Any

from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.boundary.errors import ConfigError
from fedref.boundary.values import literal, seeds_of, with_dashes
from fedref.commands.console import say
from fedref.commands.execution import HOW, open_pool, run_and_report, tell_how_to_resume
from fedref.commands.options import HELP_WIDTH, REPEATED, Command, Option
from fedref.datasets import RULES, SOURCES, manifest
from fedref.datasets.describe import notes
from fedref.datasets.sources import parse_name
from fedref.experiments import config, names
from fedref.experiments.config import TABLES, Experiment
from fedref.experiments.loading import Loader, make_model, resolve_experiment
from fedref.experiments.metrics import columns_help
from fedref.experiments.run_directory import create_run_directory, refuse_taken
from fedref.models import MODELS
from fedref.rounds.federation import Source

#: The suffixes of users' data files.
OWN_DATA = ("npz", "npy", "csv", "tsv", "mat", "json")

#: The keys that have a flag of the same name; all others are given by --set.
FLAGS = (
    "rounds", "clients_per_round", "epochs", "steps", "batch_size", "dtype", "lr", "alpha", "beta", "mu",
)  # fmt: skip
#: key → meaning
KEYS = {
    f.name: f.metadata["help"]
    + ("" if f.default is None else f" (default {str(f.default).lower()})")
    for f in fields(Experiment)
    if f.name not in ("seeds", *TABLES)
} | HYPERPARAMETERS

EPILOG = """\
algorithms
  {algorithms}
  all: every one of them

--set KEY=VALUE
{keys}
  and split.KEY, model.KEY, data.KEY, algorithms.NAME.KEY, sweep.KEY=[VALUE, ...]

examples
  fedref run                                  the shipped digits: FedAvg beside Per-FedAvg
  fedref run fedavg per-fedavg --data digits --rounds 50 --clients-per-round 5 \\
      --steps 10 --batch-size 40 --alpha 0.01 --beta 0.05 --seeds 7 --out DIR
  fedref run apfl fedavg --data mnist --split fedprox-mnist --model logistic \\
      --data-dir ~/data --rounds 150 --epochs 5 --lr 0.03 --seeds 0:3
  fedref run experiment.toml --set mu=0.1 --set model.hidden=[40]

The file is TOML: the keys of --set at the top level, and the tables [data] name,
[split] rule and its parameters, [model] name and its parameters, [algorithms.NAME]
with hyperparameters, [sweep] key = [values]. Every run writes one, config.toml, with
every value. Options on the command line override the file; each is also such a key.

exit code: 0 all went well; 2 wrong input; 3 an algorithm diverged (the others went on)
"""


# ---- the experiment of a command line ------------------------------------------------------------


def compose_experiment(arguments: argparse.Namespace) -> Experiment:
    """Return the built-in experiment or a file's, with the command line's choices on top."""
    words = [word for word in arguments.what if not word.endswith(".toml")]
    paths = [Path(word) for word in arguments.what if word.endswith(".toml")]
    if len(paths) > 1:
        raise ConfigError(f"{len(paths)} files are given, expected one at most")
    settings, data = read_settings(arguments), named_data(arguments)
    file = {"name": paths[0].stem, **config.read(paths[0])} if paths else {}
    table = file or built_in_experiment(data)
    with config.naming(experiment_file(arguments)):
        choices = {"data": data, "split": arguments.split, "model": arguments.model}
        experiment = config.compose(table, words, choices, settings)
        named = {"model", "model.name"} & dict(settings).keys() or "name" in table.get("model", {})
        named = named or arguments.model
        if not named and config.is_text(text := experiment.data["name"]):
            say(f"{text} holds text: the model is {experiment.model['name']} (--model for another)")
        return experiment


def experiment_file(arguments: argparse.Namespace) -> str:
    """Return the experiment file, or "" if none is given."""
    return next((word for word in arguments.what if word.endswith(".toml")), "")


def named_data(arguments: argparse.Namespace) -> str | None:
    """Return the data set of --data, else that of the manifest of --split; refuse two different ones."""
    data: str | None = arguments.data
    rule = arguments.split or ""
    if not rule.endswith(".json"):
        return data
    name = str(manifest.read(rule)["source"]["name"])
    if data is None:
        return name
    same_file = name == Path(data).resolve().name  # a manifest has no more of a file's path
    if not same_file and (parse_name(data) or data) != parse_name(name):
        raise ConfigError(f"--data {data}, but {rule} is a split of {name}")
    return data


def built_in_experiment(data: str | None) -> dict[str, Any]:
    """Return the built-in experiment of a data set, else that of the digits with these data."""
    if data is not None and (data_table := config.built_in_table(data)):
        return data_table
    table = config.built_in_table()
    if data is not None:
        table["name"] = names.default_run_name(data)
        table["data"] = {"name": data}
    return table


def read_settings(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    """Return the (key, value) of all flags, then of all --set."""
    settings: list[tuple[str, Any]] = []
    if arguments.seeds is not None:
        settings.append(("seeds", seeds_of(arguments.seeds)))
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings += [(name, literal(text)) for name, text in flags.items() if text is not None]
    for setting in arguments.set:
        key, found, value = setting.partition("=")
        if not (found and key.strip()):
            raise ConfigError(f"--set {setting!r}: expected KEY=VALUE")
        settings.append((key.strip(), literal(value.strip())))
    return settings


def run(arguments: argparse.Namespace) -> int:
    """Check the experiment, make a run directory, and run."""
    if arguments.help_columns:
        print(columns_help())
        return 0
    if arguments.list:
        print(listing())
        return 0
    loader = Loader(arguments.data_dir)
    experiment = compose_experiment(arguments)
    if arguments.print_config:
        print(config.toml_text(experiment), end="")
        return 0
    with config.naming(experiment_file(arguments)):
        quiet = arguments.quiet or arguments.json
        experiment = resolve_experiment(experiment, loader, (lambda text: None) if quiet else say)
    if arguments.dry_run:
        if arguments.out is not None:
            refuse_taken(arguments.out)
        if not arguments.quiet:
            print(config.toml_text(experiment), end="")
        return 0
    new_directory = create_run_directory(experiment, arguments.out)
    with open_pool(arguments) as pool, new_directory as directory, tell_how_to_resume(directory):
        if not quiet:
            say(f"results go to {directory}/")
            for note in notes_on_data(experiment, loader.federation(experiment).source):
                say(note)
        return run_and_report(experiment, directory, arguments, loader, pool)


def notes_on_data(experiment: Experiment, source: Source) -> list[str]:
    """Return remarks on how the data were understood and how labels are encoded."""
    if experiment.classes == "own":  # each client's labels count from 0
        return list(source.notes)
    return notes(source, None if experiment.sweep else make_model(experiment.model, source).labels)


# ---- lists to choose from ------------------------------------------------------------------------


def listing() -> str:
    """List algorithms, models, data and split rules, a line each, also those of other packages."""
    algorithms = {name: first_line(cls) for name, cls in ALGORITHMS.items()}
    models = {name: first_line(sys.modules[cls.__module__]) for name, cls in MODELS.items()}
    data = {name: source.help for name, source in SOURCES.items()}
    parts = {
        "algorithms": algorithms | entry_points_by_name("algorithms"),
        "models (--model)": models | entry_points_by_name("models"),
        "data (--data), or a file of your own": data | entry_points_by_name("data"),
        "split rules (--split)": {name: rule.help for name, rule in RULES.items()},
    }
    lines = []
    for title, known in parts.items():
        width = max(map(len, known)) + 2
        lines += ["", title, *(f"  {name:<{width}}{text}" for name, text in known.items())]
    return "\n".join(lines[1:])


def first_line(thing: Any) -> str:
    """Return the first line of a docstring; for a class without one, that of its module."""
    text = thing.__doc__ or ""
    if text.startswith(f"{thing.__name__}("):  # made by @dataclass
        text = sys.modules[thing.__module__].__doc__ or ""
    return text.partition("\n")[0]


def entry_points_by_name(group: str) -> dict[str, str]:
    """Return {name: "from MODULE:NAME"} for the entry points of installed packages."""
    return {name: f"from {point.value}" for name, point in names.entry_points_of(group).items()}


# ---- the table of options ------------------------------------------------------------------------


def keys_help() -> str:
    """Return a line or more for each key that has no flag."""
    others = {with_dashes(name): text for name, text in KEYS.items() if name not in FLAGS}
    pad = " " * 22
    return "\n".join(
        fill(f"{name:<20}{text}", HELP_WIDTH, initial_indent="  ", subsequent_indent=pad)
        for name, text in others.items()
    )


COMMAND = Command(
    run,
    "Train algorithms on the same clients and the same mini-batches, print a table and write a run "
    "directory: config.toml, split.json, metrics.csv, clients.csv, curves.png.",
    (
        Option(
            "what ALGORITHM | FILE.toml",
            "what to run",
            many="*",
            names=lambda: ["all", *ALGORITHMS, *names.entry_points_of("algorithms")],
            suffixes=("toml",),
        ),
        Option(
            "--data NAME",
            "data set (see `fedref data list`), or a path to your own (see `fedref data --help`)",
            names=lambda: [*SOURCES, *names.entry_points_of("data")],
            suffixes=OWN_DATA,
        ),
        Option(
            "--split RULE",
            "split rule (see `fedref data rules`), or a manifest.json",
            names=lambda: RULES,
            suffixes=("json",),
        ),
        Option(
            "--model NAME",
            ", ".join(MODELS),
            names=lambda: [*MODELS, *names.entry_points_of("models")],
        ),
        Option("--seeds A | A:B | A,B,...", "one seed, or several: 0:3 is 0, 1, 2"),
        Option(
            "--set KEY=VALUE", "any value, e.g. split.users=10; the keys are below", many=REPEATED
        ),
        Option("-o --out DIR", "run directory (default runs/TIME-NAME)", Path),
        Option(
            "--print-config",
            "print the experiment with every value, as a file to copy and edit, and do no more",
        ),
        Option(
            "--help-columns",
            "explain the columns of the table and of the files, and do no more",
        ),
        Option("--list", "list algorithms, models, data and split rules, and do no more"),
        Option(
            "--dry-run", "check everything, print the experiment that would run, and do no more"
        ),
    ),
    {
        "the experiment (the same defaults with and without a file)": [
            Option(f"--{with_dashes(name)} X", KEYS[name]) for name in FLAGS
        ],
        **HOW,
    },
    EPILOG.format(algorithms=", ".join(ALGORITHMS), keys=keys_help()),
)
