"""Checkpoints: any tree of arrays and numbers in one file, which is refused unless it is intact.

Format: one line `fedref-checkpoint 1 <sha256 of the rest>`, then a .npz (never pickled) with the
arrays and, under `tree`, the structure as JSON. Content whose hash matches is not checked again.
"""

import io
import json
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from fedref.boundary.errors import DataError

MAGIC = b"fedref-checkpoint 1 "


def _encode(value: Any, arrays: dict[str, Any]) -> Any:
    """Return the structure as values for JSON; put the arrays into `arrays` under numbered names."""
    if isinstance(value, np.ndarray):
        arrays[f"a{len(arrays)}"] = value
        return {"array": f"a{len(arrays) - 1}"}
    if isinstance(value, np.generic):
        return _encode(np.asarray(value), arrays) | {"scalar": True}
    if isinstance(value, tuple):
        items = [_encode(item, arrays) for item in value]
        kind = type(value)
        name = f"{kind.__module__}:{kind.__qualname__}" if hasattr(value, "_fields") else ""
        return {"tuple": name, "items": items}
    if isinstance(value, list):
        return {"list": [_encode(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda pair: (isinstance(pair[0], str), pair[0]))
        return {"map": [[key, _encode(item, arrays)] for key, item in pairs]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _decode(node: Any, arrays: Mapping[str, Any], code: bool) -> Any:
    if "array" in node:
        array = arrays[node["array"]]
        return array[()] if node.get("scalar") else array
    if "tuple" in node:
        items = [_decode(item, arrays, code) for item in node["items"]]
        foreign = not code and not node["tuple"].startswith("fedref.")
        return tuple(items) if foreign or not node["tuple"] else _named_tuple(node["tuple"])(*items)
    if "list" in node:
        return [_decode(item, arrays, code) for item in node["list"]]
    if "map" in node:
        return {key: _decode(item, arrays, code) for key, item in node["map"]}
    return node["value"]


def _named_tuple(name: str) -> type[Any]:
    """Return the NamedTuple MODULE:NAME. Its module must be imported already: no file imports one."""
    module, _, attribute = name.partition(":")
    kind = getattr(sys.modules.get(module), attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise LookupError(f"it names the type {name!r}, which is not known here")
    return kind


def dumps(value: Any) -> bytes:
    """Return a value as bytes; the same value always gives the same bytes."""
    arrays: dict[str, Any] = {}
    structure = json.dumps(_encode(value, arrays))
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(structure.encode(), np.uint8), **arrays)
    body = buffer.getvalue()
    return MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def loads(data: bytes, where: str = "checkpoint", code: bool = True) -> Any:
    """Read what `dumps` has written; DataError if a bit has changed.

    code : whether a NamedTuple of the user's own must be known; else it becomes a plain tuple.
    """
    head, _, body = data.partition(b"\n")
    if not head.startswith(MAGIC):
        raise DataError(f"{where}: is not a checkpoint of version 1 (begins with {head[:24]!r})")
    if sha256(body).hexdigest().encode() != head.removeprefix(MAGIC):
        raise DataError(f"{where}: is damaged (its SHA-256 is not the one it was written with)")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            arrays = dict(archive)
        return _decode(json.loads(arrays["tree"].tobytes()), arrays, code)
    except Exception as error:  # intact, but written by another version
        raise DataError(f"{where}: cannot be decoded ({error})") from error
