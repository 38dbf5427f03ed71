"""Each known mistake on its page: the lines that differ, and a run with and without it."""

import re

import pytest

from fedref.conformance.mistakes import MISTAKES
from fedref.teach import mistake_runs, mistakes, source


@pytest.mark.parametrize("name", MISTAKES)
def test_the_lines_are_those_of_the_source(name):
    found = mistakes.lines(name)
    assert found.right
    assert found.wrong
    assert found.right != found.wrong
    file, _, line = found.where.partition(":")
    text = (source.ROOT / file).read_text("utf-8").splitlines()[int(line) - 1 :]
    for shown, stands in zip(found.right, text):
        assert stands.split("# [")[0].split("# noqa")[0].strip() == shown.strip()


def test_a_run_has_the_mistake_and_the_next_one_has_not():
    name = "FedMAML averages"
    curves = mistake_runs.run_both(name)
    assert curves.right[0] == curves.wrong[0]
    assert curves.wrong[-1] > 1.2 * curves.right[-1]
    assert mistake_runs.run_column(mistake_runs.RUNS[name]) == curves.right


def test_the_page_counts_the_runs_that_look_healthy(built):
    text = (built / "mistakes.html").read_text("utf-8")
    said = re.findall(r"After \d+ rounds the (.*?) is ([\d.]+), with the mistake ([\d.]+)\.<", text)
    losses = [(float(right), float(wrong)) for what, right, wrong in said if "loss" in what]
    healthy = sum(wrong <= right for right, wrong in losses)
    assert len(said) == len(mistake_runs.RUNS)
    assert 0 < healthy < len(losses) / 2
    assert f"{healthy} of the {len(losses)} runs" in text
