"""A split as a file: the source, the rows of each client, and a SHA-256 that seals them.

    {"format": "fedref-split/1", "rule", "parameters", "seed",
     "source": {"name", "sha256", "rows"},     and "labels": the words for 0, 1, ..., if it has any;
                                               "columns": {"label", "client"}, if they were named
     "shift": number or [p numbers], "scale": ...,        features are (x − shift) / scale
     "clients": [{"name", "train": [row, ...], "test": [row, ...]}, ...],     "validation", too, if there is
     "unseen": [{"name", "test": [row, ...]}, ...]        only if some clients have no training row
     "sha256": of the JSON text of all the rest: keys sorted, no white space, ASCII, numbers as
               Python's json writes them}

Any program that reads JSON can replay it. Rows count from 0 in the order of the source.
"""

import hashlib
import json
import os
from collections import Counter
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary import files
from fedref.boundary.errors import DataError
from fedref.boundary.files import as_data_error, data_error, exists, open_regular, read_json
from fedref.lab.datasets import sources
from fedref.lab.datasets.formats.arrays import fingerprint, require_utf8
from fedref.lab.datasets.partition import offsets
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source

FORMAT = "fedref-split/1"
EXPECTED = f"a split manifest, {FORMAT}"
#: The entries that a manifest has, by their types.
KINDS: dict[tuple[type, ...], tuple[str, ...]] = {
    (str,): ("format", "rule", "sha256"),
    (dict,): ("source", "parameters"),
    (int,): ("seed",),
    (list,): ("clients",),
    (int, float, list): ("shift", "scale"),
}


def seal(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its entry "sha256", in one canonical spelling."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def manifest_of(federation: Federation) -> dict[str, Any]:
    """Return a federation's split as a manifest: values for JSON, as in the module's docstring."""
    source, parts = federation.source, federation.parts
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "source": {
            "name": source.name,
            "sha256": source.sha256 or fingerprint(source.X, source.y, source.client),
            "rows": len(source.y),
            **({"labels": list(source.label_names)} if source.label_names else {}),
            **({"columns": dict(source.columns)} if source.columns else {}),
        },
        "rule": federation.rule,
        "parameters": dict(federation.parameters),
        "seed": federation.seed,
        "shift": np.asarray(federation.shift).tolist(),
        "scale": np.asarray(federation.scale).tolist(),
        "clients": [
            {"name": name} | {key: part.rows_of(k).tolist() for key, part in parts.items()}
            for k, name in enumerate(federation.names)
        ],
    }
    if (unseen := federation.unseen) is not None:
        manifest["unseen"] = [
            {"name": name, "test": unseen.rows_of(k).tolist()}
            for k, name in enumerate(federation.unseen_names)
        ]
    return manifest | {"sha256": seal(manifest)}


def write(manifest: dict[str, Any], path: Path | str) -> None:
    """Write the manifest as JSON, one client per line; on a failure, leave no file."""
    head = {key: value for key, value in manifest.items() if key != "clients"}
    text = "{" + "".join(f'\n "{key}": {json.dumps(value)},' for key, value in head.items())
    text += '\n "clients": [\n  '
    text += ",\n  ".join(json.dumps(client) for client in manifest["clients"]) + "\n ]\n}\n"
    files.write_or_raise(Path(path), text.encode())


# ---- reading -------------------------------------------------------------------------------------


def read(path: Path | str) -> dict[str, Any]:
    """Read a manifest; a DataError if its SHA-256 does not match or a value has a wrong type."""
    path = Path(path)
    manifest = read_json(path, EXPECTED)
    if manifest.get("format") != FORMAT:
        raise data_error(path, "no such format", EXPECTED)
    entries = set(manifest) - {"unseen"}
    odd = sorted(entries ^ set(chain.from_iterable(KINDS.values()))) or [
        key for kinds, keys in KINDS.items() for key in keys if type(manifest[key]) not in kinds
    ]
    if not odd and not all(isinstance(manifest["source"].get(k), str) for k in ("name", "sha256")):
        odd = ["source"]
    if odd:
        raise data_error(path, f"missing, unknown or of another type: {', '.join(odd)}", EXPECTED)
    with as_data_error(path, EXPECTED):
        sha256 = seal(manifest)
    if sha256 != manifest["sha256"]:
        sealed = f"{manifest['sha256']}, which stands in it: it has been changed"
        raise data_error(path, f"its content has SHA-256 {sha256}", sealed)
    return manifest


def is_manifest(path: Path) -> bool:
    """Return whether the beginning of a file looks like that of a manifest."""
    try:
        with open_regular(path, EXPECTED) as stream:
            return FORMAT.encode() in stream.read(1024)
    except (OSError, DataError):
        return False


