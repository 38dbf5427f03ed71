"""Files made to kill, hang or fill the process, or to be taken for others: one line of refusal."""

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dataset_files import leaf_object, npz_bytes, put, put_json, zip_bytes
from hostile_files import survives

from fedref import DataError, FedrefError
from fedref.commands import main
from fedref.datasets import from_manifest, load, manifest, manifest_of, shipped, split
from fedref.datasets.formats import cifar, emnist


def mat_of(dimensions: bytes) -> bytes:
    """A .mat file whose X is a cell array of these dimensions without cells."""
    flags = struct.pack("<II", 6, 8) + struct.pack("<II", 1, 0)
    shape = struct.pack("<II", 5, len(dimensions)) + dimensions
    body = flags + shape + struct.pack("<HH", 1, 1) + b"X\0\0\0"
    return b"MATLAB 5.0".ljust(124) + b"\0\1IM" + struct.pack("<II", 14, len(body)) + body


def nested_cells(depth: int) -> bytes:
    cell = b""
    for _ in range(depth):
        head = struct.pack("<IIII", 6, 8, 1, 0) + struct.pack("<IIII", 5, 8, 1, 1)
        body = head + struct.pack("<HH", 1, 1) + b"X\0\0\0" + cell
        cell = struct.pack("<II", 14, len(body)) + body
    return b"MATLAB 5.0".ljust(124) + b"\0\1IM" + cell


