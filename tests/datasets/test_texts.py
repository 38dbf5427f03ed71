"""Shakespeare's roles and Sent140's tweets: cut in time, thinned, their vocabulary; what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import put_json

from fedref import ConfigError, DataError
from fedref.datasets import load, split, texts
from fedref.datasets.formats import text
from fedref.rounds.federation import Source

WORDS = ["to", "be", "or", "not", "that", "question", "whether", "nobler", "in", "mind", "slings"]


def said(n: int, seed: int = 0) -> str:
    """n characters of words, none of them at the ends a space."""
    rng = np.random.default_rng(seed)
    words = " ".join(rng.choice(WORDS, n))
    return words[: n - 1].rstrip().ljust(n - 1, "x") + "!"


def new(folder: Path) -> Path:
    """The folder, made."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_roles(folder: Path, **sizes: int) -> Path:
    """roles.json.gz with so many characters a role, in lines and speeches of some words."""
    found = {}
    for i, (name, n) in enumerate(sizes.items()):
        words = said(n, i).split()
        lines = [" ".join(words[j : j + 4]) for j in range(0, len(words), 4)]
        found[name] = [lines[j : j + 3] for j in range(0, len(lines), 3)]
    (new(folder) / "roles.json.gz").write_bytes(gzip.compress(json.dumps(found).encode()))
    return folder


def shakespeare(root: Path, name: str = "shakespeare", **sizes: int) -> Source:
    write_roles(root / "shakespeare", **sizes)
    return load(name, root)


def texts_of(source: Source, client: int, part: slice) -> list[str]:
    rows = np.flatnonzero(source.client == client)
    rows = rows[rows < source.test_from] if part.stop else rows[rows >= source.test_from]
    return [text.decode(source.X[row]) + text.decode(source.y[row : row + 1]) for row in rows]


TRAIN, TEST = slice(0, 1), slice(1, None)


def test_a_role_is_a_client_and_its_windows_follow_each_other(tmp_path: Path) -> None:
    source = shakespeare(tmp_path, HAMLET=500, GHOST=300, SERVANT=80)
    assert source.client_names == ("HAMLET", "GHOST")
    assert source.vocabulary == text.CHARACTERS
    assert source.X.dtype == np.uint8
    for k, n in enumerate((500, 300)):
        words, windows = said(n, k), n - 80
        every = [words[i : i + 81] for i in range(windows)]
        ends = int(0.8 * windows)
        assert texts_of(source, k, TRAIN) == every[:ends]
        assert texts_of(source, k, TEST) == every[ends + 80 :]
    # no test window holds a training target, and one more row would
    trained = int((source.client[: source.test_from] == 0).sum())
    tested = int((source.client[source.test_from :] == 0).sum())
    assert 500 - 80 - tested == trained - 1 + 80 + 1
    thin = load("shakespeare(7)", tmp_path)
    assert thin.name == "shakespeare(7)"
    for k in (0, 1):
        for part in (TRAIN, TEST):
            assert texts_of(thin, k, part) == texts_of(source, k, part)[::7]
    with pytest.raises(ConfigError, match=r"scaling=unit is for numbers.*holds codes"):
        split("natural", source, scaling="unit")


def test_roles_with_fewer_windows_are_left_out_by_min_rows(tmp_path: Path) -> None:
    source = shakespeare(tmp_path, HAMLET=900, GHOST=300, KING=700)
    found = split("natural", source, min_rows=400)
    assert found.names == ("HAMLET", "KING")
    assert found.train.sizes.tolist() == [int(0.8 * 820), int(0.8 * 620)]
    assert found.batch(found.train.rows_of(0)).X.dtype == np.uint8
    short = split("natural", shakespeare(tmp_path, GHOST=90, HAMLET=900))  # only trains
    assert (short.train.sizes[0], short.test.sizes[0]) == (8, 0)


