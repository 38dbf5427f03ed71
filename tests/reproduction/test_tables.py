"""Numbers as text, tables and claims."""

import numpy as np

from fedref.reproduction import runtime, tables


def test_text_of_numbers() -> None:
    assert tables.spread([1.0, 3.0]) == "2.00 ± 1.00"
    assert tables.spread([1.0]) == "1.00"
    assert tables.spread([]) == tables.spread([np.nan]) == "–"
    assert (tables.signed(-1.5), tables.signed(2), tables.signed(None)) == (
        "−1.50",
        "+2.00",
        "–",
    )
    assert [runtime.duration(s) for s in (8.24, 183, 3900)] == [
        "8.2 s",
        "3 min 3 s",
        "1 h 05 min",
    ]
    number = tables.Number(("x",), [89.0, 91.0], 89.5, "why")
    assert number.difference == 0.5
    table = tables.number_table(("what",), [number, number._replace(paper=None)])
    assert table.splitlines() == [
        "| what | paper | ours | difference | comment |",
        "| --- | --: | --: | --: | --- |",
        "| x | 89.50 | 90.00 ± 1.00 | +0.50 | why |",
        "| x | – | 90.00 ± 1.00 | – | why |",
    ]
    assert runtime.short("a" * 40 + " + changes, unknown") == "a" * 10 + " + changes, unknown"


def test_a_claim_holds_if_every_seed_does() -> None:
    values = {"A": [0.5, 2.0], "B": [3.0]}
    assert tables.claim("A is larger", values, above=0) == (
        "- Holds (every seed above 0): *A is larger*; A 1.25 ± 0.75, B 3.00 points."
    )
    assert tables.claim("x", values, above=0.5).startswith("- Does not hold (every seed above 0.5)")
    assert tables.claim("x", values, above=0, below=3, unit="%", digits=0, detail="so") == (
        "- Does not hold (every seed above 0 and below 3): *x*; A 1 ± 1, B 3 %; so."
    )
    assert tables.claim("x", {"A": [1.0]}, above=0, beside={"C": [-1.0, 1.0]}, detail="so") == (
        "- Holds (one seed: above 0): *x*; A 1.00 points; beside it, C 0.00 ± 1.00; so."
    )
    assert tables.claim("x", {"A": [1.0]}, below=2, show=lambda x, digits: f"about {x[0]:g}") == (
        "- Holds (one seed: below 2): *x*; A about 1 points."
    )
    assert tables.claim("x", {}, above=0).startswith("- Does not hold")
    assert tables.claim("x", {"A": [np.nan]}, above=0).startswith("- Does not hold")


def test_a_cell_has_every_seed() -> None:
    assert tables.each_seed(np.array([0.1, 2, 1e-9])) == "0.1 2.0 1e-09"
