"""A table of rows, in whatever way it is handed over, gives the same Source to the byte."""

import csv
import gzip
import io
import tempfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import numpy as np
import pytest
import scipy.io
from dataset_files import MAGIC, idx_bytes, images, leaf_object, npz_bytes, put, put_json, write_idx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedref
from fedref import ConfigError, DataError, FedrefError
from fedref.lab.datasets import from_manifest, load, manifest_of, split, write_manifest
from fedref.lab.datasets.formats import idx, mat, tables
from fedref.lab.datasets.sources import from_memory
from fedref.rounds.federation import Source

WORDS = st.sampled_from(["cat", "dog", "ä b", "c,d", 'e"f', "Z"])


class Rows(NamedTuple):
    """What is handed over; test : a mask, or None."""

    X: np.ndarray
    y: list[Any]
    client: list[Any] | None
    test: np.ndarray | None


@st.composite
def rows(draw):
    n, p = draw(st.integers(3, 7)), draw(st.integers(1, 3))

    def column(kind):
        return draw(st.lists(kind, min_size=n, max_size=n))

    X = np.array([column(st.integers(-9, 9).map(lambda i: i / 4)) for _ in range(p)]).T
    y = column(draw(st.sampled_from([WORDS, st.integers(-3, 12)])))
    if draw(st.booleans()):
        y = [0.5, *column(st.integers(-3, 3).map(lambda i: i / 4))[1:]]  # real targets
    client = column(draw(st.sampled_from([WORDS, st.integers(0, 12)])))
    mask = draw(st.permutations([True, False, *column(st.booleans())[2:]]))
    either = [st.sampled_from([None, given]) for given in (client, np.array(mask))]
    return Rows(X, y, *map(draw, either))


def expected(given):
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


def ways(given, folder):
    """Hand the rows over in every way that there is."""
    pd = pytest.importorskip("pandas")
    arrays = {"X": given.X, "y": np.array(given.y)}
    arrays |= {"client": np.array(given.client)} if given.client else {}
    more = {} if given.test is None else {"test": given.test}
    yield load(put(folder, "a.npz", npz_bytes(arrays | more)))
    yield from_memory(arrays | more, "data")
    yield from_memory({name: x.astype(object) for name, x in arrays.items()} | more, "data")
    other = {"X": np.asfortranarray(given.X.astype(">f8")), "y": arrays["y"][:, None]}
    column = {name: 1 * mask[:, None] for name, mask in more.items()}
    yield load(put(folder, "b.npz", npz_bytes(arrays | other | column)))
    if given.test is None:
        yield from_memory(tuple(arrays.values()), "data")
    if isinstance(given.y[0], str):
        new = arrays["y"].astype(np.dtypes.StringDType())
        yield from_memory(arrays | more | {"y": new}, "data")
    table = {f"x {j}": given.X[:, j] for j in range(given.X.shape[1])} | {"label": given.y}
    table |= ({"client": given.client} if given.client else {}) | more
    for frame in (pd.DataFrame(table), pd.DataFrame(table).astype(object)):
        yield from_memory(frame, "data")
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


@given(rows())
def test_every_reader_makes_the_same_source(given):
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


def read(folder, **arrays):
    return load(put(folder, "data.npz", npz_bytes(arrays)))


def test_images_keep_their_shape_and_bytes_are_pixels(tmp_path):
    source = read(tmp_path, X=X, y=Y)
    np.testing.assert_array_equal(source.X, FLAT)
    assert (source.name, source.image, source.full_scale) == ("data.npz", (3, 3, 1), 255)
    source = read(tmp_path, X=np.zeros((8, 2, 3, 3)), y=Y)
    assert (source.image, source.X.shape, source.full_scale) == ((2, 3, 3), (8, 18), None)
    assert read(tmp_path, X=X > 9, y=Y).full_scale is None
    assert read(tmp_path, X=FLAT, y=Y).full_scale is None  # a table may count anything
    train = {"train_images": X[:5], "train_labels": Y[:5]}
    published = read(tmp_path, **train, test_images=X[5:], test_labels=Y[5:])
    marked = read(tmp_path, X=X, y=Y, test=np.arange(8) >= 5)
    assert (published.test_from, published.sha256) == (marked.test_from, marked.sha256) == (5, ANY)
    words = read(tmp_path, X=FLAT, y=np.array(["10", "9"] * 4))  # sorted as numbers
    assert (words.y.tolist(), words.label_names) == ([1, 0] * 4, ("9", "10"))


