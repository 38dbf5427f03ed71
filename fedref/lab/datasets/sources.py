"""Loading of data: named data sets are found or downloaded, files and folders are recognised."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from fedref.boundary.errors import ConfigError, DataError, unknown
from fedref.boundary.files import as_data_error, data_error, exists, first_repeated
from fedref.boundary.values import check_table, literal
from fedref.lab.datasets import texts
from fedref.lab.datasets.formats import idx, leaf, mat, npz, recipes, svmlight, tables
from fedref.lab.datasets.formats.arrays import Raw, require, source_of
from fedref.lab.datasets.registry import SOURCES
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

Folder = str | os.PathLike[str] | None

# ---- names ---------------------------------------------------------------------------------------

CALL = re.compile(r"\s*(?P<name>[\w-]+)\s*(\((?P<arguments>[^()]*)\))?\s*")


def parse_name(
    text: str, more: Mapping[str, object] = MappingProxyType({})
) -> tuple[str, dict[str, object]] | None:
    """Return the name and checked parameters of "synthetic(0.5,0.5,seed=3)"; None if unknown."""
    match = CALL.fullmatch(text)
    if match is None or match["name"] not in SOURCES:
        return None
    name, known = match["name"], SOURCES[match["name"]]
    given, entries, places = dict(more), known.entries, [*known.entries]
    arguments = [word.strip() for word in (match["arguments"] or "").split(",") if word.strip()]
    for i, argument in enumerate(arguments):
        key, equals, value = (word.strip() for word in argument.partition("="))
        if not equals:
            if i >= len(places):
                raise ConfigError(f"{name}: {argument!r} is one argument too many")
            key, value = places[i], key
        if key in given:
            raise ConfigError(f"{name}: {key} is given twice")
        given[key] = entries[key].parse(value) if key in entries else literal(value)
    checked = check_table(known.parameters or known.read, given, name, ("path",))
    return name, {key: checked.get(key, entry.default) for key, entry in entries.items()}


def shortest_name(name: str, chosen: Mapping[str, object]) -> str:
    """Return the shortest name with the same meaning: "synthetic(0.5,0.5,seed=3)"."""
    entries = SOURCES[name].entries
    arguments, skipped = [], False
    for key, value in chosen.items():
        if value == entries[key].default and not (name == "synthetic" and key in ("alpha", "beta")):
            skipped = True
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        arguments.append(f"{key}={text}" if skipped else text)
    return f"{name}({','.join(arguments)})" if arguments else name


# ---- where files may be --------------------------------------------------------------------------


def shipped_folder() -> Path:
    """Return the folder of the shipped data: in the package if installed, else beside it."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "_data"
    return inside if inside.is_dir() else package.parent / "data"


def user_folder(data_dir: Folder) -> Path | None:
    """Return the user's folder of data sets: data_dir, else FEDREF_DATA, else none."""
    chosen = data_dir if data_dir is not None else os.environ.get("FEDREF_DATA") or None
    return None if chosen is None else Path(chosen)


def require_folder(root: Path | None) -> None:
    """Raise a DataError if the folder of data sets does not exist."""
    if root is not None and not os.path.isdir(root):
        raise data_error(root, "no such folder", "the folder that holds data sets (FEDREF_DATA)")


def locate(name: str, data_dir: Folder) -> Path | None:
    """Return the path to a named data set's files, or None if they are nowhere."""
    known, root = SOURCES[name], user_folder(data_dir)
    if not known.held:
        return Path()
    if data_dir is not None:  # FEDREF_DATA may be wrong as long as nothing is needed from it
        require_folder(root)
    roots = (root, cache_folder(), shipped_folder())
    folders = (folder / name for folder in roots if folder and os.path.isdir(folder / name))
    return next(filter(None, map(known.find, folders)), None)


def find(name_or_path: str | os.PathLike[str], data_dir: Folder = None) -> Path | None:
    """Return the path of a file or folder, in the current folder or in that of data sets, or None."""
    if not os.fspath(name_or_path):
        return None  # Path("") would be the whole folder
    roots = (Path(), user_folder(data_dir))
    paths = (root / name_or_path for root in roots if root is not None)
    return next((path for path in paths if exists(path)), None)


