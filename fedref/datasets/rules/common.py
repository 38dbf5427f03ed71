"""What the split rules share: types, and the rows that they divide."""

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.datasets import partition
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source

Parts = tuple[Part, Part]
Generator = np.random.Generator


def rows_of(source: Source, pool: str) -> Array:
    """Return the row numbers of the whole source, or of its published training part."""
    end = source.test_from if pool == "train" else None
    return np.arange(len(source.y) if end is None else end)


def classes_of(source: Source) -> Array:
    """Return the labels that occur, ascending; refused where y holds real targets."""
    if source.real:
        raise ConfigError(
            f"{source.name} has real targets and so no classes; expected a rule that needs none: "
            "natural, iid or quantity"
        )
    return source.labels


def by_class(source: Source, rows: Array) -> Part:
    """Return the rows as one "client" a class, ascending labels, in the source's order."""
    classes = classes_of(source)
    return partition.group(np.searchsorted(classes, source.y[rows]), len(classes), rows)


def need_rows(users: int, each: int, rows: Array, source: Source) -> None:
    """Refuse more users than the rows can serve."""
    if users * each > len(rows):
        raise ConfigError(
            f"users={users} with at least {each} rows each need {users * each} rows, "
            f"{source.name} has {len(rows)}"
        )
