"""A table of rows, in whatever way it is handed over, gives the same Source to the byte."""

import csv
import gzip
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

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
    marks = (
        [{}] if given.test is None else [{"test": given.test}, {"train": 1 - given.test[:, None]}]
    )
    for more in marks:
        yield load(put(folder, "a.npz", npz_bytes(arrays | more)))
        yield from_memory(arrays | more, "data")
        objects = {name: x.astype(object) for name, x in arrays.items() if x.dtype.kind == "U"}
        yield from_memory(arrays | objects | more, "data")
        other = {"X": np.asfortranarray(given.X.astype(">f8")), "y": arrays["y"][:, None]}
        yield load(put(folder, "b.npz", npz_bytes(arrays | other | more)))
        within = Path(tempfile.mkdtemp(dir=folder))
        for name, array in (arrays | more).items():
            np.save(within / f"{name}.npy", array)
        yield load(within)
        table = {f"x {j}": given.X[:, j] for j in range(given.X.shape[1])} | {"label": given.y}
        table |= {"client": given.client} if given.client else {}
        table |= {name: np.ravel(mask) for name, mask in more.items()}
        yield from_memory(pd.DataFrame(table), "data")
        for separator, name in ((",", "a.csv"), (";", "b.csv"), ("\t", "c.TSV"), (",", "d.csv.gz")):
            text = io.StringIO()
            writer = csv.writer(
                text, delimiter=separator, lineterminator="\r\n" if name == "b.csv" else "\n"
            )
            writer.writerows([table, *zip(*table.values())])
            data = (
                "\ufeff" * (name == "b.csv") + text.getvalue() + "\n" * (name == "c.TSV")
            ).encode()
            yield load(put(folder, name, gzip.compress(data) if name.endswith("gz") else data))
    if given.test is None:
        yield from_memory(tuple(arrays.values()), "data")


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


def read(folder: Path, **arrays: np.ndarray) -> Source:
    return load(put(folder, "data.npz", npz_bytes(arrays)))


def test_images_keep_their_shape_and_bytes_are_pixels(tmp_path: Path) -> None:
    source = read(tmp_path, X=X, y=Y)
    np.testing.assert_array_equal(source.X, FLAT)
    assert (source.name, source.image, source.full_scale) == ("data.npz", (3, 3, 1), 255)
    source = read(tmp_path, X=np.zeros((8, 2, 3, 3)), y=Y)
    assert (source.image, source.X.shape, source.full_scale) == ((2, 3, 3), (8, 18), None)
    assert read(tmp_path, X=X > 9, y=Y).full_scale is None
    parts = {
        "train_images": X[:5],
        "train_labels": Y[:5],
        "test_images": X[5:],
        "test_labels": Y[5:],
    }
    published = read(tmp_path, **parts)
    assert (published.test_from, published.image) == (5, (3, 3, 1))
    last = read(tmp_path, X=X, y=Y, test_from=np.array(5))
    assert (published.sha256, last.test_from) == (last.sha256, 5)
    words = read(tmp_path, X=FLAT, y=np.array([b"10", b"9"] * 4))  # sorted as numbers
    assert (words.y.tolist(), words.label_names) == ([1, 0] * 4, ("9", "10"))


def test_the_fingerprint_depends_on_the_content_alone(tmp_path: Path) -> None:
    one = read(tmp_path, X=FLAT, y=Y)
    assert one.sha256 == load(put(tmp_path, "z.npz", npz_bytes({"y": Y, "X": FLAT}))).sha256
    others = [
        read(tmp_path, X=FLAT + 1, y=Y),
        read(tmp_path, X=FLAT, y=Y[::-1]),
        read(tmp_path, X=FLAT.astype(float), y=Y),
        read(tmp_path, X=FLAT, y=Y, client=Y),
        read(tmp_path, X=FLAT.reshape(8, 3, 3)[:, :, :1], y=Y),
    ]
    assert len({one.sha256, *(other.sha256 for other in others)}) == 6


def test_the_one_file_of_a_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    put(tmp_path / "mine", "README.txt", b"mine")
    packed = put(tmp_path / "mine", "a.npz", npz_bytes({"X": X, "y": Y}))
    source = load(tmp_path / "mine")
    assert (source.sha256, source.name) == (load(packed).sha256, "mine")


# ---- tables ----------------------------------------------------------------------------------------

TABLE = "age,weight,client,y\n1,2.5,b,0\n3,-4e1,a,2\n5,6,b,1\n"


def test_spaces_around_cells_are_none_of_them(tmp_path: Path) -> None:
    plain = load(put(tmp_path, "a.csv", TABLE.encode()))
    spaced = TABLE.replace(",", " , ").replace("a ", "a  ").rstrip("\n")
    assert load(put(tmp_path, "b.csv", spaced.encode())).sha256 == plain.sha256
    decimal = load(put(tmp_path, "c.csv", b"x,client,y,test\n1,10,0,FALSE\n2,9,1,true\n3,10,1,0\n"))
    assert (decimal.client.tolist(), decimal.client_names) == ([1, 1, 0], ("9", "10"))
    assert decimal.test_from == 2


