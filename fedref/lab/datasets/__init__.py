"""Data sets, their splits over clients, and manifests from which anyone can replay a split.

source = load("mnist", data_dir="...")
federation = split("fedprox-mnist", source, seed=1)
write_manifest(manifest_of(federation), "split.json")
assert manifest_of(from_manifest("split.json")) == manifest_of(federation)
"""

from fedref.lab.datasets.manifest import from_manifest, manifest_of
from fedref.lab.datasets.manifest import write as write_manifest
from fedref.lab.datasets.partition import split_clients
from fedref.lab.datasets.registry import SOURCES
from fedref.lab.datasets.rules import RULES, split
from fedref.lab.datasets.sources import load
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
    "split",
    "split_clients",
    "write_manifest",
]
