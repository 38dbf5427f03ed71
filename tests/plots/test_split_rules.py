"""Split rules side by side."""

import numpy as np
import pytest

from fedref.datasets import load, split
from fedref.datasets.describe import histogram
from fedref.plots import split_rules
from fedref.plots.split_rules import COLUMNS
from fedref.rounds.federation import Source


@pytest.mark.parametrize("rules", [["iid"], ["iid", "shards", "dirichlet", "quantity"]])
def test_a_panel_a_rule_shows_who_holds_what(seen, rules):
    digits = load("digits")
    made = {rule: split(rule, digits, 3, users=5) for rule in rules}
    figure = seen(split_rules, made)
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title(loc="left") for axes in panels] == rules
    for axes, federation in zip(panels, made.values()):
        (image,) = axes.get_images()
        shown, held = image.get_array(), histogram(federation)
        np.testing.assert_array_equal(shown.filled(0), held)
        np.testing.assert_array_equal(shown.mask, held == 0)
        assert image.norm is panels[0].get_images()[0].norm  # one colour bar for all
        assert [tick.get_text() for tick in axes.get_yticklabels()] == list("0123456789")
    assert [axes.get_xlabel() for axes in panels] == [
        "clients" if i >= len(rules) - COLUMNS else "" for i in range(len(rules))
    ]


def test_of_many_labels_some_are_named(seen):
    source = Source(np.zeros((200, 1)), np.arange(200) % 50)
    figure = seen(split_rules, {"iid": split("iid", source, users=4)})
    named = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert named == [str(label) for label in range(0, 50, 5)]