def test_leafs_json_is_read_as_well_cut_or_as_it_is_cut(tmp_path: Path) -> None:
    whole = shakespeare(tmp_path / "roles", HAMLET=500, GHOST=300)
    entries: dict[str, Any] = {}
    for k, (name, n) in enumerate((("HAMLET", 500), ("GHOST", 300))):
        words = said(n, k)
        x = [words[i : i + 80] for i in range(n - 80)]
        entries[name] = {"x": x, "y": [words[i + 80] for i in range(n - 80)]}
    one = {"users": list(entries), "num_samples": [420, 220], "user_data": entries}
    put_json(new(tmp_path / "leaf" / "shakespeare"), one, "all_data.json")
    assert load("shakespeare", tmp_path / "leaf").sha256 == whole.sha256
    for part in ("train", "test"):
        put_json(new(tmp_path / "parts" / "shakespeare" / part), one, "data.json")
    parts = load("shakespeare", tmp_path / "parts")
    assert (parts.test_from, len(parts.y)) == (640, 1280)


def test_the_statistics_of_the_plays(real: Path) -> None:
    sizes = np.array(
        [len(user.y) for user in texts.read_roles(real / "shakespeare" / "roles.json.gz")]
    )
    table = texts.__doc__ or ""
    for number in (len(sizes), sizes.sum()):
        assert f"{number:,}".replace(",", " ") in table
    both = f"{sizes.mean():,.0f} ± {sizes.std():,.0f}".replace(",", " ")
    assert both in table


# ---- Sent140 ----------------------------------------------------------------------------------------


def tweets(**users: list[tuple[str, int]]) -> dict[str, Any]:
    """LEAF's Sent140: id, date, query, user, tweet."""
    data = {
        name: {"x": [["1", "Mon", "NO_QUERY", name, t] for t, _ in rows], "y": [c for _, c in rows]}
        for name, rows in users.items()
    }
    sizes = [len(rows) for rows in users.values()]
    return {"users": list(users), "num_samples": sizes, "user_data": data}


ANN = [("so happy!", 1), ("So sad", 0), ("happy happy", 1), ("rain, again", 0), ("sunshine", 1)]
BOB = [("sad again", 0), ("fine", 1)]


def sent140(root: Path, name: str, **parts: dict[str, Any]) -> Source:
    for part, data in parts.items():
        put_json(new(root / "sent140" / part.strip("_")), data, "data.json")
    return load(name, root)


def test_words_of_the_training_part_alone_are_known(tmp_path: Path) -> None:
    source = sent140(
        tmp_path, "sent140(length=3)", train=tweets(ann=ANN[:2]), test=tweets(ann=ANN[2:], bob=BOB)
    )
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
    source = sent140(tmp_path, "sent140", _=tweets(ann=ANN, bob=BOB))
    assert source.test_from == 5  # 4 of ann's, 1 of bob's
    assert source.client.tolist() == [0, 0, 0, 0, 1, 0, 1]
    assert source.vocabulary is not None
    assert "rain" in source.vocabulary
    assert "sunshine" not in source.vocabulary
    assert source.X.shape == (7, 25)
    few = load("sent140(vocabulary=2)", tmp_path)
    assert few.vocabulary == ("happy", "again", "·")
    assert load("sent140", tmp_path, vocabulary=2).sha256 == few.sha256
    coded = load("sent140(characters)", tmp_path)
    assert (coded.vocabulary, coded.X.shape) == (text.CHARACTERS, (7, 140))
    assert text.decode(coded.X[0]) == "so happy!"


def test_what_holds_no_tweets_is_refused(tmp_path: Path) -> None:
    entry = {"x": [[1.0, 2.0]], "y": [0]}
    data = {"users": ["ann"], "num_samples": [1], "user_data": {"ann": entry}}
    with pytest.raises(DataError, match="'ann': x holds no tweets"):
        sent140(tmp_path, "sent140", _=data)
