"""Manifests: what is written comes back, and nothing else does."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import images, npz_bytes, put

from fedref import ConfigError, DataError
from fedref.commands import main
from fedref.datasets import (
    RULES,
    from_manifest,
    load,
    manifest,
    manifest_of,
    sources,
    split,
    write_manifest,
)
from fedref.rounds.federation import Federation, Source


def written(folder: Path, rule: str = "shards", **parameters: Any) -> tuple[Federation, Path]:
    federation = split(rule, load("digits"), 5, **({"users": 10} | parameters))
    path = folder / "split.json"
    write_manifest(manifest_of(federation), path)
    return federation, path


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "natural"])
def test_a_manifest_gives_the_identical_federation(tmp_path: Path, rule: str) -> None:
    federation, path = written(tmp_path, rule)
    again = from_manifest(path)
    assert manifest_of(again) == manifest_of(federation)
    for a, b in ((federation.train, again.train), (federation.test, again.test)):
        assert a.rows.tobytes() == b.rows.tobytes()
        assert a.offsets.tobytes() == b.offsets.tobytes()
    rows = federation.test.rows
    assert federation.batch(rows).X.tobytes() == again.batch(rows).X.tobytes()
    assert again.names == federation.names
    assert dict(again.parameters) == dict(federation.parameters)
    second = tmp_path / "second.json"
    write_manifest(manifest_of(again), second)
    assert second.read_bytes() == path.read_bytes()


def test_natural_clients_keep_their_names(tmp_path: Path) -> None:
    federation = split("natural", load("synthetic(1,1,users=5)"))
    write_manifest(manifest_of(federation), tmp_path / "m.json")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == manifest_of(federation)


def test_any_json_reader_can_replay_it(tmp_path: Path) -> None:
    federation, path = written(tmp_path, scaling="standardise")
    found = json.loads(path.read_text())
    X = np.load(Path(manifest.__file__).parents[2] / "data" / "digits" / "digits.npz")["X"]
    for k, client in enumerate(found["clients"]):
        mine = (X[client["train"]] - np.array(found["shift"])) / np.array(found["scale"])
        np.testing.assert_array_equal(mine, federation.batch(federation.train.of(k)).X)


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


@pytest.mark.parametrize("key", ["shift", "scale"])
def test_a_digit_too_small_to_change_the_number_is_detected(tmp_path: Path, key: str) -> None:
    """The 17th digit often leaves the double, and so the seal, as it was."""
    _, path = written(tmp_path, users=3, scaling="standardise")
    text = path.read_text()
    start = text.index(f'"{key}": ')
    numbers = re.finditer(r"-?\d+\.\d+(e-?\d+)?", text[start : text.index("\n", start)])
    same = 0
    for found in list(numbers)[::8]:
        end, old = start + found.end(), found[0]
        for digit in set("0123456789") - {old[-1]}:
            same += float(old[:-1] + digit) == float(old)
            path.write_text(text[: end - 1] + digit + text[end:])
            with pytest.raises(DataError, match=r"split\.json"):
                from_manifest(path)
    assert same > 0


@pytest.mark.parametrize("key", ["seed", "shift", "rule"])
def test_a_key_that_occurs_twice_is_detected(tmp_path: Path, key: str) -> None:
    _, path = written(tmp_path, users=3)
    path.write_text(path.read_text().replace("{", f'{{"{key}": 7,', 1))
    with pytest.raises(DataError, match=f"{key!r} occurs twice"):
        from_manifest(path)


def resealed(folder: Path, **changes: Any) -> Path:
    """A manifest that someone changed and sealed again."""
    _, path = written(folder)
    data = json.loads(path.read_text()) | changes
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
    "missing, unknown or of another type: more": {"more": 1},
    "no such format": {"format": "fedref-split/9"},
    "list train of whole row numbers": {"clients": [CLIENT | {"train": ["1"]}]},
    "row 1.0": {"clients": [CLIENT | {"train": [1.0]}]},
    "row True": {"clients": [CLIENT | {"train": [True]}]},
    "list test of whole": {"clients": [{"name": "0", "train": [1]}]},
    "a name is no text": {"clients": [CLIENT | {"name": 7}]},
    "train rows run from 1797": {"clients": [CLIENT | {"train": [1797]}]},
    "too large|expected a list train": {"clients": [CLIENT | {"train": [2**70]}]},
    "row 2 is a test row of client 0 and a training row": {"clients": [CLIENT | {"train": [2]}]},
    "has no training row": {"clients": [CLIENT | {"train": []}]},
    "train offsets": {"clients": []},
    "shift has shape": {"shift": [1, 2]},
    "scale": {"scale": 0},
    "expected scale: a number": {"scale": ["a"]},
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_sealed_but_wrong_manifest_is_refused(tmp_path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        from_manifest(resealed(tmp_path, **HOSTILE[message]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"format": "fedref-split/1"}', None]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "nowhere.json" if data is None else put(tmp_path, "m.json", data)
    with pytest.raises(DataError, match=r"\.json: .*fedref-split/1"):
        from_manifest(path)


def test_a_source_of_ones_own_is_found_beside_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = images(40)
    put(tmp_path, "own.npz", npz_bytes({"X": X, "y": y}))
    federation = split("iid", load(tmp_path / "own.npz"), users=4)
    write_manifest(manifest_of(federation), tmp_path / "m.json")
    monkeypatch.chdir("/")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == manifest_of(federation)
    put(tmp_path, "own.npz", npz_bytes({"X": X + 1, "y": y}))
    with pytest.raises(DataError, match=r"m\.json: the source own\.npz has SHA-256"):
        from_manifest(tmp_path / "m.json")


def test_a_source_elsewhere_is_found_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = images(40)
    (tmp_path / "sub").mkdir()
    put(tmp_path / "sub", "own.npz", npz_bytes({"X": X, "y": y}))
    monkeypatch.chdir(tmp_path)
    federation = split("iid", load("sub/own.npz"), users=4)
    write_manifest(manifest_of(federation), "m.json")
    message = (
        "source 'own.npz' is not beside it; expected 'own.npz' beside the manifest, or .*--data-dir"
    )
    with pytest.raises(DataError, match=message):
        from_manifest("m.json")
    assert manifest_of(from_manifest("m.json", "sub")) == manifest_of(federation)


@pytest.mark.parametrize("name", ["", "a\0b", "a" * 5000])
def test_impossible_names_are_refused(tmp_path: Path, name: str) -> None:
    source = {"name": name, "sha256": "0", "rows": 1}
    with pytest.raises(DataError, match=r"not beside it|File name too long|null"):
        from_manifest(resealed(tmp_path, source=source))
    with pytest.raises(DataError, match="expected a split manifest"):
        from_manifest(name)
    assert not manifest.is_manifest(Path(name))


def test_nothing_of_this_machine_is_written(tmp_path: Path) -> None:
    X, y = images(40)
    source = load(put(tmp_path, "own.npz", npz_bytes({"X": X, "y": y})))
    assert str(tmp_path) not in json.dumps(manifest_of(split("iid", source, users=4)))


def test_words_for_labels_are_kept_and_must_be_the_same(tmp_path: Path) -> None:
    path, X = tmp_path / "m.json", np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "a.npz", X=X, y=np.array(["dog", "cat"] * 3))
    manifest = manifest_of(split("iid", load(tmp_path / "a.npz"), users=2))
    assert manifest["source"]["labels"] == ["cat", "dog"]
    write_manifest(manifest, path)
    assert manifest_of(from_manifest(path)) == manifest
    np.savez(tmp_path / "a.npz", X=X, y=np.array(["pig", "cow"] * 3))  # the same numbers
    with pytest.raises(DataError, match=r"m.json: the labels of a.npz are called otherwise"):
        from_manifest(path)
    np.savez(tmp_path / "a.npz", X=X, y=np.array([1, 0] * 3))
    with pytest.raises(DataError, match="are called otherwise"):
        from_manifest(path)


@pytest.mark.parametrize("rule", ["dirichlet", "shards", "per-fedavg", "power-law"])
def test_rules_that_need_classes_refuse_real_targets(rule: str) -> None:
    source = Source(np.zeros((300, 2)), np.arange(300) / 8, np.arange(300) // 10, "mine")
    with pytest.raises(ConfigError, match=r"mine has real targets .* natural, iid or quantity"):
        split(rule, source)
    for fits in (
        {"rule": "natural"},
        {"rule": "iid", "users": 3},
        {"rule": "quantity", "users": 3},
    ):
        assert split(source=source, **fits).clients


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


def test_minus_zero_is_another_spelling(tmp_path: Path) -> None:
    path = resealed(tmp_path, seed=0)
    text = path.read_text()
    assert from_manifest(path).seed == 0
    path.write_text(text.replace('"seed": 0', '"seed": -0'))
    with pytest.raises(DataError, match="-0 is not spelt 0"):
        from_manifest(path)


def test_true_is_no_seed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="another type: seed"):
        from_manifest(resealed(tmp_path, seed=True))


def test_a_manifest_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sources, "prepare", lambda name, chosen: asked.append(name))
    source = {"name": "mnist", "sha256": "0", "rows": 1}
    with pytest.raises(
        DataError, match="nothing is downloaded unasked; `fedref data prepare mnist`"
    ):
        from_manifest(resealed(tmp_path, source=source))
    assert asked == []
