"""The named data sets. Each is registered here and in registry.toml, and nowhere else."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedref.boundary.values import Entry, schema
from fedref.lab.datasets import synthetic, texts
from fedref.lab.datasets.formats import idx, leaf, mat, npz
from fedref.lab.datasets.formats.arrays import Raw


class NamedData(NamedTuple):
    """A named data set.

    find(folder) → path or None (generated data have no `find`); read(path, **parameters) → arrays.
    parameters : a dataclass of these parameters (None: `read` itself says them). The rest is as in
    registry.toml.
    """

    find: Callable[[Path], Path | None] | None
    read: Callable[..., Raw]
    parameters: type[Any] | None = None
    files: str = ""
    help: str = ""
    split: str = "natural"
    split_values: Mapping[str, Any] = MappingProxyType({})
    model: str = "logistic"
    addresses: Sequence[str] = ()
    hashes: Mapping[str, str] = MappingProxyType({})
    sha256: str = ""

    @property
    def entries(self) -> dict[str, Entry]:
        """What may stand in the name, in this order, as in emnist(letters,a-j)."""
        known = schema(self.parameters or self.read)
        return {name: entry for name, entry in known.items() if name != "path"}


def first_of(*names: str) -> Callable[[Path], Path | None]:
    """Return a `find` that takes the first of these files that exists."""

    def find(folder: Path) -> Path | None:
        return next((folder / name for name in names if (folder / name).exists()), None)

    return find


def read_digits(path: Path) -> Raw:
    return npz.read(path)._replace(facts={"image": (8, 8, 1), "full_scale": 16.0})


def holding(holds: Callable[[Path], bool]) -> Callable[[Path], Path | None]:
    """Return a `find` that takes the folder itself, if it holds the files."""
    return lambda folder: folder if holds(folder) else None


#: Data set → its `find`, `read` and parameters.
READERS: dict[str, tuple[Any, ...]] = {
    "digits": (first_of("digits.npz"), read_digits),
    "mnist": (holding(idx.folder_holds_images), idx.read),
    "emnist": (first_of("gzip.zip"), idx.read_emnist),
    "cifar10-gray": (first_of("cifar10-gray.npz"), npz.read),
    "vehicle": (first_of("vehicle.json"), leaf.read),
    "landmine": (first_of("landmine.mat"), mat.read),
    "shakespeare": (first_of("roles.json.gz", "roles.json"), texts.read_shakespeare),
    "sent140": (holding(leaf.folder_holds_json), texts.read_sent140),
    "synthetic": (None, synthetic.read, synthetic.Synthetic),
    "synthetic-iid": (None, partial(synthetic.read, iid=True), synthetic.SyntheticIID),
}  # fmt: skip
TEXTS = tomllib.loads((files("fedref.lab.datasets") / "registry.toml").read_text("utf-8"))
#: What is usual for data of the user's own: they keep their clients.
OTHER_DATA = NamedData(None, npz.read)
SOURCES = {name: NamedData(*reader, **TEXTS[name]) for name, reader in READERS.items()}
