"""Broken and hostile files: a Source or one line of refusal, in little time and memory."""

import gzip
import json
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from dataset_files import (
    emnist_files,
    emnist_zip,
    idx_bytes,
    images,
    leaf_object,
    npz_bytes,
    put,
    zip_bytes,
)

from fedref import DataError, FedrefError
from fedref.datasets import from_manifest, load, manifest_of, split
from fedref.datasets.manifest import is_manifest

# ---- damage ---------------------------------------------------------------------------------------

WILD = (0, 1, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1)


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """A byte changed, a number replaced, a piece cut out or doubled, or the end cut off."""
    out, at = bytearray(data), int(rng.integers(len(data)))
    match int(rng.integers(5)):
        case 0:
            out[at] ^= 1 << int(rng.integers(8))
        case 1:
            out[at : at + 4] = struct.pack("<I", int(rng.choice(WILD)))
        case 2:
            del out[at : at + 9]
        case 3:
            out[at:at] = out[at : at + 9]
        case 4:
            del out[at:]
    return bytes(out)


def small_manifest() -> bytes:
    return json.dumps(manifest_of(split("iid", load("synthetic(users=2)"), users=3))).encode()


def load_folder_of(path: Path) -> object:
    return load("emnist", path.parent)


X, Y = images(8)
ROLES = {"HAMLET": [["To be, or not to be"] * 9]}
CSV = b"x,client,test,y\n1,a,0,cat\n-2.5,b,1,dog\n3,b,0,cat\n"
#: A file, its content, the layer that it is packed in once damaged, and how it is read.
FORMATS: dict[
    str, tuple[Callable[[], bytes], Callable[[bytes], bytes], Callable[[Path], object]]
] = {
    "train-images-idx3-ubyte.gz": (lambda: idx_bytes(X), gzip.compress, lambda p: load(p.parent)),
    "a.npz": (lambda: npz_bytes({"X": X, "y": Y, "client": Y}), bytes, load),
    "a.csv": (lambda: CSV, bytes, load),
    "a.json": (lambda: json.dumps(leaf_object()).encode(), bytes, load),
    "a.json.gz": (lambda: gzip.compress(json.dumps(leaf_object()).encode()), bytes, load),
    "roles.json": (
        lambda: json.dumps(ROLES).encode(),
        bytes,
        lambda path: load("shakespeare", path.parent),
    ),
    "m.json": (small_manifest, bytes, from_manifest),
    "gzip.zip": (emnist_zip, bytes, load_folder_of),
}


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_give_a_result_or_one_line(name: str, tmp_path: Path) -> None:
    (valid, pack, read), rng = FORMATS[name], np.random.default_rng(len(name))
    put(tmp_path, "train-labels-idx1-ubyte", idx_bytes(Y))  # beside images
    data = valid()
    read(put(tmp_path, name, pack(data)))
    cases = 50
    refused = 0
    for _ in range(cases):
        path = put(tmp_path, name, pack(damaged(rng, data)))
        try:
            read(path)
        except DataError as error:
            refused += 1
            assert "expected" in str(error)  # noqa: PT017 (both a result and an error are right)
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > 0.1 * cases


# ---- bombs: files made to fill or to hang the process ----------------------------------------------


def layers() -> bytes:
    """zip → gzip → idx of 70 MB: the gzip layer is long by its name alone, which the zip packs."""
    head = b"\0\0\x08\x03" + struct.pack(">3I", 1, 70, 1 << 20)
    zeros = gzip.compress(head + bytes(70 << 20), 1)
    named = zeros[:3] + b"\x08" + zeros[4:10] + b"a" * (4 << 20) + b"\0" + zeros[10:]
    return zip_bytes(dict.fromkeys(emnist_files("letters"), named))


def text_for_all(rows: int = 4000) -> bytes:
    """One long text among the numbers, for which NumPy would give every row as much room."""
    entry = {"x": [[0]] * rows + [["a" * 50_000]], "y": [0] * (rows + 1)}
    found = {"users": ["u"], "num_samples": [rows + 1], "user_data": {"u": entry}}
    return json.dumps(found).encode()


def key_twice() -> bytes:
    """Many names, each of which is compared with the others."""
    names = dict.fromkeys(map(str, range(30_000)))
    return json.dumps(names).replace("29998", "29999").encode()


BOMBS: list[tuple[str, Callable[[], bytes], str]] = [
    ("a.npz", lambda: zip_bytes({"X.npy": bytes(65 << 20)}), "claims 68157440 bytes"),
    ("a.json.gz", lambda: gzip.compress(b" " * (70 << 20), 9), "becomes too large"),
    ("a.json", text_for_all, "x holds 'aaa"),
    ("a.json", key_twice, "'29999' occurs twice"),
    ("gzip.zip", layers, "becomes too large|claims"),
]
PROC = Path("/proc/self/clear_refs")


def memory(field: str) -> int:
    """Bytes of memory by /proc: VmRSS now, VmHWM at most since the last reset."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) << 10


@pytest.mark.parametrize(("name", "content", "message"), BOMBS)
def test_bombs_are_refused_at_once(
    tmp_path: Path, name: str, content: Callable[[], bytes], message: str
) -> None:
    path = put(tmp_path, name, content())
    with suppress(OSError):  # Linux: forget how much was used at most
        PROC.write_text("5")
    before, start = memory("VmRSS") if PROC.exists() else 0, time.process_time()
    with pytest.raises(DataError, match=message):
        load_folder_of(path) if name == "gzip.zip" else load(path)
    assert time.process_time() - start < 2
    assert not PROC.exists() or memory("VmHWM") - before < 300 << 20


# ---- pipes, devices, paths ------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize("name", ["a.npz", "a.json", "a.mat", "train-images-idx3-ubyte"])
def test_pipes_and_devices_are_refused(name: str, tmp_path: Path) -> None:
    for made in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        made(tmp_path / name)
        with pytest.raises(FedrefError, match=r"not a regular file|no label file"):
            load(tmp_path if name.startswith("train") else tmp_path / name)
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "split.json")
    with pytest.raises(DataError, match="not a regular file"):
        from_manifest(tmp_path / "split.json")
    assert not is_manifest(tmp_path / "split.json")


@pytest.mark.parametrize("name", ["digits", "a.npz"])
def test_impossible_paths_are_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop", tmp_path / "a\0b"):
        for words in ((name, odd), (odd / name,), (odd,)):
            with pytest.raises(FedrefError):
                load(*words)
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop"):
        monkeypatch.setenv("FEDREF_DATA", str(odd))
        assert load("digits").name == "digits"  # the shipped ones: nothing is needed from it


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read anything")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0)
    with pytest.raises(DataError, match="Permission denied"):
        load(tmp_path / "a")


@pytest.mark.parametrize("name", [*FORMATS, "b.npz", "b.mat", "b.tsv"])
def test_an_empty_file_is_called_so(name: str, tmp_path: Path) -> None:
    put(tmp_path, "train-labels-idx1-ubyte", idx_bytes(Y))
    _, _, read = FORMATS.get(name, (None, None, load))
    with pytest.raises(DataError, match=rf"{name}: is empty; expected "):
        read(put(tmp_path, name, b""))
