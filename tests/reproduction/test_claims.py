"""The rule that judges claims, on cells made up here."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduce.cells import Cell, Cells, read_cells, write_cells
from reproduce.claims import (
    NO_EFFECT,
    Finding,
    claims_of,
    decide_claims,
    difference_name,
    pool,
    value,
    verdict_words,
)  # fmt: skip
from reproduce.claims import claim_of as claim_of_fields
from reproduce.writing import Values, show_number, show_values, values_of

#: Student's t at 97.5 %, as tables have it, by degrees of freedom.
T = {1: 12.706204736174694, 2: 4.302652729749462, 4: 2.7764451051977934}
GUARD = {"quantity": "q", "of": "b", "than": "start", "above": 0}
METHODS = {"methods": {"a": "A", "b": "B", "c": "C"}, "guards": {"it learns": GUARD}}


def spec(**claim):
    row = {"what": "x", "quantity": "q", "of": "a", "margin": "seeds", **claim}
    return {**METHODS, "claims": [row]}


def cells(**found):
    """Cells of quantity q in one place, by method; "A_r": of quantity r."""
    pairs = [(key.partition("_"), x) for key, x in found.items()]
    return Cells([Cell(("D", ""), m, q or "q", values_of(x)) for (m, _, q), x in pairs])


def verdict(claim, **found):
    return verdict_words(decide_claims(spec(**claim), cells(**found)))


UP, DOWN, FLAT, THREE = [1, 1], [-1, -1], [0, 0], ["a", "b", "c"]
TIMES = {"to": "b", "times": True, "what": "our size"}


@pytest.mark.parametrize(
    ("claim", "found", "expected"),
    [
        ({"above": 0}, {"A": [1, 1.1, 0.9]}, "holds"),
        ({"above": 0}, {"A": [1, 2, 0.1]}, "undecided"),  # t = 4.30 standard errors
        ({"above": 0}, {"A": [-1, -1.1, -0.9]}, "contradicted"),
        ({"above": 0}, {"A": [5]}, "undecided"),  # one seed
        ({"above": 0, "margin": "none"}, {"A": [5]}, "holds"),  # but counted
        ({"above": -1, "below": 1}, {"A": [0, 0.1, 0]}, "holds"),
        ({"above": -1, "below": 1}, {"A": [3, 3.1, 3]}, "contradicted"),
        ({"above": 0, "to": ["b", "c"]}, {"A": [5, 5], "B": [1, 1], "C": [6, 6]}, "contradicted"),
        ({"above": 1.4, "to": "b", "times": True}, {"A": [3, 3], "B": [2, 2]}, "holds"),
        ({"above": 1.4, "to": "b", "times": True, "sign": -1}, {"A": [2, 2], "B": [3, 3]}, "holds"),
        ({"above": 0, "than": "r"}, {"A": [1, 1], "A_r": [2, 2]}, "contradicted"),
        ({"above": 0, "to": "b"}, {"A": [1, 1, 1], "B": [0]}, "undecided"),  # the same seeds
        ({"above": 0, "unless": {"D*": "thin"}}, {"A": [1, 1]}, "not judged"),
        ({"above": 0, "to": "b"}, {"A": [1, 1]}, "not judged"),  # not measured
        ({"above": 0, "margin": "rows"}, {"A": [0.4, 0.4], "_rows tested": [1000]}, "undecided"),
        ({"above": 0, "margin": "rows"}, {"A": [0.5, 0.5], "_rows tested": [1000]}, "holds"),
        ({"above": 0, "quantity": "change"}, {"A_change": [1], "_rounds apart": [5]}, "not judged"),
        ({"above": 0, "guards": "it learns"}, {"A": [1, 1], "B": [4, 4], "B_start": [4.5, 1]}, "holds"),
        ({"above": 0, "guards": "it learns"}, {"A": [1, 1], "B": [4, 4], "B_start": [9, 9]}, "not judged"),
        ({"above": 0, "of": ["a", "b"], "to": "b"}, {"A": [1, 1], "B": [0, 0]}, "holds"),  # not b − b
        # of several methods; where all must hold, one is enough to contradict
        ({"above": 0, "of": THREE}, {"A": UP, "B": UP, "C": DOWN}, "holds for 2 of 3"),
        ({"above": 0, "of": THREE}, {"A": DOWN, "B": DOWN, "C": UP}, "contradicted for 2 of 3"),
        ({"above": 0, "of": THREE}, {"A": UP, "B": DOWN}, "undecided (holds for 1, contradicted for 1 of 2)"),
        ({"above": 0, "of": THREE}, {"A": UP, "B": FLAT}, "undecided (holds for 1 of 2)"),
        ({"above": 0, "of": THREE, "together": True}, {"A": UP, "B": UP}, "holds"),
        ({"above": 0, "of": THREE, "together": True}, {"A": UP, "B": DOWN}, "contradicted for 1 of 2"),
        # a size that is ours has a verdict of its own
        ({"above": 2}, {"A": [1, 1]}, "contradicted"),
        ({"above": 2, "what": "our size"}, {"A": [1, 1]}, "smaller than our size"),
        ({"above": 2, "what": "our size"}, {"A": [-1, -1]}, "contradicted"),
        ({"above": -1, "what": "our size"}, {"A": [-3, -3]}, "larger than our size"),
        ({"above": -1, "below": 1, "what": "our size"}, {"A": [3, 3]}, "larger than our size"),
        ({"below": 1.1, **TIMES}, {"A": [3, 3], "B": [2, 2]}, "larger than our size"),
        ({"above": 1.8, **TIMES}, {"A": [1, 1], "B": [2, 2]}, "contradicted"),
    ],
)  # fmt: skip
def test_the_rule(claim, found, expected):
    assert verdict(claim, **found) == expected


def test_the_deviation_is_pooled_over_the_places_of_a_data_set_with_its_own_t():
    each = {("D", "1"): [0.0, 2.0, 4.0], ("D", "2"): [5.0, 6.0, 7.0], ("E", ""): [1.0, 2.0]}
    found = Cells([Cell(p, "A", "q", values_of(x)) for p, x in each.items()])
    own = T[4] * np.sqrt(10 / 4) / np.sqrt(3)
    other = T[1] * np.sqrt(1 / 2) / np.sqrt(2)
    for margin in ("rows", "seeds"):
        margins = [j.findings[0].margin for j in decide_claims(spec(above=0, margin=margin), found)]
        assert margins == pytest.approx([own, own, other])


def test_the_level_holds_where_data_sets_deviate_unequally():
    """2.5 % each way without an effect, in noisy and in quiet places: 900 claims in 2 × 3 places."""
    rng, counts = np.random.default_rng(0), Counter[tuple[str, str]]()
    claims, places = 900, [(data, str(i)) for data in ("quiet", "noisy") for i in range(3)]
    for _ in range(claims):
        x = {p: values_of(rng.normal(scale=1 + 49 * (p[0] == "noisy"), size=3)) for p in places}
        found = Cells([Cell(p, "A", "q", v) for p, v in x.items()])
        counts.update(
            (j.findings[0].place[0], j.verdict) for j in decide_claims(spec(above=0), found)
        )
    for data in ("quiet", "noisy"):
        for verdict in ("holds", "contradicted"):
            assert 0.018 < counts[data, verdict] / (3 * claims) < 0.032


def test_what_no_effect_meets_counts_in_no_total():
    for claim in (
        {"below": 1},
        {"above": -1, "below": 1},
        {"below": 1.1, "times": True, "to": "b"},
    ):
        (made,) = claims_of(spec(**claim))
        assert made.apart == NO_EFFECT
    for claim in (
        {"above": 0},
        {"above": 2},
        {"below": -1},
        {"above": 1, "times": True, "to": "b"},
    ):
        (made,) = claims_of(spec(**claim))
        assert not made.apart


def test_where_there_is_no_effect_both_sides_are_as_rare_and_at_their_level():
    rng, counts = np.random.default_rng(0), Counter[str]()
    for _ in range(1000):
        x = {m: rng.normal(size=3) for m in "ABC"}
        counts[decide_claims(spec(above=0, of=["a", "b", "c"]), cells(**x))[0].verdict] += 1
        counts[f"one {decide_claims(spec(above=0), cells(A=x['A']))[0].verdict}"] += 1
    assert max(counts["holds"], counts["contradicted"]) < 10
    numbers = [rng.normal(size=3) for _ in range(3000)]
    claim = spec(above=0, of=["a", "b", "c"], together=True)
    three = [cells(**dict(zip("ABC", numbers[i : i + 3]))) for i in range(0, 3000, 3)]
    against = sum(decide_claims(claim, each)[0].verdict == "contradicted" for each in three)
    assert 12 < against < 38  # 2.5 % of 1000: one of three on this side, at 95 % for all of them
    assert 32 < counts["one holds"] + counts["one contradicted"] < 68  # 5 % of 1000


def test_settings_are_set_beside_each_other():
    places = {"τ = 4, α = 1": [1.0, 1.0], "τ = 4, α = 2": [3.0, 3.0], "τ = 8, α = 2": [4.0, 4.0]}
    found = Cells([Cell(("D", s), "A", "q", values_of(x)) for s, x in places.items()])
    for start, expected in (
        ("α = 2 → α = 1", {"D, τ = 4, α = 2": 2.0}),
        ("τ = 4, α = 1", {"D, τ = 4, α = 2": 2.0, "D, τ = 8, α = 2": 3.0}),
    ):
        judged = decide_claims(spec(above=0, start=start), found)
        assert {j.place: j.decisive[0].values.mean for j in judged} == expected
    (one,) = decide_claims(spec(above=0, together=True, at=["*α = 2"]), found)
    assert [f.place[1] for f in one.decisive] == ["τ = 4, α = 2", "τ = 8, α = 2"]


def test_a_difference_that_alone_was_kept_is_taken_and_its_margin_is_wider():
    claim = claim_of_fields({"what": "x", "quantity": "q", "of": "a", "to": "b"})
    name = difference_name("A", ["B"], claim)
    kept = Values(np.zeros(0), 0.02, 0.004, 3)
    found = Cells([Cell(("D", ""), name, "q", kept)])
    assert value(claim, found, ("D", ""), "a", METHODS) == kept
    ((one,),) = (j.findings for j in decide_claims(spec(above=0, to="b"), found))
    assert one.margin == pytest.approx(T[2] * (0.004 + 0.005) / np.sqrt(3) + 0.005)
    both = Cells([Cell(("D", ""), m, "q", kept) for m in "AB"])
    unknown = value(claim, both, ("D", ""), "a", METHODS)  # not to be said of rounded numbers
    assert unknown is not None
    assert np.isnan(unknown.mean)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=5), st.floats(-5, 5), st.floats(0, 3))
def test_a_claim_and_its_contrary_never_both_hold(each, limit, least):
    one = Finding(("D", ""), "A", "q", values_of(each), least, 2)
    one = one._replace(pooled=pool(one, [one]))
    claim = claim_of_fields({"what": ""})
    above, below = (one.decide(claim._replace(**{k: limit})) for k in ("above", "below"))
    assert {above, below} in ({"holds", "contradicted"}, {"undecided"})
    if above == "holds":
        assert one.values.mean - one.margin > limit


#: (setting, a number a seed) of some cells.
NUMBER = st.floats(-1e9, 1e9) | st.sampled_from([np.nan, np.inf])
MADE = st.lists(st.tuples(st.text("ab, =", max_size=4), st.lists(NUMBER, max_size=3)), min_size=1)


@given(made=MADE)
def test_cells_are_read_as_they_were_written(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.csv"
    kept = Cell(("D", "kept"), "A", "q", Values(np.zeros(0), 1.25, 0.5, 3), "a note")
    written = Cells([kept, *(Cell(("D", s), "A", "q", values_of(x)) for s, x in made)])
    write_cells(path, written)
    text, read = path.read_bytes(), read_cells(path)
    assert [*read.all] == [*written.all]
    for one, other in zip(read.all.values(), written.all.values()):
        np.testing.assert_array_equal(one.values.each, other.values.each)
        np.testing.assert_array_equal(one.values[1:], other.values[1:])
    write_cells(path, read)
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (show_number(-0.001), "0.00"), (show_number(-1.005, 1), "−1.0"), (show_number(2, 1, "+"), "+2.0"),
        (show_number(0.00123, -2), "1.2e-03"), (show_number(None), "–"),
        (show_values(values_of([1, 3])), "2.00 ± 1.41"), (show_values(values_of([1])), "1.00"),
        (show_values(values_of([1, 3, np.inf]), 1), "2.0 ± 1.4 (2 of 3 seeds)"),
        (show_values(values_of([np.inf] * 2)), "never gets there"), (show_values(values_of([])), "–"),
        (show_values(values_of([np.nan] * 2)), "–"), (show_values(None), "–"),
        (show_values(Values(np.zeros(0), 1.25, 0.5, 3)), "1.25 ± 0.50"),
    ],
)  # fmt: skip
def test_numbers_as_text(text, expected):
    assert text == expected
