"""Source, Part, Federation."""

from dataclasses import replace

import numpy as np
import pytest

from fedref import DataError
from fedref.rounds.federation import Federation, Part, Source


def part(*rows: list[int]) -> Part:
    """The Part whose client k has the rows rows[k]."""
    flat = np.array([r for client in rows for r in client], np.int64)
    return Part(flat, np.cumsum([0, *map(len, rows)]))


def federation(X: np.ndarray, **changes: object) -> Federation:
    """Four rows: client 0 trains on 0 and 2 and is tested on 3; client 1 trains on 1, with no test."""
    source = Source(X, np.arange(len(X)) % 2, name="small")
    return replace(Federation(source, part([0, 2], [1]), part([3], [])), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_batch_is_shifted_and_scaled(dtype: type, shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).integers(0, 256, (4, 5), dtype=np.uint8)
    shift, scale = np.arange(5.0), np.arange(1.0, 6.0)
    scaled = federation(X, shift=shift, scale=scale)
    rows = np.random.default_rng(1).integers(0, 4, shape)
    D = scaled.batch(rows, dtype)
    assert D.X.dtype == dtype
    assert D.X.shape == (*shape, 5)
    assert D.y.shape == shape
    expected = ((X[rows].astype(dtype) - shift.astype(dtype)) / scale.astype(dtype)).astype(dtype)
    np.testing.assert_array_equal(D.X, expected)
    np.testing.assert_array_equal(D.y, rows % 2)


def test_batch_never_changes_the_source() -> None:
    X = np.ones((4, 2))
    scaled = federation(X, shift=1.0, scale=2.0)
    scaled.batch(np.array([0, 1])).X[:] = 7
    assert (X == 1).all()


def test_clients_are_named_by_number_unless_names_are_given() -> None:
    assert federation(np.ones((4, 2))).names == ("0", "1")
    assert federation(np.ones((4, 2)), client_names=("a", "b")).names == ("a", "b")


def test_a_good_federation_passes() -> None:
    federation(np.ones((4, 2))).check()


#: message → what is wrong in the federation
BROKEN = {
    "expected 0 to 3": {"train": part([0, 4], [1])},
    "train rows run from -1": {"train": part([0, -1], [1])},
    "client 1 has no training row": {"train": part([0, 1, 2], [])},
    "row 1 is a test row of client 0 and a training row of client 1": {"test": part([3, 1], [])},
    "2 clients with training rows and 1 with test rows": {"test": part([3])},
    "test offsets must climb": {"test": Part(np.array([3]), np.array([0, 2, 1]))},
    "train offsets must climb": {"train": Part(np.array([0, 1]), np.array([0, 1, 1]))},
    "scale": {"scale": np.array([1.0, 0.0])},
    "shift": {"shift": np.nan},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_federation_is_refused(message: str) -> None:
    with pytest.raises(DataError, match=message):
        federation(np.ones((4, 2)), **BROKEN[message]).check()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_feature_that_is_not_finite_is_refused_with_its_place(value: float) -> None:
    X = np.ones((4, 2))
    X[2, 1] = value
    with pytest.raises(DataError, match=r"small: row 2 \(client 0\) has .* in feature 1"):
        federation(X).check()


def test_labels_must_be_finite_numbers_one_for_each_row() -> None:
    good = federation(np.ones((4, 2)))
    for y, message in (
        (np.ones(4, str), "labels are <U1"),
        (np.array([0.5, np.inf, 1, 2]), "y is inf in row 1"),
        (np.ones(3, int), "4 rows of X and 3 labels"),
    ):
        with pytest.raises(DataError, match=message):
            replace(good, source=replace(good.source, y=y)).check()


def test_a_subset_is_renumbered_in_the_order_given() -> None:
    whole = replace(
        Federation(
            Source(np.ones((9, 1)), np.zeros(9, int)),
            part([0, 2], [1], [], [5, 3, 4]),
            part([6], [], [7, 8], []),
        ),
        client_names=("ann", "bob", "cy", "dee"),
    )
    subset = whole.subset(np.array([3, 0, 2]))
    assert subset.names == ("dee", "ann", "cy")
    assert [subset.train.rows_of(k).tolist() for k in range(3)] == [[5, 3, 4], [0, 2], []]
    assert [subset.test.rows_of(k).tolist() for k in range(3)] == [[], [6], [7, 8]]
    assert whole.subset(np.array([], int)).clients == 0


@pytest.mark.parametrize(
    ("X", "shift", "message"),
    [
        (
            np.array([[0, 1], [2, 4]]),
            0.0,
            "codes run from 0 to 4, expected 0 to 2, or 3 for padding",
        ),
        (np.array([[0, -1], [2, 3]]), 0.0, "from -1 to 3"),
        (np.zeros((2, 2)), 0.0, "X holds float64"),
        (np.array([[0, 1], [2, 3]]), 1.0, "codes are not scaled, expected scaling=none"),
    ],
)
def test_codes_must_be_of_the_vocabulary_and_are_not_scaled(X, shift, message):
    source = Source(X, np.array([0, 1]), vocabulary=("a", "b", "c"))
    train, test = (Part(np.array([i]), np.array([0, 1])) for i in (0, 1))
    with pytest.raises(DataError, match=message):
        Federation(source, train, test, shift=shift).check()
