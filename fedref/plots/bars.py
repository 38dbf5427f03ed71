"""Average and maximum test accuracy as bars, in the manner of [apfl fig.1]."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.style import context

from fedref.boundary.errors import ConfigError, unknown
from fedref.experiments.results import summaries
from fedref.models.numerics import Array
from fedref.plots import style
from fedref.plots.series import METRICS, Runs, Series, all_series, spread_label
from fedref.plots.style import BARS, STYLE, TICK, frame, sign

#: Average and maximum, as fields of the summary.
BAR_METRICS = {
    "accuracy": ("average", "maximum"),
    "accuracy_mean": ("plain_average", "plain_maximum"),
}


def bars(
    runs: Runs,
    path: str | Path,
    metric: str = "accuracy",
    *,
    reference: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> None:
    """Draw the average (over all evaluated rounds) and the maximum test accuracy [apfl fig.1].

    metric : accuracy (weighted by samples) or accuracy_mean (mean over clients).
    reference : label → (average, maximum) in the paper, NaN for a value that it does not have.
    """
    reference = reference or {}
    drawn = all_series(runs, reference)
    key = metric.replace("-", "_")
    if key not in BAR_METRICS:
        raise ConfigError(unknown("metric of bars", metric, BAR_METRICS))
    table = [summaries(series.run)[0] for series in drawn]
    in_paper = 100 * np.array([reference.get(s.label, (np.nan, np.nan)) for s in drawn])
    spread = spread_label(drawn)
    with context(STYLE):
        figure, (axes,) = frame((1, 1), (6.2, 0.42 * len(drawn) + 1.1), title)
        for i, field in enumerate(BAR_METRICS[key]):
            draw_bars(axes, i, drawn, [getattr(line, field) for line in table], in_paper[:, i])
        axes.set_yticks(range(len(drawn)), [series.name for series in drawn])
        axes.set_ylim(len(drawn) - 0.45, -0.55)
        axes.set_xlim(0, 109 + 9 * bool(spread) + 8 * bool(reference))
        axes.set_xticks(range(0, 101, 20))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(", ".join(filter(None, (METRICS[key].title, spread))))
        handles: list[Artist] = [Patch(**bar, edgecolor="black") for bar in BARS]
        if reference:
            handles.append(sign("[in the paper]", **TICK))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        style.save(figure, Path(path))


def draw_bars(
    axes: Axes,
    i: int,
    drawn: Sequence[Series],
    pairs: Sequence[tuple[float, float]],
    in_paper: Array,
) -> None:
    """Draw the i-th bar of every series, its error bar, the paper's tick, and the value beside it."""
    y = np.arange(len(drawn)) + 0.4 * i - 0.2
    mean, sd = 100 * np.array(pairs).T
    sd = np.where([series.seeds > 1 for series in drawn], sd, np.nan)
    axes.barh(y, mean, 0.4, **BARS[i], edgecolor="black", linewidth=0.7)
    axes.errorbar(mean, y, xerr=sd, fmt="none", ecolor="black", capsize=3, elinewidth=1.4)
    axes.plot(in_paper, y, color="black", **TICK)
    ends = np.fmax(np.fmax(mean, mean + sd), in_paper)
    for at, end, m, s, d in zip(y, ends, mean, sd, in_paper):
        text = f"{m:.1f}" if np.isnan(s) else f"{m:.1f} ± {s:.1f}"
        text += "" if np.isnan(d) else f" [{d:.1f}]"
        axes.text(end + 1.2, at, text, va="center", fontsize=8)
