"""A split: how many samples of each label every client holds."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from fedref.boundary import style
from fedref.lab.datasets import split
from fedref.lab.plots import holdings
from fedref.rounds.federation import Federation, Part, Source

#: Four clients with labels 0 (three of them) and 1; two training rows each, and one test row in all.
NINE = Source(np.zeros((9, 1)), np.array([0, 0, 1, 1, 0, 1, 0, 0, 0]), name="nine")
PARTS = Part(np.arange(8), np.arange(0, 9, 2)), Part(np.array([8]), np.array([0, 0, 0, 0, 1]))
FOUR = Federation(NINE, *PARTS)


@pytest.fixture
def seen(monkeypatch):
    """Draw a split, and return the figure instead of its file."""
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, path: kept.append(figure))

    def draw(federation, *options):
        holdings(federation, "x.png", *options)
        kept[0].draw_without_rendering()
        return kept[0]

    return draw


@pytest.mark.parametrize("means", [{}, {"ours": 2.67, "paper": 3.5, "others": 3.0}])
def test_a_split_is_drawn_by_main_label_and_size_with_its_means(seen, means):
    figure = seen(FOUR, "", means)
    above, below, _ = figure.axes
    train, both = (patch.get_data().values for patch in above.patches[::-1])
    assert (train.tolist(), both.tolist()) == ([2] * 4, [3, 2, 2, 2])
    assert below.get_images()[0].get_array().tolist() == [[3, 2, 1, None], [None, None, 1, 2]]
    assert [line.get_ydata()[0] for line in above.lines] == list(means.values())
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["test", "train", *means]
    assert above.get_title("left") == "nine: given, 4 clients"
    assert below.get_xlabel() == "clients by main label, then by size"


@pytest.mark.parametrize("name", ["$x_$", "\x1b[2J$^$", "\ufffe$a$"])
def test_names_of_data_labels_and_means_are_no_mathematics(name, tmp_path):
    source = replace(NINE, name=name, label_names=(name, "b"))
    for title in ("", name):
        holdings(replace(FOUR, source=source), tmp_path / "a.svg", title, {name: 2.0})
        ElementTree.parse(tmp_path / "a.svg")


def test_real_targets_are_drawn_in_their_groups(seen):
    source = Source(np.zeros((100, 2)), np.arange(100) / 8)
    _, below, _ = seen(split("iid", source, users=4)).axes
    assert below.get_ylabel() == "y"
    assert below.get_yticklabels()[0].get_text() == "0 to 1.24"
