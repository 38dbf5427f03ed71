"""The rule that judges claims, and the table of everything in the papers that reads its verdicts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproducing import command

from fedref.boundary.errors import DataError
from reproduce import catalogue
from reproduce.claims import Claim, Place, coverage, items_of, judge, not_judged, sections_of

METHODS = {"a": "A", "b": "B", "c": "C", "x": "X"}


def at(values: dict[str, list[float]], name: str = "here", **more: Any) -> Place:
    return Place("key", name, {m: np.array(x) for m, x in values.items()}, METHODS, **more)


def claim(text: str = "It is larger", of: str = "ab", **more: Any) -> Claim:
    return Claim(text, lambda place, m: place.run[m], tuple(of), **more)


def verdict(values: dict[str, list[float]], of: str = "a", **more: Any) -> str:
    return judge([claim(of=of, **more)], [at(values)])


def test_a_claim_holds_if_every_seed_of_every_method_does() -> None:
    values = {"a": [0.5, 2.0], "b": [3.0, 3.0]}
    assert verdict(values, "ab", above=0) == (
        "- Holds (every seed above 0): *It is larger, here*; A 1.25 ± 0.75, B 3.00 ± 0.00 points."
    )
    assert verdict(values, "ab", above=0.5).startswith("- Does not hold (every seed above 0.5)")
    assert verdict({"a": [1.0, np.nan]}, above=0).startswith("- Does not hold")
    assert verdict({}, "", above=0).startswith("- Does not hold")
    assert verdict({"a": [1e-10]}, above=0).startswith(
        "- Does not hold (one seed: above 0)"
    )  # rounding


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"above": 0, "below": 3, "unit": "%", "digits": 0}, "every seed above 0 and below 3"),
        ({"above": 0, "unit": "%", "digits": 0}, "A 2 ± 1 %."),
        ({"above": 0, "beside": "c", "note": "so"}, "points; beside it, C −2.00 ± 0.00; so."),
        ({"above": 0, "note": lambda place: place.name}, "points; here."),
        ({"below": 4, "show": lambda x, digits: f"about {x[0]:g}"}, "A about 1 points."),
        ({"above": -1.5, "to": "b"}, "above −1.5): *It is larger, here*; A −1.00 ± 1.00 points."),
        ({"above": 0, "to": "cb"}, "A −1.00 ± 1.00 points."),  # the best of them
        ({"above": 0, "to": "cb", "sign": -1}, "A −4.00 ± 1.00 points."),  # where less is better
        ({"above": 0, "to": "b", "times": True}, "A 0.67 ± 0.33 points."),
        ({"above": 0, "to": "b", "times": True, "sign": -1}, "A 2.00 ± 1.00 points."),
        ({"above": 0, "called": "the first"}, "the first 2.00 ± 1.00 points."),
    ],
)  # fmt: skip
def test_what_a_row_says(more: dict[str, Any], line: str) -> None:
    assert line in verdict({"a": [1.0, 3.0], "b": [3.0, 3.0], "c": [-2.0, -2.0]}, **more)


def test_a_line_a_place_or_one_for_all_of_a_key() -> None:
    places = [
        at({"a": [x], "c": [-x]}, name, setting=f"E = {x:g}") for x, name in ((1, "p"), (2, "q"))
    ]
    places.append(at({"a": [5.0], "c": [0.0]}, "else")._replace(key="other"))
    lines = judge([claim(of="a", above=1)], places).splitlines()
    assert [line.split("*")[1] for line in lines] == [
        f"It is larger, {x}" for x in ("p", "q", "else")
    ]
    both = [claim(of="a", above=1, places=["key"], together=True, beside="c")]
    assert judge(both, places) == (
        "- Does not hold (one seed: above 1): *It is larger, p*; E = 1 1.00, E = 2 2.00 points; beside "
        "it, C, E = 1 −1.00, C, E = 2 −2.00."
    )


def test_what_cannot_be_judged_says_why() -> None:
    there = at({"a": [1.0], "b": [2.0]})
    assert judge([claim(above=0, needs=["x"])], [there._replace(absent=["c", "x", "b"])]) == (
        "- Not judged: *It is larger, here*; not run to the end: B, X."
    )
    doubtful = there._replace(doubts=["nobody knows", "measured: {}"])
    line = "- Not judged: *It is larger, here*; nobody knows; measured: A 1.00, B 2.00 points."
    assert judge([claim(above=0)], [doubtful]) == line
    nan = doubtful._replace(run={"a": np.array([np.nan]), "b": np.array([1.0])})
    assert judge([claim(above=0)], [nan]).endswith("*; nobody knows.")
    rare = doubtful._replace(seldom="seldom: {} in all")
    assert judge([claim(above=0, each_round=True)], [rare]).endswith(
        "; seldom: A 1.00, B 2.00 points in all."
    )
    assert judge([claim(above=0)], [rare]) == line


# ---- the table of everything in the papers -------------------------------------------------------

PAPERS = """\
[[item]]
paper = "One"
what = "a thing"
section = "tiny"
claim = "It holds"

[[item]]
paper = "One"
what = "another"
section = "tiny"
claim = "It does"

[[item]]
paper = "Two"
what = "a figure"
section = "tiny"
shows = "a picture"

