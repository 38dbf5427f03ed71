"""The golden vectors' files: the same bytes every time."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedref.conformance.vectors import SEAL, VERSION
from fedref.judge.case import Case
from fedref.models.numerics import Array


def pack_npz(arrays: Mapping[str, Array]) -> bytes:
    """Return an uncompressed archive of .npy members with a fixed date: always the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, x in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), pack_npy(as_little_endian(x)))
    return stream.getvalue()


def pack_npy(x: Array) -> bytes:
    """Return a .npy of version 1.0, its header half as long as NumPy's: most arrays here are small."""
    shape = "".join(f"{n}," for n in x.shape)
    head = f"{{'descr': '{x.dtype.str}','fortran_order':False,'shape':({shape})}}"
    head = head.ljust(-(-(len(head) + 11) // 16) * 16 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + x.tobytes()


def as_little_endian(x: Array) -> Array:
    """Return x little-endian and in C order: floats float64, whole numbers int64, flags bool."""
    kinds = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}
    return np.asarray(x, kinds[np.asarray(x).dtype.kind], order="C")


#: A case's fields in the index, in their order.
ENTRY = (
    "name", "tag", "tags", "about", "call", "algorithm", "model", "hyper",
    "required", "tolerance", "condition", "digits", "catches",
    "convention", "part", "quick",
)  # fmt: skip
#: How every tolerance follows from the case's condition.
REASON = (
    "32 × condition × the dtype's epsilon: by so many units of rounding the outputs move, measured"
)


def index_entry(
    case: Case, content: bytes, numbers: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the index's entry for one case. numbers : a mistake's place in the index's list."""
    return {
        **{name: getattr(case, name) for name in ENTRY},
        "catches": [(numbers or {}).get(name, name) for name in case.catches],
        "outputs": list(case.outputs),
        "file": f"{case.name}.npz", "sha256": sha256(content).hexdigest(),
    }  # fmt: skip


def case_bytes(case: Case) -> bytes:
    """Return the bytes of a case's file."""
    arrays = {f"in.{k}": x for k, x in case.inputs.items()}
    return pack_npz(arrays | {f"out.{k}": x for k, x in case.outputs.items()})


def write(
    cases: list[Case], to: Path, mistakes: Sequence[Mapping[str, str]] = (), commit: str = ""
) -> None:
    """Write index.json and one .npz per case; remove the files of cases that are gone.

    mistakes : the index's entries; they include every mistake that a case catches.
    """
    to.mkdir(parents=True, exist_ok=True)
    entries, numbers = [], {mistake["name"]: i for i, mistake in enumerate(mistakes)}
    for case in cases:
        data = case_bytes(case)
        (to / f"{case.name}.npz").write_bytes(data)
        entries.append(index_entry(case, data, numbers))
    for path in to.glob("*.npz"):
        if path.stem not in {case.name for case in cases}:
            path.unlink()
    head = f'"version": {json.dumps(VERSION)}, "schema": "index.schema.json", "commit": "{commit}"'
    head += f', "tolerance": "{REASON}"'
    parts = [
        ",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in many)
        for many in (mistakes, entries)
    ]
    text = f'{{{head}, "mistakes": [\n{parts[0]}\n], "cases": [\n{parts[1]}\n]}}\n'
    (to / "index.json").write_text(text, "utf-8")
    (to / SEAL).write_text(sha256(text.encode()).hexdigest() + "\n")
