"""Split rules side by side: who holds how much of what, a panel a rule."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import rc_context as settings
from matplotlib.colors import LogNorm
from matplotlib.style import context

from fedref.datasets.describe import histogram, label_groups
from fedref.plots import style
from fedref.plots.style import STYLE
from fedref.rounds.federation import Federation

COLUMNS = 3
PANEL = (2.9, 1.75)  # inches
MOST_NAMES = 12  # of labels, beside a panel


def split_rules(federations: Mapping[str, Federation], path: str | Path, title: str = "") -> None:
    """Draw for each name its clients (across) × labels (up), coloured by the number of samples."""
    counts = {name: histogram(federation) for name, federation in federations.items()}
    norm = LogNorm(1, max(2, *(int(held.max()) for held in counts.values())))
    rows = -(-len(counts) // COLUMNS)
    with context(STYLE), settings({"axes.grid": False, "savefig.dpi": 110}):
        figure, panels = style.frame((rows, COLUMNS), PANEL, title)
        for axes, (name, held) in zip(panels, counts.items()):
            image = axes.imshow(
                np.ma.masked_equal(held, 0), aspect="auto", origin="lower", interpolation="nearest",
                cmap="viridis_r", norm=norm,
            )  # fmt: skip
            axes.set_title(name, loc="left")
            axes.set_xticks([])
            names, step = label_groups(federations[name].source)[0], -(-len(held) // MOST_NAMES)
            axes.set_yticks(range(0, len(held), step), names[::step], fontsize=6)
        for axes in panels[len(counts) :]:
            axes.remove()
        for axes in panels[: len(counts)][-COLUMNS:]:
            axes.set_xlabel("clients")
        figure.colorbar(image, ax=panels[: len(counts)], label="samples", pad=0.01)
        style.save(figure, Path(path))