# ---- loading -------------------------------------------------------------------------------------


def load(
    name_or_path: str | os.PathLike[str],
    data_dir: Folder = None,
    *,
    download: bool = True,
    verify: bool = True,
    **parameters: object,
) -> Source:
    """Load a named data set ("digits", "synthetic(0.5,0.5)", see SOURCES), or a file or folder.

    name_or_path : a name of `fedref data list`, or a file or folder.
    data_dir : a folder that holds data sets as DIR/<name>/... (default: FEDREF_DATA).
    download : whether a data set that is not found is downloaded to the user's cache, if it has a public
    address.
    verify : raise a DataError if the content differs from the published one, where its hash is known.
    parameters : what may also stand in the name: load("emnist", part="letters", classes="a-j"); those of
    a table are the names of its columns, load("a.csv", label="outcome", client="hospital").

    Raises DataError where there is no such data set, or it cannot be read; ConfigError for a parameter
    that it does not have.
    """
    try:
        if isinstance(name_or_path, str) and (call := parse_name(name_or_path, parameters)):
            return load_named(*call, data_dir, download, verify)
        path = find(name_or_path, data_dir)
        if path is None:
            message = unknown("data set", name_or_path, SOURCES)
            raise DataError(f"{message}; nor is it a file or folder")
        return load_path(path, parameters)
    except OSError as error:  # a folder that cannot be listed, a file that has just been removed
        what = error.strerror or error
        where = str(error.filename or name_or_path)
        raise data_error(where, what, "a file or folder to read") from error


def load_named(
    name: str, chosen: dict[str, object], data_dir: Folder, fetch: bool, verify: bool
) -> Source:
    """Load a named data set. Download it if it is not found and has a public address."""
    known = SOURCES[name]
    path = locate(name, data_dir)
    if path is None:
        require_folder(user_folder(data_dir))  # a mistyped folder may hold it: no download
        if not known.addresses:
            raise missing_error(name, "not found")
        if not fetch:
            asked = f"`fedref data prepare {name}` downloads it"
            raise missing_error(name, f"not found, and nothing is downloaded unasked; {asked}")
        path = prepare(name)
    shown = shortest_name(name, chosen)
    where = str(path) if known.held else shown
    source = source_of(known.read(path, **chosen), where, name=shown)
    if verify and known.sha256 not in ("", source.sha256):
        raise DataError(
            f"{path}: is not {name} as published: its content has the hash {source.sha256}, "
            f"expected {known.sha256} (to use it all the same, give the path of its file or folder)"
        )
    return source


def missing_error(name: str, what: str) -> DataError:
    """Return the error that says which files to put where."""
    return DataError(
        f"{name}: {what}; put {SOURCES[name].files} in the folder DIR/{name} and give DIR by "
        "--data-dir or FEDREF_DATA"
    )


def prepare(name: str) -> Path:
    """Download a named data set into the user's cache; return the path to read it from."""
    folder, known = cache_folder() / name, SOURCES[name]
    try:
        for file, hash in known.hashes.items():
            fetch_file(file, hash, known.addresses, folder)
    except DataError as error:
        raise missing_error(name, str(error)) from error
    path = locate(name, None)
    if path is None:
        raise missing_error(name, f"not among what was downloaded to {folder}")
    return path


# ---- downloads: a file appears only when it is complete and its hash right -------------------------


def cache_folder() -> Path:
    """Return the user's cache folder for downloads."""
    import pooch  # importing it takes as long as NumPy, and few runs download

    return Path(pooch.os_cache("fedref"))


def download_by_http(url: str, path: str, _: object) -> None:
    """Download to a file; give up on a server that does not answer within 10 s."""
    import pooch

    pooch.HTTPDownloader(progressbar=False, timeout=10)(url, path, None)