def test_the_fingerprint_depends_on_the_content_alone(tmp_path):
    one = read(tmp_path, X=FLAT, y=Y)
    assert one.sha256 == load(put(tmp_path, "z.npz", npz_bytes({"y": Y, "X": FLAT}))).sha256
    changes = {"X": FLAT + 1}, {"y": Y[::-1]}, {"X": FLAT * 1.0}, {"client": Y}, {"X": FLAT[:, :3]}
    others = [read(tmp_path, **({"X": FLAT, "y": Y} | change)) for change in changes]
    assert len({one.sha256, *(other.sha256 for other in others)}) == 6


TYPES, SHAPES = st.sampled_from(list(MAGIC)), hnp.array_shapes(max_dims=4, max_side=4)


@given(hnp.arrays(TYPES, SHAPES, elements={"allow_nan": False}))
def test_idx_files_give_the_array_that_was_written(array):
    read = idx.parse(idx_bytes(array), "a")
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype


@pytest.mark.parametrize(("pack", "test"), [(False, "t10k"), (True, "test")])
def test_a_folder_of_idx_files_gives_training_and_test_images(tmp_path, pack, test):
    folder = write_idx(tmp_path / "drawn", test=test, pack=pack)
    if not pack:
        write_idx(folder)  # the same files, packed, beside them
    source = load(folder)
    (X, y), (test_X, test_y) = images(12, 1), images(6, 2)
    np.testing.assert_array_equal(source.X, np.concatenate([X, test_X]).reshape(18, 9))
    np.testing.assert_array_equal(source.y, np.concatenate([y, test_y]))
    assert (source.name, source.test_from, source.image) == ("drawn", 12, (3, 3, 1))
    assert (source.X.dtype, source.y.dtype, source.full_scale) == (np.uint8, np.int64, 255)


@given(st.data(), st.integers(1, 3), st.booleans())
def test_leaf_json_gives_the_rows_that_were_written(data, p, wrapped):
    """One file, a file for each user, and folders train and test; labels also as [-1.0]."""
    row = st.tuples(st.lists(st.integers(-9, 9).map(lambda i: i / 4), min_size=p, max_size=p),
                    st.integers(-1, 3).map(lambda y: [float(y)] if wrapped else y))  # fmt: skip
    some = st.lists(row, max_size=3).map(lambda rows: ([x for x, _ in rows], [y for _, y in rows]))
    users = [([[0.5] * p], [1]), *data.draw(st.lists(some, min_size=1, max_size=3))]
    sizes, named = [len(y) for _, y in users], {f"u{k}": user for k, user in enumerate(users)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        put_json(folder, leaf_object(**named), "one.json")
        for name, user in named.items():
            for part in ("many", "both/train", "both/test"):
                put_json(folder, leaf_object(**{name: user}), f"{part}/{name}.json")
        one, many, both = (load(folder / name) for name in ("one.json", "many", "both"))
    assert one.X.tolist() == [x for rows, _ in users for x in rows]
    assert one.y.tolist() == [np.ravel(y)[0] for _, rows in users for y in rows]
    assert one.client.tolist() == np.repeat(np.arange(len(users)), sizes).tolist()
    assert one.client_names == tuple(named)
    assert (one.sha256, one.test_from, one.vocabulary) == (many.sha256, None, None)
    assert both.test_from == sum(sizes)
    for field in ("X", "y", "client"):
        twice = np.concatenate([getattr(one, field)] * 2)
        np.testing.assert_array_equal(getattr(both, field), twice)


def test_a_matlab_file_is_read_only_if_its_hash_is_known(tmp_path, monkeypatch):
    cells, stream = np.empty((2, 1, 3), object), io.BytesIO()
    for k in range(3):
        cells[:, 0, k] = [np.full((k + 2, 4), k + 0.5), np.full((k + 2, 1), (-1) ** k, np.int16)]
    scipy.io.savemat(stream, {"X": cells[0], "Y": cells[1]}, do_compression=True)
    path = put(tmp_path, "data.mat", stream.getvalue())
    with pytest.raises(DataError, match=r"no MATLAB file that.*landmine.mat .*savez\('mine.np"):
        load(path)
    monkeypatch.setattr(mat, "LANDMINE", sha256(path.read_bytes()).hexdigest())
    source = load(path)
    assert source.client.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert (source.X[:, 3] == source.client + 0.5).all()
    assert (source.y == (-1) ** source.client).all()


def test_columns_that_the_user_names(tmp_path):
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


def test_frames_series_and_categories_may_stand_for_arrays():
    pd = pytest.importorskip("pandas")
    mixed = pd.DataFrame({"a": [True, False], "b": [0.5, 1.5], "c": np.array([1, 2], np.uint8)})
    for y in (pd.Series(["q", "p"]), pd.Series(["q", "p"], dtype="category")):
        source = from_memory((mixed, y), "data")
        assert source.X.tolist() == [[1, 0.5, 1], [0, 1.5, 2]]
        assert (source.y.tolist(), source.label_names) == ([1, 0], ("p", "q"))


FEW: dict[str, Any] = {"rounds": 1, "clients_per_round": 3, "algorithm": "fedavg"}


def test_whatever_holds_the_arrays_a_run_has_the_same_numbers_and_is_not_called_the_digits(here):
    pd = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(60, 2))
    arrays = {"X": X, "y": (X.sum(1) > 0).astype(int), "client": np.repeat(["a", "b", "c"], 20)}
    _, y, client = arrays.values()
    frame = pd.DataFrame({"name": X[:, 0], "other": X[:, 1], "y": y, "client": client})
    source = Source(X, y, np.repeat([0, 1, 2], 20))
    by_client = {name: (X[client == name], y[client == name]) for name in "abc"}
    ways = arrays, {"name": arrays}, tuple(arrays.values()), frame, by_client
    first, *others = [fedref.run(data=data, **FEW) for data in ways]
    assert {run.experiment.name for run in (first, *others)} == {"data"}
    assert first.experiment.model["name"] == "logistic"
    assert len(first.records[0].scores[0].accuracy) == 3
    path = put(here, "a.npz", npz_bytes(arrays)).name
    others += [fedref.run(data=data, **FEW) for data in (source, split("natural", source), path)]
    assert others[-1].experiment.name == "a"
    assert [run.records[0].rows == first.records[0].rows for run in others] == [True] * 7
    assert fedref.run({"data": (X, y)}, split={"rule": "iid", "users": 4}, **FEW).records
    assert fedref.run(data={"name": "synthetic", "users": 3}, **FEW).experiment.name == "synthetic"
    assert fedref.run(data={}, **FEW).experiment.name == "digits"


