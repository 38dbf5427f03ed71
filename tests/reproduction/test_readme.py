"""README.md of the results: its tables are read off papers.toml and the results, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproducing import command

from fedref.boundary.errors import DataError
from reproduce import catalogue, readme
from reproduce.claims import (
    Claim,
    Place,
    claim_lines,
    claims_of,
    group_by_place,
    judge,
    read_claims,
    read_papers,
    report_claims,
    sections_of,
)

PAPERS = """\
[notes.small]
text = "It is small."
places = ["there"]

[notes.odd]
text = "It is odd."

[[origin]]
experiment = "tiny"
text = "a"
others = "b"
ours = "c"

[[paper]]
name = "One"
title = "One (somebody)"
picture = "tiny/one.png"
caption = "A picture"
rows = [
  { what = "It holds", section = "tiny", quantity = "final", above = 0, paper = "+1" },
  { what = "It works", section = ["tiny", "more"], quantity = "average", notes = ["odd"] },
  { what = "It is so", section = "tiny", quantity = "final", above = 0, apart = "by definition" },
  { what = "numbers", section = "tiny", numbers.stem = "one", among.method = ["fedavg", "fedprox"] },
  { what = "a mean", section = "tiny", numbers = { stem = "one", method = "fedavg" }, paper = "48 ± 1" },
  { what = "a figure", section = "tiny", shows = "a picture" },
  { what = "privacy", because = "nobody knows" },
  { what = "a table", section = "elsewhere", shows = "numbers" },
]
"""
NUMBERS = """\
stem,method,paper,mean,sd,difference,each seed
one,fedavg,50,49.0,1.0,-1.0,48.0 50.0
one,fedprox,12345,51.0,0.0,1.0,51.0
"""
METHODS = {"a": "A", "b": "B"}


def findings(text: str, *places: tuple[str, list[float]], **more: Any) -> list[Any]:
    claim = Claim(text, lambda place, m: place.run, ("a",), above=0, **more)
    return judge([claim], [Place("", name, np.array(x), METHODS) for name, x in places])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The results of two reproductions."""
    (tmp_path / "papers.toml").write_text(PAPERS)
    for name in ("tiny", "more", "speedy"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "table.md").write_text(f"# {name.capitalize()}: α = 1\n")
    (tmp_path / "results/tiny/one.png").write_bytes(b"")
    (tmp_path / "results/tiny/numbers.csv").write_text(NUMBERS)
    yes, no = ("there", [1.0, 2.0]), ("afar", [-1.0, 1.0])
    report_claims(
        findings("It holds", yes)
        + findings("It holds, too", no)
        + findings("It works", no)
        + findings("It is so", yes),
        tmp_path / "results/tiny",
    )
    report_claims(findings("It works", yes, margin="none"), tmp_path / "results/more")
    return tmp_path / "results"


def test_a_line_for_everything_that_papers_toml_lists(out: Path) -> None:
    text = readme.make_readme(out.parent, out)
    assert text.startswith(readme.MARK)
    link = "](results/tiny/table.md)"
    lines = [
        f"| It holds[^small] | +1 | 1.50 ± 0.50 | 2 seeds | [holds{link} |",
        "| It works[^odd][^small] | – | afar 0.00 ± 1.00; there 1.50 ± 0.50 | 2 seeds, 2 places | "
        f"[holds 1, undecided 1{link}, [and](results/more/table.md) |",
        f"| It is so[^small] | – | 1.50 ± 0.50 | 2 seeds | [holds{link}; not counted: by definition |",
        f"| numbers | 50, 12345 | 49.00 ± 1.00, 51.00 | 2 seeds | [numbers{link} |",
        f"| a mean | 48 ± 1 | 49.00 ± 1.00 | 2 seeds | [numbers{link} |",
        f"| a figure | – | a picture | – | [shown{link} |",
        "| privacy | – | – | – | not here: nobody knows |",
        "| a table | – | – | – | not run here: `fedref reproduce elsewhere` |",
    ]
    assert "\n".join(lines) in text
    assert "\n![A picture](results/tiny/one.png)\n" in text
    assert "| tiny | a | b | c |" in text
    assert "- [Speedy: α = 1](results/speedy/table.md)\n" in text
    assert "[More" not in text.partition("## Beside")[2]
    assert text.endswith("\n[^small]: It is small.\n[^odd]: It is odd.\n")
    assert "There are 4 judgements of what" in text
    assert "holds 2, undecided 2." in text
    assert "what holds: One 2.\nApart from these 1 are not counted" in text
    assert "say why: by definition 1." in text


