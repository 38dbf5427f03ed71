"""One split in detail, and split rules side by side."""

import numpy as np
import pytest

from fedref.datasets import load, split
from fedref.datasets.describe import histogram
from fedref.plots import holdings, split_rules, splits
from fedref.plots.splits import COLUMNS
from fedref.rounds.federation import Federation, Part, Source

#: Four clients with labels 0 (three of them) and 1; two training rows each, and one test row in all.
FOUR = Federation(
    Source(np.zeros((9, 1)), np.array([0, 0, 1, 1, 0, 1, 0, 0, 0]), name="nine"),
    Part(np.arange(8), np.array([0, 2, 4, 6, 8])),
    Part(np.array([8]), np.array([0, 0, 0, 0, 1])),
)


@pytest.mark.parametrize("means", [{}, {"ours": 2.67, "paper": 3.5, "others": 3.0}])
def test_a_split_is_drawn_by_main_label_and_size_with_its_means(seen, means):
    figure = seen(holdings, FOUR, "", means)
    above, below, _ = figure.axes
    train, both = (patch.get_data().values for patch in above.patches[::-1])
    assert (train.tolist(), both.tolist()) == ([2] * 4, [3, 2, 2, 2])
    assert below.get_images()[0].get_array().tolist() == [[3, 2, 1, None], [None, None, 1, 2]]
    assert [line.get_ydata()[0] for line in above.lines] == list(means.values())
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["test", "train", *means]
    assert above.get_title("left") == "nine: given, 4 clients"
    assert below.get_xlabel() == "clients by main label, then by size"


def test_many_clients_are_drawn_in_groups(seen, monkeypatch):
    monkeypatch.setattr(splits, "MOST_CLIENTS", 2)
    above, below, _ = seen(holdings, FOUR, "four").axes
    assert above.patches[0].get_data().values.tolist() == [2.5, 2]
    assert below.get_images()[0].get_array().tolist() == [[2.5, 0.5], [None, 1.5]]
    assert above.get_title("left") == "four"
    assert below.get_xlabel().endswith(", in groups of 2")


def test_real_targets_are_drawn_in_their_groups(seen):
    source = Source(np.zeros((100, 2)), np.arange(100) / 8)
    _, below, _ = seen(holdings, split("iid", source, users=4)).axes
    assert below.get_ylabel() == "y"
    assert below.get_yticklabels()[0].get_text() == "0 to 1.24"


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
