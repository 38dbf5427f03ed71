"""Results: as arrays and tables, as they are shown, as plans, and with the parameters that were kept."""

import base64
import csv
import io
import re

import numpy as np
import pytest
from running import algorithms, contents, document, experiment, main, write

import fedref
from fedref.lab.experiments import unit
from fedref.lab.experiments.loading import load_experiment
from fedref.lab.experiments.results import write_csv
from fedref.lab.experiments.summary import as_latex

pytestmark = pytest.mark.usefixtures("here")


def test_a_sweep_has_a_column_for_what_depends_on_it_and_lists_are_text():
    table = document(algorithms=algorithms("fedavg", "fedprox"), rounds=1,
                     sweep={"mu": [0.0, 1.0]})  # fmt: skip
    run = fedref.run(table)
    assert [(unit.label, unit.point) for unit in run.units] == [
        ("fedavg", {}), ("fedprox", {"mu": 0.0}), ("fedprox", {"mu": 1.0})
    ]  # fmt: skip
    labels = [row[0] for row in run.summary().cells()[1:]]
    assert labels == ["fedavg", "fedprox (mu=0.0)", "fedprox (mu=1.0)"]
    np.testing.assert_array_equal(run.metrics["sweep.mu"], [np.nan] * 2 + [0.0] * 2 + [1.0] * 2)
    sweep = {"model.hidden": [[3], [4, 2]]}
    run = fedref.run(document(model={"name": "mlp"}, sweep=sweep, rounds=1))
    assert set(run.metrics["sweep.model.hidden"].tolist()) == {"[3]", "[4, 2]"}


def test_the_summary_is_means_and_standard_deviations_over_seeds():
    run = fedref.run(document(rounds=3, seeds=[0, 1]))
    _, y = run.curve("fedavg", "accuracy")
    (row,) = run.summary()
    values = {"average": y.mean(1), "maximum": y.max(1), "final": y[:, -1]}
    for name, each in values.items():
        assert (row[name], row[f"{name}_sd"]) == pytest.approx((each.mean(), each.std(ddof=1)))
    header, line = run.summary().cells()
    assert header[:4] == ["algorithm", "average", "maximum", "final"]
    assert line[3] == f"{100 * row['final']:.2f} ± {100 * row['final_sd']:.2f}"
    run = fedref.run(rounds=1, unseen=0.2, algorithms=algorithms("fedmeta-maml"))
    header, line = run.summary().cells()
    assert header[7:9] == ["unseen", "unseen (clients)"]
    assert line[7] == f"{100 * run.records[0].rows[-1]['unseen_accuracy']:.2f}"
    header, line, *_ = fedref.run(data=arrays(1.0), rounds=1).summary().cells()
    assert (header[-2:], line[-2:]) == (["kB down", "kB up"], ["0.14", "0.14"])


def swept():
    """Two algorithms, one at three points; the numbers are made up: test and validation disagree."""
    split = {**document()["split"], "validation": 0.3}
    table = document(algorithms=algorithms("fedavg", "fedprox"), rounds=1, split=split,
                     seeds=[0, 1, 2], sweep={"mu": [0.0, 1.0, 2.0]})  # fmt: skip
    run = fedref.run(table)
    for mu, test, held in ((0.0, 0.7, 0.5), (1.0, 0.6, 0.9), (2.0, 0.8, 0.7)):
        for _, record in run.units_of("fedprox", mu=mu):
            record.rows[-1].update(accuracy=test, validation_accuracy=held)
    for seed in range(3):
        run.units_of("fedavg", seed)[0][1].rows[-1].update(accuracy=0.5 + 0.01 * seed)
    return run


def test_a_point_is_chosen_by_validation_and_reported_with_its_test_value():
    run = swept()
    best = run.best()
    assert [unit.title for unit in best.units] == ["fedavg"] * 3 + ["fedprox (mu=1.0)"] * 3
    assert best.summary()[1]["final"] == pytest.approx(0.6)
    assert run.best("accuracy").units[-1].title == "fedprox (mu=2.0)"
    least = min(run.summary()[1:], key=lambda row: row["validation_loss"])["title"]
    assert run.best("validation_loss").units[-1].title == least
    text = "Chosen by validation (90.00 ± 0.00): fedprox (mu=1.0), with test 60.00 ± 0.00."
    assert text in str(run)
    assert "of many points is no result" in str(run)
    assert "Chosen by validation (" not in str(best)
    chosen = [r._replace(status="diverged") for r in best.records[3:]]
    stopped = run._replace(records=[*run.records[:6], *chosen, *run.records[9:]])
    assert stopped.best().units[-1].title == "fedprox (mu=2.0)"
    with pytest.raises(fedref.ConfigError, match=r"--set split\.validation=0\.1 gives"):
        fedref.run(document(rounds=1)).best()