[[item]]
paper = "Two"
what = "privacy"
because = "nobody knows"

[[item]]
paper = "Two"
what = "a table"
section = "elsewhere"
shows = "numbers"
"""


def says(text: str, *values: float, note: str = "") -> str:
    return judge([claim(text, "a", above=0, note=note)], [at({"a": list(values)})])


def results(tmp_path: Path, *lines: str) -> Path:
    out = tmp_path / "results"
    (out / "tiny").mkdir(parents=True)
    (out / "tiny" / "table.md").write_text("\n".join(["# Tiny: α = 1, a (b)", "", *lines]))
    (tmp_path / "papers.toml").write_text(PAPERS)
    return out


@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        (
            [
                says("It holds", 1.0, 2.0), says("It holds, too", 1.0, -2.0),
                says("It does not", -1.0, note="*It holds* is another"),
            ],
            ["holds in 1 of 2 places", "does not hold; one seed"],
        ),
        ([says("It holds", 1.0, 2.0)] * 2, ["holds (2 places)"]),
        ([says("It holds", -1.0, -1.0)] * 2, ["does not hold (2 places)"]),
        ([says("It holds", 1.0)] * 2, ["holds (2 places); one seed"]),
        (
            [
                says("It holds", 1.0, 2.0), says("It holds", -1.0),
                not_judged("It holds, elsewhere", "nobody was there"), not_judged("It does", "nor here"),
            ],
            ["holds in 1 of 2 places; 1 of them with one seed; 1 not judged", "not judged"],
        ),
        (["- Holds: *Something else*; 1 point."], ["not judged in the results at hand"]),
        (
            [says("It holds", 1.0)],
            [
                "holds; one seed", "not judged in the results at hand", "a picture",
                "not here: nobody knows", "not run here: `fedref reproduce elsewhere`",
            ],
        ),
    ],
)  # fmt: skip
def test_verdicts_are_those_that_the_sections_give(
    lines: list[str], verdicts: list[str], tmp_path: Path
) -> None:
    rows = coverage(tmp_path, results(tmp_path, *lines)).splitlines()[2:]
    found = [row.split(" | ")[-1].removesuffix(" |") for row in rows]
    assert found[: len(verdicts)] == verdicts


def test_a_claim_that_several_sections_judge(tmp_path: Path) -> None:
    out = results(tmp_path, says("It holds", 1.0, 2.0))
    (out / "more").mkdir()
    (out / "more" / "table.md").write_text(f"# More\n\n{says('It holds', -1.0, 2.0)}")
    papers = tmp_path / "papers.toml"
    papers.write_text(PAPERS.replace('"tiny"', '["tiny", "more", "missing"]'))
    row = coverage(tmp_path, out).splitlines()[2]
    assert row.endswith(
        "[Tiny: α = 1, a (b)](#tiny-α--1-a-b), [More](#more) | holds in 1 of 2 places |"
    )


def test_the_readme_begins_with_it(tiny: Path) -> None:
    (catalogue.root() / "papers.toml").write_text(PAPERS)
    assert command("tiny", "--out", tiny) == 0
    readme = (tiny.parent / "README.md").read_text()
    assert readme.index("| Two | a figure | [Tiny](#tiny) | a picture |") < readme.index("## Tiny")


def test_an_item_that_says_two_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "papers.toml").write_text(PAPERS + 'because = "and not here"\n')
    with pytest.raises(DataError, match=r"papers.toml: .* is not understood, expected paper, what"):
        items_of(tmp_path)


def claims_in(name: str) -> list[Claim]:
    """Every claim that stands as a row in a report.py, at its top or in a tuple there."""
    found = []
    for value in vars(catalogue.find(name).module).values():
        rows = value if type(value) is tuple else [value]
        found += [row for row in rows if isinstance(row, Claim)]
    return found


def test_every_claim_of_a_report_has_one_row_in_papers_toml() -> None:
    """And every claim there is one of its section's; where CIFAR-10 is meant, it is its section, too."""
    items = [item for item in items_of(catalogue.root()) if "claim" in item]
    made_elsewhere = ("apfl-ablations", "apfl-cifar10")  # their rows need the runs
    for name in catalogue.names():
        own = [item for item in items if name in sections_of(item)]
        claims = claims_in(name)
        if name in made_elsewhere:
            continue
        for one in claims:
            (item,) = (item for item in own if f"{one.text}, ".startswith(item["claim"]))
            if name in ("apfl-figure-1", "apfl-figure-2"):
                cifar10 = not one.places or "cifar10" in one.places
                assert ("apfl-cifar10" in sections_of(item)) == cifar10, one.text
        for item in own:
            assert any(f"{one.text}, ".startswith(item["claim"]) for one in claims), item


def test_every_reproduction_of_a_paper_is_listed() -> None:
    items = items_of(catalogue.root())
    assert {item["paper"] for item in items} == {
        "Per-FedAvg",
        "FedMeta",
        "FedProx",
        "FedMAML",
        "APFL",
    }
    listed = {section for item in items for section in sections_of(item)}
    assert listed <= set(catalogue.names())
    ours = {name for name in catalogue.names() if catalogue.find(name).paper.startswith("No paper")}
    assert set(catalogue.names()) - ours <= listed
