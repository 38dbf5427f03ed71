"""LEAF JSON: one file, a folder, train and test; text."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import assert_refused, leaf_object, put, put_json

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
    assert source.vocabulary is None
    data["users"].insert(0, "nobody")  # keeps no place among clients
    data["num_samples"].insert(0, 0)
    data["user_data"]["nobody"] = {"x": [], "y": []}
    for entry in data["user_data"].values():  # as vehicle has them
        entry["y"] = [[-1.0 if y else 1.0] for y in entry["y"]]
    source = load(put_json(tmp_path, data))
    assert set(source.labels) == {-1, 1}
    assert split("natural", source).names == ("u0", "u1", "u2")


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


# ---- text -----------------------------------------------------------------------------------------


LINE = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the"


def spoken() -> dict[str, Any]:
    rows = [(LINE[i : i + 80], LINE[i + 80]) for i in range(len(LINE) - 80)]
    entry = {"x": [x for x, _ in rows], "y": [y for _, y in rows]}
    return {"users": ["HAMLET"], "num_samples": [len(rows)], "user_data": {"HAMLET": entry}}


def test_shakespeare_is_80_characters_and_the_next_also_cut_from_raw_text(tmp_path: Path) -> None:
    data = spoken()
    source = load(put_json(tmp_path, data))
    assert source.X.shape == (8, 80)
    assert source.X.dtype == np.uint8
    assert source.full_scale is None
    for row, y, x, after in zip(source.X, source.y, *data["user_data"]["HAMLET"].values()):
        assert text.decode(row) == x
        assert text.ALPHABET[y] == after
    line = LINE.replace("be, or", "be,   or").replace("be, that", "be,\nthat")
    for raw in (line, [line], line.split("\n")):
        data["user_data"] = {"HAMLET": {"raw": raw}}
        assert load(put_json(tmp_path, data)).sha256 == source.sha256


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


def test_the_class_of_a_tweet_is_0_or_1(tmp_path: Path) -> None:
    for y in [(0, 1), (0, 4), ("0", "4"), ("0", "1")]:
        assert load(put_json(tmp_path, tweets(*y))).y.tolist() == [0, 1]
    for odd in [2, "5", True, None, 1.0]:
        message = r"y\[0\] is .*expected 0 or 1, a tweet's class"
        assert_refused(put_json(tmp_path, tweets(odd)), message)


def one_user(x: Any, key: str = "x") -> dict[str, Any]:
    return {"users": ["x"], "num_samples": [1], "user_data": {"x": {key: x, "y": [1]}}}


HOLDS_TEXT = [
    (spoken(), True),
    (one_user("To be", "raw"), True),
    (one_user(["To be"], "raw"), True),
    (one_user([["1", "", "", "me", "sad"]]), True),
    ({"user_data": {"u": {"x": [], "y": []}, "v": {"y": ["a"], "x": ["To be"]}}}, True),
    (leaf_object(), False),
    ({**one_user([[1.5]]), "users": ['"x": ["']}, False),
    (one_user([]), False),
    ({"y": []}, False),
]


@pytest.mark.parametrize("name", ["some.json", "some.JSON.gz", "folder", "parts"])
def test_text_is_seen_before_it_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    folders = {"folder": [path], "parts": [path / "train", path / "test"]}.get(name, [])
    for folder in folders:
        folder.mkdir(parents=True)
    for data, holds in HOLDS_TEXT:
        content = json.dumps(data).encode()
        for file in [folder / "1.json" for folder in folders] or [path]:
            file.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        assert leaf.holds_text(path) == holds
    other = put(tmp_path, "some.npz", json.dumps(spoken()).encode())
    for no_leaf in (other, tmp_path / "nowhere", put(tmp_path, "b.json", b"\x1f\x8bbroken")):
        assert not leaf.holds_text(no_leaf)


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
BROKEN: list[tuple[str, bytes]] = [
    ("expected LEAF JSON", GOOD[:-9].encode()),
    ("expected LEAF JSON", b"\xff\xfe\xfa"),
    ("expected LEAF JSON", b"[" * 100_000),
    ("holds a list", b"[]"),
    ("users is missing", change("users")),
    ("num_samples is missing", change("num_samples")),
    ("user_data has no 'u1'", change(*U1)),
    ("users does not list 'u2'", change("users", 2)),
    (
        "expected names of users in UTF-8",
        GOOD.replace('"u0"', '"\\ud800"').encode(),
    ),  # half a character
    ("'u0' is listed twice", change("users", add="u0")),
    ("'u0' occurs twice", GOOD.replace('"u1": {', '"u0": {').encode()),
    ("3 is not text; expected names of users", change("users", add=3)),
    ("2 num_samples for 3 users", change("num_samples", 0)),
    ("'u0': 2 rows; expected '2', as num_samples", change("num_samples", 0, to="2")),
    ("'u1': 3 rows; expected 9", change("num_samples", 1, to=9)),
    ("x or y is missing", change(*U1, to=[])),
    ("x or y is missing", change(*U1, "x")),
    ("raw is not text", change(*U1, to={"raw": [1]})),
    ("4 rows in x and 3 in y", change(*U1, "x", add=[1, 2, 3, 4])),
    (r"x\[2\] has 3 features; .* 4 numbers", change(*U1, "x", 2, 0)),
    (r"x\[1\] has 5", change(*U1, "x", 1, to=5)),
    (r"x\[0\] has 0 features", change(*U1, "x", 0, to=[])),
    ("'u1'.*expected lists of numbers", change(*U1, "x", 1, 0, to=[1])),
    ("2 features of float64; expected 4", change(*U1, "x", to=[[1.0, 2.0]] * 3)),
    ("80 features of uint8; expected 4", change(*U1, to={"x": ["a" * 80] * 3, "y": ["a"] * 3})),
    ("x holds '7'", change(*U1, "x", 1, 0, to="7")),
    ("x holds True", change(*U1, "x", to=[[True] * 4] * 3)),
    ("too large", change(*U1, "x", 0, 0, to=10**400)),
    ("x holds numbers too large", change(*U1, "x", to=[[10**30] * 4] * 3)),
    ("holds NaN", change(*U1, "x", 0, 0, to=float("nan"))),
    ("holds Infinity", change(*U1, "x", 0, 0, to=float("inf"))),
    ("expected|X has inf", GOOD.replace("0.", "1e999, 0.", 1).encode()),
    (r"x\[1\] is None; expected text", change(*U0, "x", to=[["1", "", "", "me", "a"], ["2", "b"]])),
    (r"y\[0\] is 'ab'", change(*U1, "y", 0, to="ab")),
    (r"y\[0\] is None; expected one number", change(*U1, "y", 0, to=None)),
    ("y is 0.5 in row 0", change(*U1, "y", 0, to=0.5)),
    ("'u1'.*one number for each row", change(*U1, "y", 0, to=[1, 2])),
    ("no user has any rows", b'{"users": [], "num_samples": [], "user_data": {}}'),
]


@pytest.mark.parametrize(("message", "data"), BROKEN)
def test_broken_files_are_refused(tmp_path: Path, message: str, data: bytes) -> None:
    assert_refused(put(tmp_path, "data.json", data), message)


def test_a_user_may_not_be_in_two_files(tmp_path: Path) -> None:
    put_json(tmp_path, leaf_object(), "a.json")
    second = put_json(tmp_path, leaf_object(), "b.json")
    message = r"b.json: user 'u0': also in .*a.json"
    assert_refused(second, message, lambda path: load(path.parent))
