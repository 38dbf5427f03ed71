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
from fedref.rounds.evaluation import evaluate
from fedref.rounds.loop import run_round

pytestmark = pytest.mark.usefixtures("here")


def test_clients_steps_and_bytes_are_those_of_the_run(here):
    tables = algorithms("fedavg", "apfl", "centralised")
    table = document(rounds=5, clients_per_round=4, algorithms=tables, seeds=[3, 4],
                     sweep={"batch-size": [4, 8]})  # fmt: skip
    made = config.from_table(table)
    found = dry_run.estimate_costs(made, Loader())
    assert len(found) == 2 * 3
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    for one in found:
        label, _, size = one.title.removesuffix(")").partition(" (batch-size=")
        where = {"algorithm": label, "sweep.batch-size": size}
        row, _ = rows(here / "a" / "metrics.csv", round=1, **where)
        ends = rows(here / "a" / "metrics.csv", round=5, **where)
        if label != "apfl":  # which has two gradients a step later on
            assert one.steps == int(row["grads"])
            sent = sum(int(end["bytes_down"]) + int(end["bytes_up"]) for end in ends)
            assert one.bytes == pytest.approx(sent, rel=1e-12)
        pooled = label == "centralised"
        assert (one.cohort, one.clients) == ((1, 1) if pooled else (4, 4))
        assert one.training > 0
        assert one.evaluation > 0


class Clock:
    """A clock that rounds and evaluations set: the first round takes 100 s, the others 2, 3, 2 and 4."""

    def __init__(self, monkeypatch):
        self.now, self.rounds = 0.0, 0
        monkeypatch.setattr(dry_run, "perf_counter", lambda: self.now)
        monkeypatch.setattr(dry_run, "LOCAL", dry_run.Engine(self.round, self.evaluate))

    def round(self, *arguments, **options):
        self.now += (100, 2, 3, 2, 4)[self.rounds % 5]
        self.rounds += 1
        return run_round(*arguments, **options)

    def evaluate(self, *arguments, **options):
        self.now += 0.5
        return evaluate(*arguments, **options)


def test_seconds_are_medians_of_several_rounds_as_often_as_they_come(monkeypatch):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(dry_run, "SECONDS", 1000.0)
    tables = algorithms("fedavg", "apfl")
    made = config.from_table(document(rounds=7, eval_every=3, seeds=[0, 1], algorithms=tables))
    found = dry_run.estimate_costs(made, Loader())
    assert clock.rounds == 2 * 5  # one seed of each
    # the start and the rounds 3, 6 and 7; APFL watches the loss in all of them
    assert [one.seconds for one in found] == [2 * (21 + 4 * 0.5), 2 * (21 + 8 * 0.5)]
    header, fedavg, apfl = dry_run.table_of_estimates(found)
    assert (fedavg[:2], fedavg[4:]) == (["fedavg", "3 of 4"], ["3 s", "0.5 s", "46 s"])
    assert apfl[-1] == "50 s"
    assert len(header) == len(apfl)


def test_a_slow_round_is_measured_once(monkeypatch):
    clock = Clock(monkeypatch)
    (one,) = dry_run.estimate_costs(config.from_table(document(rounds=7)), Loader())
    assert (clock.rounds, one.training) == (1, 100)


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
    assert max(map(len, shown.splitlines())) <= 82
    assert "only 4 clients" in refused(capsys, "run", path, "--dry-run", "--clients-per-round", 9)
    assert main("run", path, "-q", "-o", "a") == 0
    assert "already holds a run" in refused(capsys, "run", path, "--dry-run", "-o", "a")


def test_a_run_without_rounds_can_be_rehearsed(here):
    (one,) = dry_run.estimate_costs(config.from_table(document(rounds=0)), Loader())
    assert (one.training, one.bytes) == (0.0, 0.0)
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
