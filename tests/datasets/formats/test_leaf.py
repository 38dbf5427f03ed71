"""LEAF JSON: one file, a folder, train and test; text; export."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import leaf_object, put, put_json

from fedref import DataError
from fedref.datasets import load, split
from fedref.datasets.formats import leaf, text


def test_users_become_clients(tmp_path: Path) -> None:
    data: Any = leaf_object()
    source = load(put_json(tmp_path, data))
    assert source.client_names == ("u0", "u1", "u2")
    for k, name in enumerate(source.client_names):
        rows = source.client == k
        np.testing.assert_array_equal(source.X[rows], data["user_data"][name]["x"])
        np.testing.assert_array_equal(source.y[rows], data["user_data"][name]["y"])
    assert split("natural", source).names == source.client_names


def test_labels_in_lists_of_one_as_vehicle_has_them(tmp_path: Path) -> None:
    data: Any = leaf_object()
    for entry in data["user_data"].values():
        entry["y"] = [[-1.0 if y else 1.0] for y in entry["y"]]
    assert set(load(put_json(tmp_path, data)).labels) == {-1, 1}


def test_a_folder_of_files_is_one_source(tmp_path: Path) -> None:
    data: Any = leaf_object()
    for i, name in enumerate(data["users"]):
        one = {"users": [name], "num_samples": [data["num_samples"][i]]}
        put_json(tmp_path, one | {"user_data": {name: data["user_data"][name]}}, f"all_{i}.json")
    whole = load(put_json(tmp_path, data, "whole.json"))
    (tmp_path / "whole.json").unlink()
    assert load(tmp_path).sha256 == whole.sha256


def test_train_and_test_folders_give_the_published_test_part(tmp_path: Path) -> None:
    for i, part in enumerate(("train", "test")):
        (tmp_path / part).mkdir()
        put_json(tmp_path / part, leaf_object(i), f"{part}.json")
    source = load(tmp_path)
    assert source.test_from == 9
    assert source.client.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2] * 2
    found = split("natural", source)
    assert found.train.sizes.tolist() == found.test.sizes.tolist() == [2, 3, 4]


def test_a_user_without_rows_keeps_no_place_among_clients(tmp_path: Path) -> None:
    data: Any = leaf_object()
    data["users"].insert(0, "nobody")
    data["num_samples"].insert(0, 0)
    data["user_data"]["nobody"] = {"x": [], "y": []}
    found = split("natural", load(put_json(tmp_path, data)))
    assert found.names == ("u0", "u1", "u2")


# ---- text -----------------------------------------------------------------------------------------


def spoken() -> dict[str, Any]:
    line = (
        "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the"
    )
    rows = [(line[i : i + 80], line[i + 80]) for i in range(len(line) - 80)]
    entry = {"x": [x for x, _ in rows], "y": [y for _, y in rows]}
    return {"users": ["HAMLET"], "num_samples": [len(rows)], "user_data": {"HAMLET": entry}}


def test_shakespeare_is_80_characters_and_the_next(tmp_path: Path) -> None:
    data = spoken()
    source = load(put_json(tmp_path, data))
    assert source.X.shape == (8, 80)
    assert source.X.dtype == np.uint8
    assert source.full_scale is None
    for row, y, x, after in zip(source.X, source.y, *data["user_data"]["HAMLET"].values()):
        assert text.decode(row) == x
        assert text.ALPHABET[y] == after


def test_raw_text_is_cut_into_leafs_windows(tmp_path: Path) -> None:
    line = "To be,   or not to be,\nthat is the  question:\nWhether 'tis nobler in the mind to suffer\n"
    flat = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer "
    rows = [(flat[i : i + 80], flat[i + 80]) for i in range(len(flat) - 80)]
    entry = {"x": [x for x, _ in rows], "y": [y for _, y in rows]}
    data = {"users": ["HAMLET"], "num_samples": [len(rows)], "user_data": {"HAMLET": entry}}
    cut = load(put_json(tmp_path, data))
    assert len(cut.y) == 5
    for raw in (line, [line]):
        data["user_data"] = {"HAMLET": {"raw": raw}}
        assert load(put_json(tmp_path, data)).sha256 == cut.sha256


@pytest.mark.parametrize("part", [[], ["training"]])
def test_tweets_are_the_fifth_column(tmp_path: Path, part: list[str]) -> None:
    rows = [["1", "date", "query", "me", "so happy", *part], ["2", "", "", "me", "é", *part]]
    entry = {"x": rows, "y": [1, 0]}
    data = {"users": ["me"], "num_samples": [2], "user_data": {"me": entry}}
    source = load(put_json(tmp_path, data))
    assert source.X.shape == (2, 140)
    assert source.vocabulary == text.CHARACTERS
    assert text.decode(source.X[0]) == "so happy"
    assert (source.X[0, 8:] == text.PADDING).all()
    assert source.X[1].tolist() == [text.OTHER] + 139 * [text.PADDING]
    assert source.y.tolist() == [1, 0]


def tweets(*y: Any) -> dict[str, Any]:
    entry = {"x": [["1", "", "", "me", "sad"]] * len(y), "y": y}
    return {"users": ["me"], "num_samples": [len(y)], "user_data": {"me": entry}}


@pytest.mark.parametrize("y", [(0, 1), (0, 4), ("0", "4"), ("0", "1")])
def test_the_class_of_a_tweet_is_0_or_1(tmp_path: Path, y: tuple[Any, Any]) -> None:
    assert load(put_json(tmp_path, tweets(*y))).y.tolist() == [0, 1]


@pytest.mark.parametrize("odd", [2, "5", True, None, 1.0])
def test_another_class_of_a_tweet_is_refused(tmp_path: Path, odd: Any) -> None:
    with pytest.raises(DataError, match=r"y\[0\] is .*expected 0 or 1, a tweet's class"):
        load(put_json(tmp_path, tweets(odd)))


def one_user(x: Any, key: str = "x") -> dict[str, Any]:
    return {"users": ["x"], "num_samples": [1], "user_data": {"x": {key: x, "y": [1]}}}


@pytest.mark.parametrize(
    ("data", "holds"),
    [
        (spoken(), True),
        (one_user("To be", "raw"), True),
        (one_user(["To be"], "raw"), True),
        (one_user([["1", "", "", "me", "sad"]]), True),
        (leaf_object(), False),
        ({**one_user([[1.5]]), "users": ['"x": ["']}, False),
        (one_user([[1.5]]), False),
        (one_user([]), False),
        ({"y": []}, False),
    ],
)
@pytest.mark.parametrize("name", ["some.json", "some.JSON.gz", "folder", "parts"])
def test_text_is_seen_before_it_is_read(tmp_path: Path, data: Any, holds: bool, name: str) -> None:
    path = tmp_path / name
    content = json.dumps(data).encode()
    if path.suffix:
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    for folder in {"folder": [path], "parts": [path / "train", path / "test"]}.get(name, []):
        folder.mkdir(parents=True)
        put(folder, "1.json", content)
    assert leaf.holds_text(path) == holds


def test_the_first_user_with_rows_decides_wherever_it_is(tmp_path: Path) -> None:
    data = one_user([])
    data["user_data"] = {"u": {"x": [], "y": []}, "v": {"y": ["a"], "x": ["To be"]}}
    assert leaf.holds_text(put_json(tmp_path, data, "cut.json"))


def test_what_is_no_leaf_json_holds_no_text(tmp_path: Path) -> None:
    content = json.dumps(spoken()).encode()
    assert not leaf.holds_text(put(tmp_path, "some.npz", content))
    assert not leaf.holds_text(tmp_path)
    assert not leaf.holds_text(put(tmp_path, "some.json", b"\x1f\x8bbroken"))


def test_numbers_are_no_codes(tmp_path: Path) -> None:
    assert load(put_json(tmp_path, leaf_object())).vocabulary is None


# ---- broken -----------------------------------------------------------------------------------------


GOOD = json.dumps(leaf_object())
KEEP = object()


def change(*path: Any, to: Any = KEEP, add: Any = KEEP) -> bytes:
    """The valid file with one value changed, one added to a list, or one left out."""
    data: Any = json.loads(GOOD)
    inside = data
    for key in path[:-1]:
        inside = inside[key]
    if add is not KEEP:
        inside[path[-1]].append(add)
    elif to is not KEEP:
        inside[path[-1]] = to
    else:
        inside.pop(path[-1])
    return json.dumps(data).encode()


U0, U1 = ("user_data", "u0"), ("user_data", "u1")
TRUE = GOOD.replace('"num_samples": [2', '"num_samples": [true').encode()
BROKEN: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"users", "expected LEAF JSON"),
    "cut": (GOOD[:-9].encode(), "expected LEAF JSON"),
    "no text": (b"\xff\xfe\xfa", "expected LEAF JSON"),
    "deep": (b"[" * 100_000, "expected LEAF JSON"),
    "list": (b"[]", "holds a list"),
    "no users": (change("users"), "users is missing"),
    "no data": (change("user_data"), "user_data is missing"),
    "no sizes": (change("num_samples"), "num_samples is missing"),
    "missing user": (change(*U1), "user_data has no 'u1'"),
    "unlisted user": (change("users", 2), "users does not list 'u2'"),
    "twice listed": (change("users", add="u0"), "'u0' is listed twice"),
    "twice in data": (GOOD.replace('"u1": {', '"u0": {').encode(), "'u0' occurs twice"),
    "number as user": (change("users", add=3), "user 3 is no text"),
    "sizes": (change("num_samples", 0), "2 num_samples for 3 users"),
    "wrong size": (change("num_samples", 1, to=9), "'u1': 3 rows; expected 9"),
    "entry": (change(*U1, to=[]), "x or y is missing"),
    "no x": (change(*U1, "x"), "x or y is missing"),
    "more x": (change(*U1, "x", add=[1, 2, 3, 4]), "4 rows in x and 3 in y"),
    "ragged": (change(*U1, "x", 2, 0), r"x\[2\] has 3 features; .* 4 numbers"),
    "no rows": (change(*U1, "x", 1, to=5), r"x\[1\] has 5"),
    "no features": (change(*U1, "x", 0, to=[]), r"x\[0\] has 0 features"),
    "nested": (change(*U1, "x", 1, 0, to=[1]), "'u1'.*expected lists of numbers"),
    "other width": (change(*U1, "x", to=[[1.0, 2.0]] * 3), "2 features of float64; expected 4"),
    "text": (change(*U1, "x", 1, 0, to="7"), "x holds '7'"),
    "null": (change(*U1, "x", 1, 0, to=None), "x holds None"),
    "true": (change(*U1, "x", to=[[True] * 4] * 3), "x holds True"),
    "huge": (change(*U1, "x", 0, 0, to=10**400), "expected|too large"),
    "NaN": (change(*U1, "x", 0, 0, to=float("nan")), "holds NaN"),
    "infinity": (change(*U1, "x", 0, 0, to=float("inf")), "holds Infinity"),
    "1e999": (GOOD.replace("0.", "1e999, 0.", 1).encode(), "expected|X has inf"),
    "true among numbers": (change(*U1, "x", 0, 0, to=True), "x holds True"),
    "size true": (TRUE, "num_samples holds True"),
    "two texts": (change(*U0, "x", to=[["1", "2"]] * 2), "x holds '1'; expected lists of numbers"),
    "short tweet": (
        change(*U0, "x", to=[["1", "", "", "me", "a"], ["2", "b"]]), r"x\[1\] is None; expected text"),
    "label text": (change(*U1, "y", 0, to="ab"), r"y\[0\] is 'ab'"),
    "label null": (change(*U1, "y", 0, to=None), r"y\[0\] is None; expected one number"),
    "label half": (change(*U1, "y", 0, to=0.5), "y is 0.5 in row 0"),
    "label lists": (change(*U1, "y", 0, to=[1, 2]), "'u1'"),
    "nobody": (b'{"users": [], "num_samples": [], "user_data": {}}', "no user has any rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    data, message = BROKEN[name]
    with pytest.raises(DataError, match=message) as caught:
        load(put(tmp_path, "data.json", data))
    assert "data.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_user_may_not_be_in_two_files(tmp_path: Path) -> None:
    put_json(tmp_path, leaf_object(), "a.json")
    put_json(tmp_path, leaf_object(), "b.json")
    with pytest.raises(DataError, match=r"b.json: user 'u0': also in .*a.json"):
        load(tmp_path)


def test_text_and_numbers_do_not_mix(tmp_path: Path) -> None:
    put_json(tmp_path, leaf_object(), "a.json")
    put_json(tmp_path, spoken(), "b.json")
    with pytest.raises(DataError, match="80 features of uint8; expected 4 of float64"):
        load(tmp_path)


# ---- export -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
def test_an_exported_split_comes_back(tmp_path: Path, raw: bool) -> None:
    found = split("dirichlet", load("digits"), users=6, scaling="standardise")
    list(leaf.export(found, tmp_path, raw))
    back = split("natural", load(tmp_path))
    assert back.names == found.names
    for a, b in ((found.train, back.train), (found.test, back.test)):
        for k in range(found.clients):
            expected = found.source.X[a.of(k)] if raw else found.batch(a.of(k)).X
            np.testing.assert_array_equal(back.batch(b.of(k)).X, expected)
            np.testing.assert_array_equal(back.batch(b.of(k)).y, found.batch(a.of(k)).y)
