"""Results: as arrays and tables, as they are shown, as plans, and with the parameters that were kept."""

import base64
import re

import numpy as np
import pytest
from running import algorithms, contents, document, experiment, main, rows, write

import fedref
from fedref.lab.experiments import results, run_directory, unit
from fedref.lab.experiments.loading import load_experiment

pytestmark = pytest.mark.usefixtures("here")


# ---- tables --------------------------------------------------------------------------------------


def test_a_sweep_has_a_column_for_what_depends_on_it_and_lists_are_text(here):
    table = document(algorithms=algorithms("fedavg", "fedprox"), rounds=1,
                     sweep={"mu": [0.0, 1.0]})  # fmt: skip
    run = fedref.run(table, out="a")
    assert [(unit.label, unit.point) for unit in run.units] == [
        ("fedavg", {}), ("fedprox", {"mu": 0.0}), ("fedprox", {"mu": 1.0})
    ]  # fmt: skip
    labels = [row[0] for row in results.printed_table(run)[1:]]
    assert labels == ["fedavg", "fedprox (mu=0.0)", "fedprox (mu=1.0)"]
    for name in ("metrics.csv", "summary.csv"):
        swept = [row["sweep.mu"] for row in rows(here / "a" / name)]
        assert list(dict.fromkeys(swept)) == ["", "0.0", "1.0"]
    np.testing.assert_array_equal(run.metrics["sweep.mu"], [np.nan] * 2 + [0.0] * 2 + [1.0] * 2)
    sweep = {"model.hidden": [[3], [4, 2]]}
    run = fedref.run(document(model={"name": "mlp"}, sweep=sweep, rounds=1), out="b")
    assert set(run.metrics["sweep.model.hidden"].tolist()) == {"[3]", "[4, 2]"}


def test_the_summary_is_means_and_standard_deviations_over_seeds(here):
    run = fedref.run(document(rounds=3, seeds=[0, 1]), out="a")
    _, y = run.curve("fedavg", "accuracy")
    (row,) = run.summary()
    values = {"average": y.mean(1), "maximum": y.max(1), "final": y[:, -1]}
    for name, each in values.items():
        assert (row[name], row[f"{name}_sd"]) == pytest.approx((each.mean(), each.std()))
    (read,) = rows(here / "a" / "summary.csv")
    assert {name: str(value) for name, value in row.items()} == read
    header, line = results.printed_table(run)
    assert header[:4] == ["algorithm", "average", "maximum", "final"]
    assert line[3] == f"{100 * row['final']:.2f} ± {100 * row['final_sd']:.2f}"
    run = fedref.run(rounds=1, unseen=0.2, algorithms=algorithms("fedmeta-maml"))
    header, line = results.printed_table(run)
    assert header[7:9] == ["unseen", "unseen (clients)"]
    assert line[7] == f"{100 * run.records[0].rows[-1]['unseen_accuracy']:.2f}"
    header, line, *_ = results.printed_table(fedref.run(data=arrays(1.0), rounds=1))
    assert (header[-2:], line[-2:]) == (["kB down", "kB up"], ["0.14", "0.14"])
    run = fedref.run(document(sweep={"rounds": [2, 3]}))
    assert results.heading(run).startswith("Test accuracy in %, over evaluated rounds, not the")


def test_pandas_has_the_same_columns_and_numbers(here):
    pytest.importorskip("pandas")
    run = fedref.run(document(algorithms=algorithms("fedavg", "fedprox")), out="a")
    for name in ("metrics", "clients", "summary"):
        frame, read = run.to_pandas(name), rows(here / "a" / f"{name}.csv")
        assert list(frame.columns) == list(read[0])
        column = "final" if name == "summary" else "accuracy"
        assert frame[column].tolist() == [float(row[column]) for row in read]
    with pytest.raises(fedref.ConfigError, match="unknown table 'metric': did you mean 'metrics'"):
        run.to_pandas("metric")


# ---- notes below the table -----------------------------------------------------------------------


