"""The columns of measurements, as columns.toml lists them."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple


class Column(NamedTuple):
    """A column. title : the label of an axis, with its unit; scale : from the file's unit to that.

    parts : the columns that are summed, if it is a sum or another name.
    """

    title: str
    meaning: str
    scale: float = 1.0
    parts: tuple[str, ...] = ()


PERCENT = 100
MEAN_OVER_CLIENTS = "the same, mean over clients"
TABLES = tomllib.loads((files("fedref.rounds") / "columns.toml").read_text("utf-8"))


def columns_in(table: str) -> dict[str, Column]:
    """Return the columns of a table, by name; those of which there is a mean over clients before that."""
    columns = dict[str, Column]()
    for name, row in TABLES[table].items():
        column = Column(*row)
        columns[name] = column._replace(title=column.title.format(""), parts=tuple(column.parts))
        if "{}" in column.title:
            title = column.title.format(", mean over clients")
            columns[f"{name}_mean"] = column._replace(title=title, meaning=MEAN_OVER_CLIENTS)
    return columns


PLACE, MEANS, SUMS, OPTIONAL, CLIENTS, ALIASES, SUMMARY = map(
    columns_in, ("place", "means", "sums", "optional", "clients", "aliases", "summary")
)
COLUMNS: Mapping[str, Column] = {**PLACE, **MEANS, **SUMS, **OPTIONAL, **ALIASES}
#: The columns that are totals since round 0.
TOTALS = tuple(SUMS)
NOTE: str = TABLES["note"]