WRONG: list[tuple[Any, ...]] = [
    ({"X": X}, "data: no array 'y', only X"),
    ((np.zeros((8, 3, 5, 6)), Y), r"shape \(8, 3, 5, 6\), .* expected channels last, \(8, 5, 6, 3\)"),
    ((FLAT, np.array(["cat", None] * 4, object)), "y is None in row 1; expected text in all rows"),
    ((FLAT, Y, np.array([1, "a"] * 4, object)), "client is 1 in row 0; expected text in all"),
    (FLAT, "^data is a ndarray, expected a name, a path, arrays"),
    ((FLAT, Y, Y, Y), "^data is a tuple, expected a name, a path, arrays"),
    ({"a": {"x": FLAT, "y": Y}}, "data is a dict, expected a name, a path, arrays"),
    ({"features": FLAT, "y": Y}, "data is a dict, expected .*, a table of arrays with X and y"),
    ((FLAT, np.array([None, *"abcdefg"], np.dtypes.StringDType(na_object=None))),
     "y is None in row 0; expected text in all rows"),
    (Source(X, Y), r"X is a ndarray of shape \(8, 3, 3\); expected .* 2 axes"),
    (Source(FLAT, Y.tolist()), "arrays: y is a list of shape .*; expected an array"),
    ({"a": (FLAT, Y[:-1])}, "client a has 8 rows of X and 7 labels"),
    ({"a": (FLAT, Y), "b": (FLAT[:, 1:], Y)}, "as many columns"),
    ({1: (FLAT, Y), "1": (FLAT, Y)}, "two clients are called 1; expected names that differ"),
    ({"Train": (FLAT, Y), "test": (FLAT, Y)}, "called Train, test, as parts .* X, y and test"),
    ({"a": (FLAT, Y), "b": (FLAT, Y.astype(str))}, "some clients have bytes in X, or words in y"),
    ({"a": (FLAT, Y), "b": (FLAT * 1.0, Y)}, "some clients have bytes in X"),
    ({"a": (FLAT[:0], Y[:0])}, r"X has shape \(0, 9\); expected .* n of 1 or more"),
    ((FLAT, np.eye(4)[Y % 4]), r"shape \(8, 4\); .* 8 rows: y.argmax\(1\) if each is one-hot"),
    ((np.zeros((8, 2, 6, 6)), Y), r"channels seem to be first; expected .* \(8, 6, 6, 2\)"),
    ((FLAT, np.array(["a", np.nan] * 4)), "y is nan in some rows; expected a name in all rows"),
    ({"X": FLAT, "y": Y, "test": Y.astype(str)}, "test holds <U.*, false or 0 for training rows$"),
    ((np.ma.masked_array(FLAT, FLAT > 99), Y), "data: an array has masked entries"),
    (([[1.0, 2.0], [3.0]], [0, 1]), "expected rows of one length"),
    ("width", [1.0, 2.0, np.nan], "data: row 2: width is nan; expected"),
    ("width", list("abc"), "data: row 0: width is 'a'; expected a finite number"),
    ("patient", list("bca"), "patient is 'b'.* whose row it is has the name client"),
    ("width", [True, None, False], "row 1: width is 'None'|row 1: width is None; .*fill the cell"),
    ("width", np.arange(3, dtype="m8[s]"), "row 0: width is 0 .*; expected a finite number"),
    ("width", [1j, 2.0, 3.0], r"row 0: width is 1j; expected a finite number"),
    ("width", ["1.5", "2", "3"], r"width is '1.5'; .*, and no str: astype\(float\) makes one"),
    ("y", [None, "a", "b"], "y is (nan|None) in row 0"),
]  # fmt: skip


