"""Source, Part, Federation."""

from dataclasses import replace

import numpy as np
import pytest

from fedref import DataError
from fedref.rounds.federation import Federation, Part, Source


def part(*rows):
    """The Part whose client k has the rows rows[k]."""
    flat = np.array([r for client in rows for r in client], np.int64)
    return Part(flat, np.cumsum([0, *map(len, rows)]))


def federation(X, **changes):
    """Four rows: client 0 trains on 0 and 2 and is tested on 3; client 1 trains on 1, with no test."""
    source = Source(X, np.arange(len(X)) % 2, name="small")
    return replace(Federation(source, part([0, 2], [1]), part([3], [])), **changes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_batch_is_shifted_and_scaled(dtype, shape):
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


def test_a_good_federation_passes_and_its_clients_have_names():
    good = federation(np.ones((4, 2)))
    good.check()
    assert good.names == ("0", "1")
    assert federation(np.ones((4, 2)), client_names=("a", "b")).names == ("a", "b")


def spoilt(value):
    X = np.ones((4, 2))
    X[2, 1] = value
    return X


CODES = np.array([[0, 1], [2, 3], [0, 0], [3, 3]])
#: message → what is wrong, in the federation or in its source
BROKEN = {
    "expected 0 to 3": {"train": part([0, 4], [1])},
    "train rows run from -1": {"train": part([0, -1], [1])},
    "client 1 has no training row": {"train": part([0, 1, 2], [])},
    "row 1 is a test row of client 0 and a training row of client 1": {"test": part([3, 1], [])},
    "row 0 is a validation row of client 1 and a training row": {"validation": part([], [0])},
    "row 3 is a validation row of client 1 and a test row": {"validation": part([], [3])},
    "2 clients with training rows and 1 with test rows": {"test": part([3])},
    "test offsets must climb": {"test": Part(np.array([3]), np.array([0, 2, 1]))},
    "train offsets must climb": {"train": Part(np.array([0, 1]), np.array([0, 1, 1]))},
    "scale": {"scale": np.array([1.0, 0.0])},
    "shift": {"shift": np.nan},
    r"small: row 2 \(client 0\) has nan in feature 1": {"X": spoilt(np.nan)},
    r"small: row 2 \(client 0\) has -inf in feature 1": {"X": spoilt(-np.inf)},
    "labels are <U1": {"y": np.ones(4, str)},
    "y is inf in row 1": {"y": np.array([0.5, np.inf, 1, 2])},
    "4 rows of X and 3 labels": {"y": np.ones(3, int)},
    "codes run from 0 to 4, expected 0 to 2, or 3 for padding": {"X": CODES + (CODES == 3)},
    "codes run from -1 to 3": {"X": CODES - (CODES == 0)},
    "X holds float64": {"X": 1.0 * CODES},
    "codes are not scaled, expected scaling=none": {"X": CODES, "shift": 1.0},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_federation_is_refused(message):
    wrong = dict(BROKEN[message])
    of_source = {name: wrong.pop(name) for name in ("X", "y") if name in wrong}
    if "code" in message or "holds" in message:
        of_source["vocabulary"] = ("a", "b", "c")
    good = federation(np.ones((4, 2)))
    bad = replace(good, source=replace(good.source, **of_source), **wrong)
    with pytest.raises(DataError, match=message):
        bad.check()


def test_a_subset_is_renumbered_in_the_order_given():
    source, names = Source(np.ones((9, 1)), np.zeros(9, int)), ("ann", "bob", "cy", "dee")
    train, test = part([0, 2], [1], [], [5, 3, 4]), part([6], [], [7, 8], [])
    whole = replace(Federation(source, train, test), client_names=names)
    subset = whole.subset(np.array([3, 0, 2]))
    assert subset.names == ("dee", "ann", "cy")
    assert [subset.train.rows_of(k).tolist() for k in range(3)] == [[5, 3, 4], [0, 2], []]
    assert [subset.test.rows_of(k).tolist() for k in range(3)] == [[], [6], [7, 8]]
    assert whole.subset(np.array([], int)).clients == 0
