"""Numbers as text: tables in Markdown, and CSV files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedref.boundary.files import write_atomically
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
    """Return mean ± sd over seeds; the mean alone of one seed."""
    x = np.asarray(values, float)
    if not x.size or np.isnan(x).all():
        return "–"
    return mean_and_deviation(float(x.mean()), float(x.std()), x.size, digits)


def mean_and_deviation(mean: float, sd: float, seeds: int, digits: int = 2) -> str:
    """Return mean ± sd; the mean alone of one seed."""
    return show_number(mean, digits) + (f" ± {show_number(sd, digits)}" if seeds > 1 else "")


def show_number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """Return a number with a minus sign that is one, and none before 0; sign="+": with its sign."""
    if value is None:
        return "–"
    text = f"{round(value, digits) + 0.0:{sign}.{digits}f}"
    return text.replace("-", "−")


def show_signed(value: float | None, digits: int = 2) -> str:
    """Return a number with its sign."""
    return show_number(value, digits, "+")


def number_table(heads: Sequence[str], numbers: Sequence[Number], more: Sequence[str] = ()) -> str:
    """Return a Markdown table: what | paper | ours | difference | further columns | comment.

    Columns with nothing in them are left out.
    """
    rows = [[*heads, "paper", "ours", "difference", *more, "comment"]]
    for number in numbers:
        d = number.digits
        extra = [spread(values, d) for values in number.more]
        paper, difference = show_number(number.paper, d), show_signed(number.difference, d)
        ours = spread(number.ours, d)
        rows.append([*number.what, paper, ours, difference, *extra, number.comment])
    kept = [column for column in zip(*rows) if {*column[1:]} - {"", "–"}]
    last = (kept or [rows[0]])[-1][0] == "comment"
    return markdown(list(zip(*kept)) or rows, left=len(heads), last=last)


def markdown(rows: Sequence[Sequence[str]], left: int = 1, last: bool = False) -> str:
    """Return a Markdown table: the first `left` columns (and the last one) to the left, else right."""
    aligned = [i < left or (last and i == len(rows[0]) - 1) for i in range(len(rows[0]))]
    rule = ["---" if is_left else "--:" for is_left in aligned]
    lines = ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]
    return "\n".join(lines)


def write_csv(path: Path, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write numbers as they are: the shortest text that reads back the same; nothing for NaN."""
    text = csv_text([heads, *([cell(value) for value in row] for row in rows)])
    write_atomically(path, text.encode())


def name_quantities(found: Mapping[str, Sequence[Number]]) -> list[Number]:
    """Return the lines of several tables as those of one, with the quantity as a further column."""
    return [n._replace(what=(*n.what, quantity)) for quantity in found for n in found[quantity]]


def write_numbers(path: Path, heads: Sequence[str], numbers: Sequence[Number]) -> None:
    """Write numbers.csv: paper, mean, sd, and the value of every seed."""
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
    """Return one cell of a CSV file."""
    return " ".join(repr(float(x)) for x in values)


def show_pictures(titles: Mapping[str, str]) -> str:
    """Return pictures in Markdown: file → what it shows."""
    return "\n\n".join(f"![{title}]({file})" for file, title in titles.items())
