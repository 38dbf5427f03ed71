"""Statistics of a federation, as in [apfl table 1], and remarks on how its data were understood."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from fedref.boundary.errors import printable
from fedref.lab.datasets.formats.arrays import BYTE, LABEL_WIDTH, MAX_LISTED, list_some
from fedref.lab.datasets.rules import RULES
from fedref.lab.datasets.scaling import usual_scaling
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

MOST_CLASSES = 100_000  # of a model
MANY = 64  # columns of bytes, from which on large values look like pixels


def statistics(federation: Federation) -> dict[str, Any]:
    """Return how many clients, samples and labels there are, and statistics of the clients' sizes."""
    n = sum((part.sizes for part in federation.parts.values()), start=0 * federation.train.sizes)
    source, unseen, left = federation.source, federation.unseen, int((~is_held(federation)).sum())
    held = (histogram(federation) > 0).sum(0)
    numbers: dict[str, Any] = {
        "clients": federation.clients,
        "samples": int(n.sum()),
        "mean": float(n.mean()),
        "std": float(n.std()),
        "min": int(n.min()),
        "median": float(np.median(n)),
        "max": int(n.max()),
        **{name: len(part.rows) for name, part in federation.parts.items()},
    }
    if unseen is not None:
        numbers |= {"unseen clients": len(unseen.sizes), "unseen test": len(unseen.rows)}
    numbers |= {"left out": left} if left else {}
    if not source.real:
        numbers |= {"labels": len(source.labels), "labels a client": float(held.mean())}
    numbers["features"] = source.X.shape[1]
    return numbers | ({"image": "×".join(map(str, source.image))} if source.image else {})


def is_held(federation: Federation) -> Array:
    """Return for each row of the source whether it is in any part: (n,)."""
    held = np.zeros(len(federation.source.y), bool)
    for part in federation.every_part.values():
        held[part.rows] = True
    return held


def label_groups(source: Source) -> tuple[list[str], Array]:
    """Return (names of the labels, for each row the index of its label's name).

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
    """Count each client's samples of each label, all parts together: (labels, N)."""
    (names, label), N = label_groups(federation.source), federation.clients
    counts = np.zeros(len(names) * N, np.int64)
    for part in federation.parts.values():
        counts += np.bincount(label[part.rows] * N + part.owners, minlength=len(counts))
    return counts.reshape(len(names), N)


def label_note(source: Source, known: Sequence[int] | None = None) -> str:
    """Return a note on how labels are encoded; "" if they are 0, 1, ... or real targets.

    known : the labels of the model; by default 0, 1, ... to the largest label.
    """
    if source.real or (known is not None and not known):  # a model of real targets knows no labels
        return ""
    labels = source.labels.tolist()
    if labels[-1] >= MOST_CLASSES:
        return (
            f"labels run from {labels[0]} to {labels[-1]}: no model has more than {MOST_CLASSES:,} classes; "
            "number them from 0, or use words"
        )
    usual = labels[-1] + 1 if labels[0] >= 0 else len(labels)
    known = range(usual) if known is None else sorted(known)
    among = known if isinstance(known, range) else {*known}
    codes = labels if all(label in among for label in labels) else known
    if source.label_names or codes != labels:
        words = source.label_names or labels
        pairs = (f"{code} = {printable(word, LABEL_WIDTH)}" for code, word in zip(codes, words))
        return f"labels are encoded as {', '.join(pairs)}"
    held = set(labels)
    missing = list(islice((k for k in known if k not in held), MAX_LISTED + 1))
    if not missing:
        return ""
    run = f"labels run from {labels[0]} to {labels[-1]}"
    return f"{run}, a model's classes from 0 to {known[-1]}; no row has label {list_some(missing)}"


def byte_note(source: Source, scaling: str | None) -> str:
    """Return a note on whether numbers are taken for pixels; "" if X holds none that may be some."""
    X, known = source.X, source.full_scale not in (None, BYTE)
    if source.vocabulary is not None or known or not X.size:
        return ""
    low, high, is_bytes = X.min(), X.max(), X.dtype == np.uint8
    text = f"{X.dtype}, {low:g} to {high:g}: "
    if scaling == "unit":
        return f"{text}divided by 255; --set split.scaling=none leaves them as they are"
    wide, whole = source.image or X.shape[1] >= MANY, not (X[:MANY] % 1).any()
    pixels = wide and whole and low >= 0 and BYTE / 2 < high <= BYTE
    if scaling != "none" or not (is_bytes or pixels):
        return ""
    unit = "--set split.scaling=unit divides by 255"
    right = unit if is_bytes else "divide by 255, or --set split.scaling=standardise"
    perhaps = ", though they may be pixels" if pixels else ""
    return f"{text}taken as numbers{perhaps}; {right}"