def arrays(scale, seed=0):
    """Three clients whose two features have sizes about 1 and `scale`, and whose labels depend on both."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    return X * [1.0, scale], (X.sum(1) > 0).astype(int), np.repeat(np.arange(3), 40)


def noted(data, **split) -> str:
    how = {"rounds": 1, "split": {"rule": "natural", **split}}
    return fedref.run(algorithm="fedavg", data=data, **how).note


@pytest.mark.parametrize("scale", [0.001, 1.0, 40.0])
def test_features_of_very_different_sizes_are_noted_with_the_scaling_that_helps(scale):
    data = arrays(scale)
    least, largest = sorted(np.sqrt(np.mean(data[0] ** 2, 0)))
    form = r"root mean square of (\S+) to (\S+): --set split.scaling=standardise may help"
    said = re.search(form, noted(data))
    if scale == 1:
        assert said is None
    else:
        assert [float(x) for x in said.groups()] == pytest.approx([least, largest], rel=0.2)
    assert noted(data, scaling="standardise") == ""


@pytest.mark.parametrize(("factor", "said"), [(1, False), (100, True)])
def test_pixels_may_differ_in_size_but_not_be_large(factor, said):
    X, y, client = arrays(1.0)
    images = factor * np.abs(np.repeat(X, 8, 1)).reshape(120, 4, 4) * [1, 1, 1, 0.001]
    assert ("root mean square of 1" in noted((images, y, client), scaling="none")) == said


# ---- shown ---------------------------------------------------------------------------------------


def test_a_repr_is_a_line_or_so():
    run = fedref.run(document(algorithms=algorithms("fedavg", "apfl")))
    last = [100 * record.rows[-1]["accuracy"] for record in run.records]
    ends = f"fedavg (seed 0) accuracy {last[0]:.2f} %, apfl (seed 0) accuracy {last[1]:.2f} %"
    assert repr(run) == f"<Run tiny, round 3: {ends}>"
    assert "| fedavg " in str(run)
    assert repr(run.records) == "[<Record of round 3, done>, <Record of round 3, done>]"
    run = fedref.run(document(rounds=1, eval_every=1, seeds=list(range(30))))
    assert "fedavg (seed 7) accuracy " in repr(run)
    assert repr(run).endswith(" and 22 more>")
    assert len(repr(run)) < 400


@pytest.mark.parametrize(
    ("data", "name"),
    [("arrays", "data"), ("synthetic(0.5,0.5)", "synthetic"), (None, "digits")],
)
def test_a_run_is_called_after_its_data(data, name):
    X, y = np.ones((200, 3)), np.arange(200) % 2
    own = {"data": (X, y), "split": "iid"} if data == "arrays" else {"data": data} if data else {}
    shown = repr(fedref.run(algorithm="fedavg", rounds=1, **own))
    assert shown.startswith(f"<Run {name}, round 1: fedavg (seed 0) accuracy ")


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


# ---- plans ---------------------------------------------------------------------------------------


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
    first = run.plan(0).rows["D"].shape
    assert first == run.plan(0, "fedavg", 4, **{"batch-size": 3}).rows["D"].shape
    assert first[-1] == 3
    for wrong in (3, -1):
        with pytest.raises(fedref.ConfigError, match=f"round is {wrong}, expected 0 to 2"):
            run.plan(wrong)
    for label, seed, words in (("fedavg", 5, "seed=5"), ("fedavgg", None, "algorithm=fedavgg")):
        with pytest.raises(fedref.ConfigError, match=rf"no unit has .*{words}, expected one of"):
            run.plan(0, label, seed)


# ---- what clients keep, and parameters of chosen rounds ------------------------------------------


def states(table: dict, label: str) -> list:
    """The state after every round, straight from the loop."""
    one = next(one for one in unit.units(experiment(table)) if one.label == label)
    return [r.state for r in unit.iterate_rounds(one, load_experiment(one.experiment))]


def test_load_run_keeps_what_clients_keep(here):
    table = document(rounds=4, algorithms={"apfl": {"z": 1}})
    expected = states(table, "apfl")[-1].clients
    ways = fedref.run(table, out="a"), fedref.load_run("a"), fedref.run(table)
    for run in (*ways, fedref.run(table, workers=2)):
        assert run.records[0].state.clients == {} or run.directory is None  # they stay on disk
        own = run.parameters("apfl").clients
        assert set(own) == set(expected) != set()
        for k, state in own.items():
            np.testing.assert_equal(state, expected[k])


def test_parameters_of_chosen_rounds_are_kept_and_move_no_number(here):
    table = document(rounds=7, algorithms={"apfl": {"z": 1}, "fedavg": {}})
    path = write(here / "t.toml", table)
    assert main("run", path, "-q", "-o", "a", "--set", "keep-parameters=3") == 0
    run = fedref.load_run("a")
    for label in ("apfl", "fedavg"):
        expected = states(table, label)
        for t in (0, 3, 6, 7):
            np.testing.assert_equal(run.parameters(label, t), expected[t])
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
    min((here / "a" / "parameters").iterdir()).write_bytes(b"what is this")
    with pytest.raises(fedref.DataError, match="is not a checkpoint"):
        run.parameters("apfl", 0)


def test_what_was_saved_and_not_kept_is_kept_by_resume(here, monkeypatch):
    path = write(here / "t.toml", document(rounds=5, keep_parameters=2))
    assert main("run", path, "-q", "-o", "whole") == 0
    real = run_directory.keep_state

    def stopped(directory, unit, record):
        if record.round == 2:
            raise KeyboardInterrupt
        real(directory, unit, record)

    with monkeypatch.context() as patched:
        patched.setattr(run_directory, "keep_state", stopped)
        assert main("run", path, "-q", "-o", "a") == 130
    assert main("resume", "a", "-q") == 0
    assert contents(here / "a") == contents(here / "whole")