def fetch_file(name: str, hash: str, addresses: Sequence[str], folder: Path) -> None:
    """Download a file to `folder`, unless it is already there with the right hash.

    addresses : of folders that hold it, tried in order.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    failures = []
    for address in addresses:
        try:
            pooch.retrieve(address + name, hash, name, folder, downloader=download_by_http)
            return
        except Exception as error:  # requests, urllib3, ssl and socket share no base class
            reason = getattr(error, "strerror", None) or type(error).__name__
            if type(error) is ValueError:
                reason = f"its hash is not the published {hash}"
            failures.append(f"{urlsplit(address).netloc}: {reason}")
    what = f"download failed ({'; '.join(failures)})"
    raise data_error(folder / name, what, "a working network connection")


# ---- files and folders ---------------------------------------------------------------------------

FOLDERS: tuple[tuple[Callable[[Path], object], Callable[[Path], Raw]], ...] = (
    (idx.folder_holds_images, idx.read),
    (leaf.folder_holds_json, texts.read_leaf),
)
SUFFIXES: dict[str, Callable[..., Raw]] = {
    ".npz": npz.read,
    ".json": texts.read_leaf,
    ".mat": mat.read,
    ".csv": tables.read,
    ".tsv": tables.read,
} | dict.fromkeys((".svm", ".libsvm", ".svmlight"), svmlight.read)
EXPECTED = (
    "a file .npz, .csv, .tsv, .json or .svm, also with .gz, or a folder of idx or LEAF files; "
    "`fedref data --help` says how others become one"
)


def load_path(path: Path, parameters: Mapping[str, object] = MappingProxyType({})) -> Source:
    """Load any file or folder in a known format; the source has the name of the file or folder.

    parameters : label and client, the columns of a table that have other names.
    """
    name = os.path.basename(os.path.realpath(path))
    if path.is_dir():
        reader = next((read for holds, read in FOLDERS if holds(path)), None)
    else:
        reader = SUFFIXES.get(suffix(path))
        if reader is None and svmlight.holds(path):
            reader = svmlight.read
    if reader is None:
        raise data_error(path, "is in no known format", expected_instead(path))
    known = ("label", "client") if reader is tables.read else ()
    if odd := sorted(set(parameters) - set(known)):
        raise ConfigError(f"{name}: {unknown('key of data', odd[0], known)}")
    columns = {key: str(value) for key, value in parameters.items() if value is not None}
    return source_of(reader(path, **columns), str(path), name=name, columns=tuple(columns.items()))


def expected_instead(path: Path) -> str:
    """Return what would be right in the place of a file or folder: how to convert it, if that is known."""
    recipe = recipes.SUFFIXES.get(suffix(path))
    if path.is_dir() and any((path / "train").glob("*.npz")):
        recipe = "PFLlib"
    return recipes.one_line(recipe) if recipe else EXPECTED


def suffix(path: Path) -> str:
    """Return the suffix in lower case, without .gz: that of a.npz and of a.npz.gz is .npz."""
    name = path.name.removesuffix(".gz")
    return name[name.rfind(".") :].lower()


# ---- data in memory ------------------------------------------------------------------------------

IN_MEMORY = (
    "arrays (X, y) or (X, y, client), {client: (X, y)}, a table of arrays with X and y and optionally "
    "client and test, a DataFrame with such columns, a Source or a Federation"
)


#: Names of parts of data, not of clients.
PARTS = {"train", "test", "val", "valid", "validation", "dev"}


def is_in_memory(value: object) -> bool:
    """Return whether data are given as arrays, a DataFrame, a Source or a Federation, not by a name."""
    if isinstance(value, tuple):  # of lists, arrays, or objects that NumPy can convert to arrays
        return len(value) in (2, 3) and all(
            isinstance(x, list) or hasattr(x, "__array__") or hasattr(x, "toarray") for x in value
        )
    named = isinstance(value, Mapping) and ("X" in value or is_by_client(value))
    return named or isinstance(value, Source | Federation) or tables.is_frame(value)


def is_by_client(value: Mapping[Any, Any]) -> bool:
    """Return whether a table holds the arrays (X, y) of each client by its name."""
    return (
        bool(value)
        and all(isinstance(x, tuple | list) and len(x) == 2 for x in value.values())
        # an array may be one that NumPy cannot convert
        and all(1 < (X.ndim if hasattr(X, "ndim") else np.ndim(X)) < 5 for X, _ in value.values())
    )


def from_memory(value: Any, where: str) -> Source | Federation:
    """Make a Source of arrays or a DataFrame; check a Source or a Federation and return it."""
    if isinstance(value, Federation | Source):
        check_source(value.source if isinstance(value, Federation) else value)
        return value
    if tables.is_frame(value):
        return source_of(tables.from_frame(value, where), where, name=where)
    if isinstance(value, tuple) and len(value) in (2, 3):
        value = dict(zip(("X", "y", "client"), value))
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: is a {type(value).__name__}, expected {IN_MEMORY}")
    if "X" not in value and is_by_client(value):
        return source_of(join_clients(value, where), where, name=where)
    return source_of(Raw(as_arrays(value, where)), where, name=where)


def as_arrays(value: Mapping[Any, Any], where: str) -> dict[str, Array]:
    """Return named arrays; refuse a Series whose index has X's rows in another order."""
    rows = {name: part.index for name, part in value.items() if hasattr(part, "iloc")}
    first = next(iter(rows.values()), ())
    for name, index in rows.items():
        moved = len(index) == len(first) and not index.equals(first) and {*index} == {*first}
        wrong = f"{name} has the rows in another order, by its index"
        right = f"one order: {name}.loc[X.index], or reset_index(drop=True) if it is one"
        require(not moved, where, wrong, right)
    return {str(name): tables.as_array(array, where) for name, array in value.items()}


