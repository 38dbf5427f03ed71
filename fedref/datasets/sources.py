"""Where data comes from: the named data sets, and any file or folder in a known format."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, DataError, unknown
from fedref.boundary.files import bad, exists
from fedref.datasets import download, remotes, synthetic, texts
from fedref.datasets.download import Remote
from fedref.datasets.formats import cifar, emnist, idx, leaf, mat, npz
from fedref.datasets.parameters import Parameter, resolve
from fedref.datasets.paths import from_path
from fedref.rounds.federation import Source

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
    if root is not None and not os.path.isdir(root):
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
        own = os.path.basename(os.path.realpath(root))
        if own == name or own not in SOURCES:
            found.append(root)
    found += [download.cache() / name, shipped() / name]
    return [folder for folder in found if os.path.isdir(folder)]


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
        remotes.MNIST,
        sha256="aab2d3960bf1c60aa37e95536dc194732c103bb56ee19bda838082b237d282f2",
    ),
    "fashion-mnist": Known(
        idx_files,
        lambda path, **more: idx.load(path, "", **more),
        "the four idx files, e.g. train-images-idx3-ubyte.gz",
        "Fashion-MNIST, 70 000 images of 28×28",
        "per-fedavg",
        remotes.FASHION,
    ),
    "emnist": Known(
        emnist.find,
        emnist.load,
        "gzip.zip, or emnist-letters-train-images-idx3-ubyte.gz and its three companions",
        "EMNIST: emnist(letters), emnist(letters,a-j), emnist(byclass,a-j), ...",
        "fedprox-femnist",
        remotes.EMNIST,
        {
            "part": Parameter(
                str, "letters", "which of the six sets", choices=tuple(emnist.ALPHABETS)
            ),
            "classes": Parameter(str, None, "characters to keep, such as a-j; all unless given"),
        },
    ),
    "cifar10": Known(
        lambda folder, channels: cifar.find(folder),
        cifar.load,
        f"{cifar.ARCHIVE}, or the folder {cifar.FOLDER} of its six .bin files",
        "CIFAR-10, 60 000 images of 32×32, to grey; cifar10(color) keeps three channels",
        "cifar10-powerlaw",
        remotes.CIFAR,
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
    **{
        name: Known(find, read, files, help, "natural", parameters=own)
        for name, (find, read, files, help, own) in texts.SOURCES.items()
    },
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
    name: str,
    chosen: dict[str, Any],
    data_dir: str | os.PathLike[str] | None,
    fetch: bool,
    verify: bool,
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
    source: Source = known.read(path, name=canonical(name, chosen), **chosen)
    if verify:
        check_published(name, path, source)
    return source


def check_published(name: str, path: Path, source: Source) -> bool:
    """Whether the data are known to be those published; a DataError if they are known not to be.

    Compared is the SHA-256 of the content where it is known, else the hash of each published file
    that lies there. Where neither is possible (other files, or none with a known hash): False.
    """
    known = SOURCES[name]
    if known.sha256:
        compare(name, path, "content", source.sha256, known.sha256)
        return True
    folder = path if path.is_dir() else path.parent
    there = [remote for remote in known.remotes if (folder / remote.name).is_file()]
    for remote in there:
        kind, _, wanted = remote.hash.partition(":")
        with (folder / remote.name).open("rb") as stream:
            found = hashlib.file_digest(stream, kind).hexdigest()
        compare(name, folder / remote.name, "file", f"{kind}:{found}", f"{kind}:{wanted}")
    return bool(known.remotes) and len(there) == len(known.remotes)


def compare(name: str, path: Path, what: str, found: str, wanted: str) -> None:
    """Refuse data whose hash is another than the published one, and say how to go on with them."""
    if found != wanted:
        raise DataError(
            f"{path}: is not {name} as published: its {what} has the hash {found}, expected "
            f"{wanted} (to use it all the same: --data-unverified, in Python verify=False)"
        )


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


# ---- any of them ---------------------------------------------------------------------------------


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
    verify: bool = True,
    **parameters: Any,
) -> Source:
    """A named data set ("digits", "synthetic(0.5,0.5)", see SOURCES), or a file or folder.

    Parameters may stand in the name or as keywords: load("emnist", part="letters", classes="a-j").
    data_dir (else FEDREF_DATA) holds data sets as DIR/<name>/... or is one itself. What is nowhere
    to be found is downloaded to the user's cache, if it is published with a known hash. With
    verify, a data set that is known to differ from the published one is a DataError.
    """
    try:
        if isinstance(name_or_path, str) and (call := parse_name(name_or_path, parameters)):
            return named(*call, data_dir, download, verify)
        if parameters:
            message = f"{name_or_path}: a file or folder takes no parameter {min(parameters)}"
            raise ConfigError(message)
        path = find(name_or_path, data_dir)
        if path is None:
            message = unknown("data set", name_or_path, SOURCES)
            raise DataError(f"{message}; nor is it a file or folder")
        return from_path(path)
    except OSError as error:  # a folder that cannot be listed, a file that goes away
        what = error.strerror or error
        raise bad(str(error.filename or name_or_path), what, "a file or folder to read") from error
