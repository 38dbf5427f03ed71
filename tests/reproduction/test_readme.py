"""README.md of the results: every number in its sentences stands in a row of the reports' pages."""

import re
from functools import cache

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from reproduce import RESULTS
from reproduce.cells import read_cells
from reproduce.claims import verdict_words
from reproduce.pages import fill_verdicts, make_readme, read_headlines
from reproduce.pictures import BY_OUR_SIZE, COLOUR, colour_of, margins_beyond

OUT = RESULTS
README = (OUT.parent / "README.md").read_text("utf-8")
FINAL = "τ = 10, α = 0.01 | Per-FedAvg (HF)"
NUMBER = r"\d+\.\d+(?: ± \d+\.\d+)?"
#: Numbers in sentences that are settings and sizes of the text.
SETTINGS = {"0.01", "0.001"}


@cache
def rows_of(report):
    """Return the rows of a report's page and of the page of all claims."""
    pages = (OUT / report / "README.md", OUT / "claims.md")
    return [row for page in pages for row in page.read_text("utf-8").splitlines() if row[:1] == "|"]


#: The sentences of each result, with the report that they lead to; those below the results have the others.
RESULTS = re.findall(r"^\d+\. (.*?)\(\[page\]\(results/(\S+)/README", README, re.M | re.S)
BELOW = README.partition("## The headline claims")[2].partition("\n|")[0]


@pytest.mark.parametrize(
    ("text", "reports"),
    [*((text, [report]) for text, report in RESULTS), (BELOW, ["per-fedavg", "apfl"])],
)
def test_a_number_in_a_sentence_is_what_was_measured(text, reports):
    rows = [row for report in reports for row in rows_of(report)]
    for number in {*re.findall(NUMBER, text)} - SETTINGS:
        alone = re.compile(rf"(?<![\d.]){number}(?!\d)")
        assert any(map(alone.search, rows)), number


def test_it_is_short_and_its_sentences_have_no_other_number():
    sentences = re.sub(r"^\|.*\n|\]\([^)]*\)", "", README, flags=re.MULTILINE)
    held = {number for text in (BELOW, *dict(RESULTS)) for number in re.findall(NUMBER, text)}
    assert {*re.findall(NUMBER, sentences)} == held
    assert len(README.splitlines()) <= 130
    results = README.partition("## Ten results")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", results, re.MULTILINE)) == len(RESULTS) <= 10


def test_whole_numbers_in_its_sentences():
    cells, ours = read_cells(OUT / "apfl" / "cells.csv"), "APFL, literal init"
    names, keys = (ours, f"{ours}, less less accurate"), dict.fromkeys(p for p, *_ in cells.all)
    pairs = ([cells.get(place, name, "more accurate") for name in names] for place in keys)
    more, above = np.array([[x.mean for x in pair if x] for pair in pairs if all(pair)]).T
    gain = 100 * more / (2 * more - above)
    assert len(gain) == 4
    assert f"{(more - above)[1]:.0f} % lose it" in README  # MNIST
    assert f"{gain.min():.0f} to {gain.max():.0f} % gain" in README
    final = next(row for row in rows_of("per-fedavg") if FINAL in row)
    assert f"up to {float(final.split(' | ')[5]):.0f} points from the printed" in README


def test_it_is_a_function_of_the_cells():
    assert make_readme(*read_headlines(OUT)) == README


def test_a_headline_is_one_claim_and_its_dots_are_on_the_side_of_their_verdicts():
    found, _ = read_headlines(OUT)
    assert len({(one.row["report"], one.claim.what) for one in found}) == len(found)
    for one in found:
        assert (one.row["paper"] == "a word") == (not one.row["number"])
        if one.row["number"] and "a larger α" not in one.claim.what:  # of two numbers printed
            assert one.row["paper"] in one.claim.paper
        for f in one.findings:
            x, verdict = margins_beyond(one.claim, f, f.values.mean), f.decide(one.claim)
            assert (x > 1) == (verdict == "holds")  # NaN of one seed
            assert COLOUR[verdict if verdict in COLOUR else BY_OUR_SIZE] == colour_of(one, f)
        judged = [f for j in one.judged if not j.why_not for f in j.decisive]
        assert one.findings == judged  # a dot for each method that is judged
    assert len({*COLOUR.values()}) == len(COLOUR)


def test_verdicts_in_sentences_are_those_of_the_claims():
    judged = {"r": [j for j in read_headlines(OUT)[1]["fedprox"] if j.claim.is_decided]}
    text = fill_verdicts("a {r: FedProx converges better} b", judged)
    assert text == f"a {verdict_words(judged['r'][:6], ' in ')} b"
    for words in ("{r: FedProx}", "{r: nobody said so}"):
        with pytest.raises(ConfigError, match="no single claim"):
            fill_verdicts(words, judged)
    intro = README.partition("<picture>")[0]
    assert intro.count("FedProx converges") == 0
    assert len(re.findall("holds|undecided|contradicted|larger than our size", intro)) >= 11


def test_of_the_six_gains_of_fedprox_the_proximal_term_is_the_larger_part_in_two():
    cells = read_cells(OUT / "fedprox" / "cells.csv")
    both = {}
    for base in ("FedProx, μ = 0 − FedAvg (drops stragglers)", "FedProx, μ = 1 − FedProx, μ = 0"):
        for at in (p for p in cells.places if "IID" not in p[0] and p[1][:2] in ("50", "90")):
            both.setdefault(at, []).append(cells.get(at, base, "average").mean)
    assert [work < term for work, term in both.values()].count(True) == 2
    assert len(both) == 6
    assert "the larger part of it in four places, the proximal term in two" in README
