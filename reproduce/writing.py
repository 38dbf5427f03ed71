"""Numbers as text, tables in Markdown, CSV files, and the page of a command beside the reports."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedref
from fedref.boundary.files import write_atomically
from fedref.lab.experiments import results
from fedref.models.numerics import Array
from reproduce.runs import git_commit


class Values(NamedTuple):
    """A number for each seed; only mean and sd, rounded, where the seeds were not kept."""

    each: Array
    mean: float
    sd: float
    seeds: int

    @property
    def has_seeds(self) -> bool:
        """Whether the number of every seed is there."""
        return len(self.each) == self.seeds


def values_of(each: Any) -> Values:
    """Return numbers with mean and sd over seeds (divided by n − 1), of those that are finite.

    The sd of a single number is not known: NaN.
    """
    x = np.atleast_1d(np.asarray(each, float))
    there = x[np.isfinite(x)]
    mean = float(there.mean()) if there.size else np.nan
    return Values(x, mean, float(there.std(ddof=1)) if there.size > 1 else np.nan, len(x))


def show_number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """Return a number with a minus sign that is one, and none before 0; sign="+": with its sign.

    digits : after the point; below 0, so many significant ones.
    """
    if value is None or np.isnan(value):
        return "–"
    if digits < 0:
        return f"{value:.{-digits - 1}e}"
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}".replace("-", "−")


def show_values(x: Values | None, digits: int = 2) -> str:
    """Return mean ± sd over seeds; of what is never reached in some seeds, over the others."""
    if x is None or not x.seeds:
        return "–"
    if np.isnan(x.mean):
        return "never gets there" if np.isinf(x.each).any() else "–"
    there = int(np.isfinite(x.each).sum()) if x.has_seeds else x.seeds
    sd = f" ± {show_number(x.sd, digits)}" if there > 1 and not np.isnan(x.sd) else ""
    some = f" ({there} of {x.seeds} seeds)" if there < x.seeds else ""
    return show_number(x.mean, digits) + sd + some


def markdown(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table: the first `left` columns to the left, else right."""
    rule = ["---" if i < left else "--:" for i in range(len(rows[0]))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write numbers as they are: the shortest text that reads back the same; nothing for NaN."""
    named = (dict(zip(heads, row)) for row in rows)
    write_atomically(path, partial(results.write_csv, named, list(heads)))


def duration(seconds: float) -> str:
    """Return a time as text: 0.3 s, 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def write_page(template: Path, out: Path, parts: Mapping[str, str], began: float) -> Path:
    """Write OUT/table.md: the template's text with its {names} filled in, and what made it.

    began : the `time.monotonic()` of the start.
    """
    made = f"Made by fedref {fedref.__version__}, commit {git_commit()}"
    took = duration(time.monotonic() - began)
    text = template.read_text("utf-8").format_map(parts).rstrip()
    write_atomically(out / "table.md", f"{text}\n\n{made}, in {took}.\n".encode())
    return out / "table.md"
