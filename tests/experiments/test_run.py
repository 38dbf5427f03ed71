"""A run from its first round to its last: the same bytes however it is run, and what stops it."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from helpers import Dies
from running import (
    algorithms,
    contents,
    document,
    main,
    play,
    refused,
    rows,
    toml,
    write,
)

import fedref
from fedref import ConfigError
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments import config, loading, results
from fedref.experiments.progress import Progress
from fedref.rounds import loop as rounds_module
from fedref.sampling import make_plan
from reproduce import jobs

#: `fedref.experiments.run` the module: the package has a function of that name too.
RUN = importlib.import_module("fedref.experiments.run")

pytestmark = pytest.mark.usefixtures("here")


def test_a_cohort_over_processes_gives_the_same_bytes(here):
    model = {"name": "mlp", "hidden": [70]}
    own = {"apfl": {"z": 1}}  # from round 1 on clients have states of their own
    table = document(rounds=3, clients_per_round=4, algorithms=own, model=model)
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--quiet") == 0
    assert main("run", path, "--out", "b", "--quiet", "--workers", 2) == 0
    assert contents(here / "a") == contents(here / "b")


def test_tables_take_a_small_part_of_the_time_and_are_whole_in_the_end(here, monkeypatch):
    clock, written = [0.0], []

    def slow(run, directory):
        written.append(len(run.units))
        clock[0] += 5

    def ten_seconds(self, *rest):
        clock[0] += 10
        return run_of_unit(self, *rest)

    run_of_unit = RUN.UnitRun.run
    monkeypatch.setattr(RUN, "write_tables", slow)
    monkeypatch.setattr(RUN.UnitRun, "run", ten_seconds)
    monkeypatch.setattr(RUN.time, "monotonic", lambda: clock[0])
    fedref.run(document(rounds=0, seeds=list(range(25))), out="a")
    assert written == [1, 11, 21, 25]  # each takes 5 s: 100 s of work lie in between


# ---- the same numbers from Python ----------------------------------------------------------------


def test_run_and_load_run_give_the_numbers_of_the_files(here):
    tables = algorithms("fedavg", "fedprox", "apfl")
    table = document(algorithms=tables, seeds=[0, 1], eval_every=2, sweep={"model.l2": [0.0, 0.5]})
    ran = fedref.run(write(here / "t.toml", table), out="a", rounds=2, **{"split.users": 6})
    loaded = fedref.load_run("a")
    for run in (ran, loaded):
        for name, columns in (("metrics.csv", run.metrics), ("clients.csv", run.clients)):
            read = rows(here / "a" / name)
            assert set(columns) == set(read[0])
            for column, values in columns.items():
                assert len(values) == len(read)
                assert [results.cell(v) for v in values.tolist()] == [
                    cell if values.dtype.kind != "f" or not cell else results.cell(float(cell))
                    for cell in (row[column] for row in read)
                ], column
    assert len(ran.metrics["round"]) == 2 * 2 * 3 * 3
    assert len(ran.clients["client"]) == 2 * 2 * 3 * 2 * 6
    t, accuracy = loaded.curve("apfl", "accuracy", **{"model.l2": 0.5})
    assert t.tolist() == [0, 2]
    where = {"algorithm": "apfl", "sweep.model.l2": 0.5}
    for i, seed in enumerate((0, 1)):
        own = rows(here / "a" / "metrics.csv", seed=seed, **where)
        assert accuracy[i].tolist() == [float(row["accuracy"]) for row in own if row["accuracy"]]
    with pytest.raises(ConfigError, match="unknown algorithm of this run 'fedavgg': did you mean"):
        loaded.curve("fedavgg")
    message = r"no unit has model.l2=0.7, expected one of model.l2=0.0; model.l2=0.5$"
    with pytest.raises(ConfigError, match=message):
        loaded.curve("fedavg", **{"model.l2": 0.7})
    with pytest.raises(ConfigError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        loaded.curve("fedavg", "acuracy")
    assert loaded.curve("fedavg", "mu")[0].size == 0  # a column that others have


def test_run_writes_nothing_unless_it_is_told_where(here):
    made = config.from_table(document())
    first = fedref.run(made)
    assert not list(here.iterdir())
    second = fedref.run(made, out=here / "a")
    assert main("run", write(here / "t.toml", document()), "--out", "b", "--quiet") == 0
    assert contents(here / "a") == contents(here / "b")
    assert first.records[0].rows == second.records[0].rows
    with pytest.raises(fedref.FedrefError, match="already holds a run"):
        fedref.run(made, out=here / "a")
    with pytest.raises(ConfigError, match="both epochs and steps are given"):
        fedref.run(made, epochs=1, steps=2)


def test_workers_are_only_taken_with_an_executor():
    with pytest.raises(ConfigError, match="workers is 2, expected an executor"):
        fedref.run(document(), workers=2)
    with pytest.raises(fedref.FedrefError, match=r"fedavg: is an algorithm; .* algorithm='fedavg'"):
        fedref.run("fedavg")


def test_a_checkpoint_that_is_gone_or_cannot_be_read_is_one_line(here, capsys):
    assert main("run", write(here / "t.toml", document()), "--out", "a", "--quiet") == 0
    (path,) = (here / "a" / "checkpoints").iterdir()
    path.unlink()
    with pytest.raises(fedref.DataError, match="no finished round yet"):
        fedref.load_run("a")
    path.mkdir()
    with pytest.raises(fedref.FedrefError, match=r"\.ckpt: cannot be read or written"):
        fedref.load_run("a")
    with pytest.raises(fedref.FedrefError, match=r"\.ckpt: cannot be read or written"):
        jobs.results(here / "a")
    assert "cannot be read or written" in refused(capsys, "plot", "a")


def test_a_sweep_loads_data_that_stay_the_same_once(monkeypatch):
    loaded = []
    real = loading.split

    def watched(*arguments, **more):
        loaded.append(arguments)
        return real(*arguments, **more)

    monkeypatch.setattr(loading, "split", watched)
    table = document(sweep={"split.users": [4, 6], "lr": [0.1, 0.2, 0.3]}, rounds=1)
    run = play(table)
    assert len(run.records) == 6
    assert len(loaded) == 2
    one = play(document(split={**table["split"], "users": 6}, rounds=1,
                        algorithms={"fedavg": {"lr": 0.2}}))  # fmt: skip
    assert run.records[4].rows == one.records[0].rows


# ---- fewer clients than usual --------------------------------------------------------------------

FEW = "clients-per-round is 3: there are no more clients"


def three(users=3, **changes) -> dict:
    """An experiment of so many clients that does not say how many take part in a round."""
    table = document(split={"rule": "iid", "users": users}, **changes)
    del table["clients-per-round"]
    return table


def cohorts(run) -> list[int]:
    return [len(run.plan(0, unit.label, **unit.point).clients) for unit in run.units]


def test_fewer_than_five_clients_all_take_part_and_it_is_said_once(here, capsys):
    path = write(here / "t.toml", three(algorithms=algorithms("fedavg", "apfl")))
    assert main("run", path, "-o", "a") == 0
    assert capsys.readouterr().err.count(f"fedref: {FEW}\n") == 1
    assert toml(here / "a" / "config.toml")["clients-per-round"] == 3
    assert cohorts(fedref.load_run("a")) == [3, 3]
    line = refused(capsys, "run", path, "--clients-per-round", "5", "-o", "b")
    assert "clients-per-round is 5, but there are only 3 clients to train on" in line


@pytest.mark.parametrize("out", [None, "a"])
def test_from_python_up_to_five_clients_are_a_cohort(here, out):
    said = []
    how = {"out": out, "progress": Progress(message=said.append)}
    assert cohorts(fedref.run(three(), **how)) == [3]
    assert said == [FEW]
    with pytest.raises(ConfigError, match="clients-per-round is 5, but there are only 3"):
        fedref.run(three(), clients_per_round=5, out=out and "b")
    said.clear()
    if out:
        how["out"] = "many"
    assert cohorts(fedref.run(three(users=8, rounds=1), **how)) == [5]
    assert said == []
    assert out is None or toml(here / "many" / "config.toml")["clients-per-round"] == 5


@pytest.mark.parametrize("out", [None, "a"])
def test_in_a_sweep_of_the_clients_each_point_has_a_cohort_of_its_own(here, out):
    run = fedref.run(three(rounds=1, sweep={"split.users": [3, 8]}), out=out)
    assert cohorts(run) == [3, 5]
    assert out is None or "clients-per-round" not in toml(here / "a" / "config.toml")
    assert out is None or main("resume", "a", "-q") == 0


# ---- failures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailsOnLarge(FedAvg):
    """A client with more than 12 training rows (the first two of TINY's four) raises."""

    def finish(self, model, sent, local, client_state, data):
        if len(data().y) > 12:
            raise ZeroDivisionError("too large")
        return super().finish(model, sent, local, client_state, data)


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "fails", FailsOnLarge)
    monkeypatch.setitem(ALGORITHMS, "dies", Dies)


