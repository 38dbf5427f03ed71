"""Whatever is fed to a reader: a Source or one line of refusal, in little time and memory.

Long because damaged files and bombs of every format share one harness.
"""

import gzip
import io
import json
import os
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from dataset_files import (
    cifar_members,
    emnist_zip,
    idx_bytes,
    images,
    leaf_object,
    mat_bytes,
    npz_bytes,
    put,
    tar_bytes,
    zip_bytes,
)

from fedref import DataError, FedrefError
from fedref.datasets import from_manifest, load, manifest_of, split
from fedref.datasets.formats import cifar, emnist
from fedref.datasets.manifest import is_manifest, seal

Random = np.random.Generator


# ---- the harness: it gives a result, or a DataError of one line -----------------------------------


def memory(field: str) -> int:
    """Bytes of memory by /proc: VmRSS now, VmHWM at most since the last reset."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) << 10


LINUX = Path("/proc/self/clear_refs").exists()


def survives(read: Callable[[Path], object], path: Path) -> bool:
    """Whether it gave a result; that it kept to the rules is asserted."""
    if LINUX:  # forget how much was used at most
        Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS") if LINUX else 0, time.process_time()
    try:
        read(path)
        accepted = True
    except DataError as error:
        assert "expected" in str(error)  # noqa: PT017 (both a result and an error are right)
        assert "\n" not in str(error)  # noqa: PT017
        accepted = False
    assert time.process_time() - start < 2
    assert not LINUX or memory("VmHWM") - before < 300 << 20
    return accepted


WILD = (0, 1, 2, 7, 8, 255, 256, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def damaged(rng: Random, data: bytes) -> bytes:
    """Some bytes changed, numbers replaced, pieces cut out or doubled, the end cut off."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, n = int(rng.integers(len(out) + 1)), int(rng.integers(1, 9))
        match int(rng.integers(5)):
            case 0 | 1 if at < len(out):
                out[at] = int(rng.integers(256))
            case 2:
                out[at : at + 4] = struct.pack("<>"[n % 2] + "I", int(rng.choice(WILD)))
            case 3:
                del out[at : at + n]
            case 4:
                out[at:at] = out[at : at + n]
    return bytes(out[: int(rng.integers(len(out) + 1))] if rng.random() < 0.1 else out)


