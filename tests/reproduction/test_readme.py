"""README.md of the results: every number in its sentences stands in a row of the reports' pages."""

import re
from functools import cache

import numpy as np
import pytest

from reproduce import default_out
from reproduce.cells import read_cells
from reproduce.pages import make_readme, read_headlines
from reproduce.pictures import GREY, colour_of, margins_beyond

OUT = default_out()
README = (OUT.parent / "README.md").read_text("utf-8")
FINAL, READING = (
    "τ = 10, α = 0.01 | Per-FedAvg (HF)",
    "τ = 10, α = 0.01; β = α, Glorot | Per-FedAvg",
)
META = "FedMeta ends at a higher accuracy than FedAvg(Meta)", "50 % support"
PROX = "| Synthetic(1, 1), 90 % stragglers"
STEPS = "a few gradient steps fit θ to each client's data: test loss"
#: A number in a sentence → its report, and what else is in its row there.
NUMBERS = {
    "18.56 ± 2.43": ("fedprox", "| FedProx converges better", PROX),
    "15.50 ± 2.90": ("fedprox", "| unfinished models are worth", PROX),
    "3.06 ± 0.53": ("fedprox", "| the proximal term helps", PROX),
    "65.40 ± 0.11": ("fedprox", "| Synthetic-IID | 0 % stragglers | FedProx, μ = 1"),
    "83.69 ± 0.13": ("fedprox", "| Synthetic-IID | 0 % stragglers | FedProx, μ = 0"),
    "6.42 ± 0.51": ("apfl", "| MNIST | APFL, literal"), "6.01": ("apfl", "| MNIST | APFL, literal"),
    "6.38": ("apfl", "| MNIST | seed 0 | APFL, literal"),
    "5.64": ("apfl", "| MNIST | the split of seed 1 | APFL, literal"),
    "9.67": ("apfl", "| MNIST | the split of seed 2 | APFL, literal"),
    "10.33 ± 0.38": ("apfl", "| FEMNIST's rule, digits | APFL, literal"),
    "30.42": ("apfl", "| FEMNIST's rule, digits | APFL, literal"),
    "0.88 ± 0.75": ("apfl", "| Vehicle | APFL, literal"), "5.41": ("apfl", "| Vehicle | APFL, literal"),
    "27.25": ("apfl", "| CIFAR-10, grey | APFL, literal"),
    "10.26": ("apfl", "| CIFAR-10, grey | APFL, literal"),
    "0.01 ± 0.00": ("apfl", "| the penalty against forgetting makes APFL better", "| FEMNIST"),
    "1.51 ± 0.00": ("apfl", "| APFL needs hardly", "| MNIST"),
    "28.93 ± 2.64": ("apfl", "| most clients benefit: % with a higher", "| MNIST"),
    "3.23": ("fedmeta", "| FedMeta is at least", "| above 3.23"),
    "5.53 ± 3.79": ("fedmeta", "| FedMeta is at least", "50 % support"),
    "2.02 ± 0.59": ("fedmeta", *META, "FedMeta (MAML) −"),
    "0.75 ± 0.77": ("fedmeta", *META, "FedMeta (MAML, epochs)"),
    "93.69 ± 1.19": ("per-fedavg", FINAL), "60.12": ("per-fedavg", FINAL),
    "6.75 ± 1.17": ("per-fedavg", "| a larger α lowers", "| MNIST, τ = 10"),
    "29.23": ("per-fedavg", "| a larger α lowers", "−13.33 to −29.23"),
    "0.12 ± 0.05": ("per-fedavg", "| FO is better in all settings even", "τ = 4, α = 0.001"),
    "74.25 ± 0.58": ("per-fedavg", f"{READING} (FO)"), "70.22": ("per-fedavg", f"{READING} (FO)"),
    "59.23 ± 0.26": ("per-fedavg", f"{READING} (HF)"),
    "0.0631 ± 0.0112": ("fedmaml", f"| {STEPS}", "| Vehicle, s = 5"),
}  # fmt: skip
SETTINGS = {"0.01", "0.001"}


@cache
def rows_of(report: str) -> list[str]:
    """Return the rows of a report's page and of the page of all claims, a claim's text in each."""
    rows, claim = list[str](), ""
    for page in (OUT / report / "README.md", OUT / "claims.md"):
        for line in page.read_text("utf-8").splitlines():
            claim = claim if line.startswith("| 〃") else line.partition(" | ")[0]
            rows.append(line.replace("| 〃", claim))
    return rows


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_in_a_sentence_is_what_was_measured(number: str) -> None:
    report, *parts = NUMBERS[number]
    alone = re.compile(rf"(?<![\d.]){number}(?!\d)")
    assert any(alone.search(row) and all(p in row for p in parts) for row in rows_of(report))


def test_it_is_short_and_its_sentences_have_no_other_number() -> None:
    sentences = re.sub(r"^\|.*\n|\]\([^)]*\)", "", README, flags=re.MULTILINE)
    assert {*re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", sentences)} == {*NUMBERS} | SETTINGS
    assert len(README.splitlines()) <= 130
    results = README.partition("## Ten results")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", results, re.MULTILINE)) <= 10


def test_whole_numbers_in_its_sentences() -> None:
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


def test_it_is_a_function_of_the_cells() -> None:
    assert make_readme(*read_headlines(OUT)) == README


def test_a_headline_is_one_claim_and_its_dots_are_on_the_side_of_their_verdicts() -> None:
    found, _ = read_headlines(OUT)
    assert len({(one.row["report"], one.claim.what) for one in found}) == len(found)
    for one in found:
        assert (one.row["paper"] == "a word") == (not one.row["number"])
        if one.row["number"] and "a larger α" not in one.claim.what:  # of two numbers printed
            assert one.row["paper"] in one.claim.paper
        for f in one.findings:
            x, verdict = margins_beyond(one.claim, f, f.values.mean), f.judge(one.claim)
            assert (x > 1) == (verdict == "holds")  # NaN of one seed
            if "our size" in verdict:
                assert colour_of(one, f) == GREY
