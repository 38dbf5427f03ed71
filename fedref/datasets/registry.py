"""The named data sets. Each is registered here and nowhere else, as a row of SOURCES.

A row says how the files are found and read, what they hold, which rule usually splits them, where
they are published, and the SHA-256 of their content. The hash of a packed file is compared only
when it is downloaded: the same data packed again have another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedref.datasets import synthetic, texts
from fedref.datasets.download import Remote
from fedref.datasets.formats import emnist, idx, leaf, mat, npz
from fedref.datasets.formats.arrays import Raw


@dataclass(frozen=True)
class NoParameters:
    """The parameters of a data set that has none."""


class NamedData(NamedTuple):
    """A named data set.

    find(folder, **parameters) → path or None; read(path, **parameters) → named arrays.
    files : which files it needs, in words. help : a line for users. split : the usual split rule.
    remotes : the files that can be downloaded. parameters : a dataclass, whose fields may stand in
    the name in this order, as in emnist(letters,a-j). sha256 : of the content ("": not compared).
    """

    find: Callable[..., Path | None]
    read: Callable[..., Raw]
    files: str
    help: str
    split: str
    remotes: tuple[Remote, ...] = ()
    parameters: type[Any] = NoParameters
    sha256: str = ""


def first_of(*names: str) -> Callable[..., Path | None]:
    """Return a `find` that takes the first of these files that exists."""

    def find(folder: Path, **parameters: Any) -> Path | None:
        return next((folder / name for name in names if (folder / name).exists()), None)

    return find


def find_nothing(folder: Path, **parameters: Any) -> Path | None:
    """Return the folder itself, as generated data need no file."""
    return folder


def remote_files(hashes: Mapping[str, str], *places: str) -> tuple[Remote, ...]:
    """Return the files {name: hash} of a data set; every place publishes all of them."""
    return tuple(
        Remote(name, tuple(place + name for place in places), hash) for name, hash in hashes.items()
    )


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
        lambda folder: folder if idx.folder_holds_images(folder, "") else None,
        lambda path: idx.read(path, ""),
        "the four idx files, e.g. train-images-idx3-ubyte.gz",
        "MNIST, 70 000 images of 28×28",
        "fedprox-mnist",
        remote_files(
            {
                "train-images-idx3-ubyte.gz": "sha256:"
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte.gz": "sha256:"
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "t10k-images-idx3-ubyte.gz": "sha256:"
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte.gz": "sha256:"
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        sha256="aab2d3960bf1c60aa37e95536dc194732c103bb56ee19bda838082b237d282f2",
    ),
    "emnist": NamedData(
        emnist.find,
        emnist.read,
        "gzip.zip, or emnist-letters-train-images-idx3-ubyte.gz and its three companions",
        "EMNIST: emnist(letters), emnist(letters,a-j), emnist(byclass,a-j), ...",
        "fedprox-femnist",
        remote_files(
            {"gzip.zip": "md5:58c8d27c78d21e728a6bc7b3cc06412e"},
            "https://biometrics.nist.gov/cs_links/EMNIST/",
        ),
        emnist.EMNIST,
    ),
    "cifar10-gray": NamedData(
        first_of("cifar10-gray.npz"),
        npz.read,
        "cifar10-gray.npz (train_images, train_labels, test_images, test_labels)",
        "CIFAR-10 in grey, from one .npz file",
        "cifar10-powerlaw",
    ),
    "vehicle": NamedData(
        first_of("vehicle.json", "train"),
        lambda path: leaf.read(path if path.suffix else path.parent),
        "vehicle.json (LEAF JSON), or folders train and test of LEAF JSON",
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
        texts.find_shakespeare,
        texts.read_shakespeare,
        "roles.json.gz, or LEAF JSON (train and test folders, or all_data)",
        "Shakespeare's roles: 80 characters and the next, one client per role; shakespeare(step=20)",
        "natural",
        parameters=texts.Shakespeare,
    ),
    "sent140": NamedData(
        texts.find_sent140,
        texts.read_sent140,
        "LEAF JSON (train and test folders, or all_data)",
        "Sentiment140, tweets of 2 classes, one client per user",
        "natural",
        parameters=texts.Sent140,
    ),
    "synthetic": NamedData(
        find_nothing,
        lambda path, **chosen: synthetic.read(**chosen),
        "",
        "FedProx's Synthetic(α,β): synthetic(0.5,0.5), synthetic(1,1,users=100,seed=3)",
        "natural",
        parameters=synthetic.Synthetic,
    ),
    "synthetic-iid": NamedData(
        find_nothing,
        lambda path, **chosen: synthetic.read(alpha=0.0, beta=0.0, iid=True, **chosen),
        "",
        "the IID variant of Synthetic(α,β): one model for all clients",
        "natural",
        parameters=synthetic.SyntheticIID,
    ),
}
