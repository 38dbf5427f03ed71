"""Each known mistake is an edit that fits the specification as it stands, and shows in a golden case."""

import numpy as np
import pytest

from fedref.conformance import errata, vectors
from fedref.conformance.errata import Edit, ErratumError
from fedref.judge import answer
from fedref.judge.compare import difference

CASES = sorted(vectors.read(), key=lambda case: case.model["d"])


@pytest.mark.parametrize("name", errata.MISTAKES)
def test_a_mistake_moves_a_golden_case(name):
    """By more than 100 tolerances; and its right texts stand where, and as often as, they say."""
    assert errata.judge_with(name)
    for case in (case for case in CASES if name in case.catches):
        for output, x in errata.answer(case, name).items():
            want = case.outputs.get(output)
            if want is not None and want.dtype.kind == "f":
                assert np.shape(x) == want.shape
                if not difference(np.asarray(x), want) <= 100 * case.tolerance["float64"]:
                    return
    raise AssertionError(f"{name}: no golden case shows it")


def test_without_a_mistake_it_is_the_judge():
    for case in [case for case in CASES if case.call == "round"][:10]:
        for name, x in errata.answer(case).items():
            np.testing.assert_allclose(x, answer(case)[name], rtol=1e-9, atol=1e-12)


def test_a_reformatted_line_is_an_error(monkeypatch):
    mistake = errata.MISTAKES["μ/2 in the place of μ"]
    for edit in (Edit("mu/2 *", "mu / 4 *"), mistake.edits[0]._replace(times=2)):
        monkeypatch.setitem(errata.MISTAKES, "odd", mistake._replace(edits=(edit,)))
        errata.judge_with.cache_clear()
        with pytest.raises(ErratumError, match="in one file"):
            errata.judge_with("odd")


@pytest.mark.parametrize(
    "block",
    ["no tag\n    why\n-   a\n+   b", "a [b]\n    why", "a [b] (odd)\n    why\n-   a\n+   b",
     "a [b]\n    why\n-   a\n+   b\n*   c"],
)  # fmt: skip
def test_a_text_in_another_form_is_an_error(block):
    with pytest.raises(ErratumError):
        errata.parse(block)


def test_names_and_sentences():
    """Sorted by nothing but their paper; each has a sentence, and wrong ones are most."""
    mistakes = errata.MISTAKES.values()
    assert len(mistakes) >= 130
    assert all(mistake.why.endswith(".") for mistake in mistakes)
    assert sum(mistake.kind == "wrong" for mistake in mistakes) > 100
