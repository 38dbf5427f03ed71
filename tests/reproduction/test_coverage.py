"""The table of everything in the papers: what papers.toml lists, and verdicts that sections give."""

from pathlib import Path

import pytest
from reproducing import command

from fedref.boundary.errors import DataError
from fedref.reproduction import catalogue, claim, coverage, not_judged

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


def results(tmp_path: Path, *lines: str) -> Path:
    out = tmp_path / "results"
    (out / "tiny").mkdir(parents=True)
    (out / "tiny" / "table.md").write_text("\n".join(["# Tiny: α = 1, a (b)", "", *lines]))
    (tmp_path / "papers.toml").write_text(PAPERS)
    return out


def verdicts(tmp_path: Path, *lines: str) -> list[str]:
    table = coverage.table(tmp_path, results(tmp_path, *lines))
    return [line.split(" | ")[-1].removesuffix(" |") for line in table.splitlines()[2:]]


def test_verdicts_are_those_that_the_sections_give(tmp_path: Path) -> None:
    lines = [
        claim("It holds, here", {"a": [1.0, 2.0]}, above=0),
        claim("It holds, there", {"a": [1.0, -2.0]}, above=0),
        claim("It does not", {"a": [-1.0]}, above=0, detail="*It holds* is another"),
    ]
    assert verdicts(tmp_path, *lines) == [
        "holds in 1 of 2 places",
        "does not hold; one seed",
        "a picture",
        "not here: nobody knows",
        "not run here: `fedref reproduce elsewhere`",
    ]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 2.0], "holds (2 places)"),
        ([-1.0, -1.0], "does not hold (2 places)"),
        ([1.0], "holds (2 places); one seed"),
    ],
)
def test_all_places_agree(values: list[float], verdict: str, tmp_path: Path) -> None:
    lines = [claim(f"It holds, {where}", {"a": values}, above=0) for where in "ab"]
    assert verdicts(tmp_path, *lines)[0] == verdict


def test_what_has_one_seed_and_what_is_not_judged_is_counted_apart(tmp_path: Path) -> None:
    lines = [
        claim("It holds, here", {"a": [1.0, 2.0]}, above=0),
        claim("It holds, there", {"a": [-1.0]}, above=0),
        not_judged("It holds, elsewhere", "nobody was there"),
        not_judged("It does", "nor here"),
    ]
    assert verdicts(tmp_path, *lines)[:2] == [
        "holds in 1 of 2 places; 1 of them with one seed; 1 not judged",
        "not judged",
    ]


def test_a_claim_that_several_sections_judge(tmp_path: Path) -> None:
    out = results(tmp_path, claim("It holds, here", {"a": [1.0, 2.0]}, above=0))
    (out / "more").mkdir()
    there = claim("It holds, there", {"a": [-1.0, 2.0]}, above=0)
    (out / "more" / "table.md").write_text(f"# More\n\n{there}")
    papers = tmp_path / "papers.toml"
    papers.write_text(PAPERS.replace('"tiny"', '["tiny", "more", "missing"]'))
    row = coverage.table(tmp_path, out).splitlines()[2]
    assert row.endswith("](#tiny-α--1-a-b), [More](#more) | holds in 1 of 2 places |")


def test_a_claim_that_older_results_do_not_judge(tmp_path: Path) -> None:
    assert verdicts(tmp_path, "- Holds: *Something else*; 1 point.")[0].startswith("not judged in ")


def test_sections_are_linked_as_their_headings_are_named(tmp_path: Path) -> None:
    table = coverage.table(tmp_path, results(tmp_path))
    assert "| [Tiny: α = 1, a (b)](#tiny-α--1-a-b) | a picture |" in table


def test_the_readme_begins_with_it(tiny: Path) -> None:
    (catalogue.root() / "papers.toml").write_text(PAPERS)
    assert command("tiny", "--out", tiny) == 0
    readme = (tiny.parent / "README.md").read_text()
    assert readme.index("| Two | a figure | [Tiny](#tiny) | a picture |") < readme.index("## Tiny")


def test_an_item_that_says_two_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "papers.toml").write_text(PAPERS + 'because = "and not here"\n')
    with pytest.raises(DataError, match=r"papers.toml: .* is not understood, expected paper, what"):
        coverage.items(tmp_path)


def test_every_item_names_a_reproduction_and_a_claim_of_its_report() -> None:
    found = coverage.items(catalogue.root())
    assert {item["paper"] for item in found} == {
        "Per-FedAvg",
        "FedMeta",
        "FedProx",
        "FedMAML",
        "APFL",
    }
    uses = {"apfl-cifar10": ["apfl-figure-1", "apfl-figure-2"]}  # made by the others' functions
    for item in found:
        if "because" in item:
            continue
        for section in coverage.sections(item):
            folders = [catalogue.find(name).folder for name in uses.get(section, [section])]
            source = "".join((folder / "report.py").read_text("utf-8") for folder in folders)
            assert item.get("claim", "")[:10] in source, item


def test_every_reproduction_of_a_paper_is_listed() -> None:
    listed = {s for item in coverage.items(catalogue.root()) for s in coverage.sections(item)}
    papers = {
        name
        for name in catalogue.names()
        if not catalogue.find(name).said("PAPER", "").startswith("No paper")
    }
    assert papers <= listed