def split_notes(federation: Federation) -> Iterator[str]:
    """Yield notes on test rows that are dealt as any others, and on clients and labels of one part alone."""
    source, test, unseen = federation.source, federation.test, federation.unseen
    if source.test_from is not None and federation.parameters.get("pool") == "all":
        yield (
            f"{federation.rule} deals the {len(source.y) - source.test_from:,} rows of the test part as any "
            "others; --set split.pool=train leaves them out"
        )
    if unseen is not None:
        n, rows = len(unseen.sizes), len(unseen.rows)
        yield (
            f"{n} of {federation.clients + n} clients never train, as all their rows are test rows "
            f"({list_some(federation.unseen_names)}): {rows} of {len(test.rows) + rows} test rows are "
            "theirs, and go into the columns `unseen`"
        )
    untested = np.flatnonzero(test.sizes == 0)
    if untested.size:
        names = list_some([federation.names[k] for k in untested[: MAX_LISTED + 1].tolist()])
        yield f"{untested.size} of {federation.clients} clients have no test row ({names})"
    tested = [part.rows for name, part in federation.every_part.items() if name != "train"]
    y = source.y[np.concatenate(tested)]
    new = np.setdiff1d(y, source.y[federation.train.rows])
    if new.size and not source.real:
        words = [source.label_names[k] if source.label_names else k for k in new.tolist()]
        yield f"no training row has label {list_some(words)}, {np.isin(y, new).sum()} test rows do"


def leftover_note(federation: Federation) -> str:
    """Return a note on rows that are in no part; "" without any."""
    left, parameters = int((~is_held(federation)).sum()), federation.parameters
    if not left:
        return ""
    rule = RULES.get(parameters.get("of", federation.rule))
    reasons = [rule.leftover] if rule and rule.leftover else []
    if federation.source.test_from is not None and parameters.get("pool") == "train":
        reasons.append("the published test part")
    more = f": {' and '.join(reasons)}" if reasons else ""
    return f"{left:,} of {len(federation.source.y):,} rows are left out{more}"


def source_text(source: Source) -> str:
    """Return what rows hold, before any split: a line, and one for each remark."""
    n, p = source.X.shape
    size = f"images of {'×'.join(map(str, source.image))}" if source.image else f"{p} features"
    kind = "real targets" if source.real else "labels"
    text = f"{printable(source.name)}: {n:,} rows of {size} ({source.X.dtype}), "
    text += f"{kind} {source.y.min()} to {source.y.max()}"
    notes = *source.notes, byte_note(source, usual_scaling(source)), label_note(source)
    return "\n  ".join([text, *map(printable, filter(None, notes))])


def remarks(federation: Federation) -> list[str]:
    """Return how the data were understood, where that changes what is computed; a line each."""
    source, scaling = federation.source, federation.parameters.get("scaling")
    left = leftover_note(federation) if federation.rule == "natural" else ""
    notes = *source.notes, byte_note(source, scaling), *split_notes(federation), left
    return [printable(note) for note in notes if note]


def statistics_text(federation: Federation) -> str:
    """Return the statistics, one per line."""
    forms = {float: ",.1f", str: ""}
    given = {k: v for k, v in federation.parameters.items() if v is not None}
    options = "".join(f" {key}={value}" for key, value in given.items())
    split = f"split by {federation.rule}{options}, seed {federation.seed}"
    title = f"{printable(federation.source.name)}, {split}"
    shown = {key: format(x, forms.get(type(x), ",")) for key, x in statistics(federation).items()}
    lines = [f"  {key:<16}{text:>12}" for key, text in shown.items()]
    left = leftover_note(federation) if federation.rule != "natural" else ""
    notes = [*remarks(federation), left, label_note(federation.source)]
    lines += [f"  {note}" for note in notes if note]
    return "\n".join([title, *lines])
