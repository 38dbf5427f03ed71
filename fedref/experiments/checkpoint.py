"""Checkpoints: any tree of arrays and numbers in one file that is whole or is refused.

Format: one line `fedref-checkpoint 1 <sha256 of the rest>`, then a .npz (never pickled) with the
arrays and, under `tree`, the structure as JSON. A file is written beside its place, synced and
renamed; the one before stays as `NAME.old`.
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from hashlib import sha256
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import DataError
from fedref.boundary.files import write_whole

MAGIC = b"fedref-checkpoint 1 "

#: What reading a whole file of another making can raise.
DECODING = (
    OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    RecursionError, NotImplementedError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

#: The tuple types that a checkpoint may hold: MODULE:NAME → NamedTuple.
Types = Mapping[str, type[Any]]


def type_name(kind: type[Any]) -> str:
    """MODULE:NAME, as a checkpoint has it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _encode(value: Any, arrays: dict[str, Any]) -> Any:
    """JSON for the structure; arrays are put aside under a number."""
    if isinstance(value, np.ndarray):
        arrays[f"a{len(arrays)}"] = value
        return {"array": f"a{len(arrays) - 1}"}
    if isinstance(value, np.generic):
        return _encode(np.asarray(value), arrays) | {"scalar": True}
    if isinstance(value, tuple):
        items = [_encode(item, arrays) for item in value]
        return {"tuple": type_name(type(value)) * hasattr(value, "_fields"), "items": items}
    if isinstance(value, list):
        return {"list": [_encode(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda pair: (isinstance(pair[0], str), pair[0]))
        return {"map": [[key, _encode(item, arrays)] for key, item in pairs]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _decode(node: Any, arrays: Mapping[str, Any], types: Types) -> Any:
    if "array" in node:
        array = arrays[node["array"]]
        return array[()] if node.get("scalar") else array
    if "tuple" in node:
        items = [_decode(item, arrays, types) for item in node["items"]]
        if not node["tuple"]:
            return tuple(items)
        if node["tuple"] not in types:  # never looked up anywhere else
            raise DataError(f"a checkpoint names the type {node['tuple']!r}, which none here has")
        return types[node["tuple"]](*items)
    if "list" in node:
        return [_decode(item, arrays, types) for item in node["list"]]
    if "map" in node:
        return {key: _decode(item, arrays, types) for key, item in node["map"]}
    return node["value"]


def _arrays(body: bytes) -> dict[str, Any]:
    """The arrays of an .npz by name, none larger than its bytes in the file."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{member.filename} is compressed")
            with archive.open(member) as file:
                np.lib.format.read_magic(file)
                shape, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
                if dtype.hasobject or prod(shape) * dtype.itemsize > len(body):
                    raise ValueError(f"{member.filename} is {dtype} of shape {shape}")
                data = bytearray(file.read())
            if len(data) != prod(shape) * dtype.itemsize:
                raise ValueError(f"{member.filename} has {len(data)} bytes for the shape {shape}")
            array = np.frombuffer(data, dtype).reshape(shape, order="F" if columns_first else "C")
            found[member.filename.removesuffix(".npy")] = array
    return found


def dumps(value: Any) -> bytes:
    """The same value always gives the same bytes."""
    arrays: dict[str, Any] = {}
    structure = json.dumps(_encode(value, arrays))
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(structure.encode(), np.uint8), **arrays)
    body = buffer.getvalue()
    return MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def loads(data: bytes, where: str = "checkpoint", types: Types = MappingProxyType({})) -> Any:
    """What `dumps` was given, with tuples of these types; DataError if a bit has changed."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(MAGIC):
        raise DataError(f"{where}: is no checkpoint of version 1 (begins with {head[:24]!r})")
    if sha256(body).hexdigest().encode() != head.removeprefix(MAGIC):
        raise DataError(f"{where}: is damaged (its SHA-256 is not the one it was written with)")
    try:
        arrays = _arrays(body)
        return _decode(json.loads(arrays["tree"].tobytes()), arrays, types)
    except DECODING as error:
        raise DataError(f"{where}: cannot be decoded ({error})") from error


def save(path: Path, value: Any) -> None:
    """The checkpoint at `path`; the one that was there becomes `path`.old."""
    write_whole(path, dumps(value), before=old(path))


def old(path: Path) -> Path:
    return path.with_name(path.name + ".old")


def load_newest(path: Path, types: Types = MappingProxyType({})) -> tuple[Any, list[str]]:
    """(value, warnings) of the newest whole checkpoint; value None if there is none."""
    warnings: list[str] = []
    for candidate in (path, old(path)):
        try:
            return loads(candidate.read_bytes(), str(candidate), types), warnings
        except FileNotFoundError:
            continue
        except DataError as error:
            warnings.append(f"{error}: it is left aside")
    return None, warnings


def recover(path: Path, types: Types = MappingProxyType({})) -> tuple[Any, list[str]]:
    """`load_newest` before a run goes on to save: a damaged file must not become the one before."""
    value, warnings = load_newest(path, types)
    if warnings and value is not None:
        os.replace(old(path), path)
        warnings.append(f"{path}: going on from the checkpoint before, which is whole")
    elif warnings:
        warnings.append(f"{path}: no whole checkpoint is left, starting anew")
    return value, warnings
