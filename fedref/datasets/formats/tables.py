"""Tables whose columns have meanings by their names: .csv and .tsv files, and pandas' DataFrames.

y (or label, class, target) is to be predicted, client says whose row it is. test is 1 or true for rows
of the published test part; train, its opposite, may stand instead. All other columns are features and
hold numbers. Messages count rows from 0 below the header, and lines from 1 as editors do.
"""

import csv
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
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
    "(or label, class, target); optional columns are client, and test or train"
)
TARGETS = ("y", "label", "class", "target")
MASKS = ("test", "train")
MASK = {"0": 0, "1": 1, "false": 0, "true": 1}
#: Names of columns that probably say whose row it is.
CLIENTS = re.compile(
    r"(client|subject|user|device|patient|site|hospital|clinic|person|participant|sensor|shop|store|"
    r"station|writer|speaker|author|account|customer|node)s?[ _.-]*(id|no|nr|number|name|index)?",
    re.IGNORECASE,
)


class Columns(NamedTuple):
    """The columns of a table by their meaning, as positions in a row."""

    names: list[str]
    features: list[int]
    y: int
    client: int | None
    mask: int | None  # test or train

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on features that are probably meant to name the clients."""
        likely = [self.names[i] for i in self.features if self.client is None]
        return tuple(client_hint(name) for name in likely if CLIENTS.fullmatch(name))


def client_hint(name: str) -> str:
    """Return the remark on a feature that probably names the clients."""
    return f"the column {name!r} is a feature; if it says whose row it is, call it client"


def name_columns(header: list[str], where: Path | str) -> Columns:
    """Find the meaning of each column by its name in the header."""
    names = [name.strip() for name in header]
    held = ", ".join(names) or "nothing"
    if "" in names and any(names):
        what = f"column {names.index('') + 1} has no name"
        raise data_error(where, what, "a name for every column; leave out a column of row numbers")
    if twice := first_repeated(names):
        raise data_error(where, f"two columns are called {twice}", "names that differ")
    targets, masks = ([n for n in known if n in names] for known in (TARGETS, MASKS))
    if len(targets) != 1:
        what = (
            f"columns {' and '.join(targets)} are there" if targets else f"no column y, only {held}"
        )
        raise data_error(where, what, f"a header with one of {', '.join(TARGETS)}")
    if len(masks) > 1:
        raise data_error(where, "columns test and train are there", "one of them")
    y = names.index(targets[0])
    client = names.index("client") if "client" in names else None
    mask = names.index(masks[0]) if masks else None
    features = [i for i in range(len(names)) if i not in (y, client, mask)]
    if not features:
        raise data_error(
            where, f"no column of features, only {held}", "columns of numbers beside them"
        )
    return Columns(names, features, y, client, mask)


def number_error(where: Path | str, row: str, name: str, cell: object) -> Exception:
    """Return the error for a feature whose cell is not a finite number."""
    expected = "a finite number (1.5) in every column but y, client, test and train"
    if CLIENTS.fullmatch(name):
        expected += f"; if {name} says whose row it is, call it client"
    shown = str(cell).strip()[:40]
    shown = repr(shown) if isinstance(cell, str) and shown else shown or "empty"
    return data_error(where, f"{row}: {name} is {shown}", expected)


# ---- text ----------------------------------------------------------------------------------------


def load(path: Path, **more: Any) -> Source:
    """Return a Source from a .csv or .tsv file. Errors name the line and the row."""
    data = read_bytes(path, EXPECTED)
    with as_data_error(path, EXPECTED):
        rows = iterate_rows(data.decode("utf-8-sig"), path)
        _, header = next(rows, (1, []))
        if not header:
            raise ValueError("is empty")
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


def read_rows(
    rows: Iterator[tuple[int, list[str]]], columns: Columns, path: Path, more: dict[str, Any]
) -> Source:
    """Check the rows and make a Source of them."""
    X, lines, words = array("d"), array("q"), dict[str, str]()
    others = {name: list[str]() for name in ("y", "client", "mask")}
    for line, row in rows:
        lines.append(line)
        if len(row) != len(columns.names):
            what = f"{place_of(lines)} has {len(row)} cells"
            raise data_error(path, what, f"{len(columns.names)}, as the header has")
        try:
            X.extend([float(row[i]) for i in columns.features])
        except ValueError:
            i = next(i for i in columns.features if as_number(row[i]) is None)
            raise number_error(path, place_of(lines), columns.names[i], row[i]) from None
        for name, cells in others.items():
            if (i := getattr(columns, name)) is not None:
                cell = row[i].strip()
                if not cell:
                    what = f"{place_of(lines)}: {columns.names[i]} is empty"
                    raise data_error(path, what, "a number or a word")
                cells.append(words.setdefault(cell, cell))
    if not lines:
        raise data_error(path, "no row below the header", EXPECTED)
    features = np.frombuffer(X).reshape(len(lines), -1)
    if not (np.isfinite(features.min()) and np.isfinite(features.max())):
        k, j = np.argwhere(~np.isfinite(features))[0].tolist()
        name = columns.names[columns.features[j]]
        raise number_error(path, place_of(lines, k), name, features[k, j])
    y, label_names = numbers_or_words(others["y"], lines, columns.names[columns.y], path)
    client = test = None
    if columns.client is not None:
        client, more["client_names"] = arrays.encode_labels(others["client"])
    if columns.mask is not None:
        test = as_mask(others["mask"], lines, columns.names[columns.mask], path)
    more = {"label_names": label_names, "notes": columns.notes} | more
    return arrays.make_source(features, y, str(path), client, test, **more)


def place_of(lines: Sequence[int], row: int = -1) -> str:
    """Return "line L (row R)" for a row; by default for the last one read."""
    return f"line {lines[row]} (row {row % len(lines)})"


def as_number(cell: str) -> float | None:
    """Return the number that a cell holds; None if it holds none."""
    try:
        return float(cell)
    except ValueError:
        return None


def as_mask(cells: list[str], lines: Sequence[int], name: str, path: Path) -> Array:
    """Return 1 for test rows, from the cells of the column test or train."""
    odd = next((i for i, cell in enumerate(cells) if cell.lower() not in MASK), None)
    if odd is not None:
        what = f"{place_of(lines, odd)}: {name} is {cells[odd][:40]!r}"
        kind = {"test": "test", "train": "training"}[name]
        raise data_error(path, what, f"1 or true for {kind} rows, else 0")
    values = np.array([MASK[cell.lower()] for cell in cells])
    return arrays.mask_of_test_rows(name, values, len(cells), str(path))


def numbers_or_words(
    cells: list[str], lines: Sequence[int], name: str, path: Path
) -> tuple[Array, tuple[str, ...] | None]:
    """Return y as (numbers, None), or as (each cell's index among the distinct words, these words)."""
    known = {cell: as_number(cell) for cell in set(cells)}
    if all(value is None for value in known.values()):
        return arrays.encode_labels(cells)
    for k, cell in enumerate(cells):
        value = known[cell]
        if value is None or not isfinite(value):
            what = f"{place_of(lines, k)}: {name} is {cell[:40]!r}, and a number in other rows"
            raise data_error(path, what, "finite numbers in all rows, or words in all")
    return np.array([known[cell] for cell in cells], float), None


# ---- DataFrames ----------------------------------------------------------------------------------


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def from_frame(frame: Any, where: str, **more: Any) -> Source:
    """Return the Source of a DataFrame; its columns have the same meanings as those of a CSV."""
    columns = name_columns([str(name) for name in frame.columns], where)
    contents = {"X": frame_features(frame, columns.features, where), "y": frame.iloc[:, columns.y]}
    for i in (columns.client, columns.mask):
        if i is not None:
            contents[columns.names[i]] = frame.iloc[:, i]
    return arrays.from_arrays(contents, where, notes=columns.notes, **more)


def frame_features(frame: Any, features: Iterable[int], where: str) -> Array:
    """Return some columns of a DataFrame, by their numbers, as (n, p)."""
    parts = []
    for i in features:
        column = np.asarray(frame.iloc[:, i])
        bad = ~np.isfinite(column) if column.dtype.kind in "buif" else np.ones(len(column), bool)
        if bad.any():
            row = int(bad.argmax())
            raise number_error(where, f"row {row}", str(frame.columns[i]), column[row])
        parts.append(column)
    return np.column_stack(parts)


def as_array(value: Any, where: str) -> Array:
    """Return X, y or client as an array; a DataFrame column by column, as its types may differ."""
    if not is_frame(value):
        return np.asarray(value)
    return frame_features(value, range(value.shape[1]), where)
