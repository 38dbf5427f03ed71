"""`fedref plot`: draws pictures of run directories."""

import argparse
from collections import Counter
from pathlib import Path

from fedref.boundary.errors import ConfigError
from fedref.commands.console import say
from fedref.commands.options import Command, Option
from fedref.experiments.results import Run, load_run
from fedref.experiments.unit import units

KINDS = ("curves", "bars", "clients")

EPILOG = """\
examples
  fedref plot DIR                                   training loss and test accuracy, per round
  fedref plot DIR --metric accuracy --against bytes --out cost.pdf
  fedref plot DIR --kind bars --out bars.svg        average and maximum, as APFL's Figure 1
  fedref plot DIR --kind clients                    how accuracy is spread over the clients
  fedref plot DIR OTHER --metric gamma              two runs in one picture

In curves, a star marks a round after which APFL's importance is recomputed, a cross marks the last
round before an algorithm diverged, and a band spans ±1 standard deviation over seeds.
"""


def run(arguments: argparse.Namespace) -> int:
    """Draw one picture and print its path."""
    from fedref import plots  # matplotlib is slow to import

    kind = arguments.kind
    if kind != "curves" and arguments.against != "round":
        raise ConfigError(f"--against is for curves, and the kind is {kind}")
    out = arguments.out or arguments.directories[0] / f"{kind}.png"
    plots.format_of(out)
    runs = load_runs(arguments.directories)
    metrics = arguments.metric.split(",") if arguments.metric else []
    if kind == "curves":
        plots.curves(runs, out, metrics or None, against=arguments.against, title=arguments.title)
    elif len(metrics) > 1:
        raise ConfigError(f"--metric names {len(metrics)} metrics, {kind} can show one")
    elif kind == "bars":
        plots.bars(runs, out, *metrics, title=arguments.title)
    else:
        plots.clients(runs, out, *metrics, title=arguments.title)
    print(out)
    return 0


def load_runs(directories: list[Path]) -> dict[str, Run]:
    """Load the runs, keyed by directory name, or by path where two names are the same."""
    directories = list(dict.fromkeys(directories))
    names = Counter(directory.resolve().name for directory in directories)
    runs: dict[str, Run] = {}
    for directory in directories:
        name = directory.resolve().name
        loaded = load_run(directory, client_states=False)
        runs[name if names[name] == 1 else str(directory)] = loaded
        wanted = len(units(loaded.experiment))
        if missing := wanted - len(loaded.units):
            message = f"{missing} of {wanted} checkpoints are missing or cannot be read"
            say(f"{directory}: {message}; their units are not drawn")
    return runs


COMMAND = Command(
    run,
    "Draw the runs in run directories, finished or not, as PNG, SVG or PDF.",
    (
        Option("directories DIR", "run directories", Path, many="+"),
        Option(
            "--metric NAME[,NAME...]",
            "curves: accuracy, loss (training), gamma, bytes (up + down), or any column of "
            "metrics.csv; one panel each (default loss,accuracy); bars: accuracy, "
            "accuracy_mean; clients: accuracy, loss, test_loss (default accuracy)",
        ),
        Option("--against NAME", "x axis of curves: round, bytes, flops ...", default="round"),
        Option("--kind NAME", ", ".join(KINDS), default="curves", words=KINDS),
        Option("--title TEXT", "title above the picture", default=""),
        Option("--out FILE", "FILE.png, .svg or .pdf (default DIR/KIND.png)", Path),
    ),
    epilog=EPILOG,
)
