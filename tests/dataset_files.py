"""Small valid files in every published format."""

import gzip
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from running import ROOT

from fedref.lab.datasets import load, sources
from fedref.rounds.federation import Source

MAGIC = {"|u1": 8, "|i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array):
    """An array in idx format."""
    head = bytes([0, 0, MAGIC[array.dtype.str], array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def images(n, seed=0, classes=4):
    """Random pixels (n, 3, 3) and labels (n,), both uint8; every class occurs."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes).astype(np.uint8)
    return rng.integers(0, 256, (n, 3, 3), dtype=np.uint8), y


def idx_files(prefix="", test="t10k", turned=False, first=1):
    """The four files of 12 + 6 images; turned : as EMNIST has them, transposed, labels from `first`."""
    files = {}
    for part, n, seed in (("train", 12, 1), (test, 6, 2)):
        X, y = images(n, seed)
        pair = (X.swapaxes(1, 2).copy(), y + np.uint8(first)) if turned else (X, y)
        for kind, array in zip(("images-idx3", "labels-idx1"), pair):
            files[f"{prefix}{part}-{kind}-ubyte"] = idx_bytes(array)
    return files


def write_idx(folder, test="t10k", pack=True):
    """A folder of the four files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in idx_files(test=test).items():
        put(folder, name + ".gz" * pack, gzip.compress(data) if pack else data)
    return folder


def emnist_zip(*parts):
    """EMNIST's gzip.zip with some of its sets."""
    files = [idx_files(f"emnist-{part}-", "test", turned=True) for part in parts or ("letters",)]
    packed = {f"gzip/{k}.gz": gzip.compress(data) for some in files for k, data in some.items()}
    return zip_bytes(packed)


def leaf_object(**users):
    """A LEAF object. users : name → (x, y); without any, three have 2, 3 and 4 rows of 4 numbers."""
    rows = [[0.5 * j, -1.0, 2.0, 3.5] for j in range(4)]
    users = users or {f"u{k}": (rows[: k + 2], [0, 2, 1, 0][: k + 2]) for k in range(3)}
    data = {name: {"x": x, "y": y} for name, (x, y) in users.items()}
    sizes = [len(y) for _, y in users.values()]
    return {"users": [*data], "num_samples": sizes, "user_data": data}


def npz_bytes(arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def zip_bytes(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def put(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_json(folder, data, name="data.json"):
    return put(folder, name, json.dumps(data).encode())


@pytest.fixture
def real():
    """The folder of real data sets; the test is skipped where there is none."""
    folder = Path(os.environ.get("FEDREF_DATA") or ROOT.parent / "shared" / "data")
    for name in ("mnist", "vehicle", "cifar10-gray", "landmine", "shakespeare"):
        if not (folder / name).is_dir():
            pytest.skip(f"needs {name} in FEDREF_DATA or ../shared/data")
    return folder


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch, request):
    """Never the user's own data folder or cache, nor the network."""

    def refuse(url, path, _):
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(sources, "download_by_http", refuse)
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)


@pytest.fixture(scope="session")
def digits():
    return load("digits")


def made(y, **more):
    """A source of these labels, with its row numbers as the one feature."""
    labels = np.asarray(y)
    return Source(np.arange(len(labels), dtype=float)[:, None], labels, name="made", **more)  # type: ignore[arg-type]


def rows_of(federation):
    """All rows that anybody holds."""
    return np.concatenate([federation.train.rows, federation.test.rows])


def with_clients(source):
    """The same with 40 rows a natural client."""
    client = np.arange(len(source.y)) // 40
    return Source(source.X, source.y, client, full_scale=16.0)
