"""Results: as arrays and tables, as they are shown, as plans, and with the parameters that were kept."""

import base64
import re
import sys

import numpy as np
import pytest
from running import algorithms, contents, document, experiment, main, rows, write

import fedref
from fedref.experiments import results, run_directory, unit
from fedref.experiments.loading import load_experiment

pytestmark = pytest.mark.usefixtures("here")


# ---- arrays and tables ---------------------------------------------------------------------------


def test_lists_in_a_sweep_are_text_in_the_tables(here):
    sweep = {"model.hidden": [[3], [4, 2]]}
    run = fedref.run(document(model={"name": "mlp"}, sweep=sweep, rounds=1), out="a")
    assert set(run.metrics["sweep.model.hidden"].tolist()) == {"[3]", "[4, 2]"}
    assert len(rows(here / "a" / "metrics.csv", **{"sweep.model.hidden": "[4, 2]"})) == 2


def test_what_does_not_have_the_swept_key_is_run_once_and_not_labelled_with_it(here):
    table = document(algorithms=algorithms("fedavg", "fedprox"), sweep={"mu": [0.0, 1.0]}, rounds=1)
    run = fedref.run(table, out="a")
    assert [(unit.label, unit.point) for unit in run.units] == [
        ("fedavg", {}), ("fedprox", {"mu": 0.0}), ("fedprox", {"mu": 1.0})
    ]  # fmt: skip
    labels = [row[0] for row in results.printed_table(run)[1:]]
    assert labels == ["fedavg", "fedprox (mu=0.0)", "fedprox (mu=1.0)"]
    swept = [row["sweep.mu"] for row in rows(here / "a" / "metrics.csv", round=1)]
    assert swept == ["", "0.0", "1.0"]
    np.testing.assert_array_equal(run.metrics["sweep.mu"], [np.nan] * 2 + [0.0] * 2 + [1.0] * 2)


def test_unseen_clients_have_columns_in_the_table():
    run = fedref.run(rounds=1, unseen=0.2, algorithms=algorithms("fedmeta-maml"))
    header, row = results.printed_table(run)
    assert header[7:9] == ["unseen", "unseen (clients)"]
    assert row[7] == f"{100 * run.records[0].rows[-1]['unseen_accuracy']:.2f}"


def test_a_table_of_few_bytes_says_so():
    header, row, *_ = results.printed_table(fedref.run(data=arrays(1.0), rounds=1))
    assert (header[-2:], row[-2:]) == (["kB down", "kB up"], ["0.14", "0.14"])


def test_rounds_that_are_not_the_same_in_all_are_not_counted_for_all():
    run = fedref.run(document(sweep={"rounds": [2, 3]}))
    assert results.heading(run).startswith("Test accuracy in %, over evaluated rounds, not the")


# ---- notes below the table -----------------------------------------------------------------------


