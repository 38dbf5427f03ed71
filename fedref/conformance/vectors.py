"""The golden vectors on disk: one index, and one little-endian float64 .npz for each case."""

import io
import json
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedref
from fedref.boundary.errors import DataError
from fedref.conformance import serialise
from fedref.models.numerics import Array

VERSION = 1
DTYPES = ("float32", "float64")


class Case(NamedTuple):
    """One situation, what it is asked with, and what must come out.

    name : unique; tag : the paper's equation; about : one line for people.
    call : the backend's function; algorithm : its first argument ("" for a model's derivatives).
    inputs, outputs : flat, "server.w" → array; outputs in the order in which they arise.
    required : the outputs that a backend must give; the others are compared where it gives them.
    tolerance : dtype → largest |difference| allowed, relative to the output's largest entry.
    condition : how many units of rounding the outputs move by, measured.
    digits : what the vectors were computed by as well → to how many decimal digits both agree.
    catches : names of the known mistakes that fail here.
    """

    name: str
    tag: str
    about: str
    call: str
    algorithm: str
    model: dict[str, Any]
    hyper: dict[str, Any]
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    required: tuple[str, ...]
    tolerance: Mapping[str, float] = {}
    condition: float = 1.0
    digits: Mapping[str, int] = {}
    catches: tuple[str, ...] = ()

    def arguments(self, dtype: Any = np.float64) -> dict[str, Any]:
        """Fresh inputs, nested, in dtype."""
        return serialise.nest({name: cast(x, dtype) for name, x in self.inputs.items()})


def cast(x: Array, dtype: Any) -> Array:
    """A copy; floats in dtype, all else as it is."""
    return x.astype(dtype) if x.dtype.kind == "f" else x.copy()


def folder() -> Path:
    """Where the vectors are: in the installed package, else in the checkout."""
    package = Path(fedref.__file__).parent
    inside = package / "_data"
    return (inside if inside.exists() else package.parent / "data") / "vectors"


def npz(arrays: Mapping[str, Array]) -> bytes:
    """An uncompressed archive of .npy members with a fixed date: the same bytes every time."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, x in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, little(x), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return stream.getvalue()


def little(x: Array) -> Array:
    """Little-endian and in C order: floats float64, whole numbers int64, flags bool."""
    kinds = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}
    return np.asarray(x, kinds[np.asarray(x).dtype.kind], order="C")


ENTRY = (
    "name", "tag", "about", "call", "algorithm", "model", "hyper",
    "required", "tolerance", "condition", "digits", "catches",
)  # fmt: skip


def entry(case: Case, content: bytes) -> dict[str, Any]:
    """What the index says of one case."""
    said: dict[str, Any] = {name: getattr(case, name) for name in ENTRY}
    reason = (
        f"32 × {case.condition:g} × the dtype's epsilon: by so many units of rounding the outputs "
        "move, measured"
    )
    shapes = {
        side: {name: list(np.shape(x)) for name, x in getattr(case, side).items()}
        for side in ("inputs", "outputs")
    }
    return {
        **said, "reason": reason, **shapes,
        "file": f"{case.name}.npz", "sha256": sha256(content).hexdigest(),
    }  # fmt: skip


def content(case: Case) -> bytes:
    arrays = {f"in.{k}": x for k, x in case.inputs.items()}
    return npz(arrays | {f"out.{k}": x for k, x in case.outputs.items()})


def write(cases: list[Case], to: Path) -> None:
    """index.json and one .npz a case; files of cases that are no more are removed."""
    to.mkdir(parents=True, exist_ok=True)
    entries = []
    for case in cases:
        data = content(case)
        (to / f"{case.name}.npz").write_bytes(data)
        entries.append(entry(case, data))
    for path in to.glob("*.npz"):
        if path.stem not in {case.name for case in cases}:
            path.unlink()
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries)
    head = f'"version": {VERSION}, "schema": "index.schema.json"'
    (to / "index.json").write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n', "utf-8")


def read(where: Path | None = None) -> list[Case]:
    """All cases, in the index's order; every file's hash is checked."""
    where = where or folder()
    try:
        index = json.loads((where / "index.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{where / 'index.json'}: {error}, expected the golden vectors") from None
    if index["version"] != VERSION:
        raise DataError(f"{where}: version {index['version']}, expected {VERSION}")
    return [_case(where, said) for said in index["cases"]]


def _case(where: Path, said: Mapping[str, Any]) -> Case:
    path = where / said["file"]
    data = path.read_bytes()
    if sha256(data).hexdigest() != said["sha256"]:
        raise DataError(f"{path}: not the file that index.json names (SHA-256 differs)")
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    sides: dict[str, Any] = {
        side: {name[len(p) :]: x for name, x in arrays.items() if name.startswith(p)}
        for side, p in (("inputs", "in."), ("outputs", "out."))
    }
    own: dict[str, Any] = {name: said[name] for name in ENTRY}
    own |= {name: tuple(own[name]) for name in ("required", "catches")}
    return Case(**own, **sides)
