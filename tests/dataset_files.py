"""Small valid files in every published format."""

import gzip
import io
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedref.datasets import download, load
from fedref.rounds.federation import Federation, Source

MAGIC = {"|u1": 8, "|i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array: np.ndarray) -> bytes:
    """An array in idx format."""
    head = bytes([0, 0, MAGIC[array.dtype.str], array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def images(n: int, seed: int = 0, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Random pixels (n, 3, 3) and labels (n,), both uint8; every class occurs."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes).astype(np.uint8)
    return rng.integers(0, 256, (n, 3, 3), dtype=np.uint8), y


def idx_files(prefix: str = "", test: str = "t10k", turned: bool = False) -> dict[str, bytes]:
    """The four files of 12 + 6 images; turned : as EMNIST has them, transposed, labels from 1."""
    files = {}
    for part, n, seed in (("train", 12, 1), (test, 6, 2)):
        X, y = images(n, seed)
        pair = (X.swapaxes(1, 2).copy(), y + np.uint8(1)) if turned else (X, y)
        for kind, array in zip(("images-idx3", "labels-idx1"), pair):
            files[f"{prefix}{part}-{kind}-ubyte"] = idx_bytes(array)
    return files


def write_idx(folder: Path, test: str = "t10k", pack: bool = True) -> Path:
    """A folder of the four files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in idx_files(test=test).items():
        put(folder, name + ".gz" * pack, gzip.compress(data) if pack else data)
    return folder


def emnist_zip(*parts: str) -> bytes:
    """EMNIST's gzip.zip with some of its sets."""
    files = [idx_files(f"emnist-{part}-", "test", turned=True) for part in parts or ("letters",)]
    packed = {f"gzip/{k}.gz": gzip.compress(data) for some in files for k, data in some.items()}
    return zip_bytes(packed)


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


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_json(folder: Path, data: object, name: str = "data.json") -> Path:
    return put(folder, name, json.dumps(data).encode())


def put_roles(folder: Path) -> Path:
    """A folder of plays with three roles, each of which says one thing over and over."""
    roles = {name: [[name.lower() + " speaks"] * 40] for name in ("HAMLET", "GHOST", "KING")}
    return put(folder, "roles.json.gz", gzip.compress(json.dumps(roles).encode())).parent


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
