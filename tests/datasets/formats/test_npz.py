"""NumPy archives."""

import io
from pathlib import Path

import numpy as np
import pytest
from dataset_files import assert_refused, images, npz_bytes, put, zip_bytes

from fedref import DataError
from fedref.datasets import load
from fedref.rounds.federation import Source

X, Y = images(8)
FLAT = X.reshape(8, -1)
MASK = np.array([0, 1, 0, 0, 1, 0, 0, 1], bool)


def read(folder: Path, **arrays: np.ndarray) -> Source:
    return load(put(folder, "data.npz", npz_bytes(arrays)))


def test_x_and_y(tmp_path: Path) -> None:
    source = read(tmp_path, X=FLAT, y=Y)
    np.testing.assert_array_equal(source.X, FLAT)
    np.testing.assert_array_equal(source.y, Y)
    assert source.client is None
    assert source.test_from is None
    assert source.name == "data.npz"
    assert source.full_scale == 255
    assert read(tmp_path, X=X, y=Y).image == (3, 3, 1)
    source = read(tmp_path, X=np.zeros((8, 2, 3, 3)), y=Y)
    assert (source.image, source.X.shape, source.full_scale) == ((2, 3, 3), (8, 18), None)


@pytest.mark.parametrize("client", [[3, 3, 1, 1, 1, 7, 7, 7], list("bbaaaccc")])
def test_clients_by_number_or_text(tmp_path: Path, client: list[object]) -> None:
    source = read(tmp_path, X=FLAT, y=Y, client=np.array(client))
    assert source.client.tolist() == [1, 1, 0, 0, 0, 2, 2, 2]
    assert source.client_names == tuple(map(str, sorted(set(client))))


@pytest.mark.parametrize("words", [["dog", "cat"] * 4, [b"dog", b"cat"] * 4])
def test_text_labels_are_numbered_in_alphabetical_order(
    tmp_path: Path, words: list[object]
) -> None:
    source = read(tmp_path, X=FLAT, y=np.array(words))
    assert (source.y.tolist(), source.y.dtype) == ([1, 0] * 4, np.int64)
    assert source.label_names == ("cat", "dog")
    numbers = read(tmp_path, X=FLAT, y=np.array(["10", "9"] * 4))
    assert (numbers.y.tolist(), numbers.label_names) == ([1, 0] * 4, ("9", "10"))


def test_fractional_targets_are_real_and_whole_ones_are_labels(tmp_path: Path) -> None:
    for y in (np.arange(8) / 2, (np.arange(8) / 2)[:, None], np.arange(8, dtype=">f4") / 2):
        source = read(tmp_path, X=FLAT, y=y)
        assert (source.y.tolist(), source.y.dtype) == ((np.arange(8) / 2).tolist(), np.float64)
        assert source.real
    whole = read(tmp_path, X=FLAT, y=np.arange(8.0))
    assert (whole.y.dtype, whole.real, whole.label_names) == (np.int64, False, None)


def test_published_parts(tmp_path: Path) -> None:
    source = read(
        tmp_path, train_images=X[:5], train_labels=Y[:5], test_images=X[5:], test_labels=Y[5:]
    )
    np.testing.assert_array_equal(source.X, FLAT)
    np.testing.assert_array_equal(source.y, Y)
    assert (source.test_from, source.image) == (5, (3, 3, 1))


def test_foreign_byte_order_and_column_major_arrays_are_read(tmp_path: Path) -> None:
    source = read(tmp_path, X=np.asfortranarray(FLAT.astype(">f4")), y=Y.astype(">i8"))
    np.testing.assert_array_equal(source.X, FLAT)
    assert source.X.dtype.isnative
    assert source.X.flags.c_contiguous


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


