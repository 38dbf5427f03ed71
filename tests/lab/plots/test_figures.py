"""Pictures of runs: what is on them, read back from the figure; their files, and what is refused."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from drawing import draw, legend, lines, made, pair, run_of, stars

from fedref.boundary import style
from fedref.boundary.errors import ConfigError
from fedref.lab import plots
from fedref.lab.plots.figures import bars, clients, curves, looks_of

ONCE = [0.0, 1.0, 0.0, 0.0]


def test_curves_are_two_panels_with_bands_in_the_manner_of_apfl_figure_2():
    figure = draw(curves, made())
    loss, accuracy = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["training loss", "test accuracy (%)"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"communication round"}
    assert lines(loss)[0].get_ydata().tolist() == [4, 2, 1, 0.5]
    assert lines(accuracy)[0].get_ydata() == pytest.approx([20, 50, 50, 90])
    band = accuracy.collections[0].get_paths()[0].vertices
    edges = sorted(set(band[band[:, 0] == 0, 1].round(9)))
    assert edges == pytest.approx([20 - 200**0.5, 20 + 200**0.5])
    assert legend(figure) == ["fedavg", "apfl", "±1 sd, n − 1, over 2 seeds"]
    figure = draw(curves, made(seeds=(0,), train_loss=[np.nan] * 4))
    assert not figure.axes[1].collections
    assert figure.axes[0].get_ylabel() == "test loss"
    assert legend(figure) == ["fedavg", "apfl"]


def test_stars_stand_on_the_line_where_importance_is_renewed():
    """Between two evaluated rounds, too, and on a logarithmic axis."""
    columns = {"seeds": (0,), "train_loss": [100, None, 1, 0.01], "renewed": ONCE}
    figure = draw(curves, made(["apfl"], **columns), "loss")
    assert stars(figure.axes[0]) == [(1, pytest.approx(10), True)]
    assert legend(figure).count("importance renewed") == 1
    run = made(["apfl"], renewed=ONCE)
    run.records[1].rows[1]["renewed"] = 0.0
    figure = draw(curves, run, "accuracy")
    assert stars(figure.axes[0]) == [(1, pytest.approx(50), False)]
    assert "renewed in some seeds" in legend(figure)


def test_a_cross_marks_where_an_algorithm_diverged():
    figure = draw(curves, made(ended="apfl"), "accuracy")
    (cross,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert cross.get_xdata()[0] == 1
    assert legend(figure)[:3] == ["fedavg", "apfl", "diverged"]


def test_accuracy_against_bytes_and_a_level_line_for_what_sends_nothing():
    run = made(["fedavg", "centralised"], seeds=(0,))
    for row in run.records[1].rows:
        row.update(bytes_down=0, bytes_up=0)
    (axes,) = draw(curves, run, "accuracy", against="bytes").axes
    assert axes.get_xlabel() == "data sent up and down (MB)"
    assert lines(axes)[0].get_xdata() == pytest.approx([0, 4, 8, 12])
    (level,) = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert level.get_ydata() == pytest.approx([80, 80])


def test_an_axis_of_bytes_is_the_mean_over_seeds_of_the_rounds_that_every_seed_has():
    """The first seed is neither the one that sends most nor the one that ends first."""
    columns = {"train_loss": [4.0, 2.0, 1.0, 0.5], "test_loss": [1.0] * 4}
    ends, sent = (4, 3, 4), (1e6, 2e6, 6e6)
    run = run_of(*(
        pair("fedavg", {c: y[:end] for c, y in columns.items()} | {
            "accuracy": [0.1 * (seed + t) for t in range(end)],
            "bytes_down": [t * each for t in range(end)], "bytes_up": [0.0] * end,
        }, seed, diverged=end < 4)
        for seed, (end, each) in enumerate(zip(ends, sent))
    ))  # fmt: skip
    run.records[2].rows[0].pop("accuracy")  # not evaluated there
    figure = draw(curves, run, "accuracy", against="bytes")
    assert legend(figure)[:2] == ["fedavg", "diverged"]  # one seed did
    (axes,) = figure.axes
    line = axes.lines[0]
    assert line.get_xdata() == pytest.approx([3, 6])  # rounds 1 and 2
    assert line.get_ydata() == pytest.approx([20, 30])
    (axes,) = draw(curves, run, "accuracy").axes
    assert axes.lines[0].get_xdata().tolist() == [1, 2]
    assert axes.lines[0].get_ydata() == pytest.approx([20, 30])


def test_the_last_value_over_a_swept_value_with_a_band_over_seeds():
    points = [{"lr": 0.001}, {"lr": 0.1}, {"lr": 0.01}]
    run = made(["fedavg", "apfl"], points=points)
    for record, (unit, value) in zip(run.records, [(u, u.point["lr"]) for u in run.units]):
        record.rows[-1]["accuracy"] = 0.5 + value + 0.1 * unit.seed
    figure = draw(curves, run, against="lr")
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "lr")
    assert axes.get_ylabel() == "test accuracy (%), last round"
    assert [line.get_xdata().tolist() for line in lines(axes)] == [[0.001, 0.01, 0.1]] * 2
    assert lines(axes)[0].get_ydata() == pytest.approx([55.1, 56, 65])
    assert legend(figure) == ["fedavg", "apfl", "±1 sd, n − 1, over 2 seeds"]
    table = run.table() | {"sweep.lr": np.full(len(run.table()["seed"]), "fast")}
    with pytest.raises(ConfigError, match=r"sweep\.lr holds words, expected numbers"):
        curves(table, against="lr")


@pytest.mark.parametrize(
    ("others", "validation", "expected", "words"),
    [
        ("best", False, [62, 72], "best over mu, hidden"),
        ("best", True, [60, 70], "best by validation over mu, hidden"),
        ("mean", False, [61, 71], "mean over mu, hidden"),
    ],
)
def test_one_of_several_swept_keys_is_drawn(others, validation, expected, words):
    """Of the others the best point or the mean."""
    points = [{"lr": lr, "mu": mu, "hidden": [4, 2]} for lr in (0.1, 0.2, 0.3) for mu in (0.0, 1.0)]
    run = made(["fedprox"], points=points)
    for unit, record in zip(run.units, run.records):
        test = 0.5 + unit.point["lr"] + 0.02 * unit.point["mu"]
        record.rows[-1]["accuracy"] = test + (0.5 if unit.seed else -0.5)
        if validation:
            record.rows[-1]["validation_accuracy"] = 0.5 - 0.1 * unit.point["mu"]
    (axes,) = draw(curves, run, against="lr", others=others).axes
    (line,) = lines(axes)
    assert line.get_xdata().tolist() == [0.1, 0.2, 0.3]
    assert line.get_ydata()[:2] == pytest.approx(expected)
    assert " ".join(axes.get_xlabel().split()) == f"lr {words}"
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0, 100)


@pytest.mark.parametrize("metric", ["accuracy", "test_loss"])
def test_the_point_that_is_drawn_has_the_best_mean_over_seeds_in_the_last_round(metric):
    """Of mu, 0 is the best of one seed and of the median, 1 of the mean, 2 in the first round."""
    ends = {0.0: (0.9, 0.8, 0.1), 1.0: (0.7, 0.7, 0.7), 2.0: (0.5, 0.6, 0.5)}
    usual = {"accuracy": [np.nan] * 2, "accuracy_mean": [0.5] * 2, "train_loss": [1.0] * 2}
    worth = np.positive if metric == "accuracy" else np.negative
    run = run_of(*(
        pair("fedprox", {**usual, "test_loss": [1.0] * 2, metric: worth([0.99 * (mu == 2), y])},
             seed, point={"lr": lr, "mu": mu})
        for lr in (0.1, 0.2, 0.3) for mu, values in ends.items() for seed, y in enumerate(values)
    ))  # fmt: skip
    (axes,) = draw(curves, run, metric, against="lr").axes
    (line,) = lines(axes)
    drawn = worth(line.get_ydata()) / (100 if metric == "accuracy" else 1)
    assert drawn == pytest.approx([0.7] * 3)


def test_bars_are_average_and_maximum_with_their_values():
    figure = draw(bars, made(["fedavg"]), reference={"fedavg": (0.999, 1.0)})
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([52.5, 90])
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["52.5 ± 10.6 [99.9]", "90.0 ± 14.1 [100.0]"]
    assert axes.get_xlabel() == "test accuracy (%), ±1 sd, n − 1, over 2 seeds"
    assert len({patch.get_hatch() for patch in axes.patches}) == 2
    assert legend(figure) == ["average", "maximum", "[in the paper]"]
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in axes.texts)
    (axes,) = draw(bars, made(seeds=(0,), ended="apfl")).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "apfl (diverged)"]
    assert [axes.texts[0].get_text(), axes.get_xlabel()] == ["45.0", "test accuracy (%)"]


def test_clients_are_a_histogram_for_each_algorithm():
    figure = draw(clients, made())
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["fedavg\nmean 61.2, sd, n − 1: 43.2", "apfl\nmean 61.2, sd, n − 1: 43.2"]
    heights = {p.get_x() + 2.5: p.get_height() for p in figure.axes[0].patches if p.get_height()}
    assert heights == pytest.approx({0: 25, 50: 25, 90: 12.5, 100: 37.5})
    assert "after round 3" in figure.get_supxlabel()
    run = made(["fedavg"], (0,))
    first = run.records[0].scores[0]
    run.records[0].rounds.insert(0, 0)  # an earlier evaluation is not drawn
    run.records[0].scores.insert(0, first._replace(accuracy=np.full(4, 0.25)))
    run.records[0].scores[1].accuracy[:3] = np.nan  # clients without test rows
    assert "mean 90.0, sd, n − 1: 0.0" in draw(clients, run).axes[0].get_title()


@pytest.mark.parametrize(
    ("algorithms", "variants"), [(14, 1), (1, 14), (2, 6), (6, 2), (5, 3), (14, 3), (2, 8)]
)
def test_no_two_lines_look_the_same_without_colour(algorithms, variants):
    pairs = [(f"a{i}", f"v{j}") for i in range(algorithms) for j in range(variants)]
    found = {(str(look["linestyle"]), look["marker"]) for look in looks_of(pairs)}
    assert len(found) == len(pairs)


def test_points_of_a_sweep_and_runs_are_told_apart():
    run = made(["fedavg", "apfl"], (0,), [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    figure = draw(curves, run, "accuracy")
    assert legend(figure)[:2] == ["fedavg (lr=0.1)", "fedavg (lr=0.2)"]
    drawn = lines(figure.axes[0])
    assert [line.get_marker() for line in drawn] == ["o"] * 3 + ["s"] * 3
    assert len({line.get_color() for line in drawn}) == 2  # one an algorithm
    assert draw(curves, run, against="lr").axes[0].get_xscale() == "linear"
    other = made(["fedavg"], (0,), [{"mu": 0.1}])
    runs = plots.join_tables({"one": made(["apfl", "fedavg"], (0,)).table(), "two": other.table()})
    names = ["apfl (one)", "fedavg (one)", "fedavg (mu=0.1, two)"]
    assert legend(curves(runs, "accuracy")) == names


@pytest.mark.parametrize(
    ("entries", "columns", "last"),
    [
        (60, 1, "59"),
        (61, 2, "60"),
        (240, 4, "239"),
        (241, 4, "... and 2 more"),
        (500, 4, "... and 261 more"),
    ],
)
def test_the_legend_of_a_large_sweep_stands_in_columns_and_ends(entries, columns, last):
    figure, _ = style.frame((1, 2), (4, 3), "title", [style.sign(str(i)) for i in range(entries)])
    assert (figure.legends[0]._ncols, legend(figure)[-1]) == (columns, last)
    assert max(figure.get_size_inches()) < 16
    middle = figure._suptitle.get_position()[0] * figure.get_size_inches()[0]
    assert middle == pytest.approx(4 if columns > 1 else middle)  # of the panels


@pytest.mark.parametrize(
    ("picture", "kind", "start"),
    [(curves, "PNG", b"\x89PNG"), (bars, "pdf", b"%PDF"), (clients, "svg", b"<?xml")],
)
def test_the_same_table_gives_the_same_bytes(tmp_path, picture, kind, start):
    table = made().table("clients" if picture is clients else "metrics")
    first, second = (tmp_path / f"{i}.{kind}" for i in (1, 2))
    before = dict(matplotlib.rcParams)
    plots.save(picture(table), first)
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):  # a user's own settings
        plots.save(picture(table), second)
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


#: Names that no formula is, that XML cannot hold, or that a terminal would execute.
HOSTILE = ["$x_$", r"\$a$ $", "a$b", "$\\frac{1}{$", "\x1b[2J$^$", "\ufffe\x85 <&>", "$$"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("curves", name) for name in HOSTILE),
     *((kind, name) for kind in ("bars", "clients") for name in ("$x_$ \x1b[2J", "\ufffe <&> a$b"))],
)  # fmt: skip
def test_a_users_text_is_no_mathematics_and_no_control_character(kind, name, tmp_path):
    """Wherever it stands: the algorithm's title, the folder, the point, the metric, the picture's title."""
    run = made(points=[{"mu": name}, {"mu": 2}])
    table = run.table("clients" if kind == "clients" else "metrics")
    table["title"] = np.array([f"{title} {name}" for title in table["title"]])
    table["algorithm"] = np.array([f"{title} {name}" for title in table["algorithm"]])
    table[name] = np.linspace(0, 1, len(table["title"]))
    table = plots.join_tables({name: table, "other": table})
    options = {"against": name} if kind == "curves" else {}
    path = tmp_path / "picture.svg"
    metric = "accuracy" if kind == "bars" else name
    plots.save(getattr(plots, kind)(table, metric, title=name, **options), path)
    ElementTree.parse(path)


def test_a_swept_key_with_a_dollar_is_the_name_of_an_axis(tmp_path):
    key = "algorithms.$x_$.lr"
    run = made(points=[{key: 0.1, "mu": 1}, {key: 0.2, "mu": 1}])
    figure = draw(curves, run, "accuracy", against=key)
    assert figure.axes[0].get_xlabel() == r"algorithms.\$x_\$.lr" + "\nbest over mu"


def test_joined_tables_have_empty_cells_where_a_run_has_no_such_column():
    words = run_of(pair("apfl", {"accuracy": [0.5], "only": [2]}, point={"kind": "a", "mu": 1}))
    numbers = run_of(pair("apfl", {"accuracy": [0.25]}, point={"kind": 3.5}))
    joined = plots.join_tables({"one": words.table(), "two": numbers.table()})
    assert joined["title"].tolist() == ["apfl (kind=a, mu=1, one)", "apfl (kind=3.5, two)"]
    assert joined["run"].tolist() == ["one", "two"]
    assert joined["sweep.kind"].tolist() == ["a", "3.5"]
    np.testing.assert_array_equal(joined["only"], [2, np.nan])
    np.testing.assert_array_equal(joined["sweep.mu"], [1, np.nan])
    assert joined["accuracy"].tolist() == [0.5, 0.25]
