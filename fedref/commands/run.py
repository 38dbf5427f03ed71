"""The command line: `fedref run | resume | plot | check | data | reproduce`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

import fedref
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.commands import check as check_command
from fedref.commands import data as data_commands
from fedref.commands import plot as plot_command
from fedref.commands import reproduce as reproduce_command
from fedref.datasets import manifest
from fedref.datasets.sources import parse_name
from fedref.errors import ConfigError, FedrefError, unknown
from fedref.experiments import config, results, runs
from fedref.experiments import unit as experiment
from fedref.experiments.config import Experiment
from fedref.experiments.workers import Processes
from fedref.models import MODELS

DIVERGED = 3
MOST_SEEDS = 10_000

#: The experiment's own values that have a flag of their name.
EXPERIMENT_FLAGS = {
    f.name: f for f in fields(Experiment) if f.name not in ("seeds", *config.TABLES)
}

EPILOG = """\
algorithms
  {algorithms}
  all: every one of them

examples
  fedref run                                  the shipped digits: FedAvg beside Per-FedAvg
  fedref run fedavg per-fedavg --data digits --rounds 50 --clients-per-round 5 \\
      --steps 10 --batch-size 40 --alpha 0.01 --beta 0.05 --seed 7 --out DIR
  fedref run apfl fedavg --data mnist --split fedprox-mnist --model logistic \\
      --data-dir ~/data --rounds 150 --epochs 5 --lr 0.03 --seeds 0:3
  fedref run experiment.toml --set mu=0.1 --set model.hidden=[40]

The file is TOML: the options below as top-level keys, and the tables [data] name,
[split] rule and its parameters, [model] name and its parameters, [algorithms.NAME]
with hyperparameters, [sweep] key = [values]. Every run writes one, config.toml, with
every value. Options on the command line override the file.

exit code: 0 all went well; 2 wrong input; 3 an algorithm diverged (the others went on)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; wrong input is one line on standard error and exit code 2."""
    arguments = make_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except FedrefError as error:
        print(f"fedref: error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"fedref: error: not enough memory ({error or 'none is left'})", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedref: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class Parser(argparse.ArgumentParser):
    """Options in full only, and errors in the same form as all others."""

    def error(self, message: str) -> Any:
        print(f"fedref: error: {message} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown option here, where the known ones are known."""
        found, more = super().parse_known_args(args, namespace)
        if more and more[0].startswith("--"):
            known = [option for option in self._option_string_actions if option.startswith("--")]
            self.error(unknown("option", more[0].partition("=")[0], known))
        return found, more


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fedref",
        description="The reference implementation of personalised and heterogeneous federated "
        "learning: FedAvg, FedProx, Per-FedAvg, FedMeta, FedMAML, FedCurv, APFL.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fedref {fedref.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_run(commands)
    add_resume(commands)
    for module in (plot_command, check_command, data_commands, reproduce_command):
        module.add_parser(commands)
    return parser


def add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="train and compare algorithms",
        description="Train algorithms on the same clients and the same mini-batches, print a table "
        "and write a run directory: config.toml, split.json, metrics.csv, clients.csv, curves.png.",
        epilog=EPILOG.format(algorithms=", ".join(ALGORITHMS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    run.add_argument("what", nargs="*", metavar="ALGORITHM | FILE.toml", help="what to run")
    run.add_argument("--data", metavar="NAME", help="data set, or a path (see `fedref data list`)")
    run.add_argument("--split", metavar="RULE", help="split rule, or a manifest.json")
    run.add_argument("--model", metavar="NAME", help=", ".join(MODELS))
    run.add_argument("--seed", type=int, help="one seed")
    run.add_argument("--seeds", metavar="A:B | A,B,...", help="several: 0:5 is 0, 1, 2, 3, 4")
    own = run.add_argument_group(
        "the experiment (defaults with a file or other data; `fedref run` alone is "
        "fedref/digits.toml)"
    )
    for name, f in EXPERIMENT_FLAGS.items():
        default = "" if f.default is None else f" (default {str(f.default).lower()})"
        text = f.metadata["help"].replace("%", "%%") + default
        own.add_argument(f"--{config.dashed(name)}", metavar="X", help=text)
    hyper = run.add_argument_group("hyperparameters, for every chosen algorithm that has them")
    for name, meaning in HYPERPARAMETERS.items():
        hyper.add_argument(f"--{config.dashed(name)}", metavar="X", help=meaning)
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any value, e.g. split.users=10",
    )
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="run directory (default runs/TIME-NAME)"
    )
    add_how(run)
    run.set_defaults(run=run_command)