def part_of(lists: list[list[int]]) -> Part:
    """Return each client's rows, given as plain lists; a TypeError if one is no whole number."""
    rows = list(chain.from_iterable(lists))
    if odd := [row for row in rows if type(row) is not int]:
        raise TypeError(f"row {odd[0]!r} is no whole number")
    return Part(np.array(rows, np.int64), offsets(np.array([len(rows) for rows in lists])))


def read_affine(value: Any, name: str, p: int, path: Path) -> Array | float:
    """Return shift or scale: one number, or one for each of p features."""
    with as_data_error(path, f"{name}: a number, or {p} of them"):
        values = np.array(value)
        if values.dtype.kind not in "iuf":
            raise ValueError(f"{name} holds other values than numbers")
        values = values.astype(np.float64)
        if values.shape not in ((), (p,)):
            raise ValueError(f"{name} has shape {values.shape}")
        return values if values.ndim else float(values)


# ---- replaying -----------------------------------------------------------------------------------


def load_source(
    path: Path, name: str, columns: Any, data_dir: str | os.PathLike[str] | None
) -> Source:
    """Load the data that a manifest names. Download nothing: somebody else may have written it."""
    if not isinstance(columns, dict):
        raise data_error(path, "columns are no object", EXPECTED)
    if sources.parse_name(name):
        return sources.load(name, data_dir, download=False, verify=False)
    beside = path.parent / name  # the manifest of a split file often lies beside that file
    place = beside if name and exists(beside) else sources.find(name, data_dir)
    if place is None:
        expected = f"{name!r} beside the manifest, or its folder as --data-dir"
        raise data_error(path, f"its source {name!r} is not beside it", expected)
    return sources.load(place, data_dir, **columns)


def from_manifest(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None
) -> Federation:
    """Return the federation of a manifest, exactly: its source must have the same SHA-256."""
    path = Path(path)
    manifest = read(path)
    name, sha256 = manifest["source"]["name"], manifest["source"]["sha256"]
    source = load_source(path, name, manifest["source"].get("columns", {}), data_dir)
    if source.sha256 != sha256:
        what = f"the source {name} has SHA-256 {source.sha256}"
        raise data_error(path, what, f"{sha256}, as when it was split")
    words = list(source.label_names) if source.label_names else None
    if manifest["source"].get("labels") != words:
        what = f"the labels of {name} have other names"
        raise data_error(path, what, "the words they were split with")
    p, clients = source.X.shape[1], manifest["clients"]
    shift, scale = (read_affine(manifest[key], key, p, path) for key in ("shift", "scale"))
    if not clients:
        raise data_error(path, "it has no clients", EXPECTED)
    with as_data_error(path, "lists train and test of rows and a name for every client"):
        if odd := [client for client in clients if not isinstance(client, dict)]:
            raise TypeError(f"client {clients.index(odd[0])} is {odd[0]!r}")
        validated = any("validation" in client for client in clients)
        held = ("train", "test", *(["validation"] if validated else []))
        parts = {name: part_of([client[name] for client in clients]) for name in held}
        names = require_utf8(client["name"] for client in clients)
        unseen = manifest.get("unseen", [])
        unseen_names = require_utf8(client["name"] for client in unseen)
        unseen_part = part_of([client["test"] for client in unseen]) if unseen else None
    federation = Federation(
        source, **parts, rule=manifest["rule"], parameters=MappingProxyType(manifest["parameters"]),
        seed=manifest["seed"], shift=shift, scale=scale,
        client_names=None if names == tuple(map(str, range(len(names)))) else names,
        unseen=unseen_part, unseen_names=unseen_names,
    )  # fmt: skip
    check_federation(federation, path, "a split that can be trained on")
    require_once(federation, path)
    return federation


def require_once(federation: Federation, path: Path) -> None:
    """Refuse two clients of one name, and a row that a part has twice."""
    every = Counter((*federation.names, *federation.unseen_names))
    if twice := [name for name, count in every.items() if count > 1]:
        raise data_error(path, f"two clients are called {twice[0]!r}", "names that differ")
    for kind, part in federation.every_part.items():
        rows, counts = np.unique(part.rows, return_counts=True)
        for row in rows[counts > 1]:
            names = federation.unseen_names if kind == "unseen" else federation.names
            one, other, *_ = (names[k] for k in part.owners[part.rows == row])
            also = " twice" if one == other else f" and of client {other}"
            what = f"row {row} is a {kind} row of client {one}{also}"
            raise data_error(path, what, "every row once")


def check_federation(federation: Federation, path: Path, expected: str) -> None:
    """Raise a DataError that names the file if its federation cannot be trained on."""
    try:
        federation.check()
    except DataError as error:
        raise data_error(path, error, expected) from error
