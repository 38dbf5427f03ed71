"""FedProx's report: one line a place, and what is compared there."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from reproducing import claims_in, judge_lines

from fedref import run
from fedref.experiments.results import Run
from reproduce import catalogue
from reproduce.claims import Place
from reproduce.measures import at_point, average, change
from reproduce.tables import spread

STRAGGLERS = catalogue.find("fedprox-stragglers").module


@pytest.fixture(scope="module")
def found() -> Run:
    prox = {"algorithm": "fedprox", "lr": 0.1, "weighting": "uniform"}
    table = {
        "data": {"name": "digits"},
        "split": {"rule": "shards", "users": 10, "shards": 2},
        "clients-per-round": 4,
        "dissimilarity": True,
        "epochs": 2,
        "algorithms": {
            "fedavg": {"lr": 0.1, "weighting": "uniform", "drop": True},
            "fedprox-mu0": {**prox, "mu": 0.0},
            "fedprox-mu1": {**prox, "mu": 1.0},
        },
        "sweep": {"stragglers": [0.0, 0.5, 0.9]},
    }
    return run(table, rounds=4)


def places_of(found: Run) -> list[Place]:
    """The same run as every data set."""
    made: list[Place] = STRAGGLERS.places_of(dict.fromkeys(STRAGGLERS.SETS, found))
    return made


def test_unrest_is_the_mean_change_between_evaluations_of_the_second_half(found: Run) -> None:
    (record,) = found.records_of("fedprox-mu0", stragglers=0.5)
    *_, a, b, c = (row["accuracy"] for row in record.rows)  # of rounds 0 to 4
    expected = 100 * (abs(b - a) + abs(c - b)) / 2
    part = next(place.run.run for place in places_of(found) if place.setting == "50 %")
    assert change(part, "fedprox-mu0").tolist() == [pytest.approx(expected)]


def test_each_claim_is_judged_in_every_place_that_it_speaks_of(found: Run) -> None:
    places, claims = places_of(found), claims_in("fedprox-stragglers")
    counts = {
        "stragglers": 8, "no stragglers": 4, "heterogeneous": 9, "slow and heterogeneous": 6, "gamma": 0,
    }  # fmt: skip
    assert Counter(kind for place in places for kind in place.kinds) == Counter(counts)
    iid = [place.kinds for place in places if "IID" in place.name]
    assert iid == [["no stragglers"], ["stragglers"], ["stragglers"]]
    assert {kind for claim in claims for kind in claim.places} == counts.keys()
    text = judge_lines(claims, places)
    assert len(text.splitlines()) == sum(counts[kind] for c in claims for kind in c.places)
    for words, label in (
        ("dropping stragglers hurts", "fedavg"),
        ("unfinished models hurts", "fedprox-mu0"),
    ):  # less without any
        late, none = (at_point(found, stragglers=share) for share in (0.9, 0.0))
        fell = average(late, label) - average(none, label)
        (line,) = [x for x in text.splitlines() if words in x and "(1, 1), 90 %" in x]
        assert line.startswith(f"- {'Holds' if fell < -2.5 else 'Contradicted'} (below −2.5)")
        assert f"− without {spread(fell)} points" in line


@pytest.mark.parametrize(
    ("words", "other", "column", "scale", "digits", "unit"),
    [
        ("same by the training loss", "fedavg", "train_loss", 1, 3, "of training loss"),
        ("nearer to the global model", "fedprox-mu0", "variance", 1, 2, "of variance, last round"),
        ("makes unfinished work safe", "", "accuracy", 100, 2, "points of final accuracy"),
    ],
)
def test_what_is_subtracted(
    words: str, other: str, column: str, scale: int, digits: int, unit: str, found: Run
) -> None:
    """Another method at the same share of stragglers, or the same without any."""
    text = judge_lines(claims_in("fedprox-stragglers"), places_of(found))
    (line,) = [x for x in text.splitlines() if words in x and "(1, 1), 90 %" in x]
    late, none = (at_point(found, stragglers=share) for share in (0.9, 0.0))
    base = late.curve(other, column) if other else none.curve("fedprox-mu1", column)
    values = scale * (late.curve("fedprox-mu1", column)[1] - base[1])[:, -1]
    assert f" {spread(values, digits)} {unit}." in line


def test_stability_is_judged_at_every_round_or_not_at_all(found: Run) -> None:
    seldom = Run(replace(found.experiment, eval_every=2), found.units, found.records)
    text = judge_lines(claims_in("fedprox-stragglers"), places_of(seldom))
    lines = [line for line in text.splitlines() if "more stable" in line]
    assert len(lines) == 9 + 6
    assert all(line.startswith("- Not judged: ") for line in lines)
    assert lines[0].endswith("; evaluated every 2 rounds only.")
    assert "*; FedProx, μ = 1 − FedAvg (drops stragglers) " in lines[0]
    assert "*; FedProx, μ = 1 − FedProx, μ = 0 " in lines[-1]


def test_where_values_lie() -> None:
    assert STRAGGLERS.span(np.array([0.0, 0.04])) == "at 0.0 in every seed"
    assert STRAGGLERS.span([0.2, 0.1]) == "between 0.1 and 0.2"
