"""Own data: any file or folder in a known format."""

import os
from collections.abc import Callable
from pathlib import Path

from fedref.boundary.files import bad
from fedref.datasets.formats import cifar, delimited, idx, leaf, mat, npy, npz
from fedref.rounds.federation import Source

FOLDERS: tuple[tuple[Callable[[Path], object], Callable[..., Source]], ...] = (
    (idx.in_folder, idx.load),
    (leaf.in_folder, leaf.load),
    (cifar.find, cifar.from_folder),
    (npy.in_folder, npy.load),
)
SUFFIXES: dict[str, Callable[..., Source]] = {
    ".npz": npz.load,
    ".json": leaf.load,
    ".mat": mat.load,
    ".csv": delimited.load,
    ".tsv": delimited.load,
}
EXPECTED = (
    "a file .npz, .csv, .tsv, .json or .mat, a folder that holds one of them, or a folder of X.npy "
    "and y.npy, of idx, of LEAF or of CIFAR-10 .bin files"
)


def from_path(path: Path) -> Source:
    """Any file or folder in a known format; it is named by its own name."""
    name = os.path.basename(os.path.realpath(path))
    if path.is_dir():
        for holds, load in FOLDERS:
            if holds(path):
                return load(path, name=name)
        within = sorted(file for file in path.iterdir() if suffix(file) in SUFFIXES)
        if not within:
            raise bad(path, "holds none of the known formats", EXPECTED)
        if len(within) > 1:
            held = ", ".join(file.name for file in within[:4]) + ", ..." * (len(within) > 4)
            raise bad(path, f"holds {held}", "one of them, by its own path")
        (path,) = within
    if suffix(path) not in SUFFIXES:
        raise bad(path, "unknown format", EXPECTED)
    return SUFFIXES[suffix(path)](path, name=name)


def suffix(path: Path) -> str:
    """.npz of a.npz and of a.npz.gz."""
    name = path.name.removesuffix(".gz")
    return name[name.rfind(".") :].lower()