ODD = (None, True, -1, 0.5, -0.0, 2**63, 10**400, float("nan"), float("inf"), "", "ab", "\ud800",
       "a\nb", [], [[]], [1.0, "a"], {}, {"x": []})  # fmt: skip


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree."""
    if not isinstance(tree, dict | list):
        return []
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    return [place for key in keys for place in [(tree, key), *places(tree[key])]]


def edited(rng: Random, text: bytes) -> bytes:
    """JSON with one or two other values, or without them; a manifest is mostly sealed again."""
    tree = json.loads(text)
    for _ in range(int(rng.integers(1, 3))):
        if found := places(tree):
            inside, key = found[int(rng.integers(len(found)))]
            if rng.random() < 0.2:
                del inside[key]
            else:
                inside[key] = ODD[int(rng.integers(len(ODD)))]
    if "sha256" in tree:
        with suppress(ValueError, TypeError):  # some values no seal can hold
            tree["sha256"] = seal(tree)
    return json.dumps(tree).encode() if rng.random() < 0.8 else damaged(rng, text)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def small_manifest() -> bytes:
    found = manifest_of(split("iid", load("synthetic(users=2,features=2)"), users=3))
    for client in found["clients"]:
        client["train"], client["test"] = client["train"][:3], client["test"][:2]
    return json.dumps(found | {"sha256": seal(found)}).encode()


class Format(NamedTuple):
    """A valid file, how it is damaged, in which layers it is packed then, and how it is read."""

    file: str
    valid: Callable[[], bytes]
    damage: Callable[[Random, bytes], bytes] = damaged
    pack: Callable[[bytes], bytes] = bytes
    read: Callable[[Path], object] = load


def emnist_of(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(emnist_zip())) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return zip_bytes(members | {f"gzip/{emnist.file_names('letters')[3]}": gzip.compress(data)})


X, Y = images(8)
ROLES = {"HAMLET": [["To be, or not to be"] * 9], "GHOST": [["I am thy father's spirit"] * 9]}
FORMATS = {
    "idx": Format("train-images-idx3-ubyte", lambda: idx_bytes(X), read=lambda p: load(p.parent)),
    "idx in gzip": Format(
        "train-images-idx3-ubyte.gz",
        lambda: idx_bytes(X),
        pack=gzip.compress,
        read=lambda path: load(path.parent),
    ),
    "an array": Format(
        "a.npz", lambda: npy(X), pack=lambda data: zip_bytes({"X.npy": data, "y.npy": npy(Y)})
    ),
    "npz": Format("a.npz", lambda: npz_bytes({"X": X, "y": Y, "client": Y})),
    "csv": Format("a.csv", lambda: b"x,client,test,y\n1,a,0,cat\n-2.5,b,1,dog\n3,b,0,cat\n"),
    "leaf": Format("a.json", lambda: json.dumps(leaf_object()).encode(), edited),
    "leaf in gzip": Format("a.json.gz", lambda: gzip.compress(json.dumps(leaf_object()).encode())),
    "roles": Format(
        "roles.json",
        lambda: json.dumps(ROLES).encode(),
        edited,
        read=lambda path: load("shakespeare", path.parent),
    ),
    "manifest": Format("m.json", small_manifest, edited, read=from_manifest),
    "tar": Format(
        cifar.ARCHIVE,
        lambda: gzip.decompress(tar_bytes(cifar_members(1))),
        pack=lambda data: gzip.compress(data, 1),
        read=lambda path: load("cifar10", path.parent),
    ),
    "zip": Format("gzip.zip", emnist_zip, read=lambda path: load("emnist", path.parent)),
    "idx in gzip in zip": Format(
        "gzip.zip",
        lambda: idx_bytes(np.ones(5, np.uint8)),
        pack=emnist_of,
        read=lambda path: load("emnist", path.parent),
    ),
    "mat": Format("a.mat", lambda: mat_bytes(compress=False)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_give_a_result_or_one_line(name: str, tmp_path: Path) -> None:
    case, rng = FORMATS[name], np.random.default_rng([0, sum(name.encode())])
    put(tmp_path, "train-labels-idx1-ubyte", idx_bytes(Y))  # beside images
    path, valid = tmp_path / case.file, case.valid()
    path.write_bytes(case.pack(valid))
    assert survives(case.read, path)
    accepted, cases = 0, 6 if name == "mat" else 200  # a .mat takes a process
    for number in range(cases):
        data = case.pack(case.damage(rng, valid))
        path.write_bytes(data)
        try:
            accepted += survives(case.read, path)
        except BaseException:
            print(f"{name}: case {number}, {data!r}"[:20_000])
            raise
    print(f"{name}: {accepted} of {cases} were read")
    assert accepted < 0.9 * cases  # else the cases would not be worth their name


@pytest.mark.parametrize("name", ["idx in gzip", "npz", "leaf in gzip", "tar", "mat"])
def test_cut_files_are_refused(name: str, tmp_path: Path) -> None:
    case = FORMATS[name]
    put(tmp_path, "train-labels-idx1-ubyte", idx_bytes(Y))
    data = case.pack(case.valid())
    for size in range(0, len(data) - 1, len(data) // (2 if name == "mat" else 40)):
        with pytest.raises(DataError):
            case.read(put(tmp_path, case.file, data[:size]))


# ---- files made to fill or to hang the process ----------------------------------------------------


def mat_of(dimensions: bytes) -> bytes:
    """A .mat file whose X is a cell array of these dimensions without cells."""
    flags = struct.pack("<II", 6, 8) + struct.pack("<II", 1, 0)
    shape = struct.pack("<II", 5, len(dimensions)) + dimensions
    body = flags + shape + struct.pack("<HH", 1, 1) + b"X\0\0\0"
    return b"MATLAB 5.0".ljust(124) + b"\0\1IM" + struct.pack("<II", 14, len(body)) + body


def tar_head(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def with_checksum(head: bytearray) -> bytes:
    """A tar archive of this header."""
    head[148:156] = b"%06o\0 " % (sum(head) - sum(head[148:156]) + 256)
    return gzip.compress(bytes(head) + bytes(1024))


def backwards() -> bytes:
    """A member of a negative size: the next header would be this one, for ever."""
    head = bytearray(tar_head("a", b"0", 0))
    head[124:136] = (-512 & (1 << 96) - 1).to_bytes(12, "big")
    return with_checksum(head)


def holes() -> bytes:
    """A sparse member of 8 GB."""
    head = bytearray(tar_head(cifar.FILES[0], b"S", 0))
    head[386:398], head[483:495] = b"00000000000\0", b"77777777777\0"  # at 0; 8 GB in all
    return with_checksum(head)


def hidden_member() -> bytes:
    """An archive whose directory hides its last member in the comment of the one before."""
    data = bytearray(npz_bytes({"X": X, "y": Y, "client": Y}))
    entry = data.rfind(b"PK\1\2", 0, data.rfind(b"PK\1\2"))  # of y; after it that of client
    data[entry + 32] = data.rfind(b"PK\5\6") - data.rfind(b"PK\1\2")  # the comment's length
    return bytes(data)


def bz2_member() -> bytes:
    """A member that zipfile would unpack without a limit."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("X.npy", npy(np.zeros((3, 1))))
    return stream.getvalue()


