"""LEAF JSON: one file, a folder, train and test; text."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import leaf_object, put, put_json

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