def test_label_and_client_may_have_other_names(tmp_path: Path) -> None:
    text = TABLE.replace("client", "hospital").replace("y\n", "outcome\n").encode()
    path = put(tmp_path, "data.csv", text)
    source = load(path, label="outcome", client="hospital")
    assert source.sha256 == load(put(tmp_path, "plain.csv", TABLE.encode())).sha256
    assert source.columns == (("label", "outcome"), ("client", "hospital"))
    described = manifest_of(split("natural", source, train_fraction=0.5))
    write_manifest(described, tmp_path / "m.json")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == described
    text = TABLE.replace("client", "shop").replace("weight", "client").encode()
    other = load(put(tmp_path, "b.csv", text), client="shop")  # then `client` is a feature
    assert (other.X.tolist(), other.client_names) == (source.X.tolist(), ("a", "b"))
    for error, message, columns in (
        (DataError, "data.label: unknown column 'outcme': did you mean 'outc", {"label": "outcme"}),
        (
            DataError,
            "age is to be two things; expected a column",
            {"label": "age", "client": "age"},
        ),
        (ConfigError, "unknown key of data 'lable': did you mean 'label'", {"lable": "age"}),
    ):
        with pytest.raises(error, match=message):
            load(path, **columns)


def test_the_time_for_a_header_grows_with_its_length_alone(tmp_path: Path) -> None:
    def seconds(columns: int) -> float:
        names = ",".join(f"x{i}" for i in range(columns))
        start = process_time()
        data = put(tmp_path, "data.csv", f"{names},y\n{'1,' * columns}0\n".encode())
        assert load(data).X.shape == (1, columns)
        return process_time() - start

    assert seconds(20_000) < 20 * seconds(2_000) + 0.1  # was 90 times as long
    names = ",".join(f"x{i}" for i in range(20_000))
    with pytest.raises(DataError, match="no column y, only x0, x1") as caught:
        load(put(tmp_path, "data.csv", f"{names}\n".encode()))
    assert len(str(caught.value)) < 1000


def test_a_feature_that_may_be_the_clients_earns_a_hint() -> None:
    pd = pytest.importorskip("pandas")
    for name in ("subject", "User ID", "device_id", "patients", "site"):
        frame = pd.DataFrame({"x": np.arange(12.0), name: np.arange(12) % 3, "y": ["a", "b"] * 6})
        source = from_memory(frame, "data")
        hint = f"column '{name}' is a feature; if it says whose row it is, call it client"
        assert hint in source.notes[0]
        with pytest.raises(ConfigError, match=rf"called client, which says .*{hint}"):
            split("natural", source)
    for columns in ({"userness": FLAT[:, 0]}, {"user": FLAT[:, 0], "client": list("abcdefgh")}):
        assert from_memory(pd.DataFrame({"y": Y, "x": FLAT[:, 1]} | columns), "data").notes == ()


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
    arrays = {
        "X": np.arange(24.0).reshape(12, 2),
        "y": ["cat", "dog"] * 6,
        "client": list("bac") * 4,
    }
    frame = pd.DataFrame({"name": arrays["X"][:, 0], "y": arrays["y"], "client": arrays["client"]})
    for data in (arrays, {"name": arrays}, tuple(arrays.values()), frame):
        assert fedref.run(data=data, **how).experiment.name == "data"
    assert fedref.run(data={"name": "synthetic", "users": 3}, **how).experiment.name == "synthetic"
    assert fedref.run(data={}, **how).experiment.name == "digits"


WRONG: list[tuple[Any, str]] = [
    ({"X": X}, "data: no array 'y', only X"),
    ((FLAT, np.array(["cat", None] * 4, object)), "y is None in row 1; expected text in all rows"),
    ((FLAT, Y, np.array([1, "a"] * 4, object)), "client is 1 in row 0; expected text in all"),
    ((FLAT, Y, Y, Y), "is a tuple, expected arrays"),
    ([FLAT, Y], r"is a list, expected arrays \(X, y\) or \(X, y, client\), a table"),
]
FRAMES: list[tuple[dict[str, Any], str]] = [
    ({"width": [1.0, 2.0, np.nan]}, "data: row 2: width is nan; expected"),
    ({"width": list("abc")}, "data: row 0: width is 'a'; expected a finite number"),
    ({"patient": list("bca")}, "patient is 'b'.*if patient says whose row it is, call it client"),
    ({"test": [1, 0, 0], "train": [0, 1, 1]}, "columns test and train are there"),
    ({"y": [None, "a", "b"]}, "y is (nan|None) in row 0"),
]


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_wrong_arrays_are_refused(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_memory(value, "data")


@pytest.mark.parametrize(("columns", "message"), FRAMES)
def test_wrong_frames_are_refused(columns: dict[str, Any], message: str) -> None:
    pd = pytest.importorskip("pandas")
    with pytest.raises(DataError, match=message):
        from_memory(pd.DataFrame({"height": [1.0, 2.0, 3.0], "y": list("aab")} | columns), "data")