def test_numbers_that_the_paper_does_not_print(out: Path) -> None:
    (out / "tiny/numbers.csv").write_text(NUMBERS.replace("12345", ""))
    assert "| numbers | 50 | 49.00 ± 1.00, 51.00 |" in readme.make_readme(out.parent, out)
    (out / "tiny/numbers.csv").write_text(NUMBERS.replace("12345", "").replace(",50,", ",,"))
    assert "| numbers | – | 49.00 ± 1.00, 51.00 |" in readme.make_readme(out.parent, out)


def test_of_many_values_the_ends_are_shown_of_places_where_it_is_judged(out: Path) -> None:
    claim = Claim("It holds", lambda place, m: place.run, ("a",), above=0)
    places = [Place("", f"place {i}", np.array([i, i + 1.0]), METHODS) for i in range(-3, 4)]
    ends = [places[0]._replace(doubts=["nobody knows"]), *places[1:]]
    report_claims(judge([claim], ends), out / "tiny")
    row = next(line for line in readme.make_readme(out.parent, out).splitlines() if "| +1" in line)
    assert "| −1.50 ± 0.50 to 3.50 ± 0.50, where it is judged | 2 seeds, 7 places | [holds" in row


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('shows = "a picture"', 'shows = "a", because = "b"', "is not understood, expected what, one"),
        ('because = "nobody knows"', 'becuase = "x"', "papers.toml: .* is not understood"),
        ('notes = ["odd"]', 'notes = ["even"]', "and notes that are in"),
        ('"fedprox"]', '"fedsgd"]', "numbers.csv: has no line with .*fedsgd"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_understood(old: str, new: str, message: str, out: Path) -> None:
    papers = out.parent / "papers.toml"
    papers.write_text(papers.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        readme.make_readme(out.parent, out)


def test_it_is_written_after_every_reproduction(tiny: Path) -> None:
    (catalogue.root() / "papers.toml").write_text(PAPERS)
    assert command("tiny", "--out", tiny) == 0
    text = (tiny.parent / "README.md").read_text()
    assert "| numbers | 50, 50 | " in text
    assert "| It holds | +1 | – | no seeds, 0 places | [not judged]" in text


# ---- what is committed ---------------------------------------------------------------------------


def test_the_committed_readme_is_what_the_committed_results_give() -> None:
    root = catalogue.root()
    assert (root / "README.md").read_text("utf-8") == readme.make_readme(root, root / "results")


@pytest.mark.parametrize("name", catalogue.names())
def test_the_committed_tables_have_the_verdicts_of_the_committed_claims(name: str) -> None:
    folder = catalogue.root() / "results" / name
    table = (folder / "table.md").read_text("utf-8").splitlines()
    lines = claim_lines(read_claims(folder / "claims.csv")).splitlines()
    assert set(lines) <= set(table)
    verdicts = ("- Holds", "- Contradicted", "- Undecided", "- Not judged")
    assert len(lines) == sum(line.startswith(verdicts) for line in table)


@pytest.mark.parametrize("name", catalogue.names())
def test_every_claim_is_measured_and_every_measured_one_is_listed(name: str) -> None:
    """Its quantity and note are there: in its report, or for CIFAR-10 in those of the two figures."""
    root = catalogue.root()
    module = vars(catalogue.find(name).module)
    claims = claims_of(name, module.get("FIGURES", module))
    committed = read_claims(root / "results" / name / "claims.csv")
    assert {claim.text for claim in claims} == {
        group[0].claim for group in group_by_place(committed)
    }
    limits = {f.claim: (f.above, f.below, f.unit, f.digits) for f in committed}
    assert limits == {c.text: (c.above, c.below, c.unit, c.digits) for c in claims}
    exact = {f.claim: f.least is None for f in committed}
    assert exact == {c.text: c.margin == "none" for c in claims}


def test_every_reproduction_of_a_paper_is_listed() -> None:
    papers = read_papers(catalogue.root() / "papers.toml")["paper"]
    assert [paper["name"] for paper in papers] == [
        "Per-FedAvg", "FedMeta", "FedProx", "FedMAML", "APFL",
    ]  # fmt: skip
    listed = {section for paper in papers for row in paper["rows"] for section in sections_of(row)}
    assert listed <= set(catalogue.names())
    ours = {name for name in catalogue.names() if catalogue.find(name).paper.startswith("No paper")}
    assert set(catalogue.names()) - ours <= listed