def join_clients(clients: Mapping[Any, tuple[Any, Any]], where: str) -> Raw:
    """Return the rows of {client: (X, y)}."""
    names = [*map(str, clients)]
    twice = first_repeated(names)
    require(twice is None, where, f"two clients are called {twice}", "names that differ")
    right = "{client: (X, y)}, or arrays X, y and test, which is true for test rows"
    wrong = f"the clients are called {', '.join(names)}, as parts of data are"
    require(not {*map(str.lower, names)} <= PARTS, where, wrong, right)
    headers = {(*tables.names_of(X),) for X, _ in clients.values() if tables.is_frame(X)}
    wrong = "the clients' DataFrames have different columns, or the same in another order"
    require(len(headers) < 2, where, wrong, "the same columns for each client")
    pairs = [as_arrays({"X": X, "y": y}, where).values() for X, y in clients.values()]
    Xs, ys = zip(*pairs)
    for name, X, y in zip(names, Xs, ys):
        what = f"client {name} has {len(X)} rows of X and {len(y)} labels"
        require(len(X) == len(y), where, what, "as many of both")
    held = [(X, y) for X, y in zip(Xs, ys) if len(y)] or [*zip(Xs, ys)]
    kinds = {(X.dtype == np.uint8, y.dtype.kind in "buif") for X, y in held}
    wrong = "some clients have bytes in X, or words in y, and others do not"
    require(len(kinds) == 1, where, wrong, "one kind of both")
    with as_data_error(where, "X with as many columns for each client"):
        X, y = np.concatenate([X for X, _ in held]), np.concatenate([y for _, y in held])
    empty = len(names) - len(held)
    notes = (f"{empty} of {len(names)} clients have no row",) if empty else ()
    arrays = {"X": X, "y": y, "client": np.repeat(names, [len(y) for y in ys])}
    return Raw(arrays, {"notes": notes})


def check_source(source: Source) -> None:
    """Refuse a Source whose parts are not arrays of one length."""
    for name, axes in (("X", 2), ("y", 1), ("client", 1)):
        part = getattr(source, name)
        right = isinstance(part, np.ndarray) and part.ndim == axes and len(part) == len(source.X)
        if not right and (name != "client" or part is not None):
            what = f"{name} is a {type(part).__name__} of shape {np.shape(part)}"
            raise data_error(source.name, what, f"an array of {axes} axes and as many rows as X")
