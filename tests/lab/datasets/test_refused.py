"""Broken and hostile files: each is one line that names the file, in little time and memory."""

import gzip
import io
import json
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import (
    emnist_zip,
    idx_bytes,
    idx_files,
    images,
    leaf_object,
    npz_bytes,
    put,
    write_idx,
    zip_bytes,
)
from running import soon

from fedref import DataError, FedrefError
from fedref.lab.datasets import from_manifest, load, manifest, manifest_of, split
from fedref.lab.datasets.manifest import is_manifest

X, Y = images(8)
FLAT = X.reshape(8, -1)

# ---- what makes them -------------------------------------------------------------------------------


def npz(**changes):
    """An .npz file of X and y with other arrays; None leaves one out."""
    arrays = {"X": FLAT, "y": Y} | changes
    return npz_bytes({name: array for name, array in arrays.items() if array is not None})


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npy_claiming(shape):
    """An .npy member without data whose header claims this shape."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()


TABLE = "age,weight,client,y\n1,2.5,b,0\n3,-4e1,a,2\n5,6,b,1\n"


def csv(old, new):
    return TABLE.replace(old, new).encode()


GOOD = json.dumps(leaf_object())


def leaf(*path, **new):
    """LEAF's JSON with one value left out, or with `to` in its place."""
    data: Any = json.loads(GOOD)
    *outer, last = path
    inside = reduce(getitem, outer, data)
    if new:
        inside[last] = new["to"]
    else:
        del inside[last]
    return json.dumps(data).encode()


U1 = ("user_data", "u1")


def leaf_of(x, y):
    """LEAF's JSON of one user."""
    return json.dumps(leaf_object(me=(x, y))).encode()


TWEET = ["1", "", "", "me", "a"]
IDX = idx_bytes(X[:4])


def layers():
    """zip → gzip → idx of 70 MB: the gzip layer is long by its name alone, which the zip packs."""
    head = b"\0\0\x08\x03" + struct.pack(">3I", 1, 70, 1 << 20)
    zeros = gzip.compress(head + bytes(70 << 20), 1)
    named = zeros[:3] + b"\x08" + zeros[4:10] + b"a" * (4 << 20) + b"\0" + zeros[10:]
    return zip_bytes({f"{name}.gz": named for name in idx_files("emnist-letters-", "test")})


SMALL = manifest_of(split("iid", load("digits"), 5, users=3))


def sealed(**changes):
    """A manifest that someone changed, and unless the seal is what changed, sealed again."""
    data = SMALL | changes
    seal = {} if "sha256" in changes else {"sha256": manifest.seal(data)}
    return json.dumps(data | seal).encode()


TWO = {"name": "a", "train": [1, 2, 3], "test": [4]}, {"name": "b", "train": [5, 6], "test": [8]}


def with_clients(*clients):
    return sealed(clients=list(clients))


# ---- the table: file → message → what stands in it, or a function that makes it --------------------

