"""Tables whose columns have meanings by their names: .csv and .tsv files, and pandas' DataFrames.

y (or label, class, target) is to be predicted, client says whose row it is; both may be called
otherwise where that is said. test is 1 or true for rows of the published test part. All other columns
are features and hold numbers. Messages count rows from 0 below the header, and lines from 1 as editors
do.
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

from fedref.boundary.errors import unknown
from fedref.boundary.files import as_data_error, data_error, first_repeated, read_bytes
from fedref.lab.datasets.formats import arrays
from fedref.lab.datasets.formats.arrays import Raw, as_number, encode_labels, list_some, require
from fedref.models.numerics import Array

EXPECTED = (
    "a table as UTF-8 text, separated by comma, semicolon or tab, whose header names the column y "
    "(or label, class, target); optional columns are client and test"
)
TARGETS = ("y", "label", "class", "target")
#: Names of features, without case and punctuation, that may be meant as something else.
ROLES = {
    "client", "clientid", "user", "userid", "subject", "subjectid", "patient", "patientid", "device",
    "deviceid", "site", "siteid", "writer", "writerid", "id", "index", "idx", "row", "rowid",
    "test", "istest", "istrain", "split", "set", "subset", "partition", "fold", "kfold", "folds",
    "weight", "weights", "sampleweight", "y", "label", "class", "target",
}  # fmt: skip
NUMBER = int | float | np.number | np.bool_  # in a column of Python's objects
MASK = {"0": 0, "1": 1, "false": 0, "true": 1}


class Columns(NamedTuple):
    """The columns of a table by their meaning: features, and role → position in a row."""

    names: list[str]
    features: list[int]
    roles: dict[str, int]  # y, and if they are there client and test


def find_columns(
    header: Iterable[str], where: Path | str, label: str | None = None, client: str | None = None
) -> Columns:
    """Find the meaning of each column by its name. label, client : other names for y and client."""
    names = [name.strip() for name in header]
    for key, name in (("label", label), ("client", client)):
        if name is not None and name not in names:
            what = f"data.{key}: {unknown('column', name, names)}"
            raise data_error(where, what, "the name of a column")
    held, twice = ", ".join(names) or "nothing", first_repeated(names)
    targets = [label] if label else [name for name in TARGETS if name in names]
    chosen = {"y": (targets or ["y"])[0], "client": client or "client", "test": "test"}
    features = [i for i, name in enumerate(names) if name not in chosen.values()]
    one = f"a header with one of {', '.join(TARGETS)}, or --set data.label=COLUMN"
    nameless = f"column {[*names, ''].index('') + 1} has no name"
    right = "a name for every column (pandas: to_csv(..., index=False))"
    require("" not in names, where, nameless, right)
    require(twice is None, where, f"two columns are called {twice}", "names that differ")
    require(targets, where, f"no column y, only {held}", one)
    require(len(targets) < 2, where, f"columns {' and '.join(targets)} are there", one)
    require("train" not in names, where, "a column is called train", "a column test, of 1 and 0")
    both = f"{label or client} is to be two things"
    require(len({*chosen.values()}) == 3, where, both, "a column for each")
    none = f"no column of features, only {held}"
    require(features, where, none, "columns of numbers beside them")
    roles = {role: names.index(name) for role, name in chosen.items() if name in names}
    return Columns(names, features, roles)


def note_roles(columns: Columns) -> tuple[str, ...]:
    """Return a note on features whose names are those of something else, if there are any."""
    names = [columns.names[i] for i in columns.features]
    odd = [x for x in names if re.sub("[^a-z]", "", x.lower()) in ROLES or x.startswith("Unnamed:")]
    note = (
        f"taken as features: {list_some(odd)}; leave out what is none (a column `test` of 1 and 0 "
        "marks test rows, data.client names the column of clients)"
    )
    return (note,) if odd else ()


def number_error(where: Path | str, row: str, name: str, cell: object) -> Exception:
    """Return the error for a feature whose cell is not a finite number."""
    shown = str(cell).strip()[:40]
    expected = "a finite number (1.5) in every column but y, client and test"
    number = as_number(shown)
    if number is not None and isfinite(number):  # a text, or a Decimal, of a DataFrame
        expected += f", and no {type(cell).__name__}: astype(float) makes one"
    elif not shown or number is not None or shown.lower() in arrays.UNKNOWN:
        expected += ": fill the cell, or leave out its row"
    elif re.fullmatch(r"[-+]?\d[\d.,'\s]*", shown):
        expected += ", with a decimal point in the place of a comma, and thousands not set apart"
    else:
        flag = f", or --set data.client={name!r}" if isinstance(where, Path) else ""
        expected += (
            "; words, dates and units become numbers, such as 0 and 1; "
            f"a column that says whose row it is has the name client{flag}"
        )
    shown = repr(shown) if isinstance(cell, str) and shown else shown or "empty"
    return data_error(where, f"{row}: {name} is {shown}", expected)


# ---- text ----------------------------------------------------------------------------------------


def read(path: Path, **columns: str) -> Raw:
    """Read a .csv or .tsv file. columns : as in `find_columns`. Errors name the line and the row."""
    stream = io.BytesIO(read_bytes(path, EXPECTED))  # the one copy of the file
    with as_data_error(path, EXPECTED):
        rows = iterate_rows(stream, path)
        _, header = next(rows, (1, []))
        if not header:
            raise ValueError("is empty")
        return read_rows(rows, find_columns(header, path, **columns), path)


def iterate_rows(stream: io.BytesIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every row that is not empty. The text is decoded as it is read."""
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        header = text.readline()
        text.seek(0)
        reader = csv.reader(text, delimiter=max("\t;,", key=header.count), strict=True)
        for row in reader:
            if row:
                yield reader.line_num, row
    except UnicodeDecodeError:  # its position is that in a piece of the file
        stream.getvalue().decode("utf-8-sig")
        raise
    except csv.Error as error:
        raise data_error(path, f"line {reader.line_num}: {error}", EXPECTED) from error


