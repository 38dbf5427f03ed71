"""What `fedref run` tells on the way and at its end."""

import json
import re
import sys
from contextlib import ExitStack

import numpy as np
import pytest
from running import TINY, Screen, algorithms, document, main, rows, write

from fedref import commands
from fedref.algorithm import State
from fedref.commands import execution
from fedref.experiments import config, results, unit

pytestmark = pytest.mark.usefixtures("here")


def test_a_short_run_tells_where_it_writes_and_a_table(here, capsys):
    assert main("run", write(here / "t.toml", TINY), "-o", "a") == 0
    out, err = capsys.readouterr()
    assert err == "fedref: results go to a/\n"
    assert "| algorithm | average | maximum | final |" in out
    assert (here / "a" / "summary.md").read_text() in out
    assert main("run", "t.toml", "--out", "b", "-q") == 0
    assert capsys.readouterr() == ("", "")


def test_json_is_one_line_a_round_and_nothing_else(here, capsys):
    tables = algorithms("fedavg", "fedprox")
    table = document(eval_every=2, dissimilarity=True, seeds=[0, 1], algorithms=tables)
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    metrics = rows(here / "a" / "metrics.csv")
    assert len(lines) == len(metrics) == 2 * 2 * 4
    for line, row in zip(lines, metrics):
        assert line.pop("status") == ("done" if row["round"] == "3" else "running")
        assert {k: results.cell(v) for k, v in line.items()} == {
            k: v for k, v in row.items() if k in line
        }
        assert not [v for k, v in row.items() if v and k not in line]


def test_json_has_no_numbers_that_json_has_not(capsys):
    one = unit.Unit(0, "fedavg", 0, {})
    row = {"round": 1, "B": float("inf"), "accuracy": float("nan"), "gamma": 0.5}
    state = State(None, {})
    execution.print_json_line(one, unit.Record("diverged", 1, state, [row], [], [], "why"))
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "algorithm": "fedavg", "seed": 0, "round": 1, "B": None, "accuracy": None, "gamma": 0.5,
        "status": "diverged", "reason": "why",
    }  # fmt: skip


def test_on_a_terminal_a_bar_shows_rounds_accuracy_speed_and_time_left(here, monkeypatch, capsys):
    path = write(here / "t.toml", document(rounds=200))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    assert main("run", path, "--out", "a") == 0
    text = screen.getvalue()
    assert re.search(r"fedavg \(seed 0\): +\d+%", text)
    assert re.search(r"\d+/201 \[\d\d:\d\d<", text)  # rounds, time so far and left
    assert re.search(r"(round/s|s/round), accuracy \d+\.\d\d %", text)
    out = capsys.readouterr().out
    assert "| algorithm |" in out
    assert "%|" not in out


def test_what_the_columns_mean_is_said_by_the_command(here, capsys):
    assert main("run", "--help-columns") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    tables = algorithms("fedavg", "apfl", adaptive={"algorithm": "fedprox", "adaptive_mu": True})
    table = document(rounds=1, unseen=0.2, dissimilarity=True, algorithms=tables,
                     sweep={"batch-size": [5]}, split={"rule": "per-fedavg", "users": 10})  # fmt: skip
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    for name, part in (("metrics", "clients.csv "), ("clients", "\n\nUnless")):
        own = shown.partition(f"| {name}.csv")[2].partition(part)[0]
        said = set(re.findall(r"^\| `(.*?)` +\| \S", own, re.MULTILINE))
        found = {re.sub("sweep.*", "sweep.KEY", c) for c in rows(here / "a" / f"{name}.csv")[0]}
        assert found <= said
        assert said - found <= {"renewed", "gamma"}


@pytest.mark.parametrize("words", [[], ["-q"], ["--json"], ["-v"]], ids=" ".join)
def test_a_message_is_told_once(here, capsys, words):
    experiment = config.from_table(document())
    arguments = commands.parse(["resume", "a", *words])
    with ExitStack() as stack:
        told = execution.choose_progress(experiment, here, arguments, stack)
        told.message("a word")
    assert capsys.readouterr() == ("", "fedref: a word\n")
    assert (here / "log.txt").exists() == (words == ["-v"])


def test_several_seeds_give_mean_and_standard_deviation(here, capsys):
    path = write(here / "t.toml", document(seeds=[0, 1, 2]))
    assert main("run", path, "--out", "a") == 0
    final = [float(row["accuracy"]) for row in rows(here / "a" / "metrics.csv", round=3)]
    assert len(set(final)) > 1
    expected = f"{100 * np.mean(final):.2f} ± {100 * np.std(final):.2f}"
    assert expected in capsys.readouterr().out.splitlines()[-3]
    assert expected in (here / "a" / "summary.md").read_text()
