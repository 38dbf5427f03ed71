"""Bars: average and maximum, with the values of the table."""

import numpy as np
import pytest
from drawing import diverged, legend, made, stars

from fedref import plots
from fedref.experiments import results


def test_bars_are_average_and_maximum_with_their_values(seen):
    figure = seen(plots.bars, made(["fedavg"]))
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([52.5, 90])
    assert [text.get_text() for text in axes.texts] == ["52.5 ± 7.5", "90.0 ± 10.0"]
    assert axes.get_xlabel() == "test accuracy (%), ±1 sd over 2 seeds"
    assert len({patch.get_hatch() for patch in axes.patches}) == 2
    assert legend(figure) == ["average", "maximum"]


def test_bars_of_one_seed_have_no_deviation(seen):
    (axes,) = seen(plots.bars, made(["fedavg"], (0,))).axes
    assert [text.get_text() for text in axes.texts] == ["45.0", "80.0"]
    assert axes.get_xlabel() == "test accuracy (%)"


def test_bars_show_the_paper_and_what_diverged(seen):
    run = diverged(made(seeds=(0,)), "apfl")
    (axes,) = seen(plots.bars, run, reference={"fedavg": (0.5, np.nan)}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "apfl (diverged)"]
    assert axes.texts[0].get_text() == "45.0 [50.0]"
    assert axes.texts[2].get_text() == "80.0"


def test_bar_texts_do_not_leave_the_picture(seen):
    run = made(["fedavg"], accuracy=[1.0] * 4)
    figure = seen(plots.bars, run, reference={"fedavg": (0.999, 1.0)})
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.axes[0].texts)


def test_a_real_run_has_its_stars_and_the_table_s_numbers(real, seen):
    renewed = {row["round"] for record in real.records for row in record.rows if row.get("renewed")}
    assert renewed
    assert {x for x, _, _ in stars(seen(plots.curves, real, "accuracy").axes[0])} == renewed
    shown = [text.get_text() for text in seen(plots.bars, real).axes[0].texts]
    averages = [results.summaries(real)[i].average for i in (0, 1)]
    assert [shown[0], shown[1]] == [f"{100 * m:.1f} ± {100 * s:.1f}" for m, s in averages]