def read_rows(rows: Iterator[tuple[int, list[str]]], columns: Columns, path: Path) -> Raw:
    """Check the rows and return their arrays."""
    names, X, lines, words = columns.names, array("d"), array("q"), dict[str, str]()
    cells = {role: list[str]() for role in columns.roles}
    for line, row in rows:
        lines.append(line)
        if len(row) != len(names):
            what = f"{place_of(lines)} has {len(row)} cells"
            raise data_error(path, what, f"{len(names)}, as the header has")
        for i in columns.features:
            number = as_number(row[i])
            if number is None or not isfinite(number):
                raise number_error(path, place_of(lines), names[i], row[i])
            X.append(number)
        for role, i in columns.roles.items():
            cell = row[i].strip()
            right = {"y": cell != "?", "test": cell.lower() in MASK}.get(role, True)
            if not cell or not right:
                what = f"{place_of(lines)}: {names[i]} is {repr(cell[:40]) if cell else 'empty'}"
                test = "1 or true for test rows, else 0"
                raise data_error(path, what, test if role == "test" else "a number or a word")
            cells[role].append(words.setdefault(cell, cell))
    require(lines, path, "no row below the header", EXPECTED)
    found: dict[str, Array] = {"X": np.frombuffer(X).reshape(len(lines), -1)}
    facts: dict[str, object] = {"notes": note_roles(columns)}
    for role, texts in cells.items():
        if role == "client":
            found[role], facts["client_names"] = encode_labels(texts)
        elif role == "y":
            name = names[columns.roles[role]]
            found[role], facts["label_names"] = numbers_or_words(texts, lines, name, path)
        else:
            found[role] = np.array([MASK[cell.lower()] for cell in texts])
    return Raw(found, facts)


def place_of(lines: Sequence[int], row: int = -1) -> str:
    """Return "line L (row R)" for a row; by default for the last one read."""
    return f"line {lines[row]} (row {row % len(lines)})"


