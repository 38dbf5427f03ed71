"""Any bytes give a result or a FedrefError, within 2 s and 256 MB: structure-aware, fixed seeds."""

from collections.abc import Callable
from pathlib import Path

import hostile_files
import numpy as np
import pytest
from hostile_files import survives

from fedref.boundary.files import Budget
from fedref.datasets import manifest
from fedref.datasets.formats import archives, cifar, emnist, idx, leaf, mat, npz

NAMES = emnist.file_names("letters")


def replayable(path: Path) -> object:
    """All that is read of a manifest."""
    found = manifest.read(path)
    parts = [manifest.part(found, name, path) for name in ("train", "test")]
    affine = [manifest.affine(found, name, 2, path) for name in ("shift", "scale")]
    return parts, affine, manifest.names(found, path)


PARSERS: dict[str, Callable[[Path], object]] = {
    "idx": lambda path: idx.read(path, Budget(path)),
    "npz": npz.load,
    "leaf": leaf.load,
    "manifest": replayable,
    "mat": mat.load,
    "tar": lambda path: archives.from_tar(path, ["b"], Budget(path), "an archive"),
    "zip": lambda path: emnist.load(path, "letters", None),
    "cifar": lambda path: cifar.parse(path.read_bytes(), str(path)),
}


def attack(name: str, tmp_path: Path, seed: int, cases: int) -> None:
    rng = np.random.default_rng([seed, sum(name.encode())])
    path, accepted = tmp_path / "file", 0
    for case in range(cases):
        data = hostile_files.FORMATS[name](rng)
        path.write_bytes(data)
        try:
            accepted += survives(PARSERS[name], path)
        except BaseException:
            print(f"{name}: case {case}, {data!r}"[:20_000])
            raise
    # if none passed, or all, the cases would not be worth their name
    assert 0.005 * cases < accepted < 0.9 * cases


@pytest.mark.parametrize("name", PARSERS)
def test_five_thousand_hostile_files(name: str, tmp_path: Path) -> None:
    attack(name, tmp_path, 0, 5_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_hostile_files(name: str, tmp_path: Path) -> None:
    attack(name, tmp_path, 1, 100_000 // len(PARSERS))