def test_the_choice_is_by_the_last_round_the_mean_over_seeds_and_of_what_is_done():
    """Every other way to read these numbers chooses another point."""
    run = swept()
    held = {
        0.0: ([0.99] * 3, [0.5] * 3),  # the best in an early round
        1.0: ([0.1] * 3, [0.8] * 3),
        2.0: ([0.1] * 3, [1.0, 0.9, 0.1]),
    }  # the best of a seed, and of the seeds' median
    for mu, each in held.items():
        for t, values in enumerate(each):
            for (_, record), value in zip(run.units_of("fedprox", mu=mu), values):
                record.rows[t].update(validation_accuracy=value, validation_loss=1 - value)
    for by in ("validation", "validation_accuracy", "validation_loss"):
        assert run.best(by).units[-1].title == "fedprox (mu=1.0)", by
    for _, record in run.units_of("fedprox", mu=2.0):
        record.rows[-1].update(validation_accuracy=0.8)
    assert run.best().units[-1].title == "fedprox (mu=1.0)"  # the first of two that are equal
    for status in ("diverged", "running"):
        records = [r._replace(status=status) if u.point.get("mu") == 1.0 and u.seed else r
                   for u, r in zip(run.units, run.records)]  # fmt: skip
        assert run._replace(records=records).best().units[-1].title == "fedprox (mu=2.0)"


def test_a_row_of_the_summary_says_how_many_seeds_it_has():
    run = swept()
    fewer = run._replace(units=run.units[:-1], records=run.records[:-1]).summary()
    assert [(row["seeds"], row["status"]) for row in fewer] == [(3, "done")] * 3 + [
        (2, "stopped (0 of 1)")
    ]


def test_a_table_for_a_paper_as_text_data_frame_and_latex():
    pytest.importorskip("pandas")
    run = swept()
    shown = run.summary(columns=["final", "validation_accuracy"], best="bold", digits=1)
    lines = str(shown).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:4]] == [
        "algorithm", "final (%) ± sd, n − 1", "validation (%) ± sd, n − 1"
    ]  # fmt: skip
    assert "51.0 ± 1.0" in lines[2]
    assert [line.count("**") for line in lines[2:]] == [0, 0, 2, 2]
    frame = shown.to_pandas()
    assert frame.loc["fedprox (mu=1.0)"].tolist() == ["60.0 ± 0.0", "**90.0 ± 0.0**"]
    latex = shown.to_latex()
    assert r"fedprox (mu=2.0) & \textbf{80.0 $\pm$ 0.0} & 70.0 $\pm$ 0.0 \\" in latex
    head = "\\begin{tabular}{lrr}\n\\hline\nalgorithm & final (\\%) $\\pm$ sd, n $-$ 1 &"
    assert latex.startswith(head)
    assert as_latex("a_b {1}") == r"a\_b \{1\}"
    losses = str(run.summary("test_loss", best="bold"))  # the smallest, over the seeds
    least = min(run.summary(), key=lambda row: row["test_loss"])
    assert f" **{least['test_loss']:#.4g} ± " in losses
    with pytest.raises(fedref.ConfigError, match="did you mean 'final'"):
        run.summary("fnal")
    for status in ("diverged", "running"):  # of one seed: no such row is the best
        records = [r._replace(status=status) if u.title == "fedprox (mu=2.0)" and u.seed else r
                   for u, r in zip(run.units, run.records)]  # fmt: skip
        text = run._replace(records=records).summary("final", best="bold").cells()
        assert [row[1].count("**") for row in text] == [0, 0, 2, 0, 0]