def tar_head(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def long_header(kind: bytes) -> bytes:
    """A tar archive of one header text of 1.5 GB, of which 300 MB are there."""
    return gzip.compress(tar_head("a", kind, 3 << 29) + bytes(300 << 20), 1)


def empty_members() -> bytes:
    return gzip.compress(tar_head("a", b"0", 0) * 150_000, 1)


def layers() -> bytes:
    """zip → gzip → idx of 300 MB: the gzip layer is long by its name alone, which the zip packs."""
    zeros = gzip.compress(
        b"\0\0\x08\x03" + struct.pack(">3I", 1, 300, 1 << 20) + bytes(300 << 20), 1
    )
    named = zeros[:3] + b"\x08" + zeros[4:10] + b"a" * (4 << 20) + b"\0" + zeros[10:]
    return zip_bytes(dict.fromkeys(emnist.file_names("letters"), named))


def lists() -> bytes:
    return gzip.compress(b'{"users": [' + b"[]," * (16 << 20) + b"[]]}", 1)


def text_for_all(rows: int = 4000) -> bytes:
    """One long text among the numbers, for which NumPy would give every row as much room."""
    entry = {"x": [[0]] * rows + [["a" * 50_000]], "y": [0] * (rows + 1)}
    found = {"users": ["u"], "num_samples": [rows + 1], "user_data": {"u": entry}}
    return json.dumps(found).encode()


def windows() -> bytes:
    """Text that becomes 80 times as long when it is cut into windows."""
    entry = {"raw": "a" * (20 << 20)}
    found = {"users": ["u"], "num_samples": [1], "user_data": {"u": entry}}
    return gzip.compress(json.dumps(found).encode(), 1)


def twice(keys: int = 30_000) -> bytes:
    """An object that names its last key twice."""
    names = [f'"{k}": 0' for k in [*range(keys), keys - 1]]
    return b"{" + ", ".join(names).encode() + b"}"


def users_twice(users: int = 30_000) -> bytes:
    names = [str(k) for k in [*range(users), users - 1]]
    return json.dumps({"users": names, "num_samples": [], "user_data": {}}).encode()


def labels() -> bytes:
    """64 MB of labels of one byte, for images of one byte."""
    return npz_bytes({"X": np.zeros((30 << 20, 1), np.uint8), "y": np.zeros(30 << 20, np.uint8)})


ATTACKS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a dimension alone": ("a.mat", lambda: mat_of(struct.pack("<II", 1 << 28, 1)), "holds 0 cells"),
    "nested cells": ("a.mat", lambda: nested_cells(20_000), "holds a cell"),
    "PAX header": (cifar.ARCHIVE, lambda: long_header(b"x"), "claims 1610612736 bytes"),
    "long name": (cifar.ARCHIVE, lambda: long_header(b"L"), "claims 1610612736 bytes"),
    "empty members": (cifar.ARCHIVE, empty_members, "more than 50000 members|needs more than"),
    "layers": ("gzip.zip", layers, "claim|needs more than"),
    "nested lists": ("a.json.gz", lists, "needs more than"),
    "one long text": ("a.json", text_for_all, "x holds 'aaa"),
    "windows": ("a.json.gz", windows, "needs more than"),
    "a key twice": ("a.json", twice, "'29999' occurs twice"),
    "a user twice": ("a.json", users_twice, "'29999' is listed twice"),
    "labels": ("a.npz", labels, "needs more than"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_bombs_are_refused_at_once(name: str, tmp_path: Path) -> None:
    file, made, message = ATTACKS[name]
    path = put(tmp_path, file, made())
    known = {cifar.ARCHIVE: "cifar10", "gzip.zip": "emnist"}.get(file)

    def read(path: Path) -> object:
        return load(known, path.parent) if known else load(path)

    assert not survives(read, path)
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize("name", ["a.npz", "a.json", "a.mat", "train-images-idx3-ubyte"])
def test_pipes_and_devices_are_refused(name: str, tmp_path: Path) -> None:
    for made in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        made(tmp_path / name)
        with pytest.raises(FedrefError, match=r"no regular file|no training images"):
            load(tmp_path if name.startswith("train") else tmp_path / name)
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "split.json")
    with pytest.raises(DataError, match="no regular file"):
        from_manifest(tmp_path / "split.json")
    assert not manifest.is_manifest(tmp_path / "split.json")


def test_bz2_in_a_zip_is_refused_because_it_unpacks_without_a_limit(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        for name in ("X", "y"):
            stream = io.BytesIO()
            np.save(stream, np.zeros((3, 1) if name == "X" else 3))
            archive.writestr(f"{name}.npy", stream.getvalue())
    with pytest.raises(DataError, match="expected stored or deflated"):
        load(tmp_path / "a.npz")


def test_a_member_that_the_directory_of_a_zip_hides_is_missed(tmp_path: Path) -> None:
    X, y = np.zeros((4, 2)), np.arange(4)
    data = bytearray(npz_bytes({"X": X, "y": y, "client": y // 2}))
    entry = data.rfind(b"PK\1\2", 0, data.rfind(b"PK\1\2"))  # of y; after it that of client
    hidden = data.rfind(b"PK\5\6") - data.rfind(b"PK\1\2")
    data[entry + 32] = hidden  # the length of y's comment: one byte
    with pytest.raises(DataError, match="lists 2 members and counts 3"):
        load(put(tmp_path, "a.npz", bytes(data)))


def test_a_known_data_set_with_another_label_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(shipped() / "digits" / "digits.npz") as arrays:
        found = dict(arrays)
    found["y"][0] ^= 1
    put(tmp_path, "digits.npz", npz_bytes(found))
    with pytest.raises(DataError, match=r"not digits as published.*--data-unverified"):
        load("digits", tmp_path)
    assert load("digits", tmp_path, verify=False).y[0] == found["y"][0]
    words = ["data", "prepare", "digits", "--data-dir", str(tmp_path)]
    assert main(words) == 2
    assert "--data-unverified" in capsys.readouterr().err
    assert main([*words, "--data-unverified"]) == 0


def test_published_files_are_checked_where_their_content_has_no_known_hash(tmp_path: Path) -> None:
    put(tmp_path, "gzip.zip", b"no archive")
    with pytest.raises(DataError):
        load("emnist", tmp_path)


def test_labels_of_two_kinds_are_refused(tmp_path: Path) -> None:
    X = np.zeros((3, 2))
    dates = np.zeros(3, "M8[s]")
    arrays = dict(
        zip(("train_images", "train_labels", "test_images", "test_labels"), (X, [0] * 3, X, dates))
    )
    with pytest.raises(DataError, match="test_labels holds datetime64"):
        load(put(tmp_path, "a.npz", npz_bytes(arrays)))


def test_names_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    tree = leaf_object(users=1)
    text = json.dumps(tree).replace('"u0"', '"\\ud800"')
    with pytest.raises(DataError, match="UTF-8"):
        load(put(tmp_path, "a.json", text.encode()))
    client = np.array([0xD800, 0x41], "<u4").view("<U1")
    with pytest.raises(DataError, match="UTF-8"):
        load(
            put(
                tmp_path, "a.npz", npz_bytes({"X": np.zeros((2, 1)), "y": [0, 1], "client": client})
            )
        )


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    found = manifest_of(split("iid", load("digits"), users=5)) | {"sha256": "\x1b[2J\n"}
    with pytest.raises(DataError, match=r"expected .*with which it was sealed") as caught:
        from_manifest(put_json(tmp_path, found, "split.json"))
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- manifests ------------------------------------------------------------------------------------


def resealed(folder: Path, **changes: object) -> Path:
    """A manifest of the shipped digits with other values and a seal that fits."""
    found = manifest_of(split("iid", load("digits"), users=5)) | changes
    found["sha256"] = manifest.seal(found)
    return put(folder, "split.json", json.dumps(found).encode())


@pytest.mark.parametrize(
    "parameters",
    [{"seed": 1}, {"of": ["a"]}, {"source": 1}, {"rule": "iid"}, {"of": {}}, {"users": []}],
)
def test_parameters_of_a_manifest_may_be_anything(
    parameters: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "verify", str(resealed(tmp_path, parameters=parameters))]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_minus_zero_is_another_spelling(tmp_path: Path) -> None:
    path = resealed(tmp_path)
    text = path.read_text()
    assert from_manifest(path).seed == 0
    path.write_text(text.replace('"seed": 0', '"seed": -0'))
    with pytest.raises(DataError, match="-0 is not spelt 0"):
        from_manifest(path)


def test_true_is_no_seed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="another type: seed"):
        from_manifest(resealed(tmp_path, seed=True))


# ---- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "a.npz"])
def test_impossible_paths_are_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop", tmp_path / "a\0b"):
        with pytest.raises(FedrefError):
            load(name, odd)
        with pytest.raises(FedrefError):
            load(odd / name)
        with pytest.raises(FedrefError):
            load(odd)
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop"):
        monkeypatch.setenv("FEDREF_DATA", str(odd))
        assert load("digits").name == "digits"  # the shipped ones: nothing is needed from it


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read anything")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0)
    with pytest.raises(DataError, match="Permission denied"):
        load(tmp_path / "a")
