"""A table of rows, in whatever way it is handed over, gives the same Source to the byte."""

import csv
import gzip
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import numpy as np
import pytest
from dataset_files import images, npz_bytes, put
from hypothesis import given, settings
from hypothesis import strategies as st

import fedref
from fedref import ConfigError, DataError
from fedref.datasets import Source, from_manifest, load, manifest_of, split, write_manifest
from fedref.datasets.sources import from_memory

WORDS = st.sampled_from(["cat", "dog", "ä b", "c,d", 'e"f', "Z"])


class Rows(NamedTuple):
    """What is handed over; test : a mask, or None."""

    X: np.ndarray
    y: list[Any]
    client: list[Any] | None
    test: np.ndarray | None


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    n, p = draw(st.integers(3, 7)), draw(st.integers(1, 3))

    def column(kind: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(kind, min_size=n, max_size=n))

    X = np.array([column(st.integers(-9, 9).map(lambda i: i / 4)) for _ in range(p)]).T
    y = column(draw(st.sampled_from([WORDS, st.integers(-3, 12)])))
    if draw(st.booleans()):
        y = [0.5, *column(st.integers(-3, 3).map(lambda i: i / 4))[1:]]  # real targets
    client = column(draw(st.sampled_from([WORDS, st.integers(0, 12)])))
    mask = draw(st.permutations([True, False, *column(st.booleans())[2:]]))
    return Rows(
        X, y, draw(st.sampled_from([None, client])), draw(st.sampled_from([None, np.array(mask)]))
    )


def expected(given: Rows) -> dict[str, Any]:
    """The fields of the Source, by definition."""
    X, y, client, test = given
    order = sorted(range(len(y)), key=lambda i: bool(test is not None and test[i]))
    words, names = sorted(set(y)), sorted(set(client or ()))
    real = any(isinstance(one, float) and one % 1 for one in y)
    labels = tuple(words) if isinstance(y[0], str) else None
    return {
        "X": X[order].tolist(),
        "y": [words.index(y[i]) if labels else y[i] for i in order],
        "real": real,
        "client": [names.index(client[i]) for i in order] if client else None,
        "client_names": tuple(map(str, names)) if client else None,
        "label_names": labels,
        "test_from": None if test is None else int(len(y) - test.sum()),
    }


def ways(given: Rows, folder: Path) -> Iterator[Source]:
    """Hand the rows over in every way that there is."""
    pd = pytest.importorskip("pandas")
    arrays = {"X": given.X, "y": np.array(given.y)}
    arrays |= {"client": np.array(given.client)} if given.client else {}
    more = {} if given.test is None else {"test": given.test}
    yield load(put(folder, "a.npz", npz_bytes(arrays | more)))
    yield from_memory(arrays | more, "data")
    objects = {name: x.astype(object) for name, x in arrays.items() if x.dtype.kind == "U"}
    yield from_memory(arrays | objects | more, "data")
    other = {"X": np.asfortranarray(given.X.astype(">f8")), "y": arrays["y"][:, None]}
    column = {name: 1 * mask[:, None] for name, mask in more.items()}
    yield load(put(folder, "b.npz", npz_bytes(arrays | other | column)))
    if given.test is None:
        yield from_memory(tuple(arrays.values()), "data")
    table = {f"x {j}": given.X[:, j] for j in range(given.X.shape[1])} | {"label": given.y}
    table |= ({"client": given.client} if given.client else {}) | more
    yield from_memory(pd.DataFrame(table), "data")
    for separator, name in ((",", "a.csv"), (";", "b.csv"), ("\t", "c.TSV"), (",", "d.csv.gz")):
        text, ends = io.StringIO(), "\r\n" if name == "b.csv" else "\n"
        writer = csv.writer(text, delimiter=separator, lineterminator=ends)
        rows, names, columns = zip(*table.values()), {}, {}
        if name == "a.csv":  # the user's own names, spaces around cells
            rows = [[f" {cell} " for cell in row] for row in rows]
            names = {"label": "outcome"} | ({"client": "shop"} if given.client else {})
            columns = {key: other for key, other in names.items() if key in table}
        writer.writerows([[names.get(key, key) for key in table], *rows])
        data = ("\ufeff" * (name == "b.csv") + text.getvalue() + "\n" * (name == "c.TSV")).encode()
        path = put(folder, name, gzip.compress(data) if name.endswith("gz") else data)
        yield load(path, **columns)


@settings(max_examples=40, deadline=None)
@given(rows())
def test_every_reader_makes_the_same_source(given: Rows) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = list(ways(given, Path(folder)))
    for source in sources:
        real = {name: getattr(source, name) for name in expected(given)}
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in real.items()}
        assert plain == expected(given)
        assert (source.X.dtype, source.y.dtype.kind) == (np.float64, "f" if source.real else "i")
        assert source.X.flags.c_contiguous
    assert len({source.sha256 for source in sources}) == 1


X, Y = images(8)
FLAT = X.reshape(8, -1)
PARTS = {"train": slice(5), "test": slice(5, 8)}


def read(folder: Path, **arrays: np.ndarray) -> Source:
    return load(put(folder, "data.npz", npz_bytes(arrays)))


