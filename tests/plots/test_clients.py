"""Histograms over clients."""

import numpy as np
import pytest
from drawing import made

from fedref import plots
from fedref.boundary.errors import ConfigError


def test_clients_are_a_histogram_for_each_algorithm(seen):
    figure = seen(plots.clients, made())
    assert [axes.get_title() for axes in figure.axes] == [
        "fedavg\nmean 61.2, sd 40.4",
        "apfl\nmean 61.2, sd 40.4",
    ]
    heights = {p.get_x() + 2.5: p.get_height() for p in figure.axes[0].patches if p.get_height()}
    assert heights == pytest.approx({0: 25, 50: 25, 90: 12.5, 100: 37.5})
    assert "after round 3" in figure.get_supxlabel()


def test_clients_without_data_are_left_out(seen):
    run = made(["fedavg"], (0,))
    run.records[0].scores[0].accuracy[:3] = np.nan
    assert "mean 90.0, sd 0.0" in seen(plots.clients, run).axes[0].get_title()


def test_loss_of_clients(seen):
    figure = seen(plots.clients, made(), "loss")
    assert figure.get_supxlabel().startswith("training loss of a client")


def test_clients_without_any_data(tmp_path):
    run = made(["fedavg"], (0,))
    run.records[0].scores[0].train_loss[:] = np.nan
    with pytest.raises(ConfigError, match="no values of train_loss"):
        plots.clients(run, tmp_path / "x.png", "train_loss")
