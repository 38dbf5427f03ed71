"""What a run would take, before it is run."""

import re

import pytest
from running import algorithms, document, main, refused, rows, write

from fedref.algorithms import ALGORITHMS
from fedref.commands.run import listing
from fedref.datasets import RULES, SOURCES
from fedref.experiments import config, dry_run, names
from fedref.experiments.loading import Loader
from fedref.models import MODELS

pytestmark = pytest.mark.usefixtures("here")


def test_clients_steps_and_bytes_are_those_of_the_run(here):
    tables = algorithms("fedavg", "apfl", "centralised")
    table = document(rounds=5, clients_per_round=4, algorithms=tables, seeds=[3, 4],
                     sweep={"batch-size": [4, 8]})  # fmt: skip
    made = config.from_table(table)
    found = dry_run.estimate_costs(made, Loader())
    assert len(found) == 2 * 2 * 3
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    for one in found:
        where = {"seed": one.unit.seed, "algorithm": one.unit.label}
        where["sweep.batch-size"] = one.unit.point["batch-size"]
        (row,) = rows(here / "a" / "metrics.csv", round=1, **where)
        (last,) = rows(here / "a" / "metrics.csv", round=5, **where)
        if one.unit.label != "apfl":  # which has two gradients a step later on
            assert one.steps == int(row["grads"])
            sent = int(last["bytes_down"]) + int(last["bytes_up"])
            assert one.megabytes == pytest.approx(sent / 1e6, rel=1e-12)
        pooled = one.unit.label == "centralised"
        assert (one.cohort, one.clients) == ((1, 1) if pooled else (4, 4))
        assert one.training > 0
        assert one.evaluation > 0


def test_seconds_are_those_of_a_round_and_an_evaluation_as_often_as_they_come(monkeypatch):
    def spending(setting, algorithm, seed, spent):
        for t in range(3):
            if t:
                spent("training", 2.0)
            spent("evaluation", 0.5)
            row = {"bytes_down": 10**6, "bytes_up": 10**6}
            yield dry_run.Record("running", t, None, [row], [], [])

    monkeypatch.setattr(dry_run, "iterate_rounds", spending)
    tables = algorithms("fedavg", "apfl")
    made = config.from_table(document(rounds=7, eval_every=3, seeds=[0, 1], algorithms=tables))
    found = dry_run.estimate_costs(made, Loader())
    # the start and the rounds 3, 6 and 7; APFL watches the loss in all of them
    assert [one.seconds for one in found] == [14 + 4 * 0.5, 14 + 8 * 0.5] * 2
    header, fedavg, apfl = dry_run.table_of_estimates(found)
    assert fedavg == ["fedavg", "3 of 4", fedavg[2], "28.00", "2 s", "0.5 s", "32 s"]
    assert apfl[-1] == "36 s"
    assert len(header) == len(apfl)


def test_a_dry_run_prints_the_experiment_and_what_it_takes_and_writes_nothing(here, capsys):
    path = write(here / "t.toml", document())
    before = sorted(here.rglob("*"))
    assert main("run", path, "--dry-run", "-o", "a", "--lr", "0.07") == 0
    shown = capsys.readouterr().out
    assert "lr = 0.07" in shown
    assert "users = 4" in shown
    assert re.search(r"\| fedavg +\| +3 of 4 \|", shown)
    assert "The run would take about" in shown
    assert sorted(here.rglob("*")) == before
    assert main("run", path, "--dry-run", "-q") == 0
    shown = capsys.readouterr().out
    assert "lr = " not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "only 4 clients" in refused(capsys, "run", path, "--dry-run", "--clients-per-round", 9)
    assert main("run", path, "-q", "-o", "a") == 0
    assert "already holds a run" in refused(capsys, "run", path, "--dry-run", "-o", "a")


def test_a_run_without_rounds_can_be_rehearsed(here):
    (one,) = dry_run.estimate_costs(config.from_table(document(rounds=0)), Loader())
    assert (one.training, one.megabytes) == (0.0, 0.0)
    assert one.seconds == one.evaluation > 0


def test_the_list_has_a_line_for_everything_that_can_be_chosen(capsys, monkeypatch):
    assert main("run", "--list") == 0
    shown = capsys.readouterr().out
    named = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    assert named == [*ALGORITHMS, *MODELS, *SOURCES, *RULES]
    assert max(map(len, shown.splitlines())) <= 120
    point = type("Point", (), {"value": "mine:Ditto"})
    monkeypatch.setattr(names, "entry_points_of", lambda group: {f"my-{group}": point})
    for group in ("algorithms", "models", "data"):
        assert f"my-{group} " in listing()
    assert "from mine:Ditto" in listing()
