"""svmlight's (LIBSVM's) text: "LABEL INDEX:VALUE INDEX:VALUE ...  # remark", one row a line.

Indices ascend; they begin at 1, or at 0 if any row has a 0 (scikit-learn writes so). What a row does
not name is 0. The array is dense, so its size is limited as that of an archive is.
"""

import re
from array import array
from math import isfinite
from pathlib import Path

import numpy as np

from fedref.boundary import files
from fedref.boundary.files import as_data_error, data_error, open_regular
from fedref.lab.datasets.formats.arrays import Raw, as_number, require
from fedref.lab.datasets.formats.tables import numbers_or_words

EXPECTED = "svmlight's text: LABEL INDEX:VALUE INDEX:VALUE ... on each line, indices ascending"
SNIFFED = 1 << 16  # bytes from which the format is recognised
LINE = re.compile(rb"\s*[^\s:#]+(\s+\d+:[^\s:]+)+\s*(#.*)?")


def holds(path: Path) -> bool:
    """Return whether the first line that is no remark looks like a row (a9a has no suffix)."""
    with open_regular(path, EXPECTED) as stream, as_data_error(path, EXPECTED):
        begin = files.gunzip(stream).read(SNIFFED)
    lines = begin.splitlines()
    if len(begin) == SNIFFED:  # which ends within a line
        lines[-1] = lines[-1].rpartition(b" ")[0]
    rows = (line for line in lines if line.strip() and not line.startswith(b"#"))
    return LINE.fullmatch(next(rows, b"")) is not None


def read(path: Path) -> Raw:
    """Read a file; errors name the line."""
    labels, values = list[str](), array("d")
    lines, rows, columns = (array("q") for _ in range(3))
    for number, line in enumerate(files.read_text(path, EXPECTED).splitlines(), 1):
        cells = line.partition("#")[0].split()
        if not cells:
            continue
        before = -1
        for cell in cells[1:]:
            index, colon, text = cell.partition(":")
            value = as_number(text)
            right = colon and index.isdecimal() and index.isascii() and len(index) < 10
            if not right or value is None or not isfinite(value):
                raise data_error(path, f"line {number}: {cell[:40]!r}", EXPECTED)
            if int(index) <= before:
                raise data_error(path, f"line {number}: index {index} after {before}", EXPECTED)
            before = int(index)
            rows.append(len(labels))
            columns.append(before)
            values.append(value)
        labels.append(cells[0])
        lines.append(number)
    require(len(columns), path, "no line has a value", EXPECTED)
    first = min(1, min(columns))
    n, p = len(labels), max(columns) + 1 - first
    limit = files.unpacked_limit(path.stat().st_size)
    size = f"{n} rows of {p} features take {8 * n * p} bytes"
    require(8 * n * p <= limit, path, size, f"at most {limit}")
    X, place = np.zeros((n, p)), np.frombuffer(columns, np.int64) - first
    X[np.frombuffer(rows, np.int64), place] = np.frombuffer(values)
    with as_data_error(path, EXPECTED):
        y, names = numbers_or_words(labels, lines, "the label", path)
    note = f"svmlight: features are numbered from {first}; those that a row does not name are 0"
    return Raw({"X": X, "y": y}, {"label_names": names, "notes": (note,)})
