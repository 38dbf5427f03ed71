"""Data in memory: tuples, tables of arrays, DataFrames; what they are called and how they are refused."""

from typing import Any

import numpy as np
import pytest

import fedref
from fedref import DataError
from fedref.datasets import Federation, Source
from fedref.datasets.sources import from_memory

X = np.arange(24.0).reshape(12, 2)
WORDS = np.array(["cat", "dog"] * 6)
SHOPS = np.array(["b", "a", "c"] * 4)
TEST = np.arange(12) % 4 == 3


def source_of(value: Any) -> Source:
    found = from_memory(value, "data")
    assert isinstance(found, Source)
    return found


def table(**more: Any) -> dict[str, Any]:
    return {"height": X[:, 0], "width": X[:, 1], "y": WORDS, "client": SHOPS, **more}


EXPECTED = source_of((X, WORDS, SHOPS))


def test_text_may_be_objects_or_lists() -> None:
    assert (EXPECTED.label_names, EXPECTED.client_names) == (("cat", "dog"), ("a", "b", "c"))
    for y, client in ((WORDS.astype(object), SHOPS.astype(object)), (list(WORDS), list(SHOPS))):
        found = source_of((X, y, client))
        assert (found.sha256, found.label_names) == (EXPECTED.sha256, EXPECTED.label_names)


def test_a_table_of_arrays_may_name_test_or_training_rows() -> None:
    arrays = {"X": X, "y": WORDS, "client": SHOPS}
    assert source_of(arrays).sha256 == EXPECTED.sha256
    found = source_of(arrays | {"test": TEST})
    assert (found.test_from, found.X[9:, 0].tolist()) == (9, [6.0, 14.0, 22.0])
    assert source_of(arrays | {"train": ~TEST}).sha256 == found.sha256


def test_a_run_on_arrays_is_not_called_the_digits() -> None:
    how: dict[str, Any] = {"rounds": 1, "clients_per_round": 3, "algorithm": "fedavg"}
    arrays = {"X": X, "y": WORDS, "client": SHOPS}
    for data in (arrays, {"name": arrays}, tuple(arrays.values())):
        assert fedref.run(data=data, **how).experiment.name == "data"
    assert fedref.run(data={"name": "synthetic", "users": 3}, **how).experiment.name == "synthetic"
    assert fedref.run(data={}, **how).experiment.name == "digits"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"X": X}, "data: no array 'y', only X"),
        ((X, np.array(["cat", None] * 6, object)), "y is None in row 1; expected text in all rows"),
        ((X, WORDS, np.array([1, "a"] * 6, object)), "client is 1 in row 0; expected text in all"),
        ((X, WORDS, SHOPS, SHOPS), "is a tuple, expected arrays"),
        ([X, WORDS], r"is a list, expected arrays \(X, y\) or \(X, y, client\), a table"),
    ],
)
def test_wrong_arrays_are_refused(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_memory(value, "data")


# ---- pandas ----------------------------------------------------------------------------------------


@pytest.fixture
def pd() -> Any:
    return pytest.importorskip("pandas")


def test_the_columns_of_a_frame_are_those_of_a_csv(pd: Any, tmp_path: Any) -> None:
    for how in ({}, {"test": TEST}, {"train": (~TEST).astype(int)}):
        frame = pd.DataFrame(table(**how))
        frame.to_csv(tmp_path / "a.csv", index=False)
        found, read = source_of(frame), fedref.datasets.load(tmp_path / "a.csv")
        assert found.sha256 == read.sha256
        assert found.client_names == read.client_names == ("a", "b", "c")
        assert (found.label_names, found.test_from) == (read.label_names, read.test_from)
    frame = pd.DataFrame(table(name=X[:, 0]))  # `frame.name` is a column
    run = fedref.run(data=frame, rounds=1, clients_per_round=3, algorithm="fedavg")
    assert run.experiment.name == "data"


def test_frames_series_and_categories_may_stand_for_arrays(pd: Any) -> None:
    frame = pd.DataFrame(table())
    for y in (frame["y"], frame["y"].astype("category"), frame["y"].astype(object)):
        found = source_of((frame[["height", "width"]], y, frame["client"]))
        assert (found.sha256, found.label_names) == (EXPECTED.sha256, ("cat", "dog"))
    mixed = pd.DataFrame({"a": [True, False], "b": [0.5, 1.5], "c": np.array([1, 2], np.uint8)})
    assert source_of((mixed, [0, 1])).X.tolist() == [[1, 0.5, 1], [0, 1.5, 2]]
    federation = fedref.datasets.split("natural", source_of(frame))
    assert isinstance(federation, Federation)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            {"width": np.where(np.arange(12) == 3, np.nan, 1.0)},
            "data: row 3: width is nan; expected",
        ),
        ({"width": list("abcdefghijkl")}, "data: row 0: width is 'a'; expected a finite number"),
        (
            {"patient": SHOPS},
            "row 0: patient is 'b'.*if patient says whose row it is, call it client",
        ),
        ({"test": TEST, "train": TEST}, "columns test and train are there"),
        ({"y": [None, *WORDS[1:]]}, "y is (nan|None) in row 0"),
    ],
)
def test_wrong_frames_are_refused(pd: Any, column: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_memory(pd.DataFrame(table(**column)), "data")


def test_a_feature_that_may_be_the_clients_earns_a_hint(pd: Any) -> None:
    for name in ("subject", "User ID", "device_id", "patients", "site"):
        frame = pd.DataFrame({"x": X[:, 0], name: np.arange(12) % 3, "y": WORDS})
        source = source_of(frame)
        hint = f"column '{name}' is a feature; if it says whose row it is, call it client"
        assert hint in source.notes[0]
        with pytest.raises(fedref.ConfigError, match=rf"called client, which says .*{hint}"):
            fedref.datasets.split("natural", source)
    for columns in ({"userness": X[:, 0]}, {"user": X[:, 0], "client": SHOPS}):
        assert source_of(pd.DataFrame({"y": WORDS, "x": X[:, 1]} | columns)).notes == ()
