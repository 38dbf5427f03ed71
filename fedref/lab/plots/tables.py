"""Tables: columns of equal length by name. Pictures and summaries are functions of a table.

A table of a run has the columns of metrics.csv or clients.csv, and two more: `title`, the algorithm with
its point of the sweep, and `diverged`, whether the unit of the row did.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedref.models.numerics import Array

Row = dict[str, Any]
Table = dict[str, Array]


def order_columns(rows: Iterable[Row], first: Iterable[str]) -> list[str]:
    """Return the columns of some rows: `first` in this order, then the others by name."""
    return list(dict.fromkeys([*first, *sorted({name for row in rows for name in row})]))


def columns_of(rows: Iterable[Row], first: Iterable[str] = ()) -> Table:
    """Return rows as columns; an empty cell is NaN, or "" among strings."""
    rows, table = list(rows), {}
    for name in order_columns(rows, first):
        cells = [row.get(name) for row in rows]
        empty: Any = "" if any(isinstance(cell, str) for cell in cells) else np.nan
        table[name] = np.array([empty if cell is None else cell for cell in cells])
    return table


def join_tables(tables: Mapping[str, Table]) -> Table:
    """Return the tables of several runs as one; each algorithm then has the name of its run, too."""
    named = []
    for name, table in tables.items():
        pairs = dict.fromkeys(zip(table["title"].tolist(), table["algorithm"].tolist()))
        longer = {}
        for title, algorithm in pairs:
            point = title.removeprefix(algorithm).removesuffix(")")
            longer[title] = algorithm + (f"{point}, {name})" if point else f" ({name})")
        titles = np.array([longer[title] for title in table["title"].tolist()])
        named.append(table | {"title": titles, "run": np.full(len(titles), name)})
    return {column: join_columns(column, named) for column in order_columns(named, ())}


def join_columns(name: str, tables: Iterable[Table]) -> Array:
    """Return a column of several tables as one; where one lacks it, its cells are empty."""
    parts = [table.get(name, np.full(len(table["title"]), np.nan)) for table in tables]
    if len({part.dtype.kind == "U" for part in parts}) > 1:  # texts here, numbers or nothing there
        cells = [None if x != x else x for part in parts for x in part.tolist()]
        return columns_of({name: cell} for cell in cells)[name]
    return np.concatenate(parts)


def group_rows(table: Table) -> dict[str, dict[Any, Table]]:
    """Divide a table: title → seed → the rows of that unit."""
    places: dict[str, dict[Any, list[int]]] = {}
    for i, (title, seed) in enumerate(zip(table["title"].tolist(), table["seed"].tolist())):
        places.setdefault(title, {}).setdefault(seed, []).append(i)
    return {
        title: {seed: {name: x[rows] for name, x in table.items()} for seed, rows in seeds.items()}
        for title, seeds in places.items()
    }


def extremes(rows: Table, name: str, best: str = "maximum") -> tuple[float, float, float]:
    """Return the average over rounds of a column of one unit, its best value, and its last one."""
    series = rows[name][~np.isnan(rows[name])]
    if not series.size:
        return (np.nan,) * 3
    extreme = series.max() if best == "maximum" else series.min()
    return float(np.mean(series)), float(extreme), float(series[-1])


def mean_and_sd(values: Array) -> Array:
    """Return the mean over seeds, the first axis, and the standard deviation with n − 1: (2, ...).

    Of one seed there is none: NaN.
    """
    sd = np.full(values.shape[1:], np.nan)
    with np.errstate(invalid="ignore"):  # a test loss may be infinite
        return np.stack([values.mean(0), values.std(0, ddof=1) if len(values) > 1 else sd])
