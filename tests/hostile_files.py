"""Files that lie about themselves: valid in structure, wrong in any field. One function a format.

Each takes a random generator and returns the bytes of one file. Sizes, types and counts are taken
from `WILD`, layers are packed as the format wants them, so that the lie reaches the parser inside.
"""

import gzip
import io
import json
import struct
import tarfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from dataset_files import (
    cifar_records,
    emnist_zip,
    idx_bytes,
    images,
    leaf_object,
    npz_bytes,
    tar_bytes,
)

from fedref import FedrefError
from fedref.datasets import load, manifest, manifest_of, split

Random = np.random.Generator
WILD = (0, 1, 2, 3, 7, 8, 255, 256, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
FAR = (*WILD, -1, 2**33, 2**63 - 1, 2**63, 2**64, 10**30)

IDX = idx_bytes(images(4)[0])
NPZ = npz_bytes({"X": images(8)[0], "y": images(8)[1], "client": np.arange(8) // 3})
LEAF: Any = leaf_object(users=3)
CIFAR = cifar_records(2)[0]
TAR = tar_bytes({"a": b"123", "b": b"4567"})
with zipfile.ZipFile(io.BytesIO(emnist_zip())) as opened:
    EMNIST = [(name, gzip.decompress(opened.read(name))) for name in opened.namelist()]


def one(rng: Random, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def mutated(rng: Random, data: bytes, most: int = 6) -> bytes:
    """Some bytes changed, pieces moved, doubled or cut out."""
    out = bytearray(data)
    for _ in range(int(rng.integers(most + 1))):
        at, n = int(rng.integers(len(out) + 1)), int(rng.integers(1, 9))
        match int(rng.integers(5)):
            case 0 | 1 if at < len(out):
                out[at] = int(rng.integers(256))
            case 2:
                out[at : at + 4] = struct.pack(one(rng, "<>") + "I", one(rng, WILD))
            case 3:
                del out[at : at + n]
            case 4:
                out[at:at] = out[at : at + n]
    return bytes(out[: int(rng.integers(len(out) + 1))] if rng.random() < 0.1 else out)


def packed(rng: Random, data: bytes) -> bytes:
    """gzip, plain, or gzip with a wrong byte."""
    kind = rng.random()
    if kind < 0.4:
        return data
    found = gzip.compress(data, 1)
    return found if kind < 0.9 else mutated(rng, found)


def idx(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return packed(rng, mutated(rng, IDX))
    kind = int(rng.choice([8, 9, 11, 12, 13, 14, int(rng.integers(256))]))
    shape = [one(rng, WILD) for _ in range(int(rng.integers(6)))]
    head = bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return packed(rng, head + rng.bytes(int(rng.integers(40))))


DTYPES = ("<f8", "|u1", "<i8", ">f4", "<f2", "<U3", "|S2", "<M8[s]", "<m8[D]", "|b1", "<c16", "|O",
          "<f16", "|V3", "<U0", "(3,)<f4", "<i4,<f8")  # fmt: skip


def npy(rng: Random) -> bytes:
    """An array whose header claims another shape or type, sometimes."""
    stream = io.BytesIO()
    if rng.random() < 0.6:
        shape = tuple(int(n) for n in rng.integers(0, 5, int(rng.integers(4))))
        dtype = np.dtype(one(rng, [t for t in DTYPES if t != "|O"]))
        array = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize) or b"", "u1")
        if dtype.itemsize and dtype.shape == ():
            np.lib.format.write_array(stream, array.view(dtype).reshape(shape))
            return stream.getvalue()
    shape = tuple(one(rng, FAR) for _ in range(int(rng.integers(4))))
    head = repr({"descr": one(rng, DTYPES), "fortran_order": bool(rng.integers(2)), "shape": shape})
    head = head if rng.random() < 0.8 else head.replace("(", "(" * int(rng.integers(1, 300)))
    text = (head + "\n").encode()
    body = rng.bytes(int(rng.integers(50)))
    return (
        b"\x93NUMPY"
        + bytes([one(rng, (1, 1, 1, 2, 3)), 0])
        + struct.pack("<H", len(text))
        + text
        + body
    )


def zipped(rng: Random, members: list[tuple[str, bytes]]) -> bytes:
    """A zip archive; now and then a number in its directory or end record is another."""
    stream = io.BytesIO()
    method = one(rng, (0, 8, 8, 8, 12, 14))
    with zipfile.ZipFile(stream, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name occurs twice
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, data)
    out = bytearray(stream.getvalue())
    if rng.random() < 0.5:
        end = out.rfind(b"PK\5\6")
        entry = out.rfind(b"PK\1\2", 0, end)
        at = one(rng, (entry, end)) + int(rng.integers(4, 46))
        if at + 4 < len(out):
            out[at : at + 2] = struct.pack("<H", int(rng.integers(65536)))
    return bytes(out) if rng.random() < 0.8 else mutated(rng, bytes(out))


PUBLISHED = ("train_images", "train_labels", "test_images", "test_labels")


def npz(rng: Random) -> bytes:
    if rng.random() < 0.3:
        return mutated(rng, NPZ)
    names = one(rng, (("X", "y"), ("X", "y", "client"), PUBLISHED))
    wild = ("../X", "X") if rng.random() < 0.2 else ()
    return zipped(rng, [(f"{one(rng, (name, *wild))}.npy", npy(rng)) for name in names])


def value(rng: Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = int(rng.integers(9 if depth else 7))
    return [
        lambda: None,
        lambda: bool(rng.integers(2)),
        lambda: one(rng, FAR),
        lambda: float(rng.normal()) * 10.0 ** int(rng.integers(-300, 300)),
        lambda: one(rng, ("", "a", "ab", "\ud800", "é😀", "a\nb  c", "x" * 300, "0")),
        lambda: one(rng, (float("nan"), float("inf"), -0.0)),
        lambda: int(rng.integers(5)),
        lambda: [value(rng, depth - 1) for _ in range(int(rng.integers(4)))],
        lambda: {key: value(rng, depth - 1) for key in ("x", "y", "raw") if rng.random() < 0.5},
    ][kind]()


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree."""
    keys = (
        list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
    )
    return [place for key in keys for place in [(tree, key), *places(tree[key])]]


def edited(rng: Random, tree: Any, most: int = 3) -> Any:
    """Some of its values are others; lists grow, keys go."""
    tree = json.loads(json.dumps(tree))
    for _ in range(int(rng.integers(1, most + 1))):
        if not (found := places(tree)):
            return tree
        inside, key = one(rng, found)
        match int(rng.integers(5)):
            case 0 | 1 | 2:
                inside[key] = value(rng)
            case 3 if isinstance(inside, list):
                inside.append(inside[key])
            case 3 | 4:
                del inside[key]
    return tree


TEXTS = ({"raw": "to  be\n"}, {"raw": ["a", "\n\n"]}, {"x": ["ab", "c"], "y": ["a", "b"]})


def leaf(rng: Random) -> bytes:
    tree = LEAF | {"user_data": dict(LEAF["user_data"])}
    if rng.random() < 0.3:
        tree["user_data"]["u0"] = one(rng, TEXTS)
    text = json.dumps(edited(rng, tree)).encode()
    if rng.random() < 0.1:
        text = text.replace(b"[", b"[" * int(rng.integers(1, 3000)), 1)
    return packed(rng, text if rng.random() < 0.8 else mutated(rng, text))


def sealed() -> dict[str, Any]:
    """A valid manifest."""
    return manifest_of(
        split("iid", load("synthetic(users=2,features=2)"), users=3, train_fraction=0.5)
    )


SEALED = sealed()
SEALED["clients"] = [
    {"name": c["name"], "train": c["train"][:3], "test": c["test"][:2]} for c in SEALED["clients"]
]


def manifests(rng: Random) -> bytes:
    """A manifest with other values and, mostly, a seal that fits them."""
    tree = edited(rng, SEALED)
    if rng.random() < 0.8:
        with suppress(ValueError, TypeError):
            tree["sha256"] = manifest.seal(tree)
    text = json.dumps(tree)
    return packed(
        rng, text.replace(": 0", ": -0").encode() if rng.random() < 0.1 else text.encode()
    )


def tag(rng: Random, kind: int, data: bytes, order: str) -> bytes:
    """An element of a MATLAB file; its size is wrong now and then."""
    size = len(data) if rng.random() < 0.95 else one(rng, WILD)
    kind = kind if rng.random() < 0.97 else one(rng, WILD)
    return struct.pack(order + "II", kind, size) + data + bytes(-len(data) % 8)


def matrix(
    rng: Random, kind: int, shape: list[int], name: bytes, values: bytes, order: str
) -> bytes:
    shape = [n if rng.random() < 0.97 else one(rng, WILD) for n in shape]
    kind = kind if rng.random() < 0.97 else int(rng.integers(20))
    flags = kind | one(rng, (0, 0, 0, 0, 0, 0x200, 0x800, 0x400))
    head = tag(rng, 6, struct.pack(order + "II", flags, 0), order)
    head += tag(rng, 5, struct.pack(f"{order}{len(shape)}I", *shape), order)
    return tag(rng, 14, head + tag(rng, 1, name, order) + values, order)


def mat(rng: Random) -> bytes:
    order = one(rng, "<>")
    variables = b""
    for name, columns in ((b"X", 3), (b"Y", 1)):
        cells = b""
        for n in (2, 3):
            data = rng.integers(0, 3, n * columns).astype("u1").tobytes()
            cells += matrix(rng, 6, [n, columns], b"", tag(rng, 2, data, order), order)
        if rng.random() < 0.1:
            for _ in range(int(rng.integers(1, 200))):
                cells = matrix(rng, 1, [1, 1], b"", cells, order)
        whole = matrix(rng, 1, [1, 2], name, cells, order)
        if rng.random() < 0.5:
            squeezed = zlib.compress(whole, 1)
            whole = struct.pack(order + "II", 15, len(squeezed)) + squeezed
        variables += whole
    head = b"MATLAB 5.0".ljust(124) + (b"\0\1IM" if order == "<" else b"\1\0MI")
    data = head + variables
    return data if rng.random() < 0.7 else mutated(rng, data)


def tar(rng: Random) -> bytes:
    """A tar archive with headers of any kind and size, and checksums that fit."""
    if rng.random() < 0.2:
        return mutated(rng, TAR)
    out = b""
    for _ in range(int(rng.integers(1, 5))):
        info = tarfile.TarInfo(one(rng, ("a", "b", "x/b", "../b", "/b", "é", "a" * 99)))
        info.type = one(rng, (b"0", b"0", b"\0", b"5", b"x", b"g", b"L", b"K", b"S", b"1", b"Z"))
        data = one(rng, (b"", b"1234", b"15 path=../../b\n", b"9 path=b\n", rng.bytes(600)))
        info.size = len(data) if rng.random() < 0.7 else one(rng, FAR[:-2])
        try:
            head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        except (ValueError, OverflowError, struct.error):
            continue
        out += bytes(head[:512]) + data + bytes(-len(data) % 512)
    return packed(rng, out + bytes(1024))


def emnist(rng: Random) -> bytes:
    """zip → gzip → idx."""
    return zipped(rng, [(name, packed(rng, mutated(rng, data, 1))) for name, data in EMNIST])


def cifar(rng: Random) -> bytes:
    return mutated(rng, CIFAR, 3)


FORMATS: dict[str, Callable[[Random], bytes]] = {
    "idx": idx,
    "npz": npz,
    "leaf": leaf,
    "manifest": manifests,
    "mat": mat,
    "tar": tar,
    "zip": emnist,
    "cifar": cifar,
}


# ---- what every parser must keep to ---------------------------------------------------------------


def memory(field: str) -> int:
    """Bytes of memory by /proc: VmRSS now, VmHWM at most since the last reset."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) << 10


def reset() -> int:
    """Forget how much was used at most; what is used now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


LINUX = Path("/proc/self/clear_refs").exists()


def survives(parser: Callable[[Path], object], path: Path) -> bool:
    """Whether it gave a result; that it kept to the rules is asserted."""
    before = reset() if LINUX else 0
    start = time.process_time()
    try:
        parser(path)
        accepted = True
    except FedrefError as error:
        assert "expected" in str(error)  # noqa: PT017 (both a result and an error are right)
        assert "\n" not in str(error)  # noqa: PT017
        accepted = False
    assert time.process_time() - start < 2
    assert not LINUX or memory("VmHWM") - before < 256 << 20
    return accepted
