"""Each known mistake on its page: the lines that differ, and a run with and without it."""

import re

import pytest

from fedref.conformance.mistakes import PUBLISHED
from fedref.teach import mistakes, source


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_lines_are_those_of_the_source(name):
    found = mistakes.differing_lines(name)
    assert found.right
    assert found.wrong
    assert found.right != found.wrong
    file, _, line = found.where.partition(":")
    text = (source.ROOT / file).read_text("utf-8").splitlines()[int(line) - 1 :]
    for shown, stands in zip(found.right, text):
        assert stands.split("# [")[0].split("# noqa")[0].strip() == shown.strip()


def test_a_run_has_the_mistake_and_the_next_one_has_not():
    name = "FedMAML averages"
    right, wrong = mistakes.run_both(name)
    assert right[0] == wrong[0]
    assert wrong[-1] > 1.2 * right[-1]
    assert mistakes.run_column(mistakes.RUNS[name]) == right


def test_the_page_counts_the_runs_that_look_healthy(built):
    text = (built / "mistakes.html").read_text("utf-8")
    cells = re.findall(r"<td>([\w ]+) after round \d+</td><td>([\d.]+)</td><td>([\d.]+)</td>", text)
    losses = [(float(right), float(wrong)) for what, right, wrong in cells if "loss" in what]
    healthy = sum(wrong <= right for right, wrong in losses)
    assert len(cells) == len(mistakes.RUNS)
    assert 0 < healthy < len(losses) / 2
    assert f"{healthy} of the {len(losses)} losses" in text
