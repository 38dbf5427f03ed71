"""A federation in numbers and as a picture."""

import matplotlib.pyplot as plt
import numpy as np

from fedref.datasets.describe import histogram, picture, statistics
from fedref.federation import Federation, Part, Source

#: Three clients with 3 + 1, 2 + 0 and 1 + 1 rows of training and test.
Y = np.array([0, 0, 1, 1, 1, 2, 0, 2])
FEDERATION = Federation(
    Source(np.zeros((8, 2)), Y, name="eight"),
    Part(np.array([0, 1, 2, 3, 4, 5]), np.array([0, 3, 5, 6])),
    Part(np.array([6, 7]), np.array([0, 1, 1, 2])),
)


def test_statistics_by_hand():
    found = statistics(FEDERATION)
    assert found["clients"] == 3
    assert found["samples"] == 8
    assert found["mean"] == 8 / 3
    assert found["std"] == np.std([4, 2, 2])
    assert histogram(FEDERATION).tolist() == [[3, 0, 0], [1, 2, 0], [0, 0, 2]]


def test_a_picture_names_the_means_it_is_given(tmp_path):
    path = tmp_path / "a.svg"
    for means in ({}, {"mean, ours": 2.67, "mean, paper": 3.5, "mean, of others": 3.0}):
        with plt.rc_context({"svg.fonttype": "none"}):
            picture(FEDERATION, path, "eight", means)
        text = path.read_text()
        assert text.count(">mean, ") == len(means)
        assert ">eight<" in text
