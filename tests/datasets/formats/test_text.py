"""Characters and words as codes, and windows of them."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedref.datasets.formats import text

known = st.text(st.sampled_from(text.ALPHABET), max_size=60)
lines = st.text(st.sampled_from("ab \n"), max_size=60)


@given(known, st.text(st.characters(codec=None, categories=["L", "S", "Cs"])))
def test_codes_are_places_in_leafs_alphabet_and_any_other_character_has_one(
    words: str, odd: str
) -> None:
    assert len(text.ALPHABET) == len(set(text.ALPHABET)) == 80
    assert text.decode(text.codes(words)) == words
    expected = [text.ALPHABET.find(c) % (text.OTHER + 1) for c in words + odd]
    assert text.codes(words + odd).tolist() == expected  # −1 mod 81 is 80
    assert text.decode(np.array([text.OTHER, text.PADDING])) == "·"  # padding is no character


@given(st.lists(known), st.integers(1, 30))
def test_encode_cuts_and_pads_at_the_end(texts: list[str], length: int) -> None:
    found = text.encode(texts, length)
    assert found.dtype == np.uint8
    for row, words in zip(found, texts):
        n = min(len(words), length)
        assert text.decode(row) == words[:length]
        assert (row[:n] < text.PADDING).all()
        assert (row[n:] == text.PADDING).all()


@given(known | lines, st.integers(1, 10))
def test_windows_are_leafs_loop(words: str, length: int) -> None:
    X, y = text.windows(words, length)
    raw_text = re.sub(r"   *", " ", words.replace("\n", " "))  # as LEAF's shake_utils.py has it
    before = [raw_text[i : i + length] for i in range(len(raw_text) - length)]
    assert [text.decode(row) for row in X] == before
    assert text.decode(y) == raw_text[length:]
    assert (X.shape, X.dtype, y.dtype) == ((len(before), length), np.uint8, np.int64)


def test_the_vocabulary_is_the_most_frequent_words_and_others_have_one_code() -> None:
    said = ["b a c", "B, a b", "z z z z"]
    assert text.vocabulary_of(said, 3) == ("z", "b", "a", "·")  # ties by the alphabet
    assert text.vocabulary_of(said, 100) == ("z", "b", "a", ",", "c", "·")
    found = text.encode_words(["A b, x!", "y", "", "b b b b b b"], ("a", "b", ",", "·"), 5)
    assert found.tolist() == [[0, 1, 2, 3, 3], [3, 4, 4, 4, 4], [4] * 5, [1] * 5]


@pytest.mark.parametrize(("most", "dtype"), [(254, np.uint8), (255, np.uint16)])
def test_codes_take_the_smallest_type_that_also_holds_padding(most: int, dtype: type) -> None:
    vocabulary = text.vocabulary_of([f"w{i}" for i in range(400)], most)
    found = text.encode_words(["w1"], vocabulary, 2)
    assert found.dtype == dtype
    assert found[0, 1] == len(vocabulary) == most + 1
