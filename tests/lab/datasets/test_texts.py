"""Text as codes: characters, windows and words; Shakespeare's roles and Sent140's tweets."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from dataset_files import leaf_object, put, put_json
from hypothesis import given
from hypothesis import strategies as st

from fedref import ConfigError
from fedref.lab.datasets import load, split, texts

known = st.text(st.sampled_from(texts.ALPHABET), max_size=60)
lines = st.text(st.sampled_from("ab \n"), max_size=60)


@given(known | lines, st.integers(1, 10), st.characters(categories=["L", "S", "Cs"]))
def test_codes_and_windows_are_leafs(words, length, odd):
    X, y = texts.windows(words, length)
    raw_text = re.sub(r"   *", " ", words.replace("\n", " "))  # as LEAF's shake_utils.py has it
    before = [raw_text[i : i + length] for i in range(len(raw_text) - length)]
    assert [texts.decode(row) for row in X] == before
    assert texts.decode(y) == raw_text[length:]
    assert (X.shape, X.dtype, y.dtype) == ((len(before), length), np.uint8, np.int64)
    expected = [texts.ALPHABET.find(c) % 81 for c in words + odd]  # −1 mod 81 is 80
    assert texts.codes(words + odd).tolist() == expected
    assert texts.decode(np.array([80, 81])) == "·"  # padding is no character


def test_codes_of_words_have_the_smallest_type_that_holds_padding_too():
    for most, dtype in ((254, np.uint8), (255, np.uint16)):
        vocabulary = texts.vocabulary_of([f"w{i}" for i in range(400)], most)
        found = texts.encode_words(["w1"], vocabulary, 2)
        assert (found.dtype, found[0, 1]) == (dtype, most + 1)


SIZES = {"HAMLET": 500, "GHOST": 300, "SERVANT": 80}


def said(role):
    """The characters of a role: words, none of them at the ends a space."""
    n, rng = SIZES[role], np.random.default_rng(SIZES[role])
    words = " ".join(rng.choice(["to", "be", "or", "not", "question", "whether", "slings"], n))
    return words[: n - 1].rstrip().ljust(n - 1, "x") + "!"


def texts_of(source, client, test):
    rows = np.flatnonzero(source.client == client)
    rows = rows[(rows >= source.test_from) == test]
    return [texts.decode(source.X[row]) + texts.decode(source.y[row : row + 1]) for row in rows]


def test_a_role_is_a_client_and_its_windows_are_cut_in_time_and_thinned(tmp_path):
    roles = {role: [[word] for word in said(role).split()] for role in SIZES}
    put(tmp_path, "shakespeare/roles.json.gz", gzip.compress(json.dumps(roles).encode()))
    source, thin = (load(name, tmp_path) for name in ("shakespeare", "shakespeare(7)"))
    assert source.client_names == ("HAMLET", "GHOST")  # the servant has no window
    assert (source.vocabulary, source.X.dtype) == (texts.CHARACTERS, np.uint8)
    for k, role in enumerate(source.client_names):
        windows = [said(role)[i : i + 81] for i in range(SIZES[role] - 80)]
        ends = int(0.8 * len(windows))
        assert texts_of(source, k, False) == windows[:ends]
        assert texts_of(source, k, True) == windows[ends + 80 :]  # no character in common
        for test in (False, True):
            assert texts_of(thin, k, test) == texts_of(source, k, test)[::7]
    assert thin.name == "shakespeare(7)"
    found = split("natural", source, min_rows=300)
    assert found.names == ("HAMLET",)
    assert found.batch(found.train.rows_of(0)).X.dtype == np.uint8
    with pytest.raises(ConfigError, match=r"scaling=unit is for numbers.*holds codes"):
        split("natural", source, scaling="unit")


def test_the_statistics_of_the_plays(real):
    sizes = [len(user.y) for user in texts.read_roles(real / "shakespeare" / "roles.json.gz")]
    page = (Path(__file__).resolve().parents[3] / "data" / "README.md").read_text("utf-8")
    for number in (len(sizes), sum(sizes)):
        assert f"{number:,}".replace(",", " ") in page


def tweets(**users):
    """LEAF's Sent140: id, date, query, user, tweet[, part]."""

    def entry(name, rows):
        x = [["1", "Mon", "NO_QUERY", name, t, *["training"][: len(t) % 2]] for t, _ in rows]
        return x, [label for _, label in rows]

    return leaf_object(**{name: entry(name, rows) for name, rows in users.items()})


def test_words_of_the_training_part_alone_are_known(tmp_path):
    ann = [("so happy!", 1), ("So sad", 0)]
    later = [("happy happy", 1), ("rain, again", "0"), ("sunshine", 4)]
    put_json(tmp_path, tweets(ann=ann, cy=[]), "sent140/train/data.json")
    bob = [("sad again", 0), ("fine", 1)]
    put_json(tmp_path, tweets(ann=later, bob=bob), "sent140/test/data.json")
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
    few = load("sent140", tmp_path, vocabulary=1)
    assert (few.vocabulary, few.X.shape) == (("so", "·"), (7, 25))
    assert few.sha256 == load("sent140(vocabulary=1)", tmp_path).sha256
