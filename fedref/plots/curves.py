"""Curves over rounds or cost, in the manner of [apfl fig.2]."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator

from fedref.models.numerics import Array
from fedref.plots import style
from fedref.plots.series import (
    METRICS,
    PERCENT,
    Curve,
    Metric,
    Runs,
    Series,
    all_series,
    curve,
    metric_of,
    renewals,
    spread_label,
    values,
)
from fedref.plots.style import CROSS, IN_PAPER, STYLE, frame, sign, wrap_label


def curves(
    runs: Runs,
    path: str | Path,
    metric: str | Sequence[str] | None = None,
    *,
    against: str = "round",
    reference: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw a line for each algorithm: the mean over seeds, with a band of ±1 standard deviation.

    metric : a column, or several, each in its own panel; by default loss and accuracy as in
        [apfl fig.2], and for real targets the test loss.
    against : "round", or the column on the x axis: bytes, flops, grads ... An algorithm with only
        zeros in that column is a level line at its last value.
    reference : label → value in the paper, drawn in the last panel as a thin line, with the series'
        marker at the right edge.

    A star marks a round after which APFL renews its importance F; it is hollow if only some seeds
    do. Between two evaluated rounds it stands on the line that joins them. A cross marks the last
    round before the algorithm diverged.
    """
    reference = reference or {}
    drawn = all_series(runs, reference)
    if metric is None:
        metric = list(
            dict.fromkeys(metric_or_test_loss(drawn, name) for name in ("loss", "accuracy"))
        )
    metrics = [metric_of(m, drawn) for m in ([metric] if isinstance(metric, str) else metric)]
    over = None if against == "round" else metric_of(against, drawn)
    drawn = [series for series in drawn if any(values(series, m)[0].size for m in metrics)]
    size = (3.7, 3.5) if len(metrics) > 1 else (5.2, 3.7)
    with context(STYLE):
        handles = curve_handles(drawn, reference)
        figure, panels = frame((1, len(metrics)), size, title, handles)
        for axes, shown in zip(panels, metrics):
            draw_curves(axes, drawn, shown, over)
        draw_reference(panels[-1], drawn, reference, metrics[-1].scale)
        style.save(figure, Path(path))


def metric_or_test_loss(drawn: Sequence[Series], name: str) -> str:
    """Return the metric's name if some run has values of it, else the test loss, which all runs have."""
    return name if any(values(s, METRICS[name])[0].size for s in drawn) else "test_loss"


def draw_curves(
    axes: Axes, drawn: Sequence[Series], metric: Metric, against: Metric | None
) -> None:
    lines = [(series, curve(series, metric, against)) for series in drawn]
    lines = [(series, line) for series, line in lines if line.t.size]
    costly = against is not None and any(line.x.any() for _, line in lines)
    y = np.concatenate([*(line.mean for _, line in lines), np.zeros(0)])
    if needs_log_axis(metric, y):
        axes.set_yscale("log")
    for i, (series, line) in enumerate(lines):
        if costly and not line.x.any() and not series.run.diverged_units:
            colour, dashes, _ = series.look
            axes.axhline(line.mean[-1], color=colour, linestyle=dashes, linewidth=1)
        else:
            draw_curve(axes, series, line, i / len(lines))
    axes.set_xlabel("communication round" if against is None else against.title)
    axes.set_ylabel(metric.title)
    ticks = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=against is None)
    axes.xaxis.set_major_locator(ticks)
    limit_y(axes, metric, y)