def test_a_paired_difference_has_the_margin_of_t():
    run = swept()
    found = run.compare("fedprox (mu=1.0)", "fedavg")
    assert found.mean == pytest.approx(0.09)
    assert found.margin == pytest.approx(
        4.302652729749462 * 0.01 / 3**0.5
    )  # t of 2 degrees, 97.5 %
    margin = "+9.00 ± 2.48 points (t at 95 %, paired over 3 seeds)"
    assert str(found) == f"fedprox (mu=1.0) − fedavg, final: {margin}"
    with pytest.raises(fedref.ConfigError, match=r"fedprox has several points, expected one of"):
        run.compare("fedprox", "fedavg")
    how = {"algorithm": "fedavg", "rounds": 1}
    one, equal, other = (fedref.run(data=arrays(scale), **how) for scale in (1.0, 1.0, 2.0))
    assert one.compare("fedavg", run=equal).mean == 0
    assert "(one seed: no margin)" in str(one.compare("fedavg", run=equal))
    with pytest.raises(fedref.ConfigError, match="different data or splits"):
        one.compare("fedavg", run=other)


def test_a_curve_has_the_rounds_that_every_seed_has_and_each_seed_s_own_values():
    run = swept()
    pairs = run.units_of("fedavg")
    for t, (_, record) in zip((3, 1, 2), pairs):  # the first seed is not the one that ends first
        record.rows[:] = [{"round": i, "accuracy": i + t / 10} for i in range(t + 1)]
    pairs[2][1].rows[1]["accuracy"] = None
    rounds, values = run.curve("fedavg")
    assert rounds.tolist() == [0]
    np.testing.assert_array_equal(values, [[0.3], [0.1], [0.2]])
    pairs[2][1].rows[1]["accuracy"] = 7.0
    np.testing.assert_array_equal(run.curve("fedavg")[1], [[0.3, 1.3], [0.1, 1.1], [0.2, 7.0]])


