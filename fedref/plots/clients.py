"""Histograms of a metric over the clients."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.style import context

from fedref.boundary.errors import ConfigError, unknown
from fedref.experiments.metrics import CLIENTS
from fedref.models.numerics import Array
from fedref.plots import style
from fedref.plots.series import LARGEST, PERCENT, Metric, Runs, Series, all_series
from fedref.plots.style import BARS, STYLE, frame

#: The metrics of single clients that can be drawn.
CLIENT_METRICS = {name: CLIENTS[name] for name in ("accuracy", "test_loss", "train_loss")}


def clients(
    runs: Runs,
    path: str | Path,
    metric: str = "accuracy",
    *,
    reference: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw a histogram of a metric over the clients, after the last evaluated round.

    There is a panel for each algorithm, with the clients of all seeds.

    metric : accuracy, test_loss, or train_loss (loss).
    reference : label → value in the paper, drawn as a solid line.
    """
    reference = reference or {}
    drawn = all_series(runs, reference)
    key = {"loss": "train_loss"}.get(metric, metric.replace("-", "_"))
    if key not in CLIENT_METRICS:
        raise ConfigError(unknown("metric of clients", metric, {*CLIENT_METRICS, "loss"}))
    shown = CLIENT_METRICS[key]
    values = [client_values(series, shown) for series in drawn]
    edges = bin_edges(np.concatenate(values), shown)
    columns = min(len(drawn), 4 if len(drawn) > 6 else 3)
    rows = -(-len(drawn) // columns)
    with context(STYLE):
        figure, panels = frame((rows, columns), (2.4, 1.9 if rows > 1 else 2.5), title, share=True)
        for axes, series, x in zip(panels, drawn, values):
            draw_clients(axes, series, x, edges, shown)
            if series.label in reference:
                axes.axvline(shown.scale * reference[series.label], color="black", linewidth=1.2)
        for axes in panels[len(drawn) - columns : len(drawn)]:
            axes.tick_params(labelbottom=True)  # panels with no other panel below them
        for axes in panels[len(drawn) :]:
            axes.remove()
        lines = "dashed: mean" + (", solid: in the paper" if reference else "")
        figure.supxlabel(f"{shown.title} {last_round(drawn)}; {lines}", fontsize="medium")
        figure.supylabel("share of clients (%)", fontsize="medium")
        style.save(figure, Path(path))


def last_round(drawn: Sequence[Series]) -> str:
    rounds = {record.rounds[-1] for series in drawn for record in series.run.records}
    return f"after round {rounds.pop()}" if len(rounds) == 1 else "after the last round evaluated"


def client_values(series: Series, metric: Metric) -> Array:
    """Return the finite values of a metric in the last scores of all seeds, for the axis."""
    (column,) = metric.columns
    scores = [record.scores[-1] for record in series.run.records if record.scores]
    x = np.concatenate([getattr(s, column) for s in scores] or [np.zeros(0)])
    return np.asarray(metric.scale * x[np.isfinite(x)].clip(-LARGEST, LARGEST))


def bin_edges(x: Array, metric: Metric) -> Array:
    """Return the edges of 20 equal bins; for per cent, of bins around 0, 5, ..., 100."""
    if not x.size:
        raise ConfigError(
            f"there are no values of {metric.columns[0]} here: no client has such data"
        )
    if metric.scale == PERCENT:
        return np.arange(-2.5, 103, 5)
    return np.asarray(np.histogram_bin_edges(x, 20))


def draw_clients(axes: Axes, series: Series, x: Array, edges: Array, metric: Metric) -> None:
    digits = ".1f" if metric.scale == PERCENT else ".3g"
    heading = series.name
    if x.size:
        axes.hist(
            x, list(edges), weights=np.full(len(x), 100 / len(x)),
            color=BARS[0]["facecolor"], edgecolor="black", linewidth=0.7,
        )  # fmt: skip
        axes.axvline(x.mean(), color="black", linestyle=(0, (4, 2)), linewidth=1.2)
        heading += f"\nmean {x.mean():{digits}}, sd {x.std():{digits}}"
    axes.set_title(heading, fontsize=9)
    axes.grid(visible=False, axis="x")
