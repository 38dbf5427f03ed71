"""Metrics and series: what is drawn, and how it is named and told apart."""

import pytest
from drawing import legend, lines, made

from fedref import plots
from fedref.boundary.errors import ConfigError
from fedref.plots.series import looks


@pytest.mark.parametrize(
    ("algorithms", "variants"), [(14, 1), (1, 14), (2, 6), (6, 2), (5, 3), (14, 3), (2, 8)]
)
def test_no_two_lines_look_the_same_without_colour(algorithms, variants):
    pairs = [(f"a{i}", f"v{j}") for i in range(algorithms) for j in range(variants)]
    found = looks(*zip(*pairs))
    assert len({(look.line, look.marker) for look in found}) == len(pairs)


def test_points_of_a_sweep_are_told_apart(seen):
    run = made(["fedavg", "apfl"], (0,), [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    figure = seen(plots.curves, run, "accuracy")
    assert legend(figure)[:2] == ["fedavg (lr=0.1)", "fedavg (lr=0.2)"]
    drawn = lines(figure.axes[0])
    assert [line.get_marker() for line in drawn] == ["o"] * 3 + ["s"] * 3
    assert [line.get_color() for line in drawn[:3]] == [line.get_color() for line in drawn[3:]]


def test_runs_are_named_where_they_have_the_same_algorithm(seen):
    runs = {"one": made(["fedavg"], (0,)), "two": made(["apfl", "fedavg"], (0,))}
    figure = seen(plots.curves, runs, "accuracy")
    assert legend(figure) == ["fedavg (one)", "fedavg (two)", "apfl"]


def test_only_what_was_measured_is_drawn(seen):
    run = made(["fedavg", "fedprox"], seeds=(0,))
    for t, row in enumerate(run.records[1].rows[1:]):
        row["gamma"] = 0.5 - 0.1 * t
    figure = seen(plots.curves, run, "gamma")
    assert legend(figure) == ["fedprox"]
    assert lines(figure.axes[0])[0].get_xdata().tolist() == [1, 2, 3]
    assert figure.axes[0].get_ylabel().startswith("inexactness γ")


def test_any_column_can_be_drawn_and_three_decades_are_logarithmic(seen):
    (axes,) = seen(plots.curves, made(some_thing=[1.0, 10.0, 1e4, 1e5]), "some-thing").axes
    assert axes.get_ylabel() == "some thing"
    assert axes.get_yscale() == "log"


@pytest.mark.parametrize(
    ("draw", "how", "message"),
    [
        (plots.curves, {"metric": "acuracy"}, "metric 'acuracy': did you mean 'accuracy'"),
        (plots.curves, {"metric": "gama"}, "did you mean 'gamma'"),
        (plots.curves, {"metric": "gamma"}, "no values of gamma here: known are accuracy, "),
        (plots.curves, {"against": "seed"}, "unknown metric 'seed'"),
        (plots.bars, {"metric": "bytes"}, "unknown metric of bars 'bytes': known are accuracy"),
        (plots.clients, {"metric": "bytes"}, "unknown metric of clients .* known are accuracy"),
        *((draw, {"reference": {"apfel": 0.5}}, "reference value 'apfel': did you mean 'apfl'")
          for draw in (plots.curves, plots.bars, plots.clients)),
    ],
)  # fmt: skip
def test_what_is_not_there_names_the_nearest(draw, how, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        draw(made(), tmp_path / "x.png", **how)
