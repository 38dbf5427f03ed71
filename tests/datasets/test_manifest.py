"""Manifests: what is written comes back, and nothing else does."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import assert_refused, images, npz_bytes, put

from fedref import DataError
from fedref.commands import main
from fedref.datasets import (
    RULES,
    from_manifest,
    load,
    manifest,
    manifest_of,
    split,
    write_manifest,
)
from fedref.rounds.federation import Federation


def written(folder: Path, rule: str = "shards", **parameters: Any) -> tuple[Federation, Path]:
    federation = split(rule, load("digits"), 5, **({"users": 10} | parameters))
    path = folder / "split.json"
    write_manifest(manifest_of(federation), path)
    return federation, path


@pytest.mark.parametrize("rule", RULES)
def test_a_manifest_gives_the_identical_federation(tmp_path: Path, rule: str) -> None:
    source = load("synthetic(1,1,users=5)" if rule == "natural" else "digits")
    users = {} if rule == "natural" else {"users": 10}
    federation, path = split(rule, source, 5, **users), tmp_path / "split.json"
    write_manifest(manifest_of(federation), path)
    again = from_manifest(path)
    assert manifest_of(again) == manifest_of(federation)
    rows = federation.test.rows
    assert federation.batch(rows).X.tobytes() == again.batch(rows).X.tobytes()
    second = tmp_path / "second.json"
    write_manifest(manifest_of(again), second)
    assert second.read_bytes() == path.read_bytes()


def test_any_json_reader_can_replay_it(tmp_path: Path) -> None:
    federation, path = written(tmp_path, scaling="standardise")
    found = json.loads(path.read_text())
    X = np.load(Path(manifest.__file__).parents[2] / "data" / "digits" / "digits.npz")["X"]
    for k, client in enumerate(found["clients"]):
        mine = (X[client["train"]] - np.array(found["shift"])) / np.array(found["scale"])
        np.testing.assert_array_equal(mine, federation.batch(federation.train.rows_of(k)).X)


def test_every_changed_digit_is_detected(tmp_path: Path) -> None:
    _, path = written(tmp_path, users=3)
    text = path.read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for place in digits[:: len(digits) // 60]:
        other = str((int(text[place]) + 1) % 10)
        path.write_text(text[:place] + other + text[place + 1 :])
        with pytest.raises(DataError, match=r"split\.json"):
            from_manifest(path)
    path.write_text(text)
    from_manifest(path)


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    _, path = written(tmp_path, users=3)
    path.write_text(path.read_text().replace("{", '{"seed": 7,', 1))
    assert_refused(path, "'seed' occurs twice", from_manifest)


def resealed(folder: Path, **changes: Any) -> Path:
    """A manifest that someone changed and sealed again."""
    _, path = written(folder)
    data = json.loads(path.read_text()) | changes
    if "sha256" not in changes:
        data["sha256"] = manifest.seal(data)
    path.write_text(json.dumps(data))
    return path


CLIENT = {"name": "0", "train": [1], "test": [2]}
HOSTILE: dict[str, dict[str, Any]] = {
    "the source digits has SHA-256": {"source": {"name": "digits", "sha256": "0", "rows": 1}},
    "its source 'diggits' is not beside it": {
        "source": {"name": "diggits", "sha256": "0", "rows": 1}
    },
    "another type: source": {"source": {"name": 3, "sha256": "0"}},
    "another type: clients": {"clients": {}},
    "another type: seed": {"seed": "1"},
    "of another type: seed": {"seed": True},
    "missing, unknown or of another type: more": {"more": 1},
    "no such format": {"format": "fedref-split/9"},
    "list train of whole row numbers": {"clients": [CLIENT | {"train": ["1"]}]},
    "row 1.0": {"clients": [CLIENT | {"train": [1.0]}]},
    "row True": {"clients": [CLIENT | {"train": [True]}]},
    "list test of whole": {"clients": [{"name": "0", "train": [1]}]},
    "7 is not text; expected a name for every client": {"clients": [CLIENT | {"name": 7}]},
    "too large|expected a list train": {"clients": [CLIENT | {"train": [2**70]}]},
    "has no training row": {"clients": [CLIENT | {"train": []}]},
    "shift has shape": {"shift": [1, 2]},
    "scale": {"scale": 0},
    "expected scale: a number": {"scale": ["a"]},
    r"expected .*which stands in it: it has been changed": {"sha256": "\x1b[2J\n"},
    # it downloads nothing: the tests' guard would say that the download failed
    "nothing is downloaded unasked; `fedref data prepare mnist`": {
        "source": {"name": "mnist", "sha256": "0", "rows": 1}
    },
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_sealed_but_wrong_manifest_is_refused(tmp_path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        from_manifest(resealed(tmp_path, **HOSTILE[message]))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"format": "fedref-split/1"}', None]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "nowhere.json" if data is None else put(tmp_path, "m.json", data)
    with pytest.raises(DataError, match=r"\.json: .*fedref-split/1"):
        from_manifest(path)


def test_a_source_of_ones_own_is_found_beside_its_manifest_or_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = images(40)
    (tmp_path / "sub").mkdir()
    put(tmp_path / "sub", "own.npz", npz_bytes({"X": X, "y": y}))
    monkeypatch.chdir(tmp_path)
    found = manifest_of(split("iid", load(tmp_path / "sub" / "own.npz"), users=4))
    assert str(tmp_path) not in json.dumps(found)  # nothing of this machine is written
    for folder in ("", "sub/"):
        write_manifest(found, f"{folder}m.json")
    message = (
        "source 'own.npz' is not beside it; expected 'own.npz' beside the manifest, or .*--data-dir"
    )
    assert_refused(Path("m.json"), message, from_manifest)
    assert manifest_of(from_manifest("m.json", "sub")) == found
    monkeypatch.chdir("/")
    path = tmp_path / "sub" / "m.json"
    assert manifest_of(from_manifest(path)) == found
    put(tmp_path / "sub", "own.npz", npz_bytes({"X": X + 1, "y": y}))
    assert_refused(path, r"m\.json: the source own\.npz has SHA-256", from_manifest)


def test_words_for_labels_are_kept_and_must_be_the_same(tmp_path: Path) -> None:
    path, X = tmp_path / "m.json", np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "a.npz", X=X, y=np.array(["dog", "cat"] * 3))
    found = manifest_of(split("iid", load(tmp_path / "a.npz"), users=2))
    assert found["source"]["labels"] == ["cat", "dog"]
    write_manifest(found, path)
    assert manifest_of(from_manifest(path)) == found
    for y in (["pig", "cow"] * 3, [1, 0] * 3):  # the same numbers
        np.savez(tmp_path / "a.npz", X=X, y=np.array(y))
        assert_refused(path, r"m.json: the labels of a.npz have other names", from_manifest)


@pytest.mark.parametrize("name", ["", "a\0b", "a" * 5000])
def test_impossible_names_are_refused(tmp_path: Path, name: str) -> None:
    source = {"name": name, "sha256": "0", "rows": 1}
    with pytest.raises(DataError, match=r"not beside it|File name too long|null"):
        from_manifest(resealed(tmp_path, source=source))
    with pytest.raises(DataError, match="expected a split manifest"):
        from_manifest(name)
    assert not manifest.is_manifest(Path(name))


@pytest.mark.parametrize(
    "parameters",
    [{"seed": 1}, {"of": ["a"]}, {"source": 1}, {"rule": "iid"}, {"of": {}}, {"users": []}],
)
def test_parameters_of_a_manifest_may_be_anything(
    parameters: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = resealed(tmp_path, rule="iid", parameters=parameters)
    assert main(["data", "verify", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
