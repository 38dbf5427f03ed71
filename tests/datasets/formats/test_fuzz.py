"""Whatever is fed to a parser: a result or a DataError of one line, nothing else."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dataset_files import VALID, cifar_members, emnist_zip, idx_bytes, images, tar_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedref import DataError
from fedref.boundary.files import Budget
from fedref.datasets import manifest
from fedref.datasets.formats import archives, cifar, delimited, emnist, idx, leaf, mat, npz
from fedref.datasets.sources import from_path

PIXELS = idx_bytes(images(4)[0])
Parser = Callable[[Path], object]
MANIFEST = b'{"format": "fedref-split/1", "source": {"name": "a", "sha256": ""}, "clients": []}'
#: what is parsed: the parser, and a valid file for it
PARSERS: dict[str, tuple[Parser, Callable[[], bytes]]] = {
    "idx": (lambda path: idx.read(path, Budget(path)), lambda: PIXELS),
    "idx.gz": (lambda path: idx.read(path, Budget(path)), lambda: gzip.compress(PIXELS)),
    "npz": (npz.load, VALID["data.npz"]),
    "leaf": (leaf.load, VALID["data.json"]),
    "mat": (mat.load, VALID["data.mat"]),
    "csv": (delimited.load, lambda: b"x,client,test,y\n1,a,0,cat\n-2.5,b,1,dog\n3,b,0,cat\n"),
    "cifar": (lambda path: cifar.parse(path.read_bytes(), "x"), lambda: cifar_members(1)["test_batch.bin"]),
    "tar": (
        lambda path: archives.from_tar(path, ["b"], Budget(path), "an archive"),
        lambda: tar_bytes({"a": b"123", "b": b"4567"}),
    ),
    "zip": (
        lambda path: archives.from_zip(path, emnist.file_names("letters"), Budget(path), "an archive"),
        emnist_zip,
    ),
    "manifest": (manifest.read, lambda: MANIFEST),
}  # fmt: skip
SLOW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def survives(parser: Parser, path: Path) -> None:
    """Nothing but a result or a DataError of one line."""
    message = "expected"
    try:
        parser(path)
    except DataError as error:
        message = str(error)
    assert "expected" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", PARSERS)
@SLOW
@given(data=st.binary(max_size=300))
def test_random_bytes(name: str, tmp_path: Path, data: bytes) -> None:
    parser, valid = PARSERS[name]
    for content in (data, valid()[:40] + data):
        (tmp_path / "file").write_bytes(content)
        survives(parser, tmp_path / "file")


@pytest.mark.parametrize("name", PARSERS)
@SLOW
@given(data=st.data())
def test_random_corruption_of_valid_files(name: str, tmp_path: Path, data: st.DataObject) -> None:
    parser, valid = PARSERS[name]
    content = bytearray(valid())
    place = st.integers(0, len(content) - 1)
    for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=6)):
        content[at] = value
    cut = data.draw(st.none() | place)
    (tmp_path / "file").write_bytes(content[:cut])
    survives(parser, tmp_path / "file")


@pytest.mark.parametrize("name", ["idx.gz", "npz", "mat"])
def test_every_cut_of_a_compressed_file(name: str, tmp_path: Path) -> None:
    parser, valid = PARSERS[name]
    content = valid()
    for size in range(0, len(content) - 1, max(1, len(content) // 100)):
        (tmp_path / "file").write_bytes(content[:size])
        with pytest.raises(DataError):
            parser(tmp_path / "file")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
entries = st.fixed_dictionaries({"x": json_values, "y": json_values}) | json_values


@SLOW
@given(entry=entries, count=st.integers(0, 4))
def test_leaf_with_any_values(tmp_path: Path, entry: object, count: int) -> None:
    import json

    data = {"users": ["u"], "num_samples": [count], "user_data": {"u": entry}}
    (tmp_path / "file").write_text(json.dumps(data))
    survives(leaf.load, tmp_path / "file")


numbers = st.floats() | st.integers(-(2**70), 2**70)


@SLOW
@given(x=st.lists(st.lists(numbers, min_size=2, max_size=2), max_size=3), y=st.lists(numbers))
def test_leaf_with_any_numbers(tmp_path: Path, x: object, y: list[float]) -> None:
    test_leaf_with_any_values.hypothesis.inner_test(tmp_path, {"x": x, "y": y}, len(y))


@pytest.mark.parametrize("suffix", ["npz", "json", "mat", "csv", "tsv", "txt"])
@SLOW
@given(data=st.binary(max_size=100))
def test_any_file_by_its_path(suffix: str, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(data)
    survives(from_path, path)


@SLOW
@given(
    shape=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4),
    kind=st.integers(0, 255),
    body=st.binary(max_size=50),
)
def test_any_dimensions_are_checked_before_they_are_allocated(
    tmp_path: Path, shape: list[int], kind: int, body: bytes
) -> None:
    head = bytes([0, 0, kind, len(shape)]) + np.array(shape, ">u4").tobytes()
    for content in (head + body, gzip.compress(head + body)):
        (tmp_path / "file").write_bytes(content)
        survives(PARSERS["idx"][0], tmp_path / "file")
