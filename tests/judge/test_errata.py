"""Each known mistake is an edit that fits the specification as it stands, and shows in a golden case."""

from importlib import import_module
from types import SimpleNamespace

import golden
import numpy as np
import pytest

from fedref.judge import answer, errata
from fedref.judge.compare import difference
from fedref.judge.errata import Edit, ErratumError

CASES = sorted(golden.CASES, key=lambda case: case.model["d"])


def moves(name, case):
    """Whether the mistake moves an output of the case by more than 100 tolerances."""
    answers = errata.answer(case, name)
    both = [(np.asarray(x), case.outputs[key]) for key, x in answers.items() if key in case.outputs]
    least = 100 * case.tolerance["float64"]
    return any(
        np.shape(x) != want.shape or not difference(x, want) <= least
        for x, want in both if want.dtype.kind == "f"
    )  # fmt: skip


def test_the_right_texts_of_a_mistake_stand_where_and_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr(
        errata, "run", lambda *_, **__: SimpleNamespace(answer=answer)
    )  # no compiling
    for name in errata.MISTAKES:
        assert errata.build_judge(name)
        assert sum(name in case.catches for case in CASES) >= 2, name
        assert errata.MISTAKES[name].why.endswith("."), name


#: One in eight, and with -m slow all.
SOME = {*list(errata.MISTAKES)[::8]}
ALL = [pytest.param(x, marks=[pytest.mark.slow] * (x not in SOME)) for x in errata.MISTAKES]


@pytest.mark.parametrize("name", ALL)
def test_two_golden_cases_catch_a_mistake(name):
    assert all(moves(name, case) for case in [case for case in CASES if name in case.catches][:2])


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


def test_modules_that_are_made_can_be_looked_up_and_name_no_mistake():
    """torch.compile finds a function's globals by the name of its module."""
    judge = errata.build_judge(errata.Mistake("as it is", "", "", "", ()))
    for module in (judge, judge.spec):
        assert import_module(module.__name__) is module
        assert "mistake" not in module.__name__
