"""What is on the pictures: read back from the figure, and the files that are written."""

from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

from fedref import plots
from fedref.algorithm import State
from fedref.errors import ConfigError, FedrefError
from fedref.evaluation import Scores
from fedref.experiments import config, results, runs
from fedref.experiments.results import Run
from fedref.experiments.unit import Experiment, Record, Unit

ACCURACY = {0: [0.1, 0.5, 0.4, 0.8], 1: [0.3, 0.5, 0.6, 1.0]}  # by seed, over rounds 0 to 3


def made(algorithms=("fedavg", "apfl"), seeds=(0, 1), points=({},), **columns) -> Run:
    """A run with known numbers; `columns` replace or add values over rounds 0, 1, 2, 3."""
    units, records = [], []
    for label in algorithms:
        for point in points:
            for seed in seeds:
                own = {
                    "accuracy": ACCURACY[seed],
                    "accuracy_mean": ACCURACY[seed],
                    "train_loss": [4.0, 2.0, 1.0, 0.5],
                    "test_loss": [5.0, 3.0, 2.0, 1.0],
                    "bytes_down": [0, 3e6, 6e6, 9e6],
                    "bytes_up": [0, 1e6, 2e6, 3e6],
                    **columns,
                }
                rows = [
                    {"round": t, **{name: values[t] for name, values in own.items()}}
                    for t in range(4)
                ]
                half = np.array([0.0, 0.5, 1.0, 0.9 + 0.1 * seed])
                scores = Scores(*[np.ones(4), half, half, np.ones(4), half])
                units.append(Unit(len(units), label, seed, point))
                records.append(Record("done", 3, State(None, {}), rows, [3], [scores]))
    return Run(Experiment(epochs=1, seeds=seeds), units, records)