def test_rows_and_columns_of_frames_in_another_order_are_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "client": list("nnm"), "y": [0, 1, 1]}
    )
    X, y = frame[["a", "b"]], frame["y"]
    for value, message in (
        (
            (X, y[::-1]),
            r"y has the rows in another order, by its index; expected .*y.loc\[X.index\]",
        ),
        ({"m": (X[::-1], y)}, "y has the rows in another order"),
        ({"m": (X, y), "n": (X[["b", "a"]], y)}, "DataFrames have different columns, or the same"),
        (frame.set_index("client"), r"client is in the index, which is not read; .*reset_index"),
    ):
        with pytest.raises(DataError, match=message):
            from_memory(value, "data")
    levels = y.set_axis(pd.MultiIndex.from_product([["s"], range(3)]))
    named = frame.set_index(pd.Index(list("abc"), name="client"))
    for value in (
        (X[::-1], y[::-1]), (X[:2], y[1:]), (X, y.set_axis([0] * 3)), (X, levels), named
    ):  # fmt: skip
        from_memory(value, "data")


def test_clients_may_have_images_or_no_row():
    images = {"a": (X, Y), "b": (X[:0], Y[:0])}
    source = from_memory(images, "data")
    assert (source.image, source.full_scale, source.client_names) == ((3, 3, 1), 255, ("a",))
    assert source.notes == ("1 of 2 clients have no row",)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_and_frames_are_refused(case):
    pd = pytest.importorskip("pandas")
    value = case[0]
    if len(case) == 3:
        value = pd.DataFrame({"height": [1.0, 2.0, 3.0], "y": list("aab"), case[0]: case[1]})
    with pytest.raises(FedrefError, match=case[-1]):
        fedref.run(data=value, **FEW)


def test_a_table_takes_little_more_memory_than_its_file_and_its_numbers(tmp_path):
    """Its text is decoded as it is read: one copy of the file, and the arrays."""
    rows = (",".join(f"{i * j % 1009 / 7:.6f}" for j in range(1, 21)) for i in range(6_000))
    header = ",".join(f"x{j}" for j in range(20)) + ",client,y"
    lines = (f"{row},c{i % 50},{i % 3}" for i, row in enumerate(rows))
    path = tmp_path / "a.csv"
    path.write_text("\n".join([header, *lines]), "utf-8")
    tracemalloc.start()
    try:
        tables.read(path)
        assert tracemalloc.get_traced_memory()[1] <= 2.5 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_byte_that_is_no_text_is_found_where_it_stands_in_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n" + b"1,0\n" * 50_000 + b"\xff,1\n")
    with pytest.raises(DataError, match="0xff in position 200004"):
        load(str(path))
