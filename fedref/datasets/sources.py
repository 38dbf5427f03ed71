"""Where data comes from: the named data sets, and any file or folder in a known format."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedref.datasets import download, synthetic
from fedref.datasets.download import Remote
from fedref.datasets.formats import archives, cifar, idx, leaf, mat, npz
from fedref.datasets.formats.files import bad, exists
from fedref.datasets.parameters import Parameter, resolve
from fedref.errors import ConfigError, DataError, unknown
from fedref.federation import Source

# ---- where files may be -------------------------------------------------------------------------


def shipped() -> Path:
    """The data that fedref brings along: in the package if installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_data"
    return inside if inside.is_dir() else package.parent / "data"


def given(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The user's folder of data sets: data_dir, else FEDREF_DATA, else none."""
    chosen = data_dir if data_dir is not None else os.environ.get("FEDREF_DATA") or None
    return None if chosen is None else Path(chosen)


def must_exist(root: Path | None) -> None:
    """Refuse a folder of data sets that is none."""
    if root is not None and not (exists(root) and root.is_dir()):
        raise bad(root, "no such folder", "the folder that holds data sets (FEDREF_DATA)")


def places(name: str, data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Folders that may hold a named data set, best first."""
    root = given(data_dir)
    if data_dir is not None:  # FEDREF_DATA may be wrong as long as nothing is needed from it
        must_exist(root)
    found = []
    if root is not None:
        found = [root / name]
        # DIR/mnist itself may be given for mnist, but never be taken for fashion-mnist
        if root.resolve().name == name or root.resolve().name not in SOURCES:
            found.append(root)
    found += [download.cache() / name, shipped() / name]
    return [folder for folder in found if folder.is_dir()]


# ---- the named data sets --------------------------------------------------------------------------


class Known(NamedTuple):
    """A named data set: how it is found in a folder, how it is read, where it is published.

    find(folder, **parameters) → path or None; read(path, **parameters) → Source.
    """

    find: Callable[..., Path | None]
    read: Callable[..., Source]
    files: str
    help: str
    split: str
    remotes: tuple[Remote, ...] = ()
    parameters: Mapping[str, Parameter] = MappingProxyType({})
    sha256: str = ""


def file(*names: str) -> Callable[..., Path | None]:
    """Look for the first of these files."""

    def find(folder: Path, **parameters: Any) -> Path | None:
        return next((folder / name for name in names if (folder / name).exists()), None)

    return find


def idx_files(folder: Path) -> Path | None:
    return folder if idx.in_folder(folder, "") else None


def mnist_like(base: str, mirror: str, hashes: Mapping[str, str]) -> tuple[Remote, ...]:
    return tuple(Remote(name, (base + name, mirror + name), h) for name, h in hashes.items())


MNIST = mnist_like(
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
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
)
FASHION = mnist_like(
    "https://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)
CIFAR = (
    Remote(
        cifar.ARCHIVE,
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
)
EMNIST = (
    Remote(
        "gzip.zip",
        ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    ),
)

# ---- EMNIST ---------------------------------------------------------------------------------------

DIGITS = "0123456789"
UPPER, LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
MERGED = DIGITS + UPPER + "abdefghnqrt"
# characters by published label; letters count from 1 (upper and lower case are one class)
ALPHABETS = {
    "letters": "·" + LOWER,
    "balanced": MERGED,
    "bymerge": MERGED,
    "byclass": DIGITS + UPPER + LOWER,
    "digits": DIGITS,
    "mnist": DIGITS,
}


def emnist_names(part: str) -> list[str]:
    return [
        f"emnist-{part}-{which}-{kind}-ubyte.gz"
        for which in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    ]


def find_emnist(folder: Path, part: str, classes: str | None) -> Path | None:
    for place in (folder, folder / "gzip"):
        if place.is_dir() and idx.in_folder(place, f"emnist-{part}-"):
            return place
    return file("gzip.zip", "emnist.zip")(folder)


def read_emnist(path: Path, part: str, classes: str | None, **more: Any) -> Source:
    """Images upright (the files hold them transposed); `classes` keeps some, labelled 0, 1, ..."""
    if path.is_dir():
        pairs = idx.read_folder(path, f"emnist-{part}-")
    else:
        names = emnist_names(part)
        found = archives.from_zip(path, names, "EMNIST's gzip.zip")
        each = [idx.unpack(data, f"{path}: {name}") for name, data in zip(names, found)]
        pairs = [idx.check_pair(*each[i : i + 2], *names[i : i + 2]) for i in (0, 2)]
    alphabet = ALPHABETS[part]
    kept = chosen_labels(alphabet, classes)
    new = np.full(256, -1)
    new[kept] = np.arange(len(kept))
    upright = []
    for X, y in pairs:
        if y.dtype != np.uint8 or y.max(initial=0) >= len(alphabet):
            raise bad(path, f"label {y.max(initial=0)}", f"labels below {len(alphabet)} in {part}")
        rows = new[y] >= 0
        upright.append((X[rows].swapaxes(1, 2), new[y[rows]]))
    return idx.join(upright, str(path), **more)


def chosen_labels(alphabet: str, classes: str | None) -> list[int]:
    """Published labels of "a-j" or "acx"; all (without the empty place 0 of letters) if None."""
    if classes is None:
        return [i for i, c in enumerate(alphabet) if c != "·"]
    ends = classes.split("-")
    wanted = classes
    if len(ends) == 2 and all(len(end) == 1 for end in ends):
        wanted = "".join(map(chr, range(ord(ends[0]), ord(ends[1]) + 1)))
    missing = [c for c in wanted if c not in alphabet.replace("·", "")]
    if missing or not wanted or len(set(wanted)) < len(wanted):
        raise ConfigError(
            f"emnist: classes is {classes!r}, expected characters of {alphabet.strip('·')}, "
            "such as a-j"
        )
    return [alphabet.index(c) for c in wanted]


# ---- synthetic -------------------------------------------------------------------------------------

SYNTHETIC = {
    "alpha": Parameter(float, 0.5, "how much local models differ", 0.0, 1e6),
    "beta": Parameter(float, 0.5, "how much local inputs differ", 0.0, 1e6),
    "users": Parameter(int, 30, "number of clients", 1),
    "features": Parameter(int, 60, "features", 1),
    "classes": Parameter(int, 10, "classes", 2),
    "seed": Parameter(int, 0, "seed of the generator", 0),
}
SYNTHETIC_IID = {k: v for k, v in SYNTHETIC.items() if k not in ("alpha", "beta")}


def made(folder: Path, **parameters: Any) -> Path | None:
    """Nothing needs to be found."""
    return folder


def read_synthetic(path: Path, name: str, **parameters: Any) -> Source:
    return synthetic.load(name, **parameters)


def read_synthetic_iid(path: Path, name: str, **parameters: Any) -> Source:
    return synthetic.load(name, alpha=0.0, beta=0.0, iid=True, **parameters)


# ---- the table -----------------------------------------------------------------------------------

SOURCES: dict[str, Known] = {
    "digits": Known(
        file("digits.npz"),
        lambda path, **more: npz.load(path, image=(8, 8, 1), full_scale=16.0, **more),
        "digits.npz",
        "UCI optical digits, 1 797 images of 8×8 (shipped)",
        "per-fedavg",
        sha256="9412306fcce78e42a62b53b9d042f3208a5a9def042d75be348d43b1647f21f4",
    ),
    "mnist": Known(
        idx_files,
        lambda path, **more: idx.load(path, "", **more),
        "the four idx files, e.g. train-images-idx3-ubyte.gz",
        "MNIST, 70 000 images of 28×28",
        "fedprox-mnist",
        MNIST,
        sha256="aab2d3960bf1c60aa37e95536dc194732c103bb56ee19bda838082b237d282f2",
    ),
    "fashion-mnist": Known(
        idx_files,
        lambda path, **more: idx.load(path, "", **more),
        "the four idx files, e.g. train-images-idx3-ubyte.gz",
        "Fashion-MNIST, 70 000 images of 28×28",
        "per-fedavg",
        FASHION,
    ),
    "emnist": Known(
        find_emnist,
        read_emnist,
        "gzip.zip, or emnist-letters-train-images-idx3-ubyte.gz and its three companions",
        "EMNIST: emnist(letters), emnist(letters,a-j), emnist(byclass,a-j), ...",
        "fedprox-femnist",
        EMNIST,
        {
            "part": Parameter(str, "letters", "which of the six sets", choices=tuple(ALPHABETS)),
            "classes": Parameter(str, None, "characters to keep, such as a-j; all unless given"),
        },
    ),
    "cifar10": Known(
        lambda folder, channels: cifar.find(folder),
        cifar.load,
        f"{cifar.ARCHIVE}, or the folder {cifar.FOLDER} of its six .bin files",
        "CIFAR-10, 60 000 images of 32×32, to grey; cifar10(color) keeps three channels",
        "cifar10-powerlaw",
        CIFAR,
        {"channels": Parameter(str, "grey", "grey or color", choices=tuple(cifar.CHANNELS))},
    ),
    "cifar10-gray": Known(
        file("cifar10-gray.npz"),
        npz.load,
        "cifar10-gray.npz (train_images, train_labels, test_images, test_labels)",
        "CIFAR-10 in grey, from a plain npz",
        "cifar10-powerlaw",
    ),
    "vehicle": Known(
        file("vehicle.json", "train"),
        lambda path, **more: leaf.load(path if path.suffix else path.parent, **more),
        "vehicle.json (LEAF JSON), or folders train and test of LEAF JSON",
        "Vehicle sensors, 100 features, 2 classes, one client a sensor",
        "natural",
    ),
    "landmine": Known(
        file("landmine.mat"),
        mat.load,
        "landmine.mat (cell arrays X, Y)",
        "Landmine detection, 29 tasks, 9 features, 2 classes",
        "natural",
    ),
    "synthetic": Known(
        made,
        read_synthetic,
        "",
        "FedProx's Synthetic(α,β): synthetic(0.5,0.5), synthetic(1,1,users=100,seed=3)",
        "natural",
        parameters=SYNTHETIC,
    ),
    "synthetic-iid": Known(
        made,
        read_synthetic_iid,
        "",
        "its IID variant: one model for all clients",
        "natural",
        parameters=SYNTHETIC_IID,
    ),
}

CALL = re.compile(r"\s*(?P<name>[\w-]+)\s*(\((?P<arguments>[^()]*)\))?\s*")


def parse_name(
    text: str, more: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, dict[str, Any]] | None:
    """ "synthetic(0.5,0.5,seed=3)" → its name and checked parameters; None if no such data set."""
    match = CALL.fullmatch(text)
    if match is None or match["name"] not in SOURCES:
        return None
    name, known = match["name"], SOURCES[match["name"]].parameters
    given = dict(more)
    for i, argument in enumerate(
        filter(None, map(str.strip, (match["arguments"] or "").split(",")))
    ):
        key, equals, value = (word.strip() for word in argument.partition("="))
        if not equals:
            if i >= len(known):
                raise ConfigError(f"{name}: {argument!r} is one argument too many")
            key, value = list(known)[i], key
        if key in given:
            raise ConfigError(f"{name}: {key} is given twice")
        given[key] = value
    return name, resolve(name, known, given)


def canonical(name: str, chosen: Mapping[str, Any]) -> str:
    """The shortest name that means the same: "synthetic(0.5,0.5,seed=3)"."""
    known = SOURCES[name].parameters
    said, skipped = [], False
    for key, value in chosen.items():
        given = value != known[key].default or (name == "synthetic" and key in ("alpha", "beta"))
        if given:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            said.append(f"{key}={text}" if skipped else text)
        skipped = skipped or not given
    return f"{name}({','.join(said)})" if said else name


def locate(
    name: str, chosen: Mapping[str, Any], data_dir: str | os.PathLike[str] | None
) -> Path | None:
    """Where a named data set's files are, if anywhere."""
    find = SOURCES[name].find
    if find is made:
        return Path()
    found = (find(folder, **chosen) for folder in places(name, data_dir))
    return next((path for path in found if path is not None), None)


def named(
    name: str, chosen: dict[str, Any], data_dir: str | os.PathLike[str] | None, fetch: bool
) -> Source:
    """A named data set, downloaded if it is nowhere and published somewhere."""
    known = SOURCES[name]
    path = locate(name, chosen, data_dir)
    if path is None:
        must_exist(given(data_dir))  # rather than download what a mistyped folder may hold
    if path is None and known.remotes and fetch:
        path = prepare(name, chosen)
    if path is None:
        raise missing(name, "not found")
    return known.read(path, name=canonical(name, chosen), **chosen)


def missing(name: str, what: str) -> DataError:
    """What to put where."""
    return DataError(
        f"{name}: {what}; put {SOURCES[name].files} in the folder DIR/{name} and give DIR by "
        "--data-dir or FEDREF_DATA"
    )


def prepare(name: str, chosen: dict[str, Any], fetch: download.Fetch = download.over_http) -> Path:
    """Download a named data set into the user's cache; the path to read it from."""
    folder = download.cache() / name
    try:
        download.every(SOURCES[name].remotes, folder, fetch)
    except DataError as error:
        raise missing(name, str(error)) from error
    path = SOURCES[name].find(folder, **chosen)
    if path is None:
        raise missing(name, f"not among what was downloaded to {folder}")
    return path


# ---- files and folders -----------------------------------------------------------------------------

FOLDERS: tuple[tuple[Callable[[Path], object], Callable[..., Source]], ...] = (
    (idx.in_folder, idx.load),
    (leaf.in_folder, leaf.load),
    (cifar.find, cifar.from_folder),
)
SUFFIXES: dict[str, Callable[..., Source]] = {
    ".npz": npz.load,
    ".json": leaf.load,
    ".mat": mat.load,
}
EXPECTED = "a folder of idx, LEAF or CIFAR-10 .bin files, or a file .npz, .json or .mat"


def from_path(path: Path) -> Source:
    """Any file or folder in a known format; it is named by its own name."""
    name = path.resolve().name
    if path.is_dir():
        for holds, load in FOLDERS:
            if holds(path):
                return load(path, name=name)
        raise bad(path, "holds none of the known formats", EXPECTED)
    suffix = path.name.removesuffix(".gz")
    suffix = suffix[suffix.rfind(".") :].lower()
    if suffix not in SUFFIXES:
        raise bad(path, "unknown format", EXPECTED)
    return SUFFIXES[suffix](path, name=name)


def find(
    name_or_path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None
) -> Path | None:
    """A file or folder by its path, from here or from the user's folder of data sets."""
    if not os.fspath(name_or_path):
        return None  # Path("") would be the whole folder
    roots = (Path(), given(data_dir))
    paths = (root / name_or_path for root in roots if root is not None)
    return next((path for path in paths if exists(path)), None)


def load(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    **parameters: Any,
) -> Source:
    """A named data set ("digits", "synthetic(0.5,0.5)", see SOURCES), or a file or folder.

    Parameters may stand in the name or as keywords: load("emnist", part="letters", classes="a-j").
    data_dir (else FEDREF_DATA) holds data sets as DIR/<name>/... or is one itself. What is nowhere
    to be found is downloaded to the user's cache, if it is published with a known hash.
    """
    if isinstance(name_or_path, str) and (call := parse_name(name_or_path, parameters)):
        return named(*call, data_dir, download)
    if parameters:
        raise ConfigError(f"{name_or_path}: a file or folder takes no parameter {min(parameters)}")
    path = find(name_or_path, data_dir)
    if path is None:
        raise DataError(f"{unknown('data set', name_or_path, SOURCES)}; nor is it a file or folder")
    return from_path(path)
