"""Small valid files in every published format, and ways to break them."""

import gzip
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from fedref import DataError
from fedref.datasets import download, load
from fedref.rounds.federation import Federation, Source

MAGIC = {np.dtype("u1"): 8, np.dtype(">i4"): 12, np.dtype(">f4"): 13}


def idx_bytes(array: np.ndarray) -> bytes:
    """An array in idx format."""
    head = bytes([0, 0, MAGIC[array.dtype], array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def images(n: int, seed: int = 0, side: int = 3, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Random pixels (n, side, side) and labels (n,), both uint8; every class occurs."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes).astype(np.uint8)
    return rng.integers(0, 256, (n, side, side), dtype=np.uint8), y


def write_idx(folder: Path, prefix: str = "", test: str = "t10k", pack: bool = True) -> Path:
    """A folder of the four files, 12 + 6 images."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, n, seed in (("train", 12, 1), (test, 6, 2)):
        for kind, array in zip(("images-idx3", "labels-idx1"), images(n, seed)):
            data = idx_bytes(array)
            name = f"{prefix}{part}-{kind}-ubyte"
            path = folder / (name + ".gz" if pack else name)
            path.write_bytes(gzip.compress(data) if pack else data)
    return folder


def leaf_object(seed: int = 0, users: int = 3, p: int = 4) -> dict[str, object]:
    """A valid LEAF object with numbers."""
    rng = np.random.default_rng(seed)
    names = [f"u{k}" for k in range(users)]
    sizes = [k + 2 for k in range(users)]
    data = {
        name: {"x": rng.normal(size=(n, p)).tolist(), "y": rng.integers(0, 3, n).tolist()}
        for name, n in zip(names, sizes)
    }
    return {"users": names, "num_samples": sizes, "user_data": data}


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def mat_bytes(tasks: int = 3, compress: bool = True) -> bytes:
    """Cell arrays X, Y with k + 2 rows of 4 features, compressed as MATLAB does."""
    rng = np.random.default_rng(0)
    X, Y = np.empty((1, tasks), object), np.empty((1, tasks), object)
    for k in range(tasks):
        X[0, k] = rng.normal(size=(k + 2, 4))
        Y[0, k] = rng.choice([-1, 1], (k + 2, 1)).astype(np.int16)
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"X": X, "Y": Y}, do_compression=compress)
    return stream.getvalue()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def emnist_files(part: str) -> list[str]:
    """The four files of a part."""
    kinds = ("images-idx3", "labels-idx1")
    return [f"emnist-{part}-{w}-{kind}-ubyte.gz" for w in ("train", "test") for kind in kinds]


def emnist_zip(part: str = "letters") -> bytes:
    """EMNIST's gzip.zip with one of its sets: labels 1 to 5, images transposed."""
    members = {}
    for names, n, seed in (
        (emnist_files(part)[:2], 10, 1),
        (emnist_files(part)[2:], 5, 2),
    ):
        X, y = images(n, seed, classes=5)
        arrays = (X.swapaxes(1, 2).copy(), (y + 1).astype(np.uint8))
        members |= {f"gzip/{n}": gzip.compress(idx_bytes(a)) for n, a in zip(names, arrays)}
    return zip_bytes(members)


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def put_json(folder: Path, data: object, name: str = "data.json") -> Path:
    return put(folder, name, json.dumps(data).encode())


def put_roles(folder: Path) -> Path:
    """A folder of plays with three roles, each of which says one thing over and over."""
    roles = {name: [[name.lower() + " speaks"] * 40] for name in ("HAMLET", "GHOST", "KING")}
    folder.mkdir(parents=True)
    (folder / "roles.json.gz").write_bytes(gzip.compress(json.dumps(roles).encode()))
    return folder


@pytest.fixture
def real() -> Path:
    """The folder of real data sets; the test is skipped where there is none."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("FEDREF_DATA") or root.parent / "shared" / "data")
    if not (folder / "mnist").is_dir():
        pytest.skip("no real data: set FEDREF_DATA to a folder with mnist/, vehicle/, ...")
    return folder


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Never the user's own data folder or cache, nor the network."""

    def refuse(url: str, path: str, _: object) -> None:
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(download, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(download, "download_by_http", refuse)
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)


@pytest.fixture(scope="session")
def digits() -> Source:
    return load("digits")


def assert_refused(path: Path, message: str, read: Callable[[Path], object] = load) -> None:
    """Assert that reading it is an error of one line, which names the file."""
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def made(y: object, **more: object) -> Source:
    """A source of these labels, with its row numbers as the one feature."""
    labels = np.asarray(y)
    return Source(np.arange(len(labels), dtype=float)[:, None], labels, name="made", **more)  # type: ignore[arg-type]


def rows_of(federation: Federation) -> np.ndarray:
    """All rows that anybody holds."""
    return np.concatenate([federation.train.rows, federation.test.rows])


def with_clients(source: Source) -> Source:
    """The same with 40 rows a natural client."""
    client = np.arange(len(source.y)) // 40
    return Source(source.X, source.y, client, full_scale=16.0)