@pytest.mark.usefixtures("failing")
def test_a_client_that_raises_is_named_with_its_round(here, capsys):
    tables = algorithms("fedavg", "fails")
    path = write(here / "t.toml", document(clients_per_round=4, algorithms=tables))
    line = refused(capsys, "run", path, "--out", "a", "--quiet")
    assert line == "fedref: error: client 0 failed in round 1: ZeroDivisionError: too large\n"
    # what was done before is there, and can be gone on with
    assert [row["algorithm"] for row in rows(here / "a" / "metrics.csv")] == ["fedavg"] * 4
    assert "client 0 failed in round 1" in refused(capsys, "resume", "a")


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("workers", [1, 3])
def test_clients_that_raise_can_be_dropped_and_are_counted(workers):
    table = document(on_failure="drop", rounds=5, algorithms=algorithms("fails"))
    made = config.from_table(table)
    sizes = loading.load_experiment(made).federation.train.sizes
    assert sizes.tolist() == [20, 20, 10, 10]
    cohorts = [make_plan(made.plan, sizes, t, 0).clients for t in range(5)]
    with ThreadPoolExecutor(workers) as pool:
        run = fedref.run(made, executor=pool if workers > 1 else None, workers=workers)
    failed = np.cumsum([0, *((c < 2).sum() for c in cohorts)]).tolist()
    assert [row["failed"] for row in run.records[0].rows] == failed
    assert [row["dropped"] for row in run.records[0].rows] == [0] * 6
    assert run.records[0].status == "done"


