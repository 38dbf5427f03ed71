"""The rule that judges claims: its verdicts, its lines, and claims.csv."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reproducing  # noqa: F401  it imports the package reproduce

from reproduce.claims import (
    Claim,
    Place,
    claim_lines,
    group_by_place,
    judge,
    read_claims,
    report_claims,
    verdict,
)

METHODS = {"a": "A", "b": "B", "c": "C", "n": "N", "x": "X"}


def at(values: dict[str, list[float]], name: str = "there", **more: Any) -> Place:
    return Place("key", name, {m: np.array(x) for m, x in values.items()}, METHODS, **more)


def claim(text: str = "It is larger", of: str = "a", **more: Any) -> Claim:
    return Claim(text, lambda place, m: place.run[m], tuple(of), **more)


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        ([3.0, 4.0, 5.0], {"above": 0}, "holds"),
        ([-3.0, -4.0, -5.0], {"above": 0}, "contradicted"),
        ([3.0, 4.0, -5.0], {"above": 0}, "undecided"),  # the seeds disagree
        ([1.0, 4.0, 1.0], {"above": 0}, "undecided"),  # 2 ± 1.41: two standard errors are 2
        ([1.2, 4.0, 1.2], {"above": 0}, "holds"),  # 2.13 ± 1.32: they are 1.87
        ([4.0] * 20 + [-0.1], {"above": 0}, "undecided"),  # one seed of many is on the other side
        ([-4.0] * 20 + [0.1], {"above": 0}, "undecided"),
        ([4.0] * 20 + [-0.1], {"below": 0}, "undecided"),
        ([4.0], {"above": 0}, "undecided"),  # one seed
        ([4.0], {"above": 0, "margin": "none"}, "holds"),
        ([4.0], {"below": 0, "margin": "none"}, "contradicted"),
        ([0.0, 0.0], {"above": 0, "margin": "none"}, "undecided"),  # rounding is no difference
        ([1e-10, 1e-10], {"above": 0}, "undecided"),
        ([3.9] * 3, {"above": 0, "rows": 100}, "undecided"),  # four rows of 100
        ([4.1] * 3, {"above": 0, "rows": 100}, "holds"),
        ([3.9] * 3, {"above": 0, "rows": 100, "margin": "seeds"}, "holds"),
        ([3.9] * 3, {"above": 0, "clients": 100, "margin": "clients"}, "undecided"),
        ([3.9] * 3, {"above": 0, "clients": 100}, "holds"),
        ([0.5, -0.5, 0.0], {"above": -2, "below": 2}, "holds"),
        ([2.5, 1.5, 2.0], {"above": -2, "below": 2}, "undecided"),
        ([5.0, 4.5, 5.5], {"above": -2, "below": 2}, "contradicted"),
        ([-5.0, -4.5, -5.5], {"above": -2, "below": 2}, "contradicted"),
        ([np.nan, 4.0, 4.0], {"above": 0}, "undecided"),
    ],
)
def test_the_rule(values: list[float], more: dict[str, Any], expected: str) -> None:
    sizes = {key: more.pop(key) for key in ("rows", "clients") if key in more}
    assert verdict(judge([claim(**more)], [at({"a": values}, **sizes)])) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(1, 1, "holds"), (1, -1, "contradicted"), (1, 0, "undecided"), (-1, 0, "contradicted")],
)
def test_every_method_of_a_claim_counts(a: float, b: float, expected: str) -> None:
    found = judge([claim(of="ab", above=0)], [at({"a": [a] * 3, "b": [b] * 3})])
    assert verdict(found) == expected
    assert verdict([]) == "not judged"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"above": 0}, "- Undecided (above 0; 2 seeds, margin 2.00): *It is larger, there*; A 2.00 ±"),
        ({"above": 0, "below": 3, "unit": "%", "digits": 0}, "(above 0 and below 3; 2 seeds, margin"),
        ({"above": 0, "unit": "%", "digits": 0}, "A 2 ± 1 %."),
        ({"above": 0, "of": "n"}, "- Undecided (above 0; 2 seeds, margin 0.00): *It is larger, there*; N –"),
        ({"above": 0, "margin": "none"}, "- Holds (above 0; counted): *It"),
        ({"above": 0, "beside": "c", "note": lambda place: "so"}, "points; beside it, C −2.00 ± 0.00; so."),
        ({"above": 0, "note": lambda place: place.name}, "points; there."),
        ({"above": -1.5, "to": "b"}, "margin 2.00): *It is larger, there*; A −1.00 ± 1.00 points."),
        ({"above": 0, "to": "cb"}, "A −1.00 ± 1.00 points."),  # the best of them
        ({"above": 0, "to": "cb", "sign": -1}, "A −4.00 ± 1.00 points."),  # where less is better
        ({"above": 0, "to": "b", "times": True}, "A 0.67 ± 0.33 points."),
        ({"above": 0, "to": "b", "times": True, "sign": -1}, "A 2.00 ± 1.00 points."),
        ({"above": 0, "called": "the first"}, "the first 2.00 ± 1.00 points."),
    ],
)  # fmt: skip
def test_a_line_says_verdict_limit_margin_and_numbers(more: dict[str, Any], line: str) -> None:
    values = {"a": [1.0, 3.0], "b": [3.0, 3.0], "c": [-2.0, -2.0], "n": [np.nan] * 2}
    assert line in claim_lines(judge([claim(**more)], [at(values)]))


def test_a_line_a_place_or_one_for_all_of_a_key() -> None:
    places = [
        at({"a": [x], "c": [-x]}, name, setting=f"E = {x:g}") for x, name in ((1, "p"), (2, "q"))
    ]
    places.append(at({"a": [5.0], "c": [0.0]}, "else")._replace(key="other"))
    lines = claim_lines(judge([claim(above=1)], places)).splitlines()
    assert [line.split("*")[1] for line in lines] == [
        f"It is larger, {x}" for x in ("p", "q", "else")
    ]
    both = [claim(above=1, places=["key"], together=True, beside="c")]
    same = [place._replace(name="p") for place in places]
    assert claim_lines(judge(both, same)) == (
        "- Undecided (above 1; one seed): *It is larger, p*; E = 1 1.00, E = 2 2.00 points; beside "
        "it, C, E = 1 −1.00, C, E = 2 −2.00."
    )


def test_what_cannot_be_judged_says_why() -> None:
    there = at({"a": [1.0], "b": [2.0]})
    absent = judge([claim(of="ab", above=0, needs="x")], [there._replace(absent=["c", "x", "b"])])
    line = "- Not judged: *It is larger, there*; not run: B, X."
    assert claim_lines(absent) == line
    doubtful = there._replace(doubts=["nobody knows"], seldom="evaluated seldom")
    for each_round, why in ((False, "nobody knows"), (True, "nobody knows; evaluated seldom")):
        found = judge([claim(of="ab", above=0, each_round=each_round)], [doubtful])
        assert verdict(found) == "not judged"
        assert claim_lines(found) == (
            f"- Not judged: *It is larger, there*; A 1.00, B 2.00 points; {why}."
        )


def test_a_claim_may_have_a_doubt_of_its_own() -> None:
    places = [at({"a": [1.0]}, "here"), at({"a": [1.0]}, "there")]
    doubted = claim(above=0, doubt=lambda place: "too easy" * (place.name == "here"))
    lines = claim_lines(judge([doubted], places)).splitlines()
    assert lines[0] == "- Not judged: *It is larger, here*; A 1.00 points; too easy."
    assert lines[1] == "- Undecided (above 0; one seed): *It is larger, there*; A 1.00 points."


@pytest.mark.parametrize(("mean", "expected"), [(-4.2201, "undecided"), (-4.2401, "holds")])
def test_rounded_numbers_need_a_wider_margin(mean: float, expected: str) -> None:
    """−4.22 ± 1.21 of three seeds: two standard errors are 1.71, and −2.5 − 1.71 is −4.21."""
    (made,) = judge([claim(below=-2.5)], [at({"a": [1.0, 2.0, 3.0]})])
    rounded = made._replace(mean=round(mean, 2), sd=1.21, each="")
    assert rounded.judge() == expected
    kept = f"{mean - 1.4819} {mean} {mean + 1.4819}"
    assert rounded._replace(each=kept).judge() == "holds"


def test_a_file_of_claims_is_read_back_as_it_was(tmp_path: Path) -> None:
    rows = [
        claim(of="ab", above=0.0, beside="c", note=lambda place: '"so", it is'),
        claim("It costs", above=1.0, margin="none"),
        claim("It is seen", below=1.0, each_round=True),
    ]
    values = {"a": [0.1, 0.3], "b": [np.nan, 0.2], "c": [1.0, 2.0]}
    found = judge(rows, [at(values, rows=195, seldom="seldom")])
    found += judge([claim("It ran", needs="x")], [at(values, absent=["x"])])
    lines = report_claims(found, tmp_path)
    back = read_claims(tmp_path / "claims.csv")
    assert repr(back) == repr(found)  # NaN is not equal to itself
    assert claim_lines(back) == lines
    assert len(group_by_place(back)) == len(lines.splitlines()) == 4
    assert read_claims(tmp_path / "nothing.csv") == []
