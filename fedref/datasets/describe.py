"""Statistics of a federation, as in [apfl table 1], and a picture of its clients' labels."""

import io
import warnings
from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, printable
from fedref.boundary.files import write_or_raise
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

LABEL_WIDTH = 40  # a longer label is cut
MAX_LISTED = 5  # of more missing labels, only these are listed


def statistics(federation: Federation) -> dict[str, Any]:
    """Return the numbers of clients, samples and labels, and how samples spread over clients."""
    n = federation.train.sizes + federation.test.sizes
    source = federation.source
    held = (histogram(federation) > 0).sum(0)
    labels = {"labels": len(source.labels), "labels a client": float(held.mean())}
    return {
        "clients": federation.clients,
        "samples": int(n.sum()),
        "mean": float(n.mean()),
        "std": float(n.std()),
        "min": int(n.min()),
        "median": float(np.median(n)),
        "max": int(n.max()),
        "train": int(federation.train.sizes.sum()),
        "test": int(federation.test.sizes.sum()),
        **({} if source.real else labels),
        "features": source.X.shape[1],
    }


def label_groups(source: Source) -> tuple[list[str], Array]:
    """Return (names of the labels, each row's label as an index into the names).

    Real targets are divided into ten groups of equally many rows, named by their limits.
    """
    if source.real:
        ends = np.unique(np.quantile(source.y, np.linspace(0, 1, 11)))
        inside = ends[1:-1]
        names = [f"{a:.3g} to {b:.3g}" for a, b in pairwise(ends)] or [f"{ends[0]:.3g}"]
        return names, np.searchsorted(inside, source.y, "right")
    labels, words = source.labels, source.label_names
    names = [printable(words[k] if words else k, LABEL_WIDTH) for k in labels.tolist()]
    return names, np.searchsorted(labels, source.y)


def histogram(federation: Federation) -> Array:
    """Return (labels, N) counts of each client's samples by label, training and test together."""
    (names, label), N = label_groups(federation.source), federation.clients
    counts = np.zeros(len(names) * N, np.int64)
    for part in (federation.train, federation.test):
        counts += np.bincount(label[part.rows] * N + part.owners, minlength=len(counts))
    return counts.reshape(len(names), N)


def label_note(source: Source, known: Sequence[int] | None = None) -> str:
    """Return a note on how labels are encoded; "" if they are 0, 1, ... or real targets.

    known : the labels of the model; by default 0, 1, ... to the largest label.
    """
    if source.real:
        return ""
    labels = source.labels.tolist()
    if known is None:
        known = range(labels[-1] + 1 if labels[0] >= 0 else len(labels))
    codes = labels if set(labels) <= set(known) else sorted(known)
    if source.label_names or codes != labels:
        words = source.label_names or labels
        pairs = (f"{code} = {printable(word, LABEL_WIDTH)}" for code, word in zip(codes, words))
        return f"labels are encoded as {', '.join(pairs)}"
    missing = sorted(set(known) - set(labels))
    if not missing:
        return ""
    some = ", ".join(map(str, missing[:MAX_LISTED])) + ", ..." * (len(missing) > MAX_LISTED)
    run = f"labels run from {labels[0]} to {labels[-1]}"
    return f"{run}, a model's classes from 0 to {max(known)}; no row has label {some}"


def notes(source: Source, known: Sequence[int] | None = None) -> list[str]:
    """Return remarks on how the data were interpreted, one a line."""
    return [note for note in (label_note(source, known), *source.notes) if note]


def statistics_text(federation: Federation) -> str:
    """Return the statistics, one a line."""
    numbers = statistics(federation)
    formatted = {k: f"{v:,.1f}" if isinstance(v, float) else f"{v:,}" for k, v in numbers.items()}
    given = {k: v for k, v in federation.parameters.items() if v is not None}
    options = "".join(f" {key}={value}" for key, value in given.items())
    split = f"split by {federation.rule}{options}, seed {federation.seed}"
    title = f"{printable(federation.source.name)}, {split}"
    lines = [f"  {key:<16}{value:>12}" for key, value in formatted.items()]
    lines += [f"  {note}" for note in notes(federation.source)]
    return "\n".join([title, *lines])


COLUMNS = 1200  # more clients than this are drawn in groups


def arrange_clients(federation: Federation) -> tuple[Array, Array, Array, int]:
    """Return training sizes (M,), all sizes (M,) and label counts (labels, M), in drawing order.

    Clients are sorted by main label, then by size. More than COLUMNS clients are drawn as M groups
    of g neighbours, each by its mean.
    """
    counts = histogram(federation)
    order = np.lexsort((-counts.sum(0), counts.argmax(0)))
    rows = np.vstack([federation.train.sizes, counts])[:, order]
    g = -(-federation.clients // COLUMNS)
    first = np.arange(0, federation.clients, g)
    mean = np.add.reduceat(rows, first, 1) / np.diff(first, append=federation.clients)
    return mean[0], mean[1:].sum(0), mean[1:], g


def draw_picture(
    federation: Federation,
    path: Path,
    title: str | None = None,
    means: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Draw samples a client (above) and its label histogram (below).

    means : samples a client, each marked by a line, with the lines' names as keys.
    """
    # imported here: drawing is rare, and matplotlib takes longer than everything else to import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    train, both, counts, g = arrange_clients(federation)
    (labels, _), M = label_groups(federation.source), len(train)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    known = FigureCanvasAgg(figure).get_supported_filetypes()
    kind = path.suffix.lstrip(".").lower()
    if kind not in known:
        raise ConfigError(
            f"{path}: the name of a picture must end with one of .{', .'.join(sorted(known))}"
        )
    sizes, heat = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.5])
    edges = np.arange(M + 1) - 0.5
    sizes.stairs(both, edges, fill=True, color="#9ecae1", label="test")
    sizes.stairs(train, edges, fill=True, color="#2b6ca3", label="train")
    spread = both.max() / max(both.min(), 1)
    sizes.set_yscale("log" if spread > 30 else "linear")
    sizes.set_ylabel("samples")
    sizes.set_title(
        title or f"{federation.source.name}: {federation.rule}, {federation.clients:,} clients",
        loc="left",
    )
    looks = cycle((("-", "black"), (":", "#ff9f1c")))
    for (name, mean), (dashes, colour) in zip(means.items(), looks):
        sizes.axhline(mean, color=colour, linestyle=dashes, linewidth=1.6, label=name)
    sizes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)
    sizes.spines[["top", "right"]].set_visible(False)
    image = heat.imshow(
        np.ma.masked_equal(counts, 0),
        aspect="auto",
        interpolation="nearest",
        cmap="viridis_r",
        norm=LogNorm(1, max(counts.max(), 2)),
    )
    step = -(-len(labels) // 20)
    heat.set_yticks(np.arange(len(labels))[::step], labels[::step])
    heat.set_ylabel("y" if federation.source.real else "label")
    grouped = f", in groups of {g}" if g > 1 else ""
    heat.set_xlabel(f"clients by main label, then by size{grouped}")
    figure.colorbar(image, ax=heat, label="samples of the label", pad=0.01)
    drawn = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # a glyph that the font lacks is drawn as a box
        figure.savefig(drawn, dpi=120 if M < 500 else 200, format=kind)
    write_or_raise(path, drawn.getvalue())
