"""`fedref plot`: draws pictures of run directories."""

from pathlib import Path
from typing import Literal

from fedref.boundary.errors import ConfigError
from fedref.lab.commands.console import say
from fedref.lab.experiments.results import load_run
from fedref.lab.experiments.unit import units
from fedref.lab.plots.tables import Table


def plot(
    *directories: Path,
    kind: Literal["curves", "bars", "clients"] = "curves",
    metric: str | None = None,
    against: str = "round",
    others: Literal["best", "mean"] = "best",
    best: bool = False,
    title: str = "",
    out: Path | None = None,
) -> None:
    """Draw the runs in run directories, finished or not, as PNG, SVG or PDF.

    directories : DIR, run directories
    kind : what to draw
    metric : curves: accuracy, loss (training), gamma, bytes (up + down), or any column of metrics.csv,
        one panel each (default loss,accuracy); bars: accuracy, accuracy_mean; clients: accuracy,
        train_loss, test_loss (default accuracy)
    against : x axis of curves: round, bytes, flops ..., or a key of the run's sweep
    others : against a swept key: which values of the other swept keys, the best, or the mean over all
    best : only the point of the sweep that validation rows choose, which is printed with its test value
    title : title above the picture
    out : the file, .png, .svg or .pdf (default DIR/KIND.png)

    examples
      fedref plot DIR                                   training loss and test accuracy, per round
      fedref plot DIR --metric accuracy --against bytes --out cost.pdf
      fedref plot DIR --against alpha                   the last accuracy over a swept value
      fedref plot DIR --best                            each algorithm at the point chosen by validation
      fedref plot DIR --kind bars --out bars.svg        average and maximum, as APFL's Figure 1
      fedref plot DIR --kind clients                    how accuracy is spread over the clients
      fedref plot DIR OTHER --metric gamma              two runs in one picture

    In curves, a star marks a round after which APFL's importance is recomputed, a cross marks the last
    round before an algorithm diverged, and a band spans ±1 standard deviation (n − 1) over seeds.
    Code of your own that the run used is not needed.
    """
    from fedref.lab import plots  # matplotlib is slow to import

    if not directories:
        expected = "one or more (see `fedref plot --help`)"
        raise ConfigError(f"no run directory is given, expected {expected}")
    if kind != "curves" and against != "round":
        raise ConfigError(f"--against is for curves, and the kind is {kind}")
    path = out or directories[0] / f"{kind}.png"
    plots.format_of(path)
    of = "clients" if kind == "clients" else "metrics"
    tables = {str(directory): table_of(directory, of, best) for directory in directories}
    table = plots.join_tables(tables) if len(tables) > 1 else next(iter(tables.values()))
    metrics = metric.split(",") if metric else None
    how = {"against": against, "others": others} if kind == "curves" else {}
    plots.save(getattr(plots, kind)(table, metrics, title=title, **how), path)
    print(path)


def table_of(directory: Path, of: str, best: bool) -> Table:
    """Return the table of a run directory, all that is kept of it; print what is chosen and missing."""
    run = load_run(directory, code=False)
    wanted = len(units(run.experiment))
    if missing := wanted - len(run.units):
        say(f"{directory}: {missing} of {wanted} units have not begun, and are not drawn")
    if best:
        run = run.best()
        held = [c for c in run.summary()[0] if c in ("validation_accuracy", "validation_loss")]
        print(f"{directory}, chosen by validation:\n{run.summary([held[0], 'final'])}\n")
    return run.table(of)