PARTS = {
    "X": None, "y": None, "train_images": X[:4], "train_labels": Y[:4],
    "test_images": X[5:], "test_labels": Y[5:],
}  # fmt: skip
#: (message, arrays that replace those of the valid archive {X, y}; None removes one)
REFUSED: list[tuple[str, dict[str, object]]] = [
    ("no array 'y', only X", {"y": None}),
    ("no array 'test_labels'", PARTS | {"test_labels": None}),
    (r"y has shape \(7,\)", {"y": Y[:7]}),
    ("y is nan in row 0", {"y": np.full(8, np.nan)}),
    ("y is 1e[+]300", {"y": np.full(8, 1e300)}),
    ("y holds complex128", {"y": Y * 1j}),
    ("expected UTF-8 text in y", {"y": np.array([b"\xff", b"a"] * 4)}),
    ("X holds <U1", {"X": np.array([list("ab")] * 8)}),
    ("X holds complex128", {"X": FLAT * 1j}),
    ("X has nan in row 3", {"X": np.where(np.arange(8)[:, None] == 3, np.nan, 1.0)}),
    ("X has -inf in row 0", {"X": np.full((8, 2), -np.inf)}),
    (r"X has shape \(8,\)", {"X": FLAT[:, 0]}),
    (r"X has shape \(0, 9\)", {"X": FLAT[:0], "y": Y[:0]}),
    (r"client has shape \(3,\)", {"client": Y[:3]}),
    ("expected UTF-8 text in client", {"client": np.array([b"\xff", b"a"] * 4)}),
    ("client holds float64", {"client": Y * 1.0}),
    ("expected UTF-8", {"client": np.full(8, 0xD800, "<u4").view("<U1")}),  # a lone surrogate
    ("test_labels holds datetime64", PARTS | {"test_labels": np.zeros(3, "M8[s]")}),
    (r"train_labels has shape \(5,\); .* for each of 4", PARTS | {"train_labels": Y[:5]}),
    ("expected images of one size and type", PARTS | {"test_images": X[5:, :2]}),
    ("unknown array 'mask'; expected only X, y, client, test, train", {"mask": MASK}),
    ("has test and train; expected one of them", {"test": MASK, "train": ~MASK}),
    ("train is not true for some rows", {"train": np.ones(8)}),
    ("has test and test_from", {"test": MASK, "test_from": np.array(3)}),
    (r"test has shape \(5,\)", {"test": MASK[:5]}),
    ("not true for some rows", {"test": np.zeros(8, bool)}),
    ("not true for some rows", {"test": np.arange(8)}),
    ("test_from is 0; expected a row from 1 to 7", {"test_from": np.array(0)}),
    ("test_from is 8", {"test_from": np.array(8)}),
    ("test_from has shape", {"test_from": np.array([1, 2])}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "arrays"), REFUSED)
def test_unusable_arrays_are_refused(
    tmp_path: Path, message: str, arrays: dict[str, np.ndarray]
) -> None:
    changed = {"X": FLAT, "y": Y} | arrays
    archive = {name: array for name, array in changed.items() if array is not None}
    assert_refused(put(tmp_path, "data.npz", npz_bytes(archive)), message)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npy_claiming(shape: str, data: bytes = b"") -> bytes:
    """An .npy member whose header claims this shape, whatever its data are."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


#: message → members of the archive
HOSTILE = {
    "pickled objects": {"X.npy": npy(np.array([{}]))},
    "unexpected member 'X.txt'": {"X.txt": b"1"},
    "expected an .npz": {"X.npy": npy_claiming("(9999999, 9999999)")},
    r"has more bytes after its array of shape \(1,\)": {"X.npy": npy_claiming("(1,)", b"12")},
    "and none of another name": {},
}


@pytest.mark.parametrize("message", HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, message: str) -> None:
    assert_refused(put(tmp_path, "data.npz", zip_bytes(HOSTILE[message])), message)


# ---- test rows that the user marks ----------------------------------------------------------------


@pytest.mark.parametrize("mask", [MASK, MASK.astype(int), MASK[:, None]])
def test_a_mask_puts_test_rows_last(tmp_path: Path, mask: np.ndarray) -> None:
    source = read(tmp_path, X=FLAT, y=Y, client=np.arange(8), test=mask)
    order = [0, 2, 3, 5, 6, 1, 4, 7]
    assert source.test_from == 5
    np.testing.assert_array_equal(source.X, FLAT[order])
    np.testing.assert_array_equal(source.y, Y[order])
    assert source.client.tolist() == order
    opposite = read(tmp_path, X=X, y=Y, client=np.arange(8), train=1 - mask.astype(int))
    assert (opposite.sha256, opposite.test_from) == (source.sha256, 5)
    assert read(tmp_path, X=FLAT, y=Y, test_from=np.array(6)).test_from == 6


# ---- a folder of arrays ---------------------------------------------------------------------------

ARRAYS = {"X": X, "y": Y, "client": np.array(list("bbaaaccc")), "test": np.arange(8) % 2}


def folder(root: Path, **arrays: np.ndarray) -> Path:
    root.mkdir()
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    return root


def test_a_folder_of_arrays_loads_like_an_npz(tmp_path: Path) -> None:
    source = load(folder(tmp_path / "mine", **ARRAYS))
    assert source.sha256 == read(tmp_path, **ARRAYS).sha256
    assert (source.name, source.test_from, source.image) == ("mine", 4, (3, 3, 1))
    assert source.client_names == ("a", "b", "c")
    assert load(folder(tmp_path / "two", X=X, y=Y)).client is None


def test_a_broken_or_unknown_array_of_a_folder_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path / "mine", X=X, y=Y, weight=Y)
    assert_refused(root, "mine: unknown array 'weight'; expected only X, y, client")
    path = put(root, "y.npy", (root / "y.npy").read_bytes()[:-3])
    message = r"y.npy: .*expected a folder with X.npy and y.npy"
    assert_refused(path, message, lambda path: load(path.parent))


def test_the_one_file_of_a_folder_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    root.mkdir()
    (root / "README.txt").write_text("mine")
    packed = put(root, "a.npz", npz_bytes(ARRAYS))
    assert (load(root).sha256, load(root).name) == (load(packed).sha256, "mine")
    put(root, "b.csv", b"x,y\n1,1\n2,0\n")
    with pytest.raises(DataError, match=r"mine: holds a.npz, b.csv; expected one of them, by its"):
        load(root)
