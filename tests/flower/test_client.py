"""A node: its part, what its clients keep, and that it answers in time and tells no values."""

import time

import numpy as np
import pytest
from federating import experiment_of

from fedref.boundary.errors import DataError
from fedref.experiments.loading import Loader, load_experiment
from fedref.flower.client import Store, answer_within, read_part, write_part
from fedref.flower.protocol import NONE, ProtocolError

GOOD = {
    "X": np.arange(12.0).reshape(6, 2),
    "y": np.array([0, 1, 0, 1, 2, 0]),
    "client": np.array([4, 2, 4, 4, 2, 4]),
    "test": np.array([False, False, True, False, True, False]),
}


def read(tmp_path, **changes):
    path = tmp_path / "own.npz"
    arrays = {**GOOD, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return read_part(path)


def test_rows_of_one_s_own_file(tmp_path):
    site = read(tmp_path, shift=np.array(1.0), scale=np.array([1.0, 2.0]))
    assert site.clients.tolist() == [2, 4]
    own = site.federation
    assert own.train.rows_of(1).tolist() == [0, 3, 5]  # in the order in which they stand
    assert own.test.rows_of(0).tolist() == [4]
    np.testing.assert_array_equal(own.batch(own.train.rows_of(0)).X, [[1.0, 1.0]])
    assert site.announcement[:5] == ([2, 4], [1, 3], [1, 1], 2, [0, 1, 2])
    digests = {read(tmp_path, scale=np.array(scale)).sha256 for scale in (1.0, 2.0, 1.0)}
    assert len(digests) == 2


def test_images_and_codes_stay_what_they_are(tmp_path):
    site = read(tmp_path, X=np.zeros((6, 2), np.uint8), image=np.array([1, 2, 1]))
    assert site.federation.source.image == (1, 2, 1)
    assert site.federation.source.X.dtype == np.uint8
    site = read(tmp_path, X=np.ones((6, 2), np.uint8), vocabulary=np.array(["a", "ß"]))
    assert site.announcement.vocabulary == ["a", "ß"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"test": None}, "no array 'test', only X, client, y"),
        ({"name": np.array("me")}, "unknown array 'name'; expected only X, y, client, test, shift"),
        ({"y": GOOD["y"][:5]}, r"y has shape \(5,\)"),
        ({"y": GOOD["y"] / 2}, "y is 0.5 in row 1"),
        ({"client": GOOD["client"] - 3}, "client is -1; expected numbers from 0 on"),
        ({"test": 2 * GOOD["test"]}, "test holds other numbers; expected 1 for test rows"),
        ({"test": np.ones(6, bool)}, "client 2 has no training row"),
        ({"X": GOOD["X"] * np.nan}, "X has nan in row 0"),
        ({"scale": np.zeros(2)}, "a scale of 0"),
        ({"scale": np.array([1, 1j])}, "scale holds complex numbers"),
        ({"shift": np.zeros(3)}, r"shift has shape \(3,\); expected shift: a number, or 2 of them"),
        ({"X": np.full((6, 2), None)}, "Object arrays cannot be loaded"),
    ],
)
def test_what_is_no_part_is_refused(tmp_path, changes, words):
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, **changes)
    assert "own.npz" in str(error.value)
    assert "\n" not in str(error.value)
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(DataError, match="expected a node's part"):
            read_part(path)


def test_a_part_holds_the_rows_of_its_clients_and_no_other(tmp_path):
    whole = load_experiment(experiment_of(algorithms={"fedavg": {}}), Loader()).whole
    write_part(tmp_path / "part.npz", whole, [2, 5])
    with np.load(tmp_path / "part.npz") as file:
        rows = [
            row for k in (2, 5) for part in (whole.train, whole.test) for row in part.rows_of(k)
        ]
        np.testing.assert_array_equal(file["X"], whole.source.X[rows])
        assert set(file["client"].tolist()) == {2, 5}


# ---- the store -----------------------------------------------------------------------------------


def test_the_store_keeps_the_new_state_and_three_before(tmp_path):
    store = Store(tmp_path, "0" * 16, 0)
    before = NONE
    for t in (0, 1, 2, 3, 7):
        store.write(5, before, t, np.array([float(t)]))
        before = t
    assert store.rounds(5) == [1, 2, 3, 7]
    assert store.read(5, 3) == 3.0
    store.write(5, 3, 4, np.array([4.0]))  # the server has gone back to round 3
    assert store.rounds(5) == [1, 2, 3, 4]
    with pytest.raises(ProtocolError, match="after round 8 cannot be read"):
        store.read(5, 7)
    assert store.read(5, NONE) is None
    path = store.path(5, 4)
    path.write_bytes(path.read_bytes()[:-5])  # half written
    with pytest.raises(ProtocolError, match="after round 5 cannot be read"):
        store.read(5, 4)


# ---- answers -------------------------------------------------------------------------------------


def test_work_that_hangs_or_fails_is_answered(capsys):
    began = time.monotonic()
    assert answer_within(0.05, lambda: time.sleep(5)) == {
        "refused": {"reason": "its work took longer than 0.05 s"}
    }
    assert time.monotonic() - began < 4
    assert answer_within(5.0, lambda: {"a": {}}) == {"a": {}}
    (reason,) = answer_within(5.0, lambda: 1 / 0)["refused"].values()
    assert reason == "its work raised ZeroDivisionError: see the node's own log"
    assert "division by zero" in capsys.readouterr().err
