"""Real federated data: sources, splits, and manifests that anyone can replay.

source = load("mnist", data_dir="...")
federation = split("fedprox-mnist", source, seed=1)
write_manifest(manifest_of(federation), "split.json")
assert manifest_of(from_manifest("split.json")) == manifest_of(federation)
"""

import os
from pathlib import Path
from types import MappingProxyType

from fedref.boundary.errors import DataError
from fedref.boundary.files import bad, exists
from fedref.datasets import manifest as manifests
from fedref.datasets import sources
from fedref.datasets.manifest import manifest_of
from fedref.datasets.manifest import write as write_manifest
from fedref.datasets.parts import split_clients
from fedref.datasets.rules import RULES, split
from fedref.datasets.rules.general import reshuffle
from fedref.datasets.sources import SOURCES, load, parse_name, shipped
from fedref.rounds.federation import Federation, Part, Source

__all__ = [
    "RULES",
    "SOURCES",
    "Federation",
    "Part",
    "Source",
    "from_manifest",
    "load",
    "manifest_of",
    "reshuffle",
    "shipped",
    "split",
    "split_clients",
    "write_manifest",
]


def own_source(path: Path, name: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """The file or folder that a manifest was split from: beside it, or where `load` looks."""
    beside = path.parent / name  # where a file was split, it often lies beside the manifest
    found = beside if name and exists(beside) else sources.find(name, data_dir)
    if found is None:
        raise bad(
            path,
            f"its source {name!r} is not beside it",
            f"{name!r} beside the manifest, or its folder as --data-dir",
        )
    return found


def from_manifest(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None
) -> Federation:
    """The federation of a manifest, exactly: its source is loaded and must have the same SHA-256."""
    path = Path(path)
    found = manifests.read(path)
    name, wanted = found["source"]["name"], found["source"]["sha256"]
    source = load(
        name if parse_name(name) else own_source(path, name, data_dir), data_dir, verify=False
    )
    if source.sha256 != wanted:
        raise bad(
            path,
            f"the source {name} has SHA-256 {source.sha256}",
            f"{wanted}, as when it was split",
        )
    words = list(source.label_names) if source.label_names else None
    if found["source"].get("labels") != words:
        raise bad(
            path, f"the labels of {name} are called otherwise", "the words they were split with"
        )
    train, test = (Part(*manifests.part(found, part, path)) for part in ("train", "test"))
    p = source.X.shape[1]
    federation = Federation(
        source,
        train,
        test,
        found["rule"],
        MappingProxyType(found["parameters"]),
        found["seed"],
        manifests.affine(found, "shift", p, path),
        manifests.affine(found, "scale", p, path),
        manifests.names(found, path),
    )
    try:
        federation.check()
    except DataError as error:
        raise bad(path, error, "a split that can be trained on") from error
    return federation
