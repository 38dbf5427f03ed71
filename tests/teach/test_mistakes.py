"""Each known mistake as it is shown: the lines that differ, and runs with and without some."""

import re

import pytest

from fedref.conformance.errata import MISTAKES, TEXTS
from fedref.teach import mistakes


@pytest.mark.parametrize("name", MISTAKES)
def test_the_right_lines_are_those_of_the_source(name):
    _, wrong, right = mistakes.lines_of(name)
    assert wrong != right
    assert len(right) <= 12
    source = [line.strip() for text in TEXTS.values() for line in text.splitlines()]
    assert all(line.strip() in source for line in right)


def test_some_runs_look_healthy_and_the_page_says_how_many(built):
    text = (built / "mistakes.html").read_text("utf-8")
    pairs = [
        map(float, pair) for pair in re.findall(r"<td>([\d.]+)</td><td>([\d.]+|nan)</td>", text)
    ]
    healthy = len(mistakes.harmless_mistakes())
    assert len(pairs) == len(mistakes.RUNS)
    assert 0 < healthy < len(pairs)
    assert f"{healthy} of {len(pairs)} test losses" in text
    assert all(a != b for a, b in map(mistakes.losses, mistakes.RUNS))
