"""Tables, claims and numbers: what reports are written with."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedref.boundary.files import write_whole
from fedref.experiments.results import cell, csv_text
from fedref.models.numerics import Array

#: A number a seed.
Values: TypeAlias = Sequence[float] | Array


class Number(NamedTuple):
    """One line of a table: what it is, the paper's value, ours a seed, and a comment."""

    what: tuple[str, ...]
    ours: Values
    paper: float | None = None
    comment: str = ""
    more: tuple[Values, ...] = ()  # further columns of ours
    digits: int = 2

    @property
    def difference(self) -> float | None:
        return None if self.paper is None else float(np.mean(self.ours)) - self.paper


def spread(values: Values, digits: int = 2) -> str:
    """mean ± sd over seeds; the mean alone of one seed."""
    x = np.asarray(values, float)
    if not x.size or np.isnan(x).all():
        return "–"
    mean = shown(float(x.mean()), digits)
    return mean if x.size == 1 else f"{mean} ± {shown(float(x.std()), digits)}"


def shown(value: float | None, digits: int = 2, sign: str = "") -> str:
    """With a minus sign that is one, and none before 0; sign="+": with its sign."""
    if value is None:
        return "–"
    text = f"{round(value, digits) + 0.0:{sign}.{digits}f}"
    return text.replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    return shown(value, digits, "+")


def number_table(heads: Sequence[str], numbers: Sequence[Number], more: Sequence[str] = ()) -> str:
    """The Markdown table: what | paper | ours | difference | further columns | comment."""
    rows = [[*heads, "paper", "ours", "difference", *more, "comment"]]
    for number in numbers:
        d = number.digits
        extra = [spread(values, d) for values in number.more]
        cells = [shown(number.paper, d), spread(number.ours, d), signed(number.difference, d)]
        rows.append([*number.what, *cells, *extra, number.comment])
    return markdown(rows, left=len(heads), last=True)


def markdown(rows: Sequence[Sequence[str]], left: int = 1, last: bool = False) -> str:
    """A Markdown table: the first `left` columns (and the last one) to the left, else right."""
    aligned = [i < left or (last and i == len(rows[0]) - 1) for i in range(len(rows[0]))]
    rule = ["---" if is_left else "--:" for is_left in aligned]
    lines = ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]
    return "\n".join(lines)


def write_csv(path: Path, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Numbers as they are: the shortest text that reads back the same; nothing for NaN."""
    text = csv_text([heads, *([cell(value) for value in row] for row in rows)])
    write_whole(path, text.encode())


def write_numbers(path: Path, heads: Sequence[str], numbers: Sequence[Number]) -> None:
    """numbers.csv: paper, mean, sd, and the value of every seed."""
    rows = [
        [
            *number.what,
            number.paper,
            float(np.mean(number.ours)),
            float(np.std(number.ours)),
            number.difference,
            each_seed(number.ours),
        ]
        for number in numbers
    ]
    write_csv(path, [*heads, "paper", "mean", "sd", "difference", "each seed"], rows)


def each_seed(values: Values) -> str:
    """One cell of a CSV file."""
    return " ".join(repr(float(x)) for x in values)


#: What differs by no more than this is the same: the last digits of a mean depend on its order.
ROUNDING = 1e-9


def claim(
    text: str,
    values: Mapping[str, Values],
    *,
    above: float | None = None,
    below: float | None = None,
    unit: str = "points",
    digits: int = 2,
    detail: str = "",
    beside: Mapping[str, Values] | None = None,
    show: Callable[[Values, int], str] = spread,
) -> str:
    """A sentence of a paper and whether it holds here, as a Markdown item.

    It holds if *every* seed of every one of `values` is above and below these thresholds, which are
    printed: one rule for all reports. Nothing measured holds nowhere. What is not the paper's own
    is printed `beside`, and not judged. show : how values are written, with so many digits.
    """
    each = [np.atleast_1d(np.asarray(x, float)) for x in values.values()]
    every = np.concatenate([*each, np.zeros(0)])
    low, high = (-np.inf if above is None else above), (np.inf if below is None else below)
    holds = bool(every.size and (every > low + ROUNDING).all() and (every < high - ROUNDING).all())
    limits = [("above", above), ("below", below)]
    rule = " and ".join(
        f"{word} {f'{x:g}'.replace('-', '−')}" for word, x in limits if x is not None
    )
    seeds = "one seed:" if each and max(x.size for x in each) == 1 else "every seed"
    found = listed(values, digits, show)
    more = f"beside it, {listed(beside, digits, show)}" if beside else ""
    return (
        f"- {'Holds' if holds else 'Does not hold'} ({seeds} {rule}): *{text}*; {found} {unit}"
        f"{''.join('; ' + words for words in (more, detail) if words)}."
    )


def not_judged(text: str, why: str) -> str:
    """A sentence of a paper that what was measured cannot decide, as a Markdown item."""
    return f"- Not judged: *{text}*; {why}."


def listed(
    values: Mapping[str, Values],
    digits: int = 2,
    show: Callable[[Values, int], str] = spread,
) -> str:
    """name mean ± sd, of each; show : another way to write them."""
    return ", ".join(f"{name} {show(x, digits)}" for name, x in values.items())
