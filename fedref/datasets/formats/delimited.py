"""Tables as text: .csv and .tsv with a header.

The columns are told apart by their names: y (or label, class, target) is what is predicted, client
says whose row it is, test (1 or true) which rows are the published test part. All others are
features and hold numbers.
"""

import csv
import io
from array import array
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.files import as_data_error, data_error, first_repeated, read_bytes
from fedref.datasets.formats import arrays
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

EXPECTED = (
    "a table as UTF-8 text, separated by comma, semicolon or tab, whose header names the column y "
    "(or label, class, target) and, if they are there, client and test"
)
TARGETS = ("y", "label", "class", "target")
MASK = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}


class Columns(NamedTuple):
    """Where in a row each thing stands."""

    names: list[str]
    features: list[int]
    y: int
    client: int | None
    test: int | None


def load(path: Path, **more: Any) -> Source:
    """Return a Source from a table; whatever is wrong in it is said with its line."""
    data = read_bytes(path, EXPECTED)
    with as_data_error(path, EXPECTED):
        rows = iterate_rows(data.decode("utf-8-sig"), path)
        _, header = next(rows, (1, []))
        return read_rows(rows, name_columns(header, path), path, more)


def iterate_rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every row that is not empty."""
    header = text.partition("\n")[0]
    separator = max("\t;,", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise data_error(path, f"line {reader.line_num}: {error}", EXPECTED) from error


def name_columns(header: list[str], path: Path) -> Columns:
    """Return what the names of the header say."""
    names = [name.strip() for name in header]
    held = ", ".join(names) or "nothing"
    if "" in names and any(names):
        what = f"column {names.index('') + 1} has no name"
        raise data_error(
            path, what, "a name for every column; a row's number is no feature: leave it out"
        )
    if twice := first_repeated(names):
        raise data_error(path, f"two columns are called {twice}", "names that differ")
    found = [name for name in TARGETS if name in names]
    if len(found) != 1:
        what = f"columns {' and '.join(found)} are there" if found else f"no column y, only {held}"
        raise data_error(path, what, f"a header with one of {', '.join(TARGETS)}")
    y, client, test = (
        names.index(name) if name in names else None for name in (found[0], "client", "test")
    )
    features = [i for i in range(len(names)) if i not in (y, client, test)]
    if not features:
        raise data_error(
            path, f"no column of features, only {held}", "columns of numbers beside them"
        )
    assert y is not None
    return Columns(names, features, y, client, test)


def read_rows(
    rows: Iterator[tuple[int, list[str]]], columns: Columns, path: Path, more: dict[str, Any]
) -> Source:
    """Return the Source of the rows, each checked in its line."""
    X, lines, words = array("d"), array("q"), dict[str, str]()
    y, client, test = list[str](), list[str](), array("d")
    for line, row in rows:
        if len(row) != len(columns.names):
            what = f"line {line} has {len(row)} cells"
            raise data_error(path, what, f"{len(columns.names)}, as the header has")
        try:
            X.extend([float(row[i]) for i in columns.features])
        except ValueError:
            raise number_error(path, line, row, columns) from None
        lines.append(line)
        y.append(words.setdefault(cell := required_cell(row, columns.y, line, columns, path), cell))
        if columns.client is not None:
            cell = required_cell(row, columns.client, line, columns, path)
            client.append(words.setdefault(cell, cell))
        if columns.test is not None:
            cell = row[columns.test].strip().lower()
            if cell not in MASK:
                raise data_error(
                    path, f"line {line}: test is {cell!r}", "1 or true for test rows, else 0"
                )
            test.append(MASK[cell])
    if not lines:
        raise data_error(path, "no row below the header", EXPECTED)
    features = np.frombuffer(X).reshape(len(lines), -1)
    if not (np.isfinite(features.min()) and np.isfinite(features.max())):
        row_, column = np.argwhere(~np.isfinite(features))[0].tolist()
        name = columns.names[columns.features[column]]
        what = f"line {lines[row_]}: {name} is {features[row_, column]}"
        raise data_error(path, what, "finite numbers")
    targets, label_names = as_numbers_or_words(y, lines, columns.names[columns.y], path)
    more = {"label_names": label_names} | more
    index = None
    if client:
        index, names = arrays.encode_labels(client)
        more = more | {"client_names": names}
    mask = np.array(test) if columns.test is not None else None
    return arrays.make_source(features, targets, str(path), index, test=mask, **more)


def required_cell(row: list[str], i: int, line: int, columns: Columns, path: Path) -> str:
    """Return a cell that must hold something."""
    cell = row[i].strip()
    if not cell:
        raise data_error(path, f"line {line}: {columns.names[i]} is empty", "a number or a word")
    return cell


def number_error(path: Path, line: int, row: list[str], columns: Columns) -> Exception:
    """Return the error that names the first feature of a row that is no number."""
    for i in columns.features:
        try:
            float(row[i])
        except ValueError:
            cell = row[i].strip()
            what = f"line {line}: {columns.names[i]} is {repr(cell[:40]) if cell else 'empty'}"
            return data_error(path, what, "a number (1.5) in every column but y, client and test")
    raise AssertionError


def as_numbers_or_words(
    cells: list[str], lines: Any, name: str, path: Path
) -> tuple[Array, tuple[str, ...] | None]:
    """Return the cells of y as numbers if all are, else each word's place among all, and the words."""

    def number(cell: str) -> float | None:
        try:
            return float(cell)
        except ValueError:
            return None

    known = {cell: number(cell) for cell in set(cells)}
    if all(value is None for value in known.values()):
        return arrays.encode_labels(cells)
    for line, cell in zip(lines, cells):
        value = known[cell]
        if value is None or not isfinite(value):
            what = f"line {line}: {name} is {cell[:40]!r}, and a number in other lines"
            raise data_error(path, what, "finite numbers in all lines, or words in all")
    return np.array([known[cell] for cell in cells], float), None