@pytest.mark.usefixtures("failing")
def test_a_worker_that_dies_is_reported_with_clients_and_round(here, capsys):
    table = document(clients_per_round=4, algorithms=algorithms("dies"))
    path = write(here / "t.toml", table)
    line = refused(capsys, "run", path, "--out", "a", "--quiet", "--workers", "2")
    assert "round 1: the worker with clients 0, 1" in line
    assert " died (" in line


def test_a_stack_that_fails_is_reported_by_the_run(monkeypatch):
    """The clients are done again one by one, to the same numbers, and not in silence."""
    expected = play(document(rounds=2))

    def broken(*arguments):
        raise ZeroDivisionError("in the stack only")

    monkeypatch.setattr(rounds_module, "run_stacked", broken)
    told = []
    got = play(document(rounds=2), progress=Progress(message=told.append))
    assert got.records[0].rows == expected.records[0].rows
    assert len(told) == 2
    assert told[0].startswith("round 1: ZeroDivisionError: in the stack only; the 3 clients ")


def test_rounds_in_which_nobody_arrives_are_said(here, capsys):
    path = write(
        here / "t.toml", document(rounds=2, stragglers=1.0, algorithms=algorithms("fedavg"))
    )
    assert main("run", path, "--out", "a") == 0
    assert "in 2 of 2 rounds no client's work arrived" in capsys.readouterr().err
    assert [results.idle_rounds(r) for r in fedref.load_run("a").records] == [2]


def test_the_same_choice_on_the_command_line_keeps_what_the_file_says_of_it(here):
    split = {"rule": "per-fedavg", "users": 20}
    path = write(here / "t.toml", document(rounds=0, split=split, algorithms=algorithms("fedavg")))
    assert main("run", path, "--split", "per-fedavg", "--out", "a", "--quiet") == 0
    assert config.read(here / "a" / "config.toml")["split"]["users"] == 20
