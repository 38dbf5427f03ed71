"""Pictures of splits: how many samples of each label a client holds."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib import rc_context as settings
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.style import context

from fedref.datasets.describe import histogram, label_groups
from fedref.models.numerics import Array
from fedref.plots import style
from fedref.plots.style import STYLE
from fedref.rounds.federation import Federation

COLUMNS = 3
PANEL = (2.9, 1.75)  # inches
MOST_NAMES = 12  # of labels, beside a panel
MOST_CLIENTS = 1200  # more than these are drawn in groups


def holdings(
    federation: Federation,
    path: str | Path,
    title: str = "",
    means: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Draw how many samples each client holds (above), and how many of each label (below).

    means : name → samples per client, each drawn as a level line with its name in the legend.
    """
    train, both, counts, g = arrange_clients(federation)
    edges = np.arange(len(train) + 1) - 0.5
    dpi = 120 if len(train) < 500 else 200
    with context(STYLE), settings({"axes.grid": False, "savefig.dpi": dpi}):
        figure = Figure((9, 5.5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.5])
        usual = f"{federation.source.name}: {federation.rule}, {federation.clients:,} clients"
        above.set_title(title or usual, loc="left")
        above.stairs(both, edges, fill=True, color="#9ecae1", label="test")
        above.stairs(train, edges, fill=True, color="#2b6ca3", label="train")
        above.set_yscale("log" if both.max() > 30 * max(both.min(), 1) else "linear")
        above.set_ylabel("samples")
        looks = cycle((("-", "black"), (":", "#ff9f1c")))
        for (name, mean), (dashes, colour) in zip(means.items(), looks):
            above.axhline(mean, color=colour, linestyle=dashes, label=name)
        above.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)
        image = draw_counts(below, federation, counts, LogNorm(1, max(counts.max(), 2)))
        below.set_ylabel("y" if federation.source.real else "label")
        below.set_xlabel("clients by main label, then by size" + f", in groups of {g}" * (g > 1))
        figure.colorbar(image, ax=below, label="samples of the label", pad=0.01)
        style.save(figure, Path(path))


def arrange_clients(federation: Federation) -> tuple[Array, Array, Array, int]:
    """Return (training sizes (M,), all sizes (M,), label counts (labels, M), clients in a group).

    Clients are sorted by main label, then by size. If there are more than MOST_CLIENTS, each of the
    M entries is the mean of a group of neighbours.
    """
    counts = histogram(federation)
    order = np.lexsort((-counts.sum(0), counts.argmax(0)))
    rows = np.vstack([federation.train.sizes, counts])[:, order]
    g = -(-federation.clients // MOST_CLIENTS)
    first = np.arange(0, federation.clients, g)
    mean = np.add.reduceat(rows, first, 1) / np.diff(first, append=federation.clients)
    return mean[0], mean[1:].sum(0), mean[1:], g


def split_rules(federations: Mapping[str, Federation], path: str | Path, title: str = "") -> None:
    """Draw a panel for each named federation: clients (across) × labels (up), coloured by samples."""
    counts = {name: histogram(federation) for name, federation in federations.items()}
    norm = LogNorm(1, max(2, *(int(held.max()) for held in counts.values())))
    rows = -(-len(counts) // COLUMNS)
    with context(STYLE), settings({"axes.grid": False, "savefig.dpi": 110}):
        figure, panels = style.frame((rows, COLUMNS), PANEL, title)
        for axes, (name, held) in zip(panels, counts.items()):
            image = draw_counts(axes, federations[name], held, norm)
            axes.set_title(name, loc="left")
            axes.set_xticks([])
            axes.tick_params(axis="y", labelsize=6)
        for axes in panels[len(counts) :]:
            axes.remove()
        for axes in panels[: len(counts)][-COLUMNS:]:
            axes.set_xlabel("clients")
        figure.colorbar(image, ax=panels[: len(counts)], label="samples", pad=0.01)
        style.save(figure, Path(path))


def draw_counts(axes: Axes, federation: Federation, counts: Array, norm: LogNorm) -> Any:
    """Draw the samples of each label (up) and client (across) as colours; return the image."""
    names, step = label_groups(federation.source)[0], -(-len(counts) // MOST_NAMES)
    axes.set_yticks(range(0, len(counts), step), names[::step])
    return axes.imshow(
        np.ma.masked_equal(counts, 0), aspect="auto", origin="lower", interpolation="nearest",
        cmap="viridis_r", norm=norm,
    )  # fmt: skip
