"""The picture of a split: how many samples of each label a client holds."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from types import MappingProxyType

import numpy as np
from matplotlib import rc_context as settings
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.style import context

from fedref.boundary import style
from fedref.lab.datasets.describe import histogram, label_groups
from fedref.rounds.federation import Federation

MOST_NAMES = 12  # of labels, beside the picture


def holdings(
    federation: Federation,
    path: str | Path,
    title: str = "",
    means: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Draw how many samples each client holds (above), and how many of each label (below).

    means : name → samples per client, each drawn as a level line with its name in the legend.
    """
    counts = histogram(federation)
    order = np.lexsort((-counts.sum(0), counts.argmax(0)))
    train, counts = federation.train.sizes[order], counts[:, order]
    both = counts.sum(0)
    edges = np.arange(len(train) + 1) - 0.5
    dpi = 120 if len(train) < 500 else 200
    with context(style.STYLE), settings({"axes.grid": False, "savefig.dpi": dpi}):
        figure = Figure((9, 5.5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.5])
        usual = f"{federation.source.name}: {federation.rule}, {federation.clients:,} clients"
        above.set_title(style.plain_text(title or usual), loc="left")
        above.stairs(both, edges, fill=True, color="#9ecae1", label="test")
        above.stairs(train, edges, fill=True, color="#2b6ca3", label="train")
        above.set_yscale("log" if both.max() > 30 * max(both.min(), 1) else "linear")
        above.set_ylabel("samples")
        looks = cycle((("-", "black"), (":", "#ff9f1c")))
        for (name, mean), (dashes, colour) in zip(means.items(), looks):
            above.axhline(mean, color=colour, linestyle=dashes, label=style.plain_text(name))
        above.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)
        names = [*map(style.plain_text, label_groups(federation.source)[0])]
        step = -(-len(names) // MOST_NAMES)
        below.set_yticks(range(0, len(names), step), names[::step])
        cells, norm = np.ma.masked_equal(counts, 0), LogNorm(1, max(counts.max(), 2))
        image = below.imshow(
            cells, "viridis_r", norm, aspect="auto", origin="lower", interpolation="nearest"
        )
        below.set_ylabel("y" if federation.source.real else "label")
        below.set_xlabel("clients by main label, then by size")
        figure.colorbar(image, ax=below, label="samples of the label", pad=0.01)
        style.save(figure, Path(path))