WRONG: dict[str, dict[str, bytes | Callable[[], bytes]]] = {
    "data.npz": {
        r"y has shape \(7,\)": npz(y=Y[:7]),
        "y is nan in row 0": npz(y=np.full(8, np.nan)),
        "X holds <U1": npz(X=np.array([list("ab")] * 8)),
        r"X has shape \(0, 9\)": npz(X=FLAT[:0], y=Y[:0]),
        "expected UTF-8": npz(client=np.full(8, 0xD800, "<u4").view("<U1")),  # a lone surrogate
        "expected images of one size and type": npz(
            X=None, y=None, train_images=X[:4], train_labels=Y[:4], test_images=X[5:, :2], test_labels=Y[5:]),
        "unknown array 'train'; expected only X, y, client, test": npz(train=Y > 0),
        "test holds other values, or is true for all rows": npz(test=np.arange(8)),
        "pickled objects|allow_pickle": lambda: zip_bytes({"X.npy": npy(np.array([{}]))}),
        "expected an .npz": lambda: zip_bytes({"X.npy": npy_claiming("(9999999, 9999999)")}),
        "claims 68157440 bytes": lambda: zip_bytes({"X.npy": bytes(65 << 20)}),
    },
    "data.csv": {
        "line 3 .row 1.: weight is 'heavy'; expected a finite number": csv("-4e1", "heavy"),
        "line 3 .row 1.: weight is '1_000'": csv("-4e1", "1_000"),
        "weight is empty.*fill the cell, or leave out": csv("-4e1", ""),
        "weight is 'nan'.*fill the cell": csv("-4e1", "nan"),
        "line 3 .row 1. has 5 cells; expected 4, as the header has": csv("-4e1", "-4,1"),
        "line 3 .row 1.: y is 'two', and a number in other rows": csv("a,2", "a,two"),
        "no column y, only age, weight, client, z; .* with one of y, .*data.label": csv("y\n", "z\n"),
        "two columns are called age": csv("weight", "age"),
        r"column 1 has no name; .*to_csv\(..., index=False": csv("age", ""),
        "shop is 'b'; .*data.client='shop'": csv("client", "shop"),
        "data.csv: is empty": b"\n\n",
        "line 2 .row 0.: test is 'yes'; expected 1 or true": b"x,test,y\n1,yes,0\n",
        "expected a table as UTF-8 text": b"x,y\n\xff,1\n",
    },
    "data.json": {
        "expected LEAF JSON": GOOD[:-9].encode(),
        "users, num_samples or user_data is missing": leaf("users"),
        "3 users, 2 user_data, 3 num_samples: 'u1'; expected every user": leaf(*U1),
        "'u0' occurs twice": GOOD.replace('"u1": {', '"u0": {').encode(),
        "'u0': 2 rows in x, 2 in y, '2' in num_samples": leaf("num_samples", 0, to="2"),
        r"x\[2\] is \[.*; expected a list of 4 numbers": leaf(*U1, "x", 2, 0),
        "'u1': 2 features; expected 4, as in .*'u0'": leaf(*U1, "x", to=[[1.0, 2.0]] * 3),
        "holds NaN": leaf(*U1, "x", 0, 0, to=float("nan")),
        r"y\[0\] is None; expected one number": leaf(*U1, "y", 0, to=None),
        # one long text, for which NumPy would give every row as much room
        r"x\[4000\] is \['aaa": leaf_of([[0]] * 4000 + [["a" * 50_000]], [0] * 4001),
    },
    "data.json.gz": {"becomes too large": lambda: gzip.compress(b" " * (70 << 20), 9)},
    "sent140/data.json": {
        r"x\[1\] is \['2', 'b'\]; expected a tweet": leaf_of([TWEET, ["2", "b"]], [0, 0]),
        **{rf"y\[0\] is {odd!r}; expected 0 or 1, a tweet's class": leaf_of([TWEET], [odd])
           for odd in (2, "5", True)},
    },
    "shakespeare/roles.json": {
        "expected roles.json": b"no",
        "role 'HAMLET': is not a list of lists of text": b'{"HAMLET": ["To be"]}',
        "no role has more than 80 characters": b'{"HAMLET": [["To be"]]}',
    },
    "idx/train-images-idx3-ubyte": {
        "is empty; expected an idx": gzip.compress(b"", mtime=0),
        "magic number 504b0304": b"PK\x03\x04" + IDX,
        "ends within its dimensions": IDX[:9],
        "claim 36 bytes; expected 35 bytes": IDX[:-1],
        "an idx file.*the dimensions": b"\0\0\x08\x64" + b"\0\0\0\x01" * 100 + b"x",
        r"labels of shape \(12,\); expected one for each of 4 images": IDX,
    },
    "emnist/gzip.zip": {"becomes too large|claims": layers},
    "m.json": {
        "m.json: .*expected a split manifest": b"[]",
        "expected a split manifest": b"\xff",
        "the source digits has SHA-256": sealed(source={"name": "digits", "sha256": "0", "rows": 1}),
        "'test'; expected lists train and test": sealed(clients=[{"name": "0", "train": [1]}]),
        "scale of the features is 0; expected numbers above 0": sealed(scale=0),
        "scale of the features is -1; expected": sealed(scale=[16] * 63 + [-1]),
        "shift holds other values than numbers; expected shift: a number, or 64": sealed(shift=["1"] * 64),
        r"scale has shape \(2,\); expected scale: a number, or 64 of them": sealed(scale=[1, 2]),
        "it has no clients; expected a split manifest": sealed(clients=[]),
        "client 1 is 7; expected lists train and test": with_clients(TWO[0], 7),
        "'validation'; expected lists train and test": with_clients(TWO[0], TWO[1] | {"validation": [7]}),
        "row 1.5 is no whole number": with_clients(TWO[0], TWO[1] | {"train": [1.5]}),
        "test rows run from 4 to 1797, expected 0 to 1796": with_clients(TWO[0], TWO[1] | {"test": [1797]}),
        "client 1 has no training row": with_clients(TWO[0], TWO[1] | {"train": []}),
        "two clients are called 'a'; expected names that differ":
            with_clients(TWO[0], TWO[1] | {"name": "a"}),
        "two clients are called '1'": with_clients(TWO[0] | {"name": "1"}, TWO[1] | {"name": "1"}),
        "row 2 is a train row of client a twice; expected every row once":
            with_clients(TWO[0] | {"train": [2, 1, 2]}, TWO[1]),
        "row 4 is a test row of client a and of client b; expected every row once":
            with_clients(TWO[0], TWO[1] | {"test": [8, 4]}),
        "row 9 is a validation row of client a and of client b":
            with_clients(*(client | {"validation": [9]} for client in TWO)),
        "row 8 is a test row of client 1 and a training row of client 0":
            with_clients(TWO[0] | {"train": [1, 8]}, TWO[1]),
        r"expected .*which stands in it: it has been changed": sealed(sha256="\x1b[2J\n"),
        "'seed' occurs twice": json.dumps(SMALL).replace("{", '{"seed": 7,', 1).encode(),
    },
}  # fmt: skip
EMPTY = ("a.npz", "b.mat", "c.tsv", "d.json", "m.json", "shakespeare/roles.json", "emnist/gzip.zip",
         "idx/train-images-idx3-ubyte")  # fmt: skip
