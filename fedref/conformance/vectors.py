"""The golden vectors on disk: one index, and one little-endian float64 .npz per case."""

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
    """One situation: its inputs, and the outputs that are right.

    name : unique; tag : the paper's equation; about : one line for people.
    call : the backend's function; algorithm : its first argument ("" for a model's derivatives).
    inputs, outputs : flat, "server.w" → array; outputs in the order in which they arise.
    required : outputs that a backend must return; the others are compared where it returns them.
    tolerance : dtype → largest |difference| allowed, relative to the output's largest entry.
    condition : by how many units of rounding the outputs move, measured.
    digits : another way to compute the outputs → to how many decimal digits it agrees.
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
        """Return fresh inputs, nested, in dtype."""
        return serialise.nest({name: cast(x, dtype) for name, x in self.inputs.items()})


def cast(x: Array, dtype: Any) -> Array:
    """Return a copy: floats in dtype, all else unchanged."""
    return x.astype(dtype) if x.dtype.kind == "f" else x.copy()


def folder() -> Path:
    """Return the folder of the vectors: in the installed package, else in the checkout."""
    package = Path(fedref.__file__).parent
    inside = package / "_data"
    return (inside if inside.exists() else package.parent / "data") / "vectors"


def pack_npz(arrays: Mapping[str, Array]) -> bytes:
    """Return an uncompressed archive of .npy members with a fixed date: always the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, x in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(
                member, as_little_endian(x), version=(1, 0), allow_pickle=False
            )
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return stream.getvalue()


def as_little_endian(x: Array) -> Array:
    """Return x little-endian and in C order: floats float64, whole numbers int64, flags bool."""
    kinds = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}
    return np.asarray(x, kinds[np.asarray(x).dtype.kind], order="C")


ENTRY = (
    "name", "tag", "about", "call", "algorithm", "model", "hyper",
    "required", "tolerance", "condition", "digits", "catches",
)  # fmt: skip


def index_entry(case: Case, content: bytes) -> dict[str, Any]:
    """Return what the index says about one case."""
    reason = (
        f"32 × {case.condition:g} × the dtype's epsilon: by so many units of rounding the outputs "
        "move, measured"
    )
    shapes = {
        side: {name: list(np.shape(x)) for name, x in getattr(case, side).items()}
        for side in ("inputs", "outputs")
    }
    return {
        **{name: getattr(case, name) for name in ENTRY}, "reason": reason, **shapes,
        "file": f"{case.name}.npz", "sha256": sha256(content).hexdigest(),
    }  # fmt: skip


def case_bytes(case: Case) -> bytes:
    """Return the bytes of a case's file."""
    arrays = {f"in.{k}": x for k, x in case.inputs.items()}
    return pack_npz(arrays | {f"out.{k}": x for k, x in case.outputs.items()})


def write(cases: list[Case], to: Path) -> None:
    """Write index.json and one .npz per case; remove the files of cases that are gone."""
    to.mkdir(parents=True, exist_ok=True)
    entries = []
    for case in cases:
        data = case_bytes(case)
        (to / f"{case.name}.npz").write_bytes(data)
        entries.append(index_entry(case, data))
    for path in to.glob("*.npz"):
        if path.stem not in {case.name for case in cases}:
            path.unlink()
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries)
    head = f'"version": {VERSION}, "schema": "index.schema.json"'
    (to / "index.json").write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n', "utf-8")


def read(where: Path | None = None) -> list[Case]:
    """Return all cases in the index's order; every file's hash is checked."""
    where = where or folder()
    try:
        index = json.loads((where / "index.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{where / 'index.json'}: {error}, expected the golden vectors") from None
    if index["version"] != VERSION:
        raise DataError(f"{where}: version {index['version']}, expected {VERSION}")
    return [_read_case(where, entry) for entry in index["cases"]]


def _read_case(where: Path, entry: Mapping[str, Any]) -> Case:
    path = where / entry["file"]
    data = path.read_bytes()
    if sha256(data).hexdigest() != entry["sha256"]:
        raise DataError(f"{path}: not the file that index.json names (SHA-256 differs)")
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    sides: dict[str, Any] = {
        side: {name[len(p) :]: x for name, x in arrays.items() if name.startswith(p)}
        for side, p in (("inputs", "in."), ("outputs", "out."))
    }
    own: dict[str, Any] = {name: entry[name] for name in ENTRY}
    own |= {name: tuple(own[name]) for name in ("required", "catches")}
    return Case(**own, **sides)
