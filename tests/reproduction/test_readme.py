"""README.md of the results: every number and verdict in it is that of a claim, or of a cell."""

import re

import pytest

from reproduce import default_out
from reproduce.cells import read_cells
from reproduce.claims import Judgement, count_verdicts, judge_claims
from reproduce.runs import read_spec
from reproduce.writing import Values, show_number, show_values

ROOT = default_out().parent
README = (ROOT / "README.md").read_text("utf-8")
FO, FEMNIST = "τ = 10, α = 0.001", "FEMNIST's rule, digits"
SYNTHETIC = "Synthetic(1, 1), 90 % stragglers"
FEMNIST50 = f"{FEMNIST}, 50 % support"
STEPS = "a few gradient steps fit θ to each client's data:"
#: A line of the table: what it begins with → (report, what its claim begins with, place, method).
TABLE = {
    "FO and HF are almost": ("per-fedavg", "FO and HF are almost", f"MNIST, {FO}", "FO"),
    "they are best at": ("per-fedavg", "FO and HF are best", f"MNIST, {FO}", "FO"),
    "a smaller τ": ("per-fedavg", "a smaller τ lowers", "MNIST, τ = 4, α = 0.001", "FO"),
    "a larger α": ("per-fedavg", "a larger α", "MNIST, τ = 10, α = 0.01", "FO"),
    "FO is better than": ("per-fedavg", "FO is better than FedAvg", "MNIST, τ = 4, α = 0.001", "FO"),
    "FO is more accurate": ("per-fedavg", "FO is more", "MNIST, τ = 10, α = 0.01", "FO"),
    "at least 3.23": ("fedmeta", "FedMeta is at least", f"{FEMNIST}, 20 % support", "MAML"),
    "converges faster": ("fedmeta", "Figure 2: FedMeta converges faster", FEMNIST, "MAML"),
    "converges more stably": ("fedmeta", "Figure 2: FedMeta converges more", FEMNIST, "MAML"),
    "sends less": ("fedmeta", "FedMeta sends less", FEMNIST, "Meta-SGD"),
    "computes less": ("fedmeta", "FedMeta computes less", FEMNIST, "MAML"),
    "a k-way head": ("fedmeta", "a k-way", FEMNIST, "MAML"),
    "converges better": ("fedprox", "FedProx converges better", SYNTHETIC, ""),
    "is more stable": ("fedprox", "FedProx is more stable", SYNTHETIC, ""),
    "the proximal term makes": ("fedprox", "the proximal term makes unfinished", SYNTHETIC, ""),
    "dropping": ("fedprox", "dropping stragglers", SYNTHETIC, ""),
    "merely": ("fedprox", "merely", SYNTHETIC, ""),
    "the proximal term helps": ("fedprox", "the proximal term helps", SYNTHETIC, ""),
    "a few steps": ("fedmaml", f"{STEPS} acc", "Vehicle, s = 5", ""),
    "the same by test loss": ("fedmaml", f"{STEPS} test", "Vehicle, s = 5", ""),
    "the adapted": ("fedmaml", "the adapted θ eases heterogeneity: acc", "Vehicle, s = 5", ""),
    "by test loss (below": ("fedmaml", "the adapted θ eases heterogeneity: test", "Vehicle, s = 5", ""),
    "less communication": ("fedmaml", "less communication", "Vehicle, s = 1", ""),
    "the highest": ("apfl", "APFL has the highest average", "MNIST", "literal"),
    "very near": ("apfl", "APFL comes very near", "MNIST", "literal"),
    "generalises": ("apfl", "APFL generalises", "MNIST", "literal"),
    "hardly any": ("apfl", "APFL needs hardly", "MNIST", "literal"),
    "most clients": ("apfl", "most clients benefit: % with a higher", "MNIST", "literal"),
    "converges more smoothly": ("apfl", "APFL converges more smoothly", "MNIST", "literal"),
}  # fmt: skip
#: A number in a sentence → (report, place, method, quantity), or a claim as above with its sign.
CELLS = {
    "86.93 ± 0.77": ("per-fedavg", ("MNIST", FO), "Per-FedAvg (FO)", "accuracy"),
    "65.40 ± 0.09": ("fedprox", ("Synthetic-IID", "0 % stragglers"), "FedProx, μ = 1", "accuracy"),
    "83.69 ± 0.11": ("fedprox", ("Synthetic-IID", "0 % stragglers"), "FedProx, μ = 0", "accuracy"),
}
CLAIMS = {
    "6.75 ± 0.96": ("per-fedavg", "a larger α", "MNIST, τ = 10, α = 0.01", "HF", 1),
    "5.53 ± 3.10": ("fedmeta", "FedMeta is at least", FEMNIST50, "MAML", 1),
    "2.02 ± 0.48": ("fedmeta", "FedMeta ends at a higher accuracy than FedAvg(M", FEMNIST50, "MAML", -1),
    "18.56 ± 1.98": ("fedprox", "FedProx converges better", SYNTHETIC, "", 1),
    "0.0631 ± 0.0092": ("fedmaml", f"{STEPS} test", "Vehicle, s = 5", "", -1),
    "6.42 ± 0.42": ("apfl", "the same, MNIST", "MNIST", "", 1),
    "10.33 ± 0.31": ("apfl", "the same, FEMNIST", FEMNIST, "", 1),
    "0.88 ± 0.61": ("apfl", "Figure 1: APFL above", "Vehicle", "", 1),
    "0.01 ± 0.00": ("apfl", "the penalty against forgetting makes APFL better", FEMNIST, "literal", 1),
    "1.51 ± 0.00": ("apfl", "APFL needs hardly", "MNIST", "literal", 1),
}  # fmt: skip
JUDGED = {
    name: judge_claims(read_spec(name), read_cells(default_out() / name / "cells.csv"))
    for name in ("per-fedavg", "fedmeta", "fedprox", "fedmaml", "apfl")
}