ROWS = [(name, b"", "is empty; expected ") for name in EMPTY]
ROWS += [(name, x, message) for name, rows in WRONG.items() for message, x in rows.items()]
PROC = Path("/proc/self/clear_refs")


def memory(field):
    """Bytes of memory by /proc: VmRSS now, VmHWM at most since the last reset."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) << 10


def read(path):
    if path.parent.name in ("shakespeare", "sent140", "emnist"):
        return load(path.parent.name, path.parents[1])
    if path.name == "m.json":
        return from_manifest(path)
    return load(path.parent if path.parent.name == "idx" else path)


def place(root, name):
    """Where the file of this name goes; the others of a set of idx files are there."""
    path = root / name
    path.parent.mkdir(exist_ok=True)
    if path.parent.name == "idx":
        write_idx(path.parent, pack=False)
    return path


@pytest.mark.parametrize(("name", "content", "message"), ROWS)
def test_a_wrong_file_is_one_line_at_once(tmp_path, name, content, message):
    path = place(tmp_path, name)
    path.write_bytes(content if isinstance(content, bytes) else content())
    with suppress(OSError):  # Linux: forget how much was used at most
        PROC.write_text("5")
    before, lines = memory("VmRSS") if PROC.exists() else 0, set()

    def refuse():
        start = time.process_time()
        with pytest.raises(DataError, match=message) as caught:
            read(path)
        lines.add(str(caught.value))
        return time.process_time() - start < 2

    assert soon(refuse)
    assert not PROC.exists() or memory("VmHWM") - before < 300 << 20
    (line,) = lines
    assert path.name in line or str(path.parent) in line
    assert "; expected " in line
    assert line.isprintable()


# ---- damage: a result or one line ------------------------------------------------------------------

WILD = (0, 1, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1)
VALID: dict[str, Callable[[], bytes]] = {
    "idx/train-images-idx3-ubyte": lambda: idx_bytes(images(12)[0]),
    "a.npz": lambda: npz_bytes({"X": X, "y": Y, "client": Y}),
    "a.csv": lambda: TABLE.encode(),
    "a.json": lambda: GOOD.encode(),
    "shakespeare/roles.json": lambda: b'{"HAMLET": [[' + b'"To be, or not to be", ' * 9 + b'""]]}',
    "m.json": lambda: json.dumps(SMALL).encode(),
    "emnist/gzip.zip": emnist_zip,
}


def damaged(rng, data):
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


@pytest.mark.parametrize("name", VALID)
def test_damaged_files_give_a_result_or_one_line(name, tmp_path):
    data, rng, refused = VALID[name](), np.random.default_rng(len(name)), 0
    path = place(tmp_path, name)
    for content in (data, *(damaged(rng, data) for _ in range(50))):
        path.write_bytes(content)
        try:
            if name.startswith("emnist"):
                load("emnist", tmp_path, verify=False)
            else:
                read(path)
        except DataError as error:
            refused += 1
            assert content != data
            assert "expected" in str(error)  # noqa: PT017 (both a result and an error are right)
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > 5


# ---- folders, pipes, devices, paths ----------------------------------------------------------------


def test_folders_that_do_not_fit_together(tmp_path):
    for part in ("digits", "letters"):
        for name, data in idx_files(f"emnist-{part}-").items():
            put(tmp_path, f"sets/{name}", data)
    write_idx(tmp_path / "alone", pack=False)
    (tmp_path / "alone" / "train-labels-idx1-ubyte").unlink()
    for name in ("users/a.json", "users/b.json", "text/a.txt"):
        put(tmp_path, name, GOOD.encode())
    for name, message in {
        "sets": "holds emnist-digits-train-.*, emnist-letters-train-.*; expected one idx file",
        "alone": "alone: holds train-images-idx3-ubyte; expected .* of their labels",
        "users": r"holds .*a.json: user 'u0', .*b.json: user 'u0'; expected every user in one file",
        "text": "text: is in no known format",
        "text/a.txt": r"a.txt: is in no known format; expected .*npz",
        "nowhere": "nor is it a file or folder",
    }.items():
        with pytest.raises(DataError, match=message):
            load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize(
    "name", ["a.npz", "a.json", "a.mat", "m.json", "idx/train-images-idx3-ubyte"]
)
def test_pipes_and_devices_are_refused(name, tmp_path):
    path = place(tmp_path, name)
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        path.unlink(missing_ok=True)
        make(path)
        with pytest.raises(FedrefError, match="not a regular file"):
            read(path)
        assert not is_manifest(path)


@pytest.mark.parametrize("name", ["digits", "a.npz"])
def test_impossible_paths_are_one_line(name, tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop", tmp_path / "a\0b"):
        for words in ((name, odd), (odd / name,), (odd,)):
            with pytest.raises(FedrefError):
                load(*words)
        assert not is_manifest(odd)
    for odd in (tmp_path / ("a" * 256), tmp_path / "loop", tmp_path / "nowhere"):
        monkeypatch.setenv("FEDREF_DATA", str(odd))
        assert load("digits").name == "digits"  # the shipped ones: nothing is needed from it