def diverged(run: Run, label: str) -> Run:
    """The run in which one algorithm ends after round 1."""
    short = [
        record._replace(status="diverged", round=1, rows=record.rows[:2])
        if unit.label == label
        else record
        for unit, record in zip(run.units, run.records)
    ]
    return run._replace(records=short)


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """Draw, and read the figure that would have been written."""
    kept = SimpleNamespace()
    monkeypatch.setattr(plots, "save", lambda figure, path: setattr(kept, "figure", figure))

    def draw(function, *args, **options):
        function(*args[:1], tmp_path / "x.png", *args[1:], **options)
        kept.figure.draw_without_rendering()
        return kept.figure

    return draw


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes) -> list:
    """The curves: lines of more than one point that are not level lines."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2]


def stars(axes) -> list[tuple[float, float, bool]]:
    return [
        (float(s.get_xdata()[0]), float(s.get_ydata()[0]), s.get_markerfacecolor() != "white")
        for s in axes.lines
        if s.get_marker() == "*"
    ]


# ---- curves --------------------------------------------------------------------------------------


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


def test_band_is_one_standard_deviation_over_seeds(seen):
    figure = seen(plots.curves, made(), "accuracy")
    (axes,) = figure.axes
    band = axes.collections[0].get_paths()[0].vertices
    assert sorted(set(band[band[:, 0] == 0, 1].round(9))) == pytest.approx([10, 30])
    assert "±1 sd over 2 seeds" in legend(figure)


def test_one_seed_has_no_band(seen):
    figure = seen(plots.curves, made(seeds=(0,)), "accuracy")
    assert not figure.axes[0].collections
    assert legend(figure) == ["fedavg", "apfl"]


def test_stars_stand_where_importance_is_renewed(seen):
    figure = seen(plots.curves, made(["apfl"], renewed=[0.0, 1.0, 0.0, 1.0]), "accuracy")
    assert stars(figure.axes[0]) == [(1, pytest.approx(50), True), (3, pytest.approx(90), True)]
    assert legend(figure).count("importance renewed") == 1


def test_a_star_is_hollow_where_only_some_seeds_renew(seen):
    run = made(["apfl"], renewed=[0.0, 1.0, 0.0, 0.0])
    run.records[1].rows[1]["renewed"] = 0.0
    figure = seen(plots.curves, run, "accuracy")
    assert stars(figure.axes[0]) == [(1, pytest.approx(50), False)]
    assert "renewed in some seeds" in legend(figure)


def test_a_star_between_evaluated_rounds_stands_on_the_line(seen):
    run = made(["apfl"], seeds=(0,), accuracy=[0.2, None, 0.6, 0.8], renewed=[0.0, 1.0, 0.0, 0.0])
    figure = seen(plots.curves, run, "accuracy")
    assert stars(figure.axes[0]) == [(1, pytest.approx(40), True)]


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


@pytest.mark.parametrize(
    ("algorithms", "variants"), [(14, 1), (1, 14), (2, 6), (6, 2), (5, 3), (14, 3), (2, 8)]
)
def test_no_two_lines_look_the_same_without_colour(algorithms, variants):
    pairs = [(f"a{i}", f"v{j}") for i in range(algorithms) for j in range(variants)]
    looks = plots.looks(*zip(*pairs))
    assert len({(look.line, look.marker) for look in looks}) == len(pairs)


def test_the_legend_is_beside_the_data(seen):
    figure = seen(plots.curves, made([f"algorithm-{i}" for i in range(14)]))
    box = figure.legends[0].get_window_extent()
    assert all(axes.get_tightbbox().x1 <= box.x0 for axes in figure.axes)
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_reference_values_are_level_lines_in_the_last_panel(seen):
    loss, accuracy = seen(plots.curves, made(), reference={"apfl": 0.85}).axes
    level = [line.get_ydata()[0] for line in accuracy.lines if len(line.get_xdata()) == 2]
    assert level == pytest.approx([85])
    assert all(len(line.get_xdata()) != 2 for line in loss.lines)


@pytest.mark.parametrize("value", [0.05, 1.0])
def test_a_reference_outside_of_the_curves_stays_in_its_panel(seen, value):
    run = made(seeds=(0,), accuracy=[0.4, 0.5, 0.5, 0.6])
    figure = seen(plots.curves, run, reference={"apfl": value})
    low, high = figure.axes[-1].get_ylim()
    assert low < 100 * value < high
    assert figure.axes[-1].get_tightbbox().y1 <= figure.bbox.y1


@pytest.mark.parametrize("value", [0.01, 1e7])
def test_a_reference_on_a_logarithmic_axis(seen, value):
    run = made(seeds=(0,), train_loss=[1.0, 10.0, 1e4, 1e5])
    low, high = seen(plots.curves, run, "loss", reference={"apfl": value}).axes[0].get_ylim()
    assert 0 < low < value < high


@pytest.mark.filterwarnings("error")
def test_huge_losses_are_drawn_within_a_logarithmic_axis(seen):
    run = made(train_loss=[2.0, 1e10, 1e200, 1.7e308], test_loss=[2.0, 1e10, 1e200, 1.7e308])
    run.records[0].rows[1]["train_loss"] = 1.0  # so that the band reaches below 0
    loss = seen(plots.curves, run).axes[0]
    assert loss.get_yscale() == "log"
    assert loss.get_ylim() == pytest.approx((1, 2e30))
    assert loss.collections[0].get_paths()[0].vertices[:, 1].min() > 0
    run.records[0].scores[0].train_loss[:] = 1.7e308
    seen(plots.clients, run, "loss")


# ---- bars and clients ----------------------------------------------------------------------------


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


def test_bars_show_the_document_and_what_diverged(seen):
    run = diverged(made(seeds=(0,)), "apfl")
    (axes,) = seen(plots.bars, run, reference={"fedavg": (0.5, np.nan)}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "apfl (diverged)"]
    assert axes.texts[0].get_text() == "45.0 [50.0]"
    assert axes.texts[2].get_text() == "80.0"


def test_bar_texts_do_not_leave_the_picture(seen):
    run = made(["fedavg"], accuracy=[1.0] * 4)
    figure = seen(plots.bars, run, reference={"fedavg": (0.999, 1.0)})
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.axes[0].texts)


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


# ---- a real run, and files -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Run:
    table = {
        "rounds": 3,
        "clients_per_round": 3,
        "seeds": [0, 1],
        "split": {"rule": "per-fedavg", "users": 6},
        "model": {"name": "logistic"},
        "algorithms": {"fedavg": {}, "apfl": {}},
    }
    return runs.execute(config.from_table(table))


def test_a_real_run_has_its_stars_and_the_table_s_numbers(real, seen):
    renewed = {row["round"] for record in real.records for row in record.rows if row.get("renewed")}
    assert renewed
    assert {x for x, _, _ in stars(seen(plots.curves, real, "accuracy").axes[0])} == renewed
    shown = [text.get_text() for text in seen(plots.bars, real).axes[0].texts]
    averages = [results.summaries(real)[i].average for i in (0, 1)]
    assert [shown[0], shown[1]] == [f"{100 * m:.1f} ± {100 * s:.1f}" for m, s in averages]


@pytest.mark.parametrize("draw", [plots.curves, plots.bars, plots.clients])
@pytest.mark.parametrize(
    ("kind", "start"), [("PNG", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_formats_and_the_same_bytes_twice(real, tmp_path, draw, kind, start):
    first, second = (tmp_path / f"{i}.{kind}" for i in (1, 2))
    draw(real, first)
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):  # a user's own settings
        draw(real, str(second))
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(real, tmp_path):
    before = dict(matplotlib.rcParams)
    plots.curves(real, tmp_path / "x.svg")
    assert dict(matplotlib.rcParams) == before


# ---- wrong input ---------------------------------------------------------------------------------


def test_unknown_metric_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown metric 'acuracy': did you mean 'accuracy'\?"):
        plots.curves(made(), tmp_path / "x.png", "acuracy")
    with pytest.raises(ConfigError, match="did you mean 'gamma'"):
        plots.curves(made(), tmp_path / "x.png", "gama")
    with pytest.raises(ConfigError, match="unknown metric 'seed'"):
        plots.curves(made(), tmp_path / "x.png", against="seed")


def test_a_metric_that_nothing_measured(tmp_path):
    with pytest.raises(ConfigError, match="no values of gamma here: known are accuracy, "):
        plots.curves(made(), tmp_path / "x.png", "gamma")


@pytest.mark.parametrize("draw", [plots.bars, plots.clients])
def test_bars_and_clients_know_what_they_can_show(draw, tmp_path):
    with pytest.raises(ConfigError, match=r"unknown metric of .*known are accuracy"):
        draw(made(), tmp_path / "x.png", "bytes")


def test_clients_without_any_data(tmp_path):
    run = made(["fedavg"], (0,))
    run.records[0].scores[0].train_loss[:] = np.nan
    with pytest.raises(ConfigError, match="no values of train_loss"):
        plots.clients(run, tmp_path / "x.png", "train_loss")


@pytest.mark.parametrize("draw", [plots.curves, plots.bars, plots.clients])
def test_a_reference_for_an_algorithm_that_is_not_there(draw, tmp_path):
    with pytest.raises(ConfigError, match="reference value 'apfel': did you mean 'apfl'"):
        draw(made(), tmp_path / "x.png", reference={"apfel": 0.5})


@pytest.mark.parametrize("name", ["x.jpeg", "x"])
def test_unknown_extension(name, tmp_path):
    with pytest.raises(ConfigError, match=r"expected \.png, \.svg or \.pdf"):
        plots.curves(made(), tmp_path / name)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FedrefError, match="cannot write"):
        plots.curves(made(), tmp_path / "no" / "x.png")
