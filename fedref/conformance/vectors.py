"""The golden vectors on disk: one index, and one little-endian float64 .npz per case."""

import io
import json
from ast import literal_eval
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

import fedref
from fedref.boundary.errors import ConfigError, DataError, unknown
from fedref.judge import Case as Case
from fedref.judge.case import Values
from fedref.models.numerics import Array

VERSION = 4
DTYPES = ("float32", "float64")


def folder() -> Path:
    """Return the folder of the vectors: in the installed package, else in the checkout."""
    package = Path(fedref.__file__).parent
    inside = package / "_data"
    return (inside if inside.exists() else package.parent / "data") / "vectors"


#: The file with the SHA-256 of index.json, which in turn has those of the cases.
SEAL = "index.json.sha256"


def read_index(where: Path) -> dict[str, Any]:
    """Return the index, which must be of this version; its hash is checked."""
    path = where / "index.json"
    try:
        content, seal = path.read_bytes(), (where / SEAL).read_text().strip()
        if sha256(content).hexdigest() != seal:
            raise DataError(f"{path}: not the file that {SEAL} names (SHA-256 differs)")
        index: dict[str, Any] = json.loads(content)
    except OSError as error:
        raise DataError(f"{path}: {error}, expected the golden vectors") from None
    if index["version"] != VERSION:
        raise DataError(f"{where}: version {index['version']}, expected {VERSION}")
    return index


def read(where: Path | None = None) -> list[Case]:
    """Return all cases in the index's order; every file's hash is checked."""
    where = where or folder()
    index = read_index(where)
    names = [mistake["name"] for mistake in index["mistakes"]]
    return [_read_case(where, entry, names) for entry in index["cases"]]


def _read_case(where: Path, entry: Values, names: Sequence[str]) -> Case:
    path = where / entry["file"]
    data = path.read_bytes()
    if sha256(data).hexdigest() != entry["sha256"]:
        raise DataError(f"{path}: not the file that index.json names (SHA-256 differs)")
    sides: dict[str, dict[str, Array]] = {"in": {}, "out": {}}
    with ZipFile(io.BytesIO(data)) as archive:
        for file in archive.namelist():
            side, _, name = file.removesuffix(".npy").partition(".")
            sides[side][name] = _array(archive.read(file))
    fields = (name for name in Case._fields if name not in ("inputs", "outputs"))
    values: dict[str, Any] = {name: entry[name] for name in fields}
    values |= {name: tuple(values[name]) for name in ("required", "tags", "part")}
    values["catches"] = tuple(names[i] if isinstance(i, int) else i for i in entry["catches"])
    return Case(**values, inputs=sides["in"], outputs=sides["out"])


def _array(content: bytes) -> Array:
    """Return the array of one of our .npy files: of version 1.0, in C's order."""
    start = 10 + int.from_bytes(content[8:10], "little")
    header = _parse_header(content[10:start])
    return np.frombuffer(content, header["descr"], offset=start).reshape(header["shape"]).copy()


@cache
def _parse_header(content: bytes) -> dict[str, Any]:
    """Return what a .npy file's header says; thousands are the same, and NumPy parses each anew."""
    header: dict[str, Any] = literal_eval(content.decode())
    return header


def select(cases: Iterable[Case], only: str = "", quick: bool = False) -> list[Case]:
    """Return the case of that name, else those with `only` in a tag, call, algorithm or name.

    quick : those among them that a quick run has. Raises ConfigError if there are none.
    """
    cases = list(cases)
    texts = ((c, (*c.tags, c.tag, c.call, c.algorithm, c.name)) for c in cases)
    parts = [c for c, some in texts if any(only in text for text in some)]
    selected = [c for c in cases if c.name == only] or parts
    if not selected:
        names = {name for case in cases for name in (case.tag, case.name)}
        raise ConfigError(unknown("case or tag", only, names))
    selected = [case for case in selected if case.quick or not quick]
    if not selected:
        raise ConfigError(f"--quick has no case of {only}, expected --only without it")
    return selected
