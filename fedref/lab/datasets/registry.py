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

    held : its file by all its names, or whether a folder holds its files; generated data have ().
    read(path, **parameters) → arrays. parameters : a dataclass of these parameters (None: `read` itself
    says them). The rest is as in registry.toml.
    """

    held: Sequence[str] | Callable[[Path], bool]
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

    def find(self, folder: Path) -> Path | None:
        """Return the file or the folder to read, if it is there."""
        if callable(self.held):
            return folder if self.held(folder) else None
        return next((folder / name for name in self.held if (folder / name).exists()), None)


def read_digits(path: Path) -> Raw:
    return npz.read(path)._replace(facts={"image": (8, 8, 1), "full_scale": 16.0})


#: Data set → what is held, `read` and parameters.
READERS: dict[str, tuple[Any, ...]] = {
    "digits": (["digits.npz"], read_digits),
    "mnist": (idx.folder_holds_images, idx.read),
    "emnist": (["gzip.zip"], idx.read_emnist),
    "cifar10-gray": (["cifar10-gray.npz"], npz.read),
    "vehicle": (["vehicle.json"], leaf.read),
    "landmine": (["landmine.mat"], mat.read),
    "shakespeare": (["roles.json.gz", "roles.json"], texts.read_shakespeare),
    "sent140": (leaf.folder_holds_json, texts.read_sent140),
    "synthetic": ((), synthetic.read, synthetic.Synthetic),
    "synthetic-iid": ((), partial(synthetic.read, iid=True), synthetic.SyntheticIID),
}
TEXTS = tomllib.loads((files("fedref.lab.datasets") / "registry.toml").read_text("utf-8"))
#: What is usual for data of the user's own: they keep their clients.
OTHER_DATA = NamedData((), npz.read)
SOURCES = {name: NamedData(*reader, **TEXTS[name]) for name, reader in READERS.items()}
