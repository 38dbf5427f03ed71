"""A run from its first round to its last: the same bytes however it is run, and what stops it."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from running import algorithms, contents, document, experiment, main, play, rows, toml, write

import fedref
from fedref import ConfigError
from fedref.algorithms.fedavg import FedAvg
from fedref.lab.experiments import loading
from fedref.lab.experiments.progress import Progress
from fedref.lab.experiments.run_directory import UnitFiles
from fedref.rounds import loop as rounds_module

pytestmark = pytest.mark.usefixtures("here")


def test_run_and_load_run_give_the_numbers_of_the_files(here):
    pytest.importorskip("pandas")
    tables = algorithms("fedavg", "fedprox", "apfl")
    table = document(algorithms=tables, seeds=[0, 1], eval_every=2, sweep={"model.l2": [0.0, 0.5]})
    ran = fedref.run(write(here / "t.toml", table), out="a", rounds=2, **{"split.users": 6})
    loaded = fedref.load_run("a")
    for run in (ran, loaded):
        for name in ("metrics", "clients", "summary"):
            read, frame = rows(here / "a" / f"{name}.csv"), run.to_pandas(name)
            for table in [frame, getattr(run, name)][: 2 - (name == "summary")]:
                assert [*table] == [*read[0]]
                for column, values in table.items():
                    cells = [row[column] for row in read]
                    if values.dtype.kind == "f":
                        cells = [str(float(cell)) if cell else cell for cell in cells]
                    assert ["" if v != v else str(v) for v in values.tolist()] == cells, column
    with pytest.raises(ConfigError, match="unknown table 'metric': did you mean 'metrics'"):
        ran.to_pandas("metric")
    assert len(ran.metrics["round"]) == 2 * 2 * 3 * 3
    assert len(ran.clients["client"]) == 2 * 2 * 3 * 2 * 6
    t, accuracy = loaded.curve("apfl", "accuracy", **{"model.l2": 0.5})
    assert t.tolist() == [0, 2]
    where = {"algorithm": "apfl", "sweep.model.l2": 0.5}
    for i, seed in enumerate((0, 1)):
        own = rows(here / "a" / "metrics.csv", seed=seed, **where)
        assert accuracy[i].tolist() == [float(row["accuracy"]) for row in own if row["accuracy"]]
    with pytest.raises(ConfigError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        loaded.curve("fedavg", "acuracy")
    assert loaded.curve("fedavg", "mu")[0].size == 0  # a column that others have


def test_run_writes_nothing_unless_it_is_told_where(here):
    made = experiment(document())
    first = fedref.run(made)
    assert not list(here.iterdir())
    second = fedref.run(made, out=here / "a")
    assert main("run", write(here / "t.toml", document()), "--out", "b", "--quiet") == 0
    assert contents(here / "a") == contents(here / "b")
    assert first.records[0].rows == second.records[0].rows
    assert fedref.run(made, out=here / "a").records[0].rows == first.records[0].rows  # goes on
    with pytest.raises(fedref.FedrefError, match="already holds a run"):
        fedref.run(made, out=here / "a", rounds=9)
    for how, words in (
        ({"epochs": 1, "steps": 2}, "both epochs and steps are given"),
        ({"workers": 0}, "workers"), ({"workers": "2"}, "workers"), ({"out": 5}, "out is 5"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            fedref.run(made, **how)


def test_labels_may_be_given_in_every_way():
    one = fedref.run(document(rounds=1), algorithm={"a": "fedavg", "b": FedAvg(lr=0.2)})
    assert [unit.label for unit in one.units] == ["a", "b"]
    assert one.experiment.algorithms == {"a": FedAvg(), "b": FedAvg(lr=0.2)}
    other = fedref.run(document(rounds=1), algorithms={"a": {"algorithm": "fedavg"}, "b": FedAvg})
    assert other.experiment.algorithms == {"a": FedAvg(), "b": FedAvg()}
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    for what in ("fedavg", ["fedavg"], FedAvg, FedAvg()):
        assert fedref.run(what, rounds=0).units[0].algorithm == FedAvg()
    for given, how, words in (
        (["fedavg"], {"algorithm": "apfl"}, "both what and algorithm are given"),
        ([], {"algorithm": ["fedavg", 3]}, "algorithm is 3, expected a table, or an algorithm's"),
        (["fedavg", (X, y)], {}, r'expected data=\(X, y, client\).*split="iid"'),
    ):
        with pytest.raises(fedref.ConfigError, match=words):
            fedref.run(*given, **how)


def test_options_that_do_nothing_are_refused_and_told_where_others_use_them():
    with pytest.raises(fedref.ConfigError, match="no algorithm of this run takes weighting"):
        fedref.run("fedmaml", rounds=0, weighting="uniform")
    with pytest.raises(fedref.ConfigError, match=r"algorithms.centralised drop: it has no use"):
        fedref.run({"algorithms": {"centralised": {"drop": False}}}, rounds=0)
    told = []
    how = {"rounds": 0, "progress": Progress(message=told.append)}
    both = fedref.run(["fedadagrad", "fedadam"], beta2=0.5, **how)
    assert [unit.algorithm.beta2 for unit in both.units] == [0.99, 0.5]
    assert told == ["fedadagrad has no use for beta2, which is set for others"]
    sweep = {"weighting": ["uniform", "samples"]}
    titles = {unit.title for unit in fedref.run(["fedavg", "fedmaml"], rounds=0, sweep=sweep).units}
    assert titles == {"fedavg (weighting=uniform)", "fedavg (weighting=samples)", "fedmaml"}


def test_a_sweep_over_mu_with_one_local_step_is_told_to_have_equal_points():
    how = {"rounds": 1, "sweep": {"mu": [0.1, 1.0]}}
    told = []
    run = fedref.run(["fedprox", "fedavg"], steps=1, progress=Progress(message=told.append), **how)
    assert told == ["fedprox: mu has no effect with one local step: all points are equal"]
    prox = [r for u, r in zip(run.units, run.records) if u.label == "fedprox"]
    np.testing.assert_array_equal(*(record.state.server.w for record in prox))
    fedref.run(["fedprox", "fedavg"], steps=2, progress=Progress(message=told.append), **how)
    assert len(told) == 1


def test_one_seed_is_a_number_and_a_file_without_algorithms_has_values_for_those_beside_it(here):
    assert fedref.run("fedavg", rounds=0, seeds=3).experiment.seeds == (3,)
    for wrong in (True, -1, 1.5):
        with pytest.raises(fedref.ConfigError, match="seeds"):
            fedref.run("fedavg", rounds=0, seeds=wrong)
    (here / "a.toml").write_text("lr = 0.3\nrounds = 0\n")
    run = fedref.run("a.toml", algorithm=["fedavg", "per-fedavg"])
    assert [getattr(unit.algorithm, "lr", None) for unit in run.units] == [0.3, None]
    with pytest.raises(
        fedref.ConfigError, match=r"a\.toml: no algorithm is named, expected one of"
    ):
        fedref.run("a.toml")


def test_a_sweep_loads_data_that_stay_the_same_once(monkeypatch):
    loaded = []
    real = loading.split

    def watched(*arguments, **more):
        loaded.append(arguments)
        return real(*arguments, **more)

    monkeypatch.setattr(loading, "split", watched)
    table = document(sweep={"split.users": [4, 6], "lr": [0.1, 0.2, 0.3]}, rounds=1)
    run = play(table)
    assert (len(run.records), len(loaded)) == (6, 2)
    split = {**table["split"], "users": 6}
    one = play(document(split=split, rounds=1, algorithms={"fedavg": {"lr": 0.2}}))
    assert run.records[4].rows == one.records[0].rows


def test_fewer_than_five_clients_all_take_part_and_it_is_said_once(here, capsys):
    split = {"rule": "iid", "users": 3}
    table = document(split=split, algorithms=algorithms("fedavg", "apfl"))
    del table["clients-per-round"]
    assert main("run", write(here / "t.toml", table), "-o", "a") == 0
    told = "fedref: clients-per-round is 3: there are no more clients\n"
    assert capsys.readouterr().err.count(told) == 1
    assert toml(here / "a" / "config.toml")["clients-per-round"] == 3
    run = fedref.load_run("a")
    assert [len(run.plan(0, unit.label).clients) for unit in run.units] == [3, 3]


@dataclass(frozen=True)
class FailsOnLarge(FedAvg):
    """A client with more than 12 training rows (the first two of TINY's four) raises."""

    def finish(self, model, sent, local, client_state, data):
        if len(data().y) > 12:
            raise ZeroDivisionError("too large")
        return super().finish(model, sent, local, client_state, data)


def test_clients_that_fail_can_be_dropped_and_are_named_and_counted():
    told = []
    how = {"algorithm": FailsOnLarge, "progress": Progress(message=told.append)}
    run = fedref.run(document(rounds=5, on_failure="drop"), **how)
    failed = [row["failed"] for row in run.records[0].rows]
    form = r"client [01] failed in round (\d): .*ZeroDivisionError: too large; it is dropped"
    rounds = [int(re.fullmatch(form, text)[1]) for text in told]
    assert failed == [sum(t <= n for t in rounds) for n in range(6)]
    assert failed[-1] > 0


def test_a_stack_that_fails_is_reported_once_with_its_place(monkeypatch):
    """The clients are done again one by one, to the same numbers, and not in silence."""
    expected = play(document(rounds=3))

    def broken(*arguments):
        raise ZeroDivisionError("in the stack only")

    monkeypatch.setattr(rounds_module, "run_stacked", broken)
    told = []
    got = play(document(rounds=3), progress=Progress(message=told.append))
    assert got.records[0].rows == expected.records[0].rows
    assert len(told) == 1
    assert "FedAvg fails for several clients at once" in told[0]
    assert f"{__file__}, line " in told[0]
    assert "ZeroDivisionError: in the stack only" in told[0]


@pytest.mark.parametrize(("last", "kept"), [(2, True), (3, True), (2, False)])
def test_an_interrupt_before_a_round_is_saved_loses_nothing(here, monkeypatch, last, kept):
    """Of the last round, too, after which a unit is done; nor a state that was about to be kept."""
    table, real = document(rounds=3, keep_parameters=2), UnitFiles.keep_state

    def interrupted(files, record):
        if record.round != last or kept:
            real(files, record)
        if record.round == last:
            raise KeyboardInterrupt

    monkeypatch.setattr(UnitFiles, "keep_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fedref.run(table, out="a")
    monkeypatch.setattr(UnitFiles, "keep_state", real)
    (record,) = fedref.load_run("a").records
    assert (record.round, record.status) == (last, "done" if last == 3 else "running")
    for out in ("a", "whole"):
        fedref.run(table, out=out)
    assert contents(here / "a") == contents(here / "whole")