def add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        help="go on with an interrupted run",
        description="Go on from the last checkpoints of a run directory. The files end up "
        "byte-identical to those of a run that was never interrupted. Give --data-dir again if the "
        "run was given one: it is not remembered.",
        allow_abbrev=False,
    )
    resume.add_argument("directory", type=Path, metavar="DIR", help="the run directory")
    add_how(resume)
    resume.set_defaults(run=resume_command)


def add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how it is run (the numbers do not depend on it)")
    how.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where data is (else FEDREF_DATA)"
    )
    how.add_argument(
        "--workers", type=workers, default=1, metavar="N", help="processes (default 1)"
    )
    how.add_argument(
        "--checkpoint-every",
        type=seconds,
        default=10.0,
        metavar="S",
        help="seconds between checkpoints; 0: after every round (default 10)",
    )
    how.add_argument("--quiet", action="store_true", help="no progress, no table")
    how.add_argument("--json", action="store_true", help="one JSON line a round on standard output")


def workers(text: str) -> int:
    """A number of processes."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"is {text!r}, expected an integer of at least 1")


def seconds(text: str) -> float:
    """A time."""
    with suppress(ValueError):
        if float(text) >= 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"is {text!r}, expected a number of seconds, at least 0")


# ---- run and resume ------------------------------------------------------------------------------


def parse_seeds(text: str) -> list[int]:
    """0:5 → 0, 1, 2, 3, 4;  3,7 → 3, 7."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            seeds = list(range(first, min(last, first + MOST_SEEDS + 1)))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds is {text!r}, expected A:B or A,B,...") from None
    if len(seeds) > MOST_SEEDS:
        raise ConfigError(f"--seeds is {text[:40]!r}, expected at most {MOST_SEEDS} seeds")
    return seeds


def experiment_of(arguments: argparse.Namespace) -> Experiment:
    """The built-in experiment or a file, with the command line's choices on top."""
    names = [word for word in arguments.what if not word.endswith(".toml")]
    paths = [Path(word) for word in arguments.what if word.endswith(".toml")]
    if len(paths) > 1:
        raise ConfigError(f"{len(paths)} files are given, expected one at most")
    settings, data = settings_of(arguments), data_of(arguments)
    file = {"name": paths[0].stem, **config.read(paths[0])} if paths else {}
    table = file or built_in(data, bool(names))
    with config.naming(file_of(arguments)):
        for name, key, value in (
            ("data", "name", data),
            ("split", "rule", arguments.split),
            ("model", "name", arguments.model),
        ):
            own = table.get(name)
            if value and not (isinstance(own, dict) and own.get(key) == value):
                table[name] = {key: value}  # what the file says of another one does not fit
        table = config.completed(table)
        table["algorithms"] = chosen(names, table["algorithms"])
        return config.from_table(config.with_settings(table, settings))


def file_of(arguments: argparse.Namespace) -> str:
    """The experiment file, or "" if none is given."""
    return next((word for word in arguments.what if word.endswith(".toml")), "")


def data_of(arguments: argparse.Namespace) -> str | None:
    """The data that are named, or those of the manifest that is named; not two different ones."""
    data: str | None = arguments.data
    rule = arguments.split or ""
    if not rule.endswith(".json"):
        return data
    own = str(manifest.read(rule)["source"]["name"])
    if data is None:
        return own
    # a manifest has a file by its base name
    if own != Path(data).resolve().name and (parse_name(data) or data) != parse_name(own):
        raise ConfigError(f"--data {data}, but {rule} is a split of {own}")
    return data


def built_in(data: str | None, named: bool) -> dict[str, Any]:
    """The built-in experiment; on other data without what is said for the digits.

    named : the algorithms are named, so that those of the digits do not matter.
    """
    table = config.underscored(config.built_in())
    if data in (None, "digits"):
        return table
    name = Path(data.partition("(")[0]).resolve().stem
    own = ["split", "model", "clients_per_round", "steps", "batch_size"]
    own += ["algorithms"] * named
    return {k: v for k, v in table.items() if k not in own} | {"name": name}


