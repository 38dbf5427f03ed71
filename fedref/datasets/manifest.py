"""A split as a file: which rows of which source belong to whom, sealed by a SHA-256.

    {"format": "fedref-split/1", "rule", "parameters", "seed",
     "source": {"name", "sha256", "rows"},     and "labels", what 0, 1, ... are called, if words
     "shift": number or [p numbers], "scale": ...,        features are (x − shift) / scale
     "clients": [{"name", "train": [row, ...], "test": [row, ...]}, ...],
     "sha256": of the JSON text of all the rest: keys sorted, no white space, ASCII, numbers as
               Python's json writes them}

Any program that reads JSON can replay it; the rows count from 0 in the source's own order. A number
spelt otherwise, or a key that occurs twice, is a change like any other.
"""

import hashlib
import json
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.errors import DataError
from fedref.boundary.files import Budget, bad, from_json, guard, read_all, regular, unique, written
from fedref.datasets.formats import arrays
from fedref.datasets.formats.arrays import fingerprint
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation

FORMAT = "fedref-split/1"
EXPECTED = f"a split manifest, {FORMAT}"
KINDS: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "source": (dict,),
    "rule": (str,),
    "parameters": (dict,),
    "seed": (int,),
    "shift": (int, float, list),
    "scale": (int, float, list),
    "clients": (list,),
    "sha256": (str,),
}


def seal(manifest: dict[str, Any]) -> str:
    """SHA-256 of everything but the seal itself, in one canonical spelling."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def per_client(rows: Array, offsets: Array) -> list[list[int]]:
    """Each client's rows as plain lists."""
    flat, ends = rows.tolist(), offsets.tolist()
    return [flat[a:b] for a, b in pairwise(ends)]


def manifest_of(federation: Federation) -> dict[str, Any]:
    """The split as JSON-able values: source, rule, parameters, seed, rows per client, SHA-256."""
    train, test = (
        per_client(part.rows, part.offsets) for part in (federation.train, federation.test)
    )
    source = federation.source
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "source": {
            "name": source.name,
            "sha256": source.sha256 or fingerprint(source.X, source.y, source.client),
            "rows": len(source.y),
            **({"labels": list(source.label_names)} if source.label_names else {}),
        },
        "rule": federation.rule,
        "parameters": dict(federation.parameters),
        "seed": federation.seed,
        "shift": np.asarray(federation.shift).tolist(),
        "scale": np.asarray(federation.scale).tolist(),
        "clients": [
            {"name": name, "train": a, "test": b}
            for name, a, b in zip(federation.names, train, test)
        ],
    }
    return manifest | {"sha256": seal(manifest)}


def write(manifest: dict[str, Any], path: Path | str) -> None:
    """The manifest as JSON, one client a line; all of it or nothing."""
    head = {key: value for key, value in manifest.items() if key != "clients"}
    text = "{" + "".join(f'\n "{key}": {json.dumps(value)},' for key, value in head.items())
    text += '\n "clients": [\n  '
    text += ",\n  ".join(json.dumps(client) for client in manifest["clients"]) + "\n ]\n}\n"
    written(Path(path), text.encode())


def read(path: Path | str) -> dict[str, Any]:
    """A manifest whose seal holds and whose parts are what they should be."""
    path = Path(path)
    budget = Budget(path)
    data = read_all(path, budget, EXPECTED)
    # a manifest may hold millions of row numbers: they are looked at one by one only if one could
    # be -0, the one whole number that has two spellings
    whole = {"parse_int": exact_int} if b"-0" in data else {}
    with guard(path, EXPECTED):
        manifest = from_json(data, budget, parse_float=exact, object_pairs_hook=unique, **whole)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise bad(path, "no such format", EXPECTED)
    odd = sorted(set(manifest) ^ set(KINDS)) or [
        key for key, kinds in KINDS.items() if type(manifest[key]) not in kinds
    ]
    if not odd and not all(isinstance(manifest["source"].get(k), str) for k in ("name", "sha256")):
        odd = ["source"]
    if odd:
        raise bad(path, f"missing, unknown or of another type: {', '.join(odd)}", EXPECTED)
    with guard(path, EXPECTED):
        found = seal(manifest)
    if found != manifest["sha256"]:
        raise bad(
            path,
            f"its content has SHA-256 {found}",
            f"{manifest['sha256']}, with which it was sealed: it was changed since",
        )
    return manifest


def exact(text: str) -> float:
    """A number in the one spelling that json writes: others of the same value escape the seal."""
    value = float(text)
    if repr(value) != text:
        raise ValueError(f"number {text[:40]} is not spelt {value!r}: it was changed")
    return value


def exact_int(text: str) -> int:
    """The same for whole numbers: -0 would be written as 0."""
    value = int(text)
    if str(value) != text:
        raise ValueError(f"number {text[:40]} is not spelt {value}: it was changed")
    return value


def is_manifest(path: Path) -> bool:
    """Whether a file looks like one, by its beginning."""
    try:
        with regular(path, EXPECTED) as stream:
            return FORMAT.encode() in stream.read(1024)
    except (OSError, DataError):
        return False


def part(manifest: dict[str, Any], name: str, path: Path | str) -> tuple[Array, Array]:
    """(rows, offsets) of "train" or "test"."""
    with guard(path, f"a list {name} of whole row numbers for every client"):
        lists = [client[name] for client in manifest["clients"]]
        odd = [value for value in chain.from_iterable(lists) if type(value) is not int]
        if odd:
            raise ValueError(f"row {odd[0]!r}")
        sizes = [len(rows) for rows in lists]
        rows = np.fromiter(chain.from_iterable(lists), np.int64, sum(sizes))
        return rows, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def names(manifest: dict[str, Any], path: Path | str) -> tuple[str, ...] | None:
    """The clients' names; None if they are just their numbers."""
    with guard(path, "a name for every client"):
        found = tuple(client["name"] for client in manifest["clients"])
        if not all(isinstance(name, str) for name in found):
            raise ValueError("a name is no text")
        arrays.writable(list(found))
    return None if found == tuple(map(str, range(len(found)))) else found


def affine(manifest: dict[str, Any], name: str, p: int, path: Path | str) -> Array | float:
    """shift or scale: one number, or one for each of p features."""
    with guard(path, f"{name}: a number, or {p} of them"):
        found = np.array(manifest[name], np.float64)
        if found.shape not in ((), (p,)):
            raise ValueError(f"{name} has shape {found.shape}")
        return found if found.ndim else float(found)
