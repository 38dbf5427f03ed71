"""The named data sets. Each is registered here and nowhere else, as a row of SOURCES.

A row says how the files are found and read, what they hold, which rule usually splits them, where
they are published, and the SHA-256 of their content. The hash of a packed file is compared only
when it is downloaded: the same data packed again have another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedref.lab.datasets import synthetic, texts
from fedref.lab.datasets.formats import emnist, idx, leaf, mat, npz
from fedref.lab.datasets.formats.arrays import Raw


@dataclass(frozen=True)
class NoParameters:
    """The parameters of a data set that has none."""


class NamedData(NamedTuple):
    """A named data set.

    find(folder) → path or None (generated data have no `find`); read(path, **parameters) → arrays.
    files : which files it needs, in words. help : a line for users. split : the usual split rule.
    parameters : a dataclass, whose fields may stand in the name in this order, as in
    emnist(letters,a-j). addresses : of folders, each with all files of `hashes`, to download.
    hashes : file → its SHA-256, or "md5:...", as its publisher gives it. sha256 : of the content ("":
    not compared).
    """

    find: Callable[[Path], Path | None] | None
    read: Callable[..., Raw]
    files: str
    help: str
    split: str
    parameters: type[Any] = NoParameters
    addresses: tuple[str, ...] = ()
    hashes: Mapping[str, str] = MappingProxyType({})
    sha256: str = ""


def first_of(*names: str) -> Callable[[Path], Path | None]:
    """Return a `find` that takes the first of these files that exists."""

    def find(folder: Path) -> Path | None:
        return next((folder / name for name in names if (folder / name).exists()), None)

    return find


SOURCES: dict[str, NamedData] = {
    "digits": NamedData(
        first_of("digits.npz"),
        lambda path: npz.read(path)._replace(facts={"image": (8, 8, 1), "full_scale": 16.0}),
        "digits.npz",
        "UCI optical digits, 1 797 images of 8×8 (shipped)",
        "per-fedavg",
        sha256="9412306fcce78e42a62b53b9d042f3208a5a9def042d75be348d43b1647f21f4",
    ),
    "mnist": NamedData(
        lambda folder: folder if idx.folder_holds_images(folder) else None,
        idx.read,
        "the four idx files, e.g. train-images-idx3-ubyte.gz",
        "MNIST, 70 000 images of 28×28",
        "fedprox-mnist",
        addresses=(
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        hashes={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        sha256="aab2d3960bf1c60aa37e95536dc194732c103bb56ee19bda838082b237d282f2",
    ),
    "emnist": NamedData(
        first_of("gzip.zip"),
        emnist.read,
        "gzip.zip",
        "EMNIST: emnist(letters), emnist(letters,a-j), emnist(byclass), emnist(byclass,a-j)",
        "fedprox-femnist",
        emnist.EMNIST,
        addresses=("https://biometrics.nist.gov/cs_links/EMNIST/",),
        hashes={"gzip.zip": "md5:58c8d27c78d21e728a6bc7b3cc06412e"},
    ),
    "cifar10-gray": NamedData(
        first_of("cifar10-gray.npz"),
        npz.read,
        "cifar10-gray.npz (train_images, train_labels, test_images, test_labels)",
        "CIFAR-10 in grey, from one .npz file",
        "cifar10-powerlaw",
    ),
    "vehicle": NamedData(
        first_of("vehicle.json"),
        leaf.read,
        "vehicle.json (LEAF JSON)",
        "Vehicle sensors, 100 features, 2 classes, one client per sensor",
        "natural",
    ),
    "landmine": NamedData(
        first_of("landmine.mat"),
        mat.read,
        "landmine.mat",
        "Landmine detection, 29 tasks, 9 features, 2 classes",
        "natural",
    ),
    "shakespeare": NamedData(
        first_of("roles.json.gz", "roles.json"),
        texts.read_shakespeare,
        "roles.json.gz",
        "Shakespeare's roles: 80 characters and the next, one client per role; shakespeare(step=20)",
        "natural",
        texts.Shakespeare,
    ),
    "sent140": NamedData(
        lambda folder: folder if leaf.folder_holds_json(folder) else None,
        texts.read_sent140,
        "LEAF JSON (train and test folders, or all_data)",
        "Sentiment140, tweets of 2 classes, one client per user",
        "natural",
        texts.Sent140,
    ),
    "synthetic": NamedData(
        None,
        synthetic.read,
        "",
        "FedProx's Synthetic(α,β): synthetic(0.5,0.5), synthetic(1,1,users=100,seed=3)",
        "natural",
        synthetic.Synthetic,
    ),
    "synthetic-iid": NamedData(
        None,
        partial(synthetic.read, alpha=0.0, beta=0.0, iid=True),
        "",
        "the IID variant of Synthetic(α,β): one model for all clients",
        "natural",
        synthetic.SyntheticIID,
    ),
}
