"""Each known mistake on its page: the lines that differ, and a run with and without it."""

import pytest

from fedref.conformance.mistakes import MISTAKES
from fedref.teach import damage, mistakes, mistakes_page, source


def test_there_is_a_run_for_each():
    assert list(damage.RUNS) == list(MISTAKES)


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
    pair = damage.series(name)
    assert pair.right[0] == pair.wrong[0]
    assert pair.wrong[-1] > 1.2 * pair.right[-1]
    assert damage.RUNS[name].values() == pair.right


def test_the_page_counts_the_runs_that_look_healthy():
    unharmed = mistakes_page.unharmed()
    for name, run in damage.RUNS.items():
        right, wrong = damage.series(name)
        healthy = "loss" in run.y and len(wrong) == len(right) and wrong[-1] <= right[-1]
        assert (name in unharmed) == healthy
    assert 0 < len(unharmed) < len(MISTAKES) / 2