def arrays(scale, seed=0):
    """Three clients whose two features have sizes about 1 and `scale`, and whose labels depend on both."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    return X * [1.0, scale], (X.sum(1) > 0).astype(int), np.repeat(np.arange(3), 40)


def noted(**settings) -> str:
    return "\n".join(results.notes(fedref.run(algorithm="fedavg", **settings)))


def test_nothing_is_noted_of_a_run_that_hides_nothing(here, capsys):
    assert noted(data=arrays(1.0), rounds=40, lr=1.0) == ""
    assert main("run", "fedavg", "--rounds", "100", "-o", "a") == 0
    assert "Note" not in capsys.readouterr().out
    assert results.notes(fedref.load_run("a")) == []


@pytest.mark.parametrize("scale", [0.001, 40.0])
def test_features_of_very_different_sizes_are_noted_with_the_scaling_that_helps(scale):
    data = arrays(scale)
    least, largest = sorted(np.sqrt(np.mean(data[0] ** 2, 0)))
    said = re.search(r"root mean square of (\S+) to (\S+): --set split.scaling=standardise may help",
                     noted(data=data, rounds=1, split={"rule": "natural"}))  # fmt: skip
    assert [float(x) for x in said.groups()] == pytest.approx([least, largest], rel=0.2)
    split = {"rule": "natural", "scaling": "standardise"}
    assert "root mean square" not in noted(data=data, rounds=1, split=split)


@pytest.mark.parametrize(("factor", "said"), [(1, False), (100, True)])
def test_pixels_may_differ_in_size_but_not_be_large(factor, said):
    X, y, client = arrays(1.0)
    images = factor * np.abs(np.repeat(X, 8, 1)).reshape(120, 4, 4) * [1, 1, 1, 0.001]
    split = {"rule": "natural", "scaling": "none"}
    assert (
        "root mean square of 1" in noted(data=(images, y, client), rounds=1, split=split)
    ) == said


def test_a_test_loss_that_is_worse_than_guessing_has_a_column_and_a_note(here, capsys):
    X, y, client = arrays(1.0)
    run = fedref.run(data=(X, np.roll(y, 1), client), algorithms=["fedavg"], rounds=3, lr=1e4)
    header, row = results.printed_table(run)
    loss = run.records[0].rows[-1]["test_loss"]
    assert loss > np.log(2)
    assert row[header.index("test loss")] == f"{loss:#.4g}"
    assert f"guessing, 0.693 (fedavg {loss:.4g}), whatever" in "\n".join(results.notes(run))
    assert "test loss" not in results.printed_table(fedref.run(data=arrays(1.0), rounds=3))[0]


def test_an_infinite_test_loss_is_worse_than_guessing_and_no_warning():
    run = fedref.run(data=arrays(1.0), algorithm="fedavg", rounds=1, seeds=[0, 1])
    for record in run.records:
        record.rows[-1]["test_loss"] = np.inf
    header, row = results.printed_table(run)
    assert row[header.index("test loss")] == "inf ± nan"
    assert "(fedavg inf)" in "\n".join(results.notes(run))


def test_losses_that_still_fall_are_noted():
    said = noted(data=arrays(1.0), rounds=20, lr=0.01)
    assert said == "Note: the loss of fedavg still falls at the end: more --rounds may help."
    assert noted(data=arrays(1.0), rounds=20, lr=0.01, eval_train=False) == said
    assert noted(data=arrays(1.0), rounds=8, lr=0.01) == ""  # too few to tell


# ---- shown ---------------------------------------------------------------------------------------


def test_a_repr_is_a_line_or_so():
    run = fedref.run(document(algorithms=algorithms("fedavg", "apfl")))
    last = [100 * record.rows[-1]["accuracy"] for record in run.records]
    ends = f"fedavg accuracy {last[0]:.2f} %, apfl accuracy {last[1]:.2f} %"
    assert repr(run) == f"<Run tiny, 3 rounds: {ends}>"
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
    assert shown.startswith(f"<Run {name}, 1 round: fedavg accuracy ")


def test_a_notebook_shows_the_table_and_the_picture(monkeypatch):
    monkeypatch.undo()  # with pictures
    tables = {"a<b": {"algorithm": "fedavg"}, "per-fedavg": {"beta": 0.001}}
    shown = fedref.run(document(algorithms=tables))._repr_html_()
    assert "<th>algorithm</th><th>average</th>" in shown
    assert "<td>a&lt;b</td>" in shown
    assert shown.count("<tr>") == 3
    assert "over 4 evaluated rounds" in shown
    assert "Note: step sizes differ" in shown
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    assert base64.b64decode(data).startswith(b"\x89PNG")


# ---- data frames ---------------------------------------------------------------------------------


def test_pandas_has_the_same_columns_and_numbers(here):
    pytest.importorskip("pandas")
    run = fedref.run(document(algorithms=algorithms("fedavg", "fedprox")), out="a")
    for name in ("metrics", "clients"):
        frame, read = run.to_pandas(name), rows(here / "a" / f"{name}.csv")
        assert list(frame.columns) == list(read[0])
        assert len(frame) == len(read)
        assert frame["accuracy"].tolist() == [float(row["accuracy"]) for row in read]
    assert run.to_pandas().equals(run.to_pandas("metrics"))
    with pytest.raises(fedref.ConfigError, match="unknown table 'metric': did you mean 'metrics'"):
        run.to_pandas("metric")


def test_without_pandas_what_to_do_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedref.ConfigError, match="needs pandas, expected `pip install pandas`"):
        fedref.run(document(rounds=0)).to_pandas()


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
    drawn.clear()
    assert len(used) == 2 * 3 * 3
    for (seed, roles, t, clients), plan in used.items():
        label = "centralised" if clients == 1 else "per-fedavg" if len(roles) > 1 else "fedavg"
        got = run.plan(t, label, seed, **{"batch-size": 5})  # the one that was drawn last
        np.testing.assert_equal(got, plan)
    assert (
        run.plan(0).rows["D"].shape == run.plan(0, "fedavg", 4, **{"batch-size": 3}).rows["D"].shape
    )
    assert run.plan(0).rows["D"].shape[-1] == 3
    for wrong in (3, -1):
        with pytest.raises(fedref.ConfigError, match=f"round is {wrong}, expected 0 to 2"):
            run.plan(wrong)
    with pytest.raises(fedref.ConfigError, match=r"seed is 5, expected one of \[4, 9\]"):
        run.plan(0, seed=5)


# ---- what clients keep, and parameters of chosen rounds ------------------------------------------


def states(table: dict, label: str) -> list:
    """The state after every round, straight from the loop."""
    one = next(one for one in unit.units(experiment(table)) if one.label == label)
    return [r.state for r in unit.iterate_rounds(one, load_experiment(one.experiment))]


def test_load_run_keeps_what_clients_keep(here):
    table = document(rounds=4, algorithms={"apfl": {"z": 1}})
    ran = fedref.run(table, out="a")
    assert ran.records[0].state.clients == {}  # they stay on disk
    run = fedref.load_run("a")
    own = run.records[0].state.clients
    expected = states(table, "apfl")[-1].clients
    assert set(own) == set(expected) != set()
    for k, state in own.items():
        np.testing.assert_equal(state.a, expected[k].a)
        np.testing.assert_equal(state.w_k, expected[k].w_k)
    assert run.parameters("apfl").clients == own
    assert fedref.load_run("a", client_states=False).records[0].state.clients == {}


def test_parameters_of_chosen_rounds_are_kept(here):
    table = document(rounds=7, keep_parameters=3, algorithms={"apfl": {"z": 1}, "fedavg": {}})
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    run = fedref.load_run("a")
    assert len(list((here / "a" / "parameters").iterdir())) == 2 * 4
    for label in ("apfl", "fedavg"):
        expected = states(table, label)
        for t in (0, 3, 6, 7):
            np.testing.assert_equal(run.parameters(label, t), expected[t])
    assert not np.array_equal(
        run.parameters("fedavg", 3).server.w, run.parameters("fedavg", 6).server.w
    )
    message = r"parameters of round 4 are not kept, expected those of the rounds \[0, 3, 6, 7\]"
    with pytest.raises(fedref.ConfigError, match=message):
        run.parameters("apfl", 4)
    found = fedref.run(document(), out="b")
    with pytest.raises(fedref.ConfigError, match="expected a run with keep_parameters"):
        found.parameters("fedavg", 2)
    with pytest.raises(fedref.ConfigError, match="keep-parameters needs a run directory"):
        fedref.run(document(), keep_parameters=2)


def test_what_is_kept_moves_no_number(here):
    path = write(here / "t.toml", document(rounds=5))
    assert main("run", path, "-q", "-o", "a") == 0
    assert main("run", path, "-q", "-o", "b", "--set", "keep-parameters=2") == 0
    a, b = contents(here / "a"), contents(here / "b")
    other = {name.split("/")[0] for name in b if a.get(name) != b[name]}
    assert other == {"config.toml", "checkpoints", "parameters"}  # files of another unit's name
    assert sum(name.startswith("parameters/") for name in b) == 4


def test_what_was_saved_and_not_kept_is_kept_by_resume(here, monkeypatch):
    path = write(here / "t.toml", document(rounds=5, keep_parameters=2))
    assert main("run", path, "-q", "-o", "whole") == 0
    real = run_directory.save_state

    def stopped(directory, unit, record):
        if record.round == 2:
            raise KeyboardInterrupt
        real(directory, unit, record)

    with monkeypatch.context() as patched:
        patched.setattr(run_directory, "save_state", stopped)
        assert main("run", path, "-q", "-o", "a") == 130
    assert main("resume", "a", "-q") == 0
    assert contents(here / "a") == contents(here / "whole")


def test_a_damaged_file_of_parameters_is_one_error(here):
    table = document(rounds=2, keep_parameters=1)
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    first = min((here / "a" / "parameters").iterdir())
    (first.parent / "fedavg-seed0-round00x.ckpt").touch()
    first.write_bytes(b"what is this")
    run = fedref.load_run("a")
    with pytest.raises(fedref.DataError, match="is not a checkpoint"):
        run.parameters("fedavg", 0)
    assert run.parameters("fedavg", 1).server.w.shape == run.parameters("fedavg").server.w.shape
