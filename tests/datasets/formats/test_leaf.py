"""LEAF JSON: one file, a folder, train and test; text."""

from pathlib import Path
from typing import Any

import numpy as np
from dataset_files import leaf_object, put_json

from fedref.datasets import load, split
from fedref.datasets.formats import text


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


def test_folders_of_files_and_of_a_test_part(tmp_path: Path) -> None:
    data: Any = leaf_object()
    whole = load(put_json(tmp_path, data, "whole.json"))
    (tmp_path / "whole.json").unlink()
    for i, name in enumerate(data["users"]):
        one = {"users": [name], "num_samples": [data["num_samples"][i]]}
        put_json(tmp_path, one | {"user_data": {name: data["user_data"][name]}}, f"all_{i}.json")
    assert load(tmp_path).sha256 == whole.sha256
    for i, part in enumerate(("train", "test")):
        (tmp_path / part).mkdir()
        put_json(tmp_path / part, leaf_object(i), f"{part}.json")
    source = load(tmp_path)
    assert source.test_from == 9
    assert source.client.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2] * 2
    found = split("natural", source)
    assert found.train.sizes.tolist() == found.test.sizes.tolist() == [2, 3, 4]


def test_text_is_80_characters_and_the_next(tmp_path: Path) -> None:
    line = (
        "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the"
    )
    rows = [(line[i : i + 80], line[i + 80]) for i in range(len(line) - 80)]
    entry = {"x": [x for x, _ in rows], "y": [y for _, y in rows]}
    data = {"users": ["HAMLET"], "num_samples": [len(rows)], "user_data": {"HAMLET": entry}}
    source = load(put_json(tmp_path, data))
    assert (source.X.shape, source.X.dtype) == ((8, 80), np.uint8)
    assert (source.full_scale, source.vocabulary) == (None, text.CHARACTERS)
    read = [(text.decode(row), text.ALPHABET[y]) for row, y in zip(source.X, source.y)]
    assert read == rows