def numbers_or_words(
    cells: list[str], lines: Sequence[int], name: str, path: Path
) -> tuple[Array, tuple[str, ...] | None]:
    """Return y as (numbers, None), or as (each cell's index among the distinct words, these words)."""
    known = {cell: as_number(cell) for cell in set(cells)}
    if not any(value is not None and isfinite(value) for value in known.values()):
        return encode_labels(cells)  # beside words Inf and Nan are words
    words = {cell for cell, value in known.items() if value is None}
    infinite = {cell for cell, value in known.items() if value is not None and not isfinite(value)}
    if odd := infinite or words:
        k = next(k for k, cell in enumerate(cells) if cell in odd)
        what = f"{place_of(lines, k)}: {name} is {cells[k][:40]!r}"
        what += ", and a number in other rows" if odd is words else ""
        raise data_error(path, what, "finite numbers in all rows, or words in all")
    return np.array([known[cell] for cell in cells], float), None


# ---- DataFrames ----------------------------------------------------------------------------------


def is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame (of pandas or polars) or an array of records."""
    if isinstance(value, np.ndarray):
        return value.dtype.names is not None and value.ndim == 1
    kind = type(value)
    return hasattr(kind, "columns") and (hasattr(kind, "iloc") or hasattr(kind, "get_column"))


def names_of(frame: Any) -> list[str]:
    """Return the names of a frame's columns."""
    named = frame.dtype.names if isinstance(frame, np.ndarray) else frame.columns
    return [*map(str, named)]


def column_of(frame: Any, i: int) -> Array:
    """Return a column of a frame, by its number."""
    if hasattr(frame, "iloc"):
        return np.asarray(frame.iloc[:, i])
    return np.asarray(frame[names_of(frame)[i]])


def from_frame(frame: Any, where: str) -> Raw:
    """Return the arrays of a DataFrame; its columns have the same meanings as those of a CSV."""
    levels = getattr(getattr(frame, "index", None), "names", ())  # of pandas
    roles = {*TARGETS, "client", "test"}.difference(names_of(frame))
    held = [name for name in levels if name in roles]
    wrong = f"{list_some(held)} is in the index, which is not read"
    require(not held, where, wrong, "a column of it: data.reset_index()")
    columns = find_columns(names_of(frame), where)
    others = {role: as_numbers(column_of(frame, i)) for role, i in columns.roles.items()}
    features = frame_features(frame, columns.features, where)
    return Raw({"X": features, **others}, {"notes": note_roles(columns)})


def frame_features(frame: Any, features: Iterable[int], where: str) -> Array:
    """Return some columns of a DataFrame, by their numbers, as (n, p)."""
    parts = []
    for i in features:
        column = as_numbers(column_of(frame, i))
        if column.dtype.kind in "buif":
            bad = ~np.isfinite(column)
        else:  # of Python's objects some are numbers
            objects = column.dtype.kind == "O"
            bad = np.array([not (objects and isinstance(x, NUMBER)) for x in column], bool)
        if bad.any():
            row = int(bad.argmax())
            raise number_error(where, f"row {row}", names_of(frame)[i], column[row])
        parts.append(column)
    return np.column_stack(parts)


def as_numbers(array: Array) -> Array:
    """Return an array of Python's numbers (dtype object) as one of NumPy's; keep all others."""
    if array.dtype.kind != "O":
        return array
    numbers = all(isinstance(x, NUMBER) for x in array.flat)
    return np.array(array.tolist()) if numbers else array


def as_array(value: object, where: str) -> Array:
    """Return X, y or client as an array; a DataFrame column by column, as its types may differ."""
    right, kind = "numbers: fill them, or drop their rows", type(value).__name__
    require(not np.ma.is_masked(value), where, "an array has masked entries", right)
    sparse = hasattr(value, "toarray")
    require(not sparse, where, f"is sparse, a {kind}", "an array: X.toarray()")
    if is_frame(value):
        return frame_features(value, range(len(names_of(value))), where)
    # of torch's arrays some require a gradient, or are on a GPU
    with as_data_error(where, f"rows of one length, or what NumPy can read; this is a {kind}"):
        array = np.asarray(value)
    return as_numbers(array.astype(object) if array.dtype.kind == "T" else array)