def test_images_keep_their_shape_and_bytes_are_pixels(tmp_path: Path) -> None:
    source = read(tmp_path, X=X, y=Y)
    np.testing.assert_array_equal(source.X, FLAT)
    assert (source.name, source.image, source.full_scale) == ("data.npz", (3, 3, 1), 255)
    source = read(tmp_path, X=np.zeros((8, 2, 3, 3)), y=Y)
    assert (source.image, source.X.shape, source.full_scale) == ((2, 3, 3), (8, 18), None)
    assert read(tmp_path, X=X > 9, y=Y).full_scale is None
    train, test = ({f"{part}_images": X[i], f"{part}_labels": Y[i]} for part, i in PARTS.items())
    published = read(tmp_path, **train, **test)
    marked = read(tmp_path, X=X, y=Y, test=np.arange(8) >= 5)
    assert (published.test_from, published.sha256) == (marked.test_from, marked.sha256) == (5, ANY)
    words = read(tmp_path, X=FLAT, y=np.array([b"10", b"9"] * 4))  # sorted as numbers
    assert (words.y.tolist(), words.label_names) == ([1, 0] * 4, ("9", "10"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "data.npz").rename(tmp_path / "mine" / "a.npz")  # the one file of a folder
    put(tmp_path / "mine", "README.txt", b"mine")
    one = load(tmp_path / "mine")
    assert (one.sha256, one.name) == (words.sha256, "mine")


def test_the_fingerprint_depends_on_the_content_alone(tmp_path: Path) -> None:
    one = read(tmp_path, X=FLAT, y=Y)
    assert one.sha256 == load(put(tmp_path, "z.npz", npz_bytes({"y": Y, "X": FLAT}))).sha256
    changes = (
        {"X": FLAT + 1},
        {"y": Y[::-1]},
        {"X": FLAT * 1.0},
        {"client": Y},
        {"X": FLAT[:, :3]},
    )
    others = [read(tmp_path, **({"X": FLAT, "y": Y} | change)) for change in changes]
    assert len({one.sha256, *(other.sha256 for other in others)}) == 6


def test_columns_that_the_user_names(tmp_path: Path) -> None:
    table = b"age,client,shop,outcome\n1,2.5,10,0\n3,-4e1,9,2\n5,6,10,1\n"
    path, named = put(tmp_path, "data.csv", table), {"label": "outcome", "client": "shop"}
    source = load(path, **named)
    assert source.X.tolist() == [[1, 2.5], [3, -40], [5, 6]]  # then `client` is a feature
    assert (source.client.tolist(), source.client_names) == ([1, 0, 1], ("9", "10"))
    assert source.columns == tuple(named.items())
    described = manifest_of(split("natural", source, train_fraction=0.5))
    write_manifest(described, tmp_path / "m.json")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == described
    for error, message, columns in (
        (DataError, "data.label: unknown column 'outcme': did you mean 'outc", {"label": "outcme"}),
        (DataError, "age is to be two things; expected", {"label": "age", "client": "age"}),
        (ConfigError, "unknown key of data 'lable': did you mean 'label'", {"lable": "age"}),
    ):
        with pytest.raises(error, match=message):
            load(path, **columns)


# ---- in memory -------------------------------------------------------------------------------------


def test_frames_series_and_categories_may_stand_for_arrays() -> None:
    pd = pytest.importorskip("pandas")
    mixed = pd.DataFrame({"a": [True, False], "b": [0.5, 1.5], "c": np.array([1, 2], np.uint8)})
    for y in (pd.Series(["q", "p"]), pd.Series(["q", "p"], dtype="category")):
        source = from_memory((mixed, y), "data")
        assert source.X.tolist() == [[1, 0.5, 1], [0, 1.5, 2]]
        assert (source.y.tolist(), source.label_names) == ([1, 0], ("p", "q"))


def test_a_run_on_arrays_is_not_called_the_digits() -> None:
    pd = pytest.importorskip("pandas")
    how: dict[str, Any] = {"rounds": 1, "clients_per_round": 3, "algorithm": "fedavg"}
    arrays = {"X": np.ones((12, 2)), "y": ["cat", "dog"] * 6, "client": list("bac") * 4}
    frame = pd.DataFrame({"name": np.ones(12), "y": arrays["y"], "client": arrays["client"]})
    for data in (arrays, {"name": arrays}, tuple(arrays.values()), frame):
        assert fedref.run(data=data, **how).experiment.name == "data"
    assert fedref.run(data={"name": "synthetic", "users": 3}, **how).experiment.name == "synthetic"
    assert fedref.run(data={}, **how).experiment.name == "digits"


WRONG: list[tuple[Any, ...]] = [
    ({"X": X}, "data: no array 'y', only X"),
    ((FLAT, np.array(["cat", None] * 4, object)), "y is None in row 1; expected text in all rows"),
    ((FLAT, Y, np.array([1, "a"] * 4, object)), "client is 1 in row 0; expected text in all"),
    ((FLAT, Y, Y, Y), "is a tuple, expected arrays"),
    ("width", [1.0, 2.0, np.nan], "data: row 2: width is nan; expected"),
    ("width", list("abc"), "data: row 0: width is 'a'; expected a finite number"),
    ("patient", list("bca"), "patient is 'b'.* whose row it is has the name client"),
    ("y", [None, "a", "b"], "y is (nan|None) in row 0"),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_and_frames_are_refused(case: tuple[Any, ...]) -> None:
    pd = pytest.importorskip("pandas")
    value = case[0]
    if len(case) == 3:
        value = pd.DataFrame({"height": [1.0, 2.0, 3.0], "y": list("aab"), case[0]: case[1]})
    with pytest.raises(DataError, match=case[-1]):
        from_memory(value, "data")
