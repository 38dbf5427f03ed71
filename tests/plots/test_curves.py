"""Curves: what is on the picture, read back from the figure."""

import numpy as np
import pytest
from drawing import diverged, legend, lines, made, stars

from fedref import plots


def test_by_default_two_panels_as_apfl_figure_2(seen):
    loss, accuracy = seen(plots.curves, made()).axes
    assert [axes.get_ylabel() for axes in (loss, accuracy)] == [
        "training loss",
        "test accuracy (%)",
    ]
    assert {axes.get_xlabel() for axes in (loss, accuracy)} == {"communication round"}
    assert lines(loss)[0].get_ydata().tolist() == [4, 2, 1, 0.5]
    assert lines(accuracy)[0].get_ydata() == pytest.approx([20, 50, 50, 90])


def test_without_training_loss_the_test_loss_is_drawn(seen):
    loss, _ = seen(plots.curves, made(train_loss=[np.nan] * 4)).axes
    assert loss.get_ylabel() == "test loss"


def test_band_is_one_standard_deviation_over_seeds_if_there_are_several(seen):
    figure = seen(plots.curves, made(), "accuracy")
    (axes,) = figure.axes
    band = axes.collections[0].get_paths()[0].vertices
    assert sorted(set(band[band[:, 0] == 0, 1].round(9))) == pytest.approx([10, 30])
    assert "±1 sd over 2 seeds" in legend(figure)
    figure = seen(plots.curves, made(seeds=(0,)), "accuracy")
    assert not figure.axes[0].collections
    assert legend(figure) == ["fedavg", "apfl"]


ONCE = [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("metric", "columns", "seen_at"),
    [
        ("accuracy", {"renewed": [0.0, 1.0, 0.0, 1.0]}, [(1, 50), (3, 90)]),
        # between two evaluated rounds it stands on the line, on a logarithmic axis as well
        (
            "accuracy",
            {"seeds": (0,), "accuracy": [0.2, None, 0.6, 0.8], "renewed": ONCE},
            [(1, 40)],
        ),
        ("loss", {"seeds": (0,), "train_loss": [100, None, 1, 0.01], "renewed": ONCE}, [(1, 10)]),
    ],
)
def test_stars_stand_on_the_line_where_importance_is_renewed(seen, metric, columns, seen_at):
    figure = seen(plots.curves, made(["apfl"], **columns), metric)
    assert stars(figure.axes[0]) == [(x, pytest.approx(y), True) for x, y in seen_at]
    assert legend(figure).count("importance renewed") == 1
    assert figure.axes[0].get_yscale() == ("log" if metric == "loss" else "linear")


def test_a_star_is_hollow_where_only_some_seeds_renew(seen):
    run = made(["apfl"], renewed=ONCE)
    run.records[1].rows[1]["renewed"] = 0.0
    figure = seen(plots.curves, run, "accuracy")
    assert stars(figure.axes[0]) == [(1, pytest.approx(50), False)]
    assert "renewed in some seeds" in legend(figure)


def test_a_cross_marks_where_an_algorithm_diverged(seen):
    figure = seen(plots.curves, diverged(made(), "apfl"), "accuracy")
    (cross,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert cross.get_xdata()[0] == 1
    assert legend(figure)[:3] == ["fedavg", "apfl", "diverged"]


def test_accuracy_against_bytes_up_and_down(seen):
    (axes,) = seen(plots.curves, made(), "accuracy", against="bytes").axes
    assert axes.get_xlabel() == "data sent up and down (MB)"
    assert lines(axes)[0].get_xdata() == pytest.approx([0, 4, 8, 12])


def test_what_sends_nothing_is_a_level_line_at_its_end(seen):
    run = made(["fedavg", "centralised"], seeds=(0,))
    for row in run.records[1].rows:
        row.update(bytes_down=0, bytes_up=0)
    (axes,) = seen(plots.curves, run, "accuracy", against="bytes").axes
    (level,) = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert level.get_ydata() == pytest.approx([80, 80])


def test_reference_values_are_level_lines_in_the_last_panel(seen):
    loss, accuracy = seen(plots.curves, made(), reference={"apfl": 0.85}).axes
    level = [line.get_ydata()[0] for line in accuracy.lines if len(line.get_xdata()) == 2]
    assert level == pytest.approx([85])
    assert all(len(line.get_xdata()) != 2 for line in loss.lines)


@pytest.mark.parametrize(
    ("metric", "values", "reference"),
    [
        ("accuracy", [40, 50, 50, 60], 5),
        ("accuracy", [40, 50, 50, 60], 100),
        ("loss", [1.0, 10.0, 1e4, 1e5], 0.01),  # on a logarithmic axis
        ("loss", [1.0, 10.0, 1e4, 1e5], 1e7),
    ],
)
def test_a_reference_outside_of_the_curves_stays_in_its_panel(seen, metric, values, reference):
    scale = 0.01 if metric == "accuracy" else 1
    column = {"accuracy": "accuracy", "loss": "train_loss"}[metric]
    run = made(seeds=(0,), **{column: [scale * value for value in values]})
    figure = seen(plots.curves, run, metric, reference={"apfl": scale * reference})
    low, high = figure.axes[0].get_ylim()
    assert low < reference < high
    assert figure.axes[0].get_tightbbox().y1 <= figure.bbox.y1


def test_huge_losses_are_drawn_within_a_logarithmic_axis(seen):
    run = made(train_loss=[2.0, 1e10, 1e200, 1.7e308], test_loss=[2.0, 1e10, 1e200, 1.7e308])
    run.records[0].rows[1]["train_loss"] = 1.0  # so that the band reaches below 0
    loss = seen(plots.curves, run).axes[0]
    assert loss.get_yscale() == "log"
    assert loss.get_ylim() == pytest.approx((1, 2e30))
    assert loss.collections[0].get_paths()[0].vertices[:, 1].min() > 0
    run.records[0].scores[0].train_loss[:] = 1.7e308
    seen(plots.clients, run, "loss")
