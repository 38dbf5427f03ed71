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


def test_a_claim_says_whether_it_holds_and_a_cell_has_every_seed() -> None:
    assert tables.claim("A is larger", True, "2 points") == "- Holds: *A is larger*; 2 points."
    assert tables.claim("B", False, "0").startswith("- Does not hold: *B*")
    assert tables.each_seed(np.array([0.1, 2, 1e-9])) == "0.1 2.0 1e-09"
