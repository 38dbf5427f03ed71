"""Manifests: what is written comes back, and nothing else does."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import images, npz_bytes, put

from fedref import DataError
from fedref.datasets import (
    RULES,
    from_manifest,
    load,
    manifest,
    manifest_of,
    split,
    write_manifest,
)


def write(folder: Path, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """A manifest of the digits among three clients, with some values changed and sealed again."""
    data = manifest_of(split("iid", load("digits"), 5, users=3, scaling="standardise")) | changes
    data |= {"sha256": manifest.seal(data)}
    write_manifest(data, folder / "split.json")
    return folder / "split.json", data


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


def test_any_json_reader_can_replay_it(tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    found, federation = json.loads(path.read_text()), from_manifest(path)
    X = np.load(Path(manifest.__file__).parents[2] / "data" / "digits" / "digits.npz")["X"]
    for k, client in enumerate(found["clients"]):
        mine = (X[client["train"]] - np.array(found["shift"])) / np.array(found["scale"])
        np.testing.assert_array_equal(mine, federation.batch(federation.train.rows_of(k)).X)


def test_every_changed_digit_is_detected(tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    text = path.read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for place in digits[:: len(digits) // 60]:
        other = str((int(text[place]) + 1) % 10)
        path.write_text(text[:place] + other + text[place + 1 :])
        with pytest.raises(DataError, match=r"split\.json"):
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
    message = "'own.npz' is not beside it; expected 'own.npz' beside the manifest, or .*--data-dir"
    with pytest.raises(DataError, match=f"m.json: .*{message}"):
        from_manifest("m.json")
    assert manifest_of(from_manifest("m.json", "sub")) == found
    monkeypatch.chdir("/")
    path = tmp_path / "sub" / "m.json"
    assert manifest_of(from_manifest(path)) == found
    put(tmp_path / "sub", "own.npz", npz_bytes({"X": X + 1, "y": y}))
    with pytest.raises(DataError, match=r"m\.json: the source own\.npz has SHA-256"):
        from_manifest(path)


def test_words_for_labels_are_kept_and_must_be_the_same(tmp_path: Path) -> None:
    path, X = tmp_path / "m.json", np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "a.npz", X=X, y=np.array(["dog", "cat"] * 3))
    found = manifest_of(split("iid", load(tmp_path / "a.npz"), users=2))
    assert found["source"]["labels"] == ["cat", "dog"]
    write_manifest(found, path)
    assert manifest_of(from_manifest(path)) == found
    for y in (["pig", "cow"] * 3, [1, 0] * 3):  # the same numbers
        np.savez(tmp_path / "a.npz", X=X, y=np.array(y))
        with pytest.raises(DataError, match=r"m.json: the labels of a.npz have other names"):
            from_manifest(path)


def test_a_manifest_downloads_nothing(tmp_path: Path) -> None:
    """The tests' guard would say that the download failed."""
    path, _ = write(tmp_path, source={"name": "mnist", "sha256": "0", "rows": 1})
    message = "nothing is downloaded unasked; `fedref data prepare mnist`"
    with pytest.raises(DataError, match=message):
        from_manifest(path)