def arrays(scale, seed=0):
    """Three clients whose two features have sizes about 1 and `scale`, and whose labels depend on both."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    return X * [1.0, scale], (X.sum(1) > 0).astype(int), np.repeat(np.arange(3), 40)


@pytest.mark.parametrize("scale", [0.001, 1.0, 40.0])
def test_features_of_very_different_sizes_are_noted_with_the_scaling_that_helps(scale):
    how = {"algorithm": "fedavg", "data": arrays(scale), "rounds": 1}
    plain, scaled = (fedref.run(**how, **{"split.scaling": to}) for to in ("none", "standardise"))
    assert ("split.scaling=standardise may help" in plain.note) == (scale != 1)
    assert scaled.note == ""


def test_a_training_loss_that_ends_larger_than_it_began_is_noted_and_points_have_python_s_names():
    run = fedref.run(document(sweep={"batch-size": [3, 5]}), lr=1e9)
    assert str(run).count(": a smaller step size may help.") == 2
    recovers = fedref.run(document())
    assert "a smaller step size" not in str(recovers)
    recovers.records[0].rows[1]["train_loss"] = 1e9
    assert "a smaller step size" not in str(recovers)
    one, other = (run.curve("fedavg", "train_loss", batch_size=size)[1] for size in (3, 5))
    np.testing.assert_array_equal(one, run.curve("fedavg", "train_loss", **{"batch-size": 3})[1])
    assert not np.array_equal(one, other)


def test_a_notebook_shows_the_table_and_the_picture(monkeypatch):
    monkeypatch.undo()  # with pictures
    tables = {"a<b": {"algorithm": "fedavg"}, "per-fedavg": {"beta": 0.001}}
    shown = fedref.run(document(algorithms=tables))._repr_html_()
    assert "<th>algorithm</th><th>average</th>" in shown
    assert "<td>a&lt;b</td>" in shown
    assert shown.count("<tr>") == 3
    assert "over 4 evaluated rounds" in shown
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    assert base64.b64decode(data).startswith(b"\x89PNG")


def test_a_run_gives_the_plans_that_it_was_run_with(monkeypatch):
    drawn = {}
    real = unit.make_plan

    def watched(sampled, sizes, round, seed, roles):
        plan = real(sampled, sizes, round, seed, roles)
        drawn[seed, tuple(roles), round, len(sizes)] = plan
        return plan

    monkeypatch.setattr(unit, "make_plan", watched)
    tables = algorithms("fedavg", "per-fedavg", "centralised")
    run = fedref.run(document(algorithms=tables, seeds=[4, 9], sweep={"batch-size": [3, 5]}))
    used = dict(drawn)
    assert len(used) == 2 * 3 * 3
    for (seed, roles, t, clients), plan in used.items():
        label = "centralised" if clients == 1 else "per-fedavg" if len(roles) > 1 else "fedavg"
        got = run.plan(t, label, seed, **{"batch-size": 5})  # the one that was drawn last
        np.testing.assert_equal(got, plan)
    assert run.plan(0).rows["D"].shape[-1] == 3  # of the first point
    with pytest.raises(fedref.ConfigError, match="round is 3, expected 0 to 2"):
        run.plan(3)
    with pytest.raises(fedref.ConfigError, match=r"no unit has .*seed=5, expected one of"):
        run.plan(0, "fedavg", 5)


def test_parameters_of_chosen_rounds_are_kept_and_move_no_number(here):
    table = document(rounds=7, algorithms={"apfl": {"z": 1}, "fedavg": {}})
    path = write(here / "t.toml", table)
    assert main("run", path, "-q", "-o", "a", "--set", "keep-parameters=3") == 0
    run = fedref.load_run("a")
    others = fedref.run(table), fedref.run(table, workers=2)
    for label in ("apfl", "fedavg"):
        one = next(one for one in unit.units(experiment(table)) if one.label == label)
        expected = [r.state for r in unit.iterate_rounds(one, load_experiment(one.experiment))]
        for t in (0, 3, 6, 7):
            np.testing.assert_equal(run.parameters(label, t), expected[t])
        assert run.units_of(label)[0][1].state.clients == {}  # they stay on disk
        for other in others:
            np.testing.assert_equal(other.parameters(label), expected[7])
    assert main("run", path, "-q", "-o", "b") == 0
    a, b = contents(here / "a"), contents(here / "b")
    other = {name.split("/")[0] for name in a if b.get(name) != a[name]}
    assert other == {"config.toml", "checkpoints", "parameters"}  # files of another unit's name
    assert sum(name.startswith("parameters/") for name in a) == 2 * 4
    message = r"parameters of round 4 are not kept, expected those of the rounds \[0, 3, 6, 7\]"
    with pytest.raises(fedref.ConfigError, match=message):
        run.parameters("apfl", 4)
    with pytest.raises(fedref.ConfigError, match="expected a run with keep_parameters"):
        fedref.load_run("b").parameters("fedavg", 2)
    with pytest.raises(fedref.ConfigError, match="keep-parameters needs a run directory"):
        fedref.run(document(), keep_parameters=2)


@pytest.mark.parametrize(
    ("seed", "noted"),
    [(0, "with --set split.seed=run it follows the seed"), ("run", "split.json is that of seed 0")],
)
def test_below_the_table_stands_whether_the_split_follows_the_seed(here, seed, noted):
    split = {**document()["split"], "seed": seed}
    run = fedref.run(document(seeds=[0, 1], split=split, rounds=1), out="a")
    assert noted in str(run)
    of_a_manifest = fedref.run(document(seeds=[0, 1], split="a/split.json", rounds=1))
    assert "not the split, which is the same in all seeds.\n" in f"{of_a_manifest}\n"


def test_a_repr_is_a_line_or_so():
    run = fedref.run(document(algorithms=algorithms("fedavg", "apfl")))
    ends = [f"{label} (seed 0) accuracy {100 * run.curve(label)[1][0, -1]:.2f} %"
            for label in ("fedavg", "apfl")]  # fmt: skip
    assert repr(run) == f"<Run tiny, round 3: {', '.join(ends)}>"
    assert repr(run.records) == "[<Record of round 3, done>, <Record of round 3, done>]"
    many = repr(fedref.run(document(rounds=1, seeds=list(range(30)))))
    assert many.endswith(" and 22 more>")
    assert len(many) < 400


def test_a_text_in_a_csv_is_no_formula_and_reads_back_the_same():
    names = ["=1+1", "+1", "-x", "@SUM(A1)", "'quoted'", "\t=1", "plain", "two\nlines", 'a"b,c']
    rows, stream = [{"=x": name, "n": -1.5} for name in names], io.BytesIO()
    write_csv(rows, ["=x", "n"], stream)
    text = stream.getvalue().decode()
    head, *cells = csv.reader(io.StringIO(text, newline=""))
    assert [cell.removeprefix("'") for cell, _ in cells] == names
    assert (head, {n for _, n in cells}) == (["'=x", "n"], {"-1.5"})
    assert not [cell for cell, _ in cells if cell[0] in "=+-@\t"]
    stream = io.BytesIO()
    write_csv([{"x": "\r=1+1", "n": 1}], ["x", "n"], stream)  # which would be a row of its own
    assert stream.getvalue() == b"x,n\n\\r=1+1,1\n"