def settings_of(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    """What the flags and --set say, in this order: (key, value)."""
    settings: list[tuple[str, Any]] = []
    if arguments.seed is not None:
        settings.append(("seed", arguments.seed))
    if arguments.seeds is not None:
        settings.append(("seeds", parse_seeds(arguments.seeds)))
    for name in [*EXPERIMENT_FLAGS, *HYPERPARAMETERS]:
        value = getattr(arguments, name)
        if value is not None:
            settings.append((name, value if name == "name" else config.literal(value)))
    for setting in arguments.set:
        key, found, value = setting.partition("=")
        if not (found and key.strip()):
            raise ConfigError(f"--set {setting!r}: expected KEY=VALUE")
        settings.append((key.strip(), config.literal(value.strip())))
    return settings


def chosen(names: list[str], tables: dict[str, Any]) -> dict[str, Any]:
    """The [algorithms] tables to run: those named, with what the file says of them."""
    if not names:
        return tables
    if "all" in names:
        names = list(dict.fromkeys([*(n for n in names if n != "all"), *ALGORITHMS]))
    for name in names:
        if name not in ALGORITHMS and name not in tables:
            raise ConfigError(unknown("algorithm", name, {*ALGORITHMS, *tables, "all"}))
    return {name: tables.get(name, {}) for name in names}


def run_command(arguments: argparse.Namespace) -> int:
    made = experiment_of(arguments)
    with config.naming(file_of(arguments)):
        made = experiment.check(made, arguments.data_dir)
    with runs.begun(made, arguments.out) as directory:
        return go(made, directory, arguments)


def resume_command(arguments: argparse.Namespace) -> int:
    made = runs.resumed(arguments.directory)
    with runs.locked(arguments.directory):
        return go(made, arguments.directory, arguments)


def go(made: Experiment, directory: Path, arguments: argparse.Namespace) -> int:
    """Run what is left, tell how it goes, and show the table and the picture."""
    from fedref import plots  # matplotlib takes its time

    with ExitStack() as stack:
        run = runs.execute(
            made,
            directory,
            data_dir=arguments.data_dir,
            executor=executor(arguments.workers, stack),
            workers=arguments.workers,
            every=arguments.checkpoint_every,
            progress=teller(made, arguments, stack),
        )
    with runs.disk_errors(directory):
        plots.curves(run, directory / "curves.png")
    if not arguments.quiet and not arguments.json:
        print(f"\nTest accuracy in %, over {made.rounds + 1} rounds (0 is the start)\n")
        print(results.markdown(results.summary_rows(run)))
        print(f"\n{directory}/  metrics.csv  clients.csv  curves.png  config.toml  split.json")
    for unit, record in zip(run.units, run.records):
        if idle := runs.idle_rounds(record):
            message = f"in {idle} of {record.round} rounds no client's work arrived"
            print(f"fedref: {unit.name}: {message}: the model did not move", file=sys.stderr)
    for unit, reason in run.diverged:
        print(f"fedref: {unit.name} diverged: {reason}", file=sys.stderr)
    return DIVERGED if run.diverged else 0


def executor(workers: int, stack: ExitStack) -> Executor | None:
    """Processes for the clients of a round; none for one worker."""
    if workers == 1:
        return None
    return stack.enter_context(Processes(workers))


def teller(made: Experiment, arguments: argparse.Namespace, stack: ExitStack) -> runs.Progress:
    """A progress bar on a terminal, JSON lines if asked for, else silence."""

    def message(text: str) -> None:
        print(f"fedref: {text}", file=sys.stderr)

    if arguments.json:
        return runs.Progress(json_line, message)
    if arguments.quiet or not sys.stderr.isatty():
        return runs.Progress(message=message)

    from tqdm import tqdm

    lengths = [unit.point.get("rounds", made.rounds) + 1 for unit in experiment.units(made)]
    bar = stack.enter_context(
        tqdm(total=sum(lengths), unit="round", dynamic_ncols=True, leave=False)
    )

    def show(unit: experiment.Unit, record: experiment.Record) -> None:
        shown = [row["accuracy"] for row in record.rows if row.get("accuracy") is not None]
        bar.set_description_str(unit.name, refresh=False)
        bar.set_postfix_str(f"accuracy {100 * shown[-1]:.2f} %", refresh=False)
        bar.update(sum(lengths[: unit.number]) + record.round + 1 - bar.n)

    return runs.Progress(show, lambda text: bar.write(f"fedref: {text}", file=sys.stderr))


def json_line(unit: experiment.Unit, record: experiment.Record) -> None:
    """The newest row as one line; null where the number is not finite, as JSON has no other."""
    row = {"algorithm": unit.label, **unit.columns, "seed": unit.seed, **record.rows[-1]}
    row |= {"status": record.status, **({"reason": record.reason} if record.reason else {})}
    finite = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in row.items()}
    print(json.dumps(finite, allow_nan=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
