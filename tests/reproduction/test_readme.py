"""README.md of the results: made from the claims; every number in its sentences is one's, or a cell's."""

import re

import pytest

from reproduce import default_out
from reproduce.cells import read_cells
from reproduce.claims import judge_claims
from reproduce.pages import make_readme, read_headlines
from reproduce.pictures import GREY, colour_of, margins_beyond
from reproduce.runs import read_spec
from reproduce.writing import show_values

OUT = default_out()
README = (OUT.parent / "README.md").read_text("utf-8")
FEMNIST50 = "FEMNIST's rule, digits, 50 % support"
SYNTHETIC = "Synthetic(1, 1), 90 % stragglers"
STEPS = "a few gradient steps fit θ to each client's data: test"
IID = ("Synthetic-IID", "0 % stragglers")
READING = ("MNIST", "τ = 10, α = 0.01; β = α, Glorot")
#: A number in a sentence → (report, place, method, quantity), or (report, claim, place, method, sign).
CELLS = {
    "93.69 ± 1.19": ("per-fedavg", ("MNIST", "τ = 10, α = 0.01"), "Per-FedAvg (HF)", "accuracy"),
    "74.25 ± 0.58": ("per-fedavg", READING, "Per-FedAvg (FO)", "before adaptation, users"),
    "59.23 ± 0.26": ("per-fedavg", READING, "Per-FedAvg (HF)", "before adaptation, users"),
    "65.40 ± 0.11": ("fedprox", IID, "FedProx, μ = 1", "accuracy"),
    "83.69 ± 0.13": ("fedprox", IID, "FedProx, μ = 0", "accuracy"),
}
CLAIMS = {
    "6.75 ± 1.17": ("per-fedavg", "a larger α", "MNIST, τ = 10, α = 0.01", "HF", 1),
    "0.12 ± 0.05": ("per-fedavg", "FO is better in all settings even", "MNIST, τ = 4, α = 0.001", "", 1),
    "5.53 ± 3.79": ("fedmeta", "FedMeta is at least", FEMNIST50, "MAML", 1),
    "2.02 ± 0.59": ("fedmeta", "FedMeta ends at a higher accuracy than FedAvg(M", FEMNIST50, "MAML)", -1),
    "0.75 ± 0.77": ("fedmeta", "FedMeta ends at a higher accuracy than FedAvg(M", FEMNIST50, "epochs", 1),
    "18.56 ± 2.43": ("fedprox", "FedProx converges better", SYNTHETIC, "", 1),
    "15.50 ± 2.90": ("fedprox", "unfinished models are worth", SYNTHETIC, "", 1),
    "3.06 ± 0.53": ("fedprox", "the proximal term helps", SYNTHETIC, "", 1),
    "0.0631 ± 0.0112": ("fedmaml", STEPS, "Vehicle, s = 5", "", -1),
    "6.42 ± 0.51": ("apfl", "the same, MNIST", "MNIST", "", 1),
    "10.33 ± 0.38": ("apfl", "the same, FEMNIST", "FEMNIST", "", 1),
    "0.88 ± 0.75": ("apfl", "Figure 1: APFL above", "Vehicle", "", 1),
    "0.01 ± 0.00": ("apfl", "the penalty against forgetting makes APFL better", "FEMNIST", "literal", 1),
    "1.51 ± 0.00": ("apfl", "APFL needs hardly", "MNIST", "literal", 1),
    "28.93 ± 2.64": ("apfl", "most clients benefit: % with a higher", "MNIST", "literal", 1),
}  # fmt: skip


def test_it_is_a_function_of_the_cells() -> None:
    assert make_readme(*read_headlines(OUT)) == README


@pytest.mark.parametrize("text", [*CELLS, *CLAIMS])
def test_a_number_in_a_sentence_is_what_was_measured(text: str) -> None:
    if text in CELLS:
        report, *key = CELLS[text]
        assert show_values(read_cells(OUT / report / "cells.csv").get(*key)) == text
        return
    report, what, place, method, sign = CLAIMS[text]
    judged = judge_claims(read_spec(report), read_cells(OUT / report / "cells.csv"))
    found = [
        (one, f)
        for one in judged if one.claim.what.startswith(what)
        for f in one.findings
        if ", ".join(filter(None, f.place)).startswith(place) and method in f.method
    ]  # fmt: skip
    one, f = found[0]
    assert show_values(f.values._replace(mean=sign * f.values.mean), one.claim.digits) == text


def test_it_is_short_and_its_sentences_have_no_other_number() -> None:
    table = re.compile(r"^\|.*\n", re.MULTILINE)
    assert {*re.findall(r"[\d.]+ ± [\d.]+", table.sub("", README))} == {*CELLS, *CLAIMS}
    assert len(README.splitlines()) <= 130
    results = README.partition("## Ten results")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", results, re.MULTILINE)) <= 10


def test_a_headline_is_one_claim_and_its_dots_are_on_the_side_of_their_verdicts() -> None:
    found, _ = read_headlines(OUT)
    assert len({(one.row["report"], one.claim.what) for one in found}) == len(found)
    for one in found:
        assert (one.row["paper"] == "a word") == (not one.row["number"])
        if one.row["number"] and not one.claim.what.startswith(
            "a larger α"
        ):  # of two numbers printed
            assert one.row["paper"] in one.claim.paper
        for f in one.findings:
            x, verdict = margins_beyond(one.claim, f, f.values.mean), f.judge(one.claim)
            if verdict == "undecided":
                assert not x > 1  # NaN of one seed
            else:
                assert (x > 1) == (verdict == "holds")
            if "our size" in verdict:
                assert colour_of(one, f) == GREY