def draw_curve(axes: Axes, series: Series, line: Curve, offset: float) -> None:
    """Draw the mean, its band, the stars and the cross; `offset` in [0, 1) keeps markers apart."""
    colour, dashes, marker = series.look
    step = max(1, len(line.t) // 8)
    axes.plot(
        line.x, line.mean, color=colour, linestyle=dashes, marker=marker, zorder=3,
        markevery=(int(offset * step), step), markeredgecolor="white", markeredgewidth=0.5,
    )  # fmt: skip
    if series.seeds > 1:
        low, high = line.mean - line.sd, line.mean + line.sd
        if axes.get_yscale() == "log":  # such an axis has no place for a band down to 0
            low = np.maximum(low, line.mean / 1e3)
        axes.fill_between(line.x, low, high, color=colour, alpha=0.14, linewidth=0)
    to, back = (np.log, np.exp) if axes.get_yscale() == "log" else (np.positive, np.positive)
    for t, share in renewals(series):
        if line.t[0] <= t <= line.t[-1]:  # interpolate on the axes' scales, to be on the line
            x, y = np.interp(t, line.t, line.x), back(np.interp(t, line.t, to(line.mean)))
            axes.plot(x, y, zorder=5, **star_look(colour, share))
    if series.run.diverged_units:
        axes.plot(line.x[-1], line.mean[-1], color=colour, zorder=6, clip_on=False, **CROSS)


def star_look(colour: str, share: float) -> dict[str, Any]:
    """Return the look of a star, filled if F is renewed in all seeds (share = 1)."""
    filled = share == 1
    return {
        "marker": "*",
        "linestyle": "none",
        "markersize": 14 if filled else 11,
        "markerfacecolor": colour if filled else "white",
        "markeredgecolor": "white" if filled else colour,
        "markeredgewidth": 0.8 if filled else 1.1,
    }


def needs_log_axis(metric: Metric, y: Array) -> bool:
    """Return whether an axis should be logarithmic: values over three decades, and not per cent."""
    return metric.scale != PERCENT and bool(y.size and 0 < 1000 * y.min() < y.max())


def limit_y(axes: Axes, metric: Metric, y: Array) -> None:
    """Limit the y axis: per cent to 0 and 100, a logarithmic axis to the range of its curves."""
    low, high = axes.get_ylim()
    if metric.scale == PERCENT:
        axes.set_ylim(max(low, -2), min(high, 102))
    elif axes.get_yscale() == "log":
        axes.set_ylim(y.min() / 2, y.max() * 2)


def draw_reference(
    axes: Axes, drawn: Sequence[Series], reference: Mapping[str, float], scale: float
) -> None:
    in_paper = [series for series in drawn if series.label in reference]
    for i, series in enumerate(in_paper):
        y, (colour, _, marker) = scale * reference[series.label], series.look
        extend_y(axes, y)
        axes.axhline(y, color=colour, linewidth=0.9, linestyle=IN_PAPER)
        axes.plot(  # side by side, as two values may be almost the same
            1 + 0.035 * (i + 1 - len(in_paper)), y, marker, color=colour, markerfacecolor="white",
            zorder=6, transform=axes.get_yaxis_transform(), clip_on=False,
        )  # fmt: skip


def extend_y(axes: Axes, y: float) -> None:
    """Extend the y axis to a value outside of the curves' range, so that its marker is in the panel."""
    low, high = axes.get_ylim()
    room = 0.03 * (high - low)
    if axes.get_yscale() == "log":
        axes.set_ylim(min(low, y / 2 if y > 0 else low), max(high, 2 * y))
    elif not low <= y <= high:
        axes.set_ylim(min(low, y - room), max(high, y + room))


def curve_handles(drawn: Sequence[Series], reference: Mapping[str, float]) -> list[Artist]:
    """Return the handles of the legend: a line for each series, then the other signs."""
    handles: list[Artist] = []
    for series in drawn:
        colour, dashes, marker = series.look
        look = {"color": colour, "linestyle": dashes, "marker": marker}
        handles.append(Line2D([], [], **look, label=wrap_label(series.label)))
    shares = {share == 1 for series in drawn for _, share in renewals(series)}
    if True in shares:
        handles.append(sign("importance renewed", **star_look("black", 1)))
    if False in shares:
        handles.append(sign("renewed in some seeds", **star_look("black", 0)))
    if any(series.run.diverged_units for series in drawn):
        handles.append(sign("diverged", **CROSS))
    if band := spread_label(drawn):
        handles.append(Patch(color="black", alpha=0.14, linewidth=0, label=band))
    if reference:
        handles.append(
            sign("in the paper", linestyle=IN_PAPER, marker="o", markerfacecolor="white")
        )
    return handles
