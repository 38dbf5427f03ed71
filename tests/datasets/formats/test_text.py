"""Characters as codes, and windows of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedref.datasets.formats import text

known = st.text(st.sampled_from(text.ALPHABET), max_size=60)
lines = st.text(st.sampled_from("ab \n"), max_size=60)


def test_the_alphabet_is_leafs() -> None:
    assert len(text.ALPHABET) == len(set(text.ALPHABET)) == 80


@given(known)
def test_codes_are_places_in_the_alphabet(words: str) -> None:
    assert text.codes(words).tolist() == [text.ALPHABET.index(c) for c in words]
    assert text.decode(text.codes(words)) == words


@given(st.text(st.characters(codec=None, categories=["L", "S", "Cs"])))
def test_any_other_character_has_one_code(words: str) -> None:
    expected = [text.ALPHABET.find(c) % (text.OTHER + 1) for c in words]
    assert text.codes(words).tolist() == expected  # −1 mod 81 is 80


@given(st.lists(known), st.integers(1, 30))
def test_encode_cuts_and_pads(texts: list[str], length: int) -> None:
    for row, words in zip(text.encode(texts, length), texts):
        assert text.decode(row) == words[:length].ljust(length, "·")


def single_spaced(line: str) -> str:
    while "  " in line:
        line = line.replace("  ", " ")
    return line


@given(known | lines, st.integers(1, 10))
def test_windows_are_leafs_loop(words: str, length: int) -> None:
    X, y = text.windows([words], length)
    before, after = [], ""
    for line in words.split("\n"):
        said = single_spaced(line) + "\n"
        before += [(" " * length + said)[i : i + length] for i in range(len(said))]
        after += said
    n = len(after) - 1  # split sees one line break more than there is
    assert [text.decode(row) for row in X] == before[:n]
    assert text.decode(y) == after[:n]
    assert X.shape == (n, length)
    assert (X.dtype, y.dtype) == (np.uint8, np.int64)