def judgements(report: str, what: str) -> list[Judgement]:
    found = [one for one in JUDGED[report] if one.claim.what.startswith(what)]
    return [one for one in found if one.claim == found[0].claim]


def number(report: str, what: str, place: str, method: str) -> tuple[Values, int]:
    """Return the first number of a claim in a place, of the method whose name has this part."""
    found = [
        (f.values, one.claim.digits)
        for one in judgements(report, what)
        for f in one.decisive
        if ", ".join(filter(None, f.place)).startswith(place) and method in f.method
    ]
    return found[0]


def rows() -> dict[str, list[str]]:
    """Return the lines of the table of claims: the first cell → the others."""
    part = README.partition("## The headline claims")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in part.split("\n") if line.startswith("| ")]
    return {row[0]: row[1:] for row in found[2:] if not row[0].startswith("**")}


@pytest.mark.parametrize("start", TABLE)
def test_a_line_of_the_table_is_what_was_measured(start: str) -> None:
    ((paper, ours, said),) = [cells for what, cells in rows().items() if what.startswith(start)]
    values, digits = number(*TABLE[start])
    assert ours == show_values(values, digits)
    counts = count_verdicts(judgements(*TABLE[start][:2]))
    verdicts = r"(holds|contradicted|undecided|not judged)(?: in (?:all |both of )?(\d+))?"
    assert {verdict: int(n or 1) for verdict, n in re.findall(verdicts, said)} == counts
    told = judgements(*TABLE[start][:2])[0].claim.paper
    if start == "a larger α":  # of two numbers that the text prints
        printed = read_spec("per-fedavg")["paper"]
        places = [printed[f"MNIST, τ = 10, α = {x}"]["accuracy"] for x in ("0.01", "0.001")]
        told = show_number(places[0]["Per-FedAvg (FO)"] - places[1]["Per-FedAvg (FO)"])
    assert paper == "–" or paper in told


@pytest.mark.parametrize("text", [*CELLS, *CLAIMS])
def test_a_number_in_a_sentence_is_what_was_measured(text: str) -> None:
    if text in CELLS:
        report, *key = CELLS[text]
        assert show_values(read_cells(default_out() / report / "cells.csv").get(*key)) == text
    else:
        *which, sign = CLAIMS[text]
        values, digits = number(*which)
        assert show_values(values._replace(mean=sign * values.mean), digits) == text


def test_it_is_short_and_nothing_else_in_it_is_a_number_of_claims() -> None:
    prose = README.partition("## The headline claims")[0]
    assert {*re.findall(r"[\d.]+ ± [\d.]+", prose)} == {*CELLS, *CLAIMS}
    assert len(README.splitlines()) <= 120
    assert len(rows()) == len(TABLE)
    assert max(sum(row[0] == name for row in TABLE.values()) for name in JUDGED) <= 6
    judged = [one for own in JUDGED.values() for one in own if one.claim.is_judged]
    counts = count_verdicts([one for one in judged if not one.claim.apart])
    said = f"{counts.total()} judgements|{counts['holds']} hold|{counts['contradicted']} are contra"
    assert len(re.findall(rf"\b(?:{said})", README)) == 3
