"""Manifests: what is written comes back, and nothing else does."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from dataset_files import npz_bytes, put

from fedref import DataError
from fedref.lab.datasets import (
    RULES,
    from_manifest,
    load,
    manifest,
    manifest_of,
    split,
    write_manifest,
)


def refuse(path, message):
    with pytest.raises(DataError, match=f"m.json: .*{message}"):
        from_manifest(path)


@pytest.mark.parametrize("validation", [{}, {"validation": 0.2}])
@pytest.mark.parametrize("rule", RULES)
def test_a_manifest_gives_the_identical_federation(tmp_path, rule, validation):
    source = load("synthetic(1,1,users=5)" if rule == "natural" else "digits")
    users = {} if rule == "natural" else {"users": 10}
    federation, path = split(rule, source, 5, **users, **validation), tmp_path / "split.json"
    write_manifest(manifest_of(federation), path)
    again = from_manifest(path)
    assert manifest_of(again) == manifest_of(federation)
    assert (again.validation is not None) == bool(validation)
    rows = federation.test.rows
    assert federation.batch(rows).X.tobytes() == again.batch(rows).X.tobytes()


def test_any_json_reader_can_replay_it_and_every_changed_digit_is_detected(tmp_path):
    path = tmp_path / "m.json"
    made = split("iid", load("digits"), 5, users=3, scaling="standardise")
    write_manifest(manifest_of(made), path)
    found, federation = json.loads(path.read_text()), from_manifest(path)
    X = np.load(Path(manifest.__file__).parents[3] / "data" / "digits" / "digits.npz")["X"]
    for k, client in enumerate(found["clients"]):
        mine = (X[client["train"]] - np.array(found["shift"])) / np.array(found["scale"])
        np.testing.assert_array_equal(mine, federation.batch(federation.train.rows_of(k)).X)
    text = path.read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for place in digits[:: len(digits) // 60]:
        other = str((int(text[place]) + 1) % 10)
        path.write_text(text[:place] + other + text[place + 1 :])
        refuse(path, "")


def test_a_source_of_ones_own_is_found_and_must_be_the_same(tmp_path, monkeypatch):
    X, path = np.arange(12.0).reshape(6, 2), tmp_path / "sub" / "m.json"

    def own(X, y):
        put(tmp_path / "sub", "own.npz", npz_bytes({"X": X, "y": np.array(y)}))

    own(X, ["dog", "cat"] * 3)
    monkeypatch.chdir(tmp_path)
    found = manifest_of(split("iid", load(tmp_path / "sub" / "own.npz"), users=2))
    assert found["source"]["labels"] == ["cat", "dog"]
    assert str(tmp_path) not in json.dumps(found)  # nothing of this machine is written
    for folder in ("", "sub/"):
        write_manifest(found, f"{folder}m.json")
    refuse("m.json", "'own.npz' is not beside it; expected 'own.npz' beside .*, or .*--data-dir")
    assert manifest_of(from_manifest("m.json", "sub")) == found
    monkeypatch.chdir("/")
    assert manifest_of(from_manifest(path)) == found
    own(X, ["pig", "cow"] * 3)  # the same numbers
    refuse(path, "the labels of own.npz have other names")
    own(X + 1, ["dog", "cat"] * 3)
    refuse(path, "the source own.npz has SHA-256")


def test_clients_without_a_training_row_are_in_it(tmp_path, monkeypatch):
    client, test = np.repeat(["a", "b"], 3), np.array([0, 0, 1, 1, 1, 1])
    arrays = {"X": np.arange(6.0)[:, None], "y": np.arange(6) % 2, "client": client, "test": test}
    put(tmp_path, "own.npz", npz_bytes(arrays))
    found = manifest_of(split("natural", load(tmp_path / "own.npz")))
    assert found["unseen"] == [{"name": "b", "test": [3, 4, 5]}]
    write_manifest(found, tmp_path / "m.json")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == found
    odd = found | {"unseen": [{"name": "b", "test": [0]}]}
    write_manifest(odd | {"sha256": manifest.seal(odd)}, tmp_path / "m.json")
    refuse(tmp_path / "m.json", "a unseen row of client 0 and a training row of client 0")
    odd = found | {"unseen": [{"name": "b"}]}
    write_manifest(odd | {"sha256": manifest.seal(odd)}, tmp_path / "m.json")
    refuse(tmp_path / "m.json", "'test'; expected lists train and test")


def test_a_manifest_downloads_nothing(tmp_path):
    """The tests' guard would say that the download failed."""
    data = manifest_of(split("iid", load("digits"), users=3))
    data |= {"source": {"name": "mnist", "sha256": "0", "rows": 1}}
    write_manifest(data | {"sha256": manifest.seal(data)}, tmp_path / "m.json")
    with pytest.raises(DataError, match="nothing is downloaded unasked; `fedref data prepare"):
        from_manifest(tmp_path / "m.json")