def layers() -> bytes:
    """zip → gzip → idx of 100 MB: the gzip layer is long by its name alone, which the zip packs."""
    head = b"\0\0\x08\x03" + struct.pack(">3I", 1, 100, 1 << 20)
    zeros = gzip.compress(head + bytes(100 << 20), 1)
    named = zeros[:3] + b"\x08" + zeros[4:10] + b"a" * (4 << 20) + b"\0" + zeros[10:]
    return zip_bytes(dict.fromkeys(emnist.file_names("letters"), named))


def text_for_all(rows: int = 4000) -> bytes:
    """One long text among the numbers, for which NumPy would give every row as much room."""
    entry = {"x": [[0]] * rows + [["a" * 50_000]], "y": [0] * (rows + 1)}
    found = {"users": ["u"], "num_samples": [rows + 1], "user_data": {"u": entry}}
    return json.dumps(found).encode()


MANY = [str(k) for k in range(30_000)]
ATTACKS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a dimension alone": ("a.mat", lambda: mat_of(struct.pack("<II", 1 << 28, 1)), "MATLAB file"),
    "long name": (  # a header text of 1.5 GB, of which 100 MB are there
        cifar.ARCHIVE,
        lambda: gzip.compress(tar_head("a", b"L", 3 << 29) + bytes(100 << 20), 9),
        "becomes too large",
    ),
    "holes": (cifar.ARCHIVE, holes, "data_batch_1.bin' claims 8589934591 bytes"),
    "bz2": ("a.npz", bz2_member, "expected stored or deflated"),
    "hidden member": ("a.npz", hidden_member, "lists 2 members and counts 3"),
    "labels of two kinds": (
        "a.npz",
        lambda: npz_bytes(
            {f"{part}_images": X for part in ("train", "test")}
            | {"train_labels": Y, "test_labels": np.zeros(8, "M8[s]")}
        ),
        "test_labels holds datetime64",
    ),
    "half a character": (
        "a.json",
        lambda: json.dumps(leaf_object(users=1)).replace('"u0"', '"\\ud800"').encode(),
        "UTF-8",
    ),
    "half a character in NumPy": (
        "a.npz",
        lambda: npz_bytes({"X": X, "y": Y, "client": np.full(8, 0xD800, "<u4").view("<U1")}),
        "UTF-8",
    ),
    "backwards": (cifar.ARCHIVE, backwards, "member 'a' claims -512 bytes"),
    "empty members": (
        cifar.ARCHIVE,
        lambda: gzip.compress(tar_head("a", b"0", 0) * 100_000, 1),
        "has more than 1000 members",
    ),
    "layers": ("gzip.zip", layers, "becomes too large|claims"),
    "spaces": ("a.json.gz", lambda: gzip.compress(b" " * (70 << 20), 9), "becomes too large"),
    "one long text": ("a.json", text_for_all, "x holds 'aaa"),
    "a key twice": (  # names that are compared with each other take long
        "a.json",
        lambda: json.dumps(dict.fromkeys(MANY)).replace("29998", "29999").encode(),
        "'29999' occurs twice",
    ),
    "a user twice": (
        "a.json",
        lambda: json.dumps(
            {"users": [*MANY, "29999"], "num_samples": [], "user_data": {}}
        ).encode(),
        "'29999' is listed twice",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_bombs_and_false_archives_are_refused_at_once(name: str, tmp_path: Path) -> None:
    file, made, message = ATTACKS[name]
    path = put(tmp_path, file, made())
    known = {cifar.ARCHIVE: "cifar10", "gzip.zip": "emnist"}.get(file)

    def read(path: Path) -> object:
        with pytest.raises(DataError, match=message):
            load(known, path.parent) if known else load(path)
        return None

    assert survives(read, path)


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
    assert not is_manifest(tmp_path / "split.json")


# ---- paths ----------------------------------------------------------------------------------------


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
