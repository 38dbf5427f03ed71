"""Shakespeare's roles and Sent140's tweets: cut in time, thinned, their vocabulary."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import put_json

from fedref import ConfigError
from fedref.datasets import load, split, texts
from fedref.datasets.formats import text
from fedref.rounds.federation import Source

SIZES = {"HAMLET": 500, "GHOST": 300, "SERVANT": 80}


def said(role: str) -> str:
    """The characters of a role: words, none of them at the ends a space."""
    n, rng = SIZES[role], np.random.default_rng(SIZES[role])
    words = " ".join(rng.choice(["to", "be", "or", "not", "question", "whether", "slings"], n))
    return words[: n - 1].rstrip().ljust(n - 1, "x") + "!"


def windows(role: str) -> list[str]:
    return [said(role)[i : i + 81] for i in range(SIZES[role] - 80)]


def write(root: Path, data: Any, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(data).encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return root


def shakespeare(root: Path) -> Path:
    """A folder with roles.json.gz, in lines of four words and speeches of three lines."""
    roles = {}
    for role in SIZES:
        words = said(role).split()
        lines = [" ".join(words[j : j + 4]) for j in range(0, len(words), 4)]
        roles[role] = [lines[j : j + 3] for j in range(0, len(lines), 3)]
    return write(root, roles, "shakespeare/roles.json.gz")


def texts_of(source: Source, client: int, test: bool) -> list[str]:
    rows = np.flatnonzero(source.client == client)
    rows = rows[(rows >= source.test_from) == test]
    return [text.decode(source.X[row]) + text.decode(source.y[row : row + 1]) for row in rows]


def test_a_role_is_a_client_and_its_windows_are_cut_in_time_and_thinned(tmp_path: Path) -> None:
    source, thin = (load(name, shakespeare(tmp_path)) for name in ("shakespeare", "shakespeare(7)"))
    assert source.client_names == ("HAMLET", "GHOST")  # the servant has no window
    assert (source.vocabulary, source.X.dtype) == (text.CHARACTERS, np.uint8)
    for k, role in enumerate(source.client_names):
        ends = int(0.8 * (SIZES[role] - 80))
        assert texts_of(source, k, False) == windows(role)[:ends]
        assert texts_of(source, k, True) == windows(role)[ends + 80 :]  # no character in common
        for test in (False, True):
            assert texts_of(thin, k, test) == texts_of(source, k, test)[::7]
    assert thin.name == "shakespeare(7)"
    found = split("natural", source, min_rows=300)
    assert found.names == ("HAMLET",)
    assert found.batch(found.train.rows_of(0)).X.dtype == np.uint8
    with pytest.raises(ConfigError, match=r"scaling=unit is for numbers.*holds codes"):
        split("natural", source, scaling="unit")


def test_leafs_json_is_read_as_well_in_one_part_or_two(tmp_path: Path) -> None:
    roles = ("HAMLET", "GHOST")
    entries = {
        r: {"x": [w[:80] for w in windows(r)], "y": [w[80] for w in windows(r)]} for r in roles
    }
    data = {"users": [*roles], "num_samples": [420, 220], "user_data": entries}
    one = load("shakespeare", write(tmp_path / "a", data, "shakespeare/all_data.json"))
    assert one.sha256 == load("shakespeare", shakespeare(tmp_path)).sha256
    for part in ("train", "test"):
        write(tmp_path / "b", data, f"shakespeare/{part}/data.json")
    parts = load("shakespeare", tmp_path / "b")
    assert (parts.test_from, len(parts.y)) == (640, 1280)


def test_the_statistics_of_the_plays(real: Path) -> None:
    roles = texts.read_roles(real / "shakespeare" / "roles.json.gz")
    sizes = np.array([len(user.y) for user in roles])
    both = f"{sizes.mean():,.0f} ± {sizes.std():,.0f}"
    for number in (f"{len(sizes):,}", f"{sizes.sum():,}", both):
        assert number.replace(",", " ") in (texts.__doc__ or "")


# ---- Sent140 ----------------------------------------------------------------------------------------

ANN = [("so happy!", 1), ("So sad", 0), ("happy happy", 1), ("rain, again", "0"), ("sunshine", 4)]
BOB = [("sad again", 0), ("fine", 1)]


def tweets(**users: list[tuple[str, Any]]) -> dict[str, Any]:
    """LEAF's Sent140: id, date, query, user, tweet[, part]."""
    data = {
        name: {
            "x": [["1", "Mon", "NO_QUERY", name, t, *["training"][: len(t) % 2]] for t, _ in rows],
            "y": [label for _, label in rows],
        }
        for name, rows in users.items()
    }
    sizes = [len(rows) for rows in users.values()]
    return {"users": list(users), "num_samples": sizes, "user_data": data}


def test_words_of_the_training_part_alone_are_known(tmp_path: Path) -> None:
    write(tmp_path, tweets(ann=ANN[:2], cy=[]), "sent140/train/data.json")
    write(tmp_path, tweets(ann=ANN[2:], bob=BOB), "sent140/test/data.json")
    source = load("sent140(length=3)", tmp_path)
    assert source.vocabulary == ("so", "!", "happy", "sad", "·")
    assert source.test_from == 2
    assert source.X.tolist() == [
        [0, 2, 1], [0, 3, 5],  # so happy !, so sad
        [2, 2, 5], [4, 4, 4], [4, 5, 5],  # happy happy, rain , again, sunshine
        [3, 4, 5], [4, 5, 5],
    ]  # fmt: skip
    assert source.y.tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert source.client_names == ("ann", "bob")


def test_one_file_is_cut_in_time_before_words_are_counted(tmp_path: Path) -> None:
    (tmp_path / "sent140").mkdir()
    put_json(tmp_path / "sent140", tweets(ann=ANN, bob=BOB))
    source, few = (load(name, tmp_path) for name in ("sent140", "sent140(vocabulary=2)"))
    assert source.test_from == 5  # 4 of ann's, 1 of bob's
    assert source.client.tolist() == [0, 0, 0, 0, 1, 0, 1]
    assert {"rain", "sunshine"} & {*source.vocabulary} == {"rain"}
    assert source.X.shape == (7, 25)
    assert few.vocabulary == ("happy", "again", "·")
    assert load("sent140", tmp_path, vocabulary=2).sha256 == few.sha256
