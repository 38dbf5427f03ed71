"""What is told about a run as it goes."""

import re
import sys
import threading
from types import SimpleNamespace

import pytest
from running import Screen, document, experiment, wait_for

import fedref
from fedref.algorithm import State
from fedref.lab.experiments import progress
from fedref.lab.experiments.unit import Record, units

pytestmark = pytest.mark.usefixtures("here")


def record(t: int, status: str = "running", **row) -> Record:
    row = {"round": t, "accuracy": 0.5, "train_loss": 1.25, "test_loss": 1.5, **row}
    return Record(status, t, State(None, {}), [row], [], [])


def test_a_line_has_phase_round_score_with_its_round_share_and_what_is_left(monkeypatch):
    """However the units are run: here the first was done before, the third runs elsewhere."""
    made = experiment(document(rounds=9, seeds=[0, 1, 2]))
    one, two, three = units(made)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    status = progress.Status(made)
    status.phase = "splitting"
    assert status.line() == "tiny; splitting; 0 % of the run"
    status.count({one.number: 10})
    status.phase, status.newest = "training", progress.describe(two, record(1))
    status.count({two.number: 2})
    clock.now = 4.0
    told = "fedavg (seed 1): round 1 of 9, accuracy 50.00 % (round 1); training; 40 % of the run"
    assert status.line() == told
    status.count({two.number: 5, three.number: 1})
    status.phase, clock.now = "evaluating", 8.0
    status.count({three.number: 4})
    # 6 rounds in 8 s, and 11 are left
    assert status.line().endswith("; evaluating; 63 % of the run, 0:00:15 left")
    status.count({two.number: 10, three.number: 10})
    assert "99 % of the run" in status.line()  # the end is told by the table


def test_a_line_on_a_terminal_and_in_a_notebook_and_nothing_unasked(capsys, monkeypatch):
    monkeypatch.setattr(progress, "REDRAW", 0.001)
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        fedref.run(document(rounds=50), progress=True)
    assert re.search(r"\rfedavg \(seed 0\): round \d+ of 50, accuracy", screen.getvalue())
    assert screen.getvalue().endswith("\r")
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    fedref.run(document(rounds=50), progress=True)
    assert "\rfedavg (seed 0): round " in capsys.readouterr().err
    fedref.run(document(rounds=12), progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_newest_score_that_there_is():
    assert progress.describe_newest(record(1)) == "accuracy 50.00 %"
    real = record(1, accuracy=float("nan"))
    assert progress.describe_newest(real) == "test loss 1.5"
    late = record(7)._replace(rows=[*record(5).rows, {"round": 6}, {"round": 7}])
    assert progress.describe_newest(late) == "accuracy 50.00 %"
    unit = units(experiment(document(rounds=9)))[0]
    assert progress.describe(unit, late).endswith("round 7 of 9, accuracy 50.00 % (round 5)")


def test_without_a_terminal_lines_become_rarer(monkeypatch):
    pauses, said = [], []

    class Clock(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            return len(pauses) > 5

    monkeypatch.setattr(progress, "Event", Clock)
    with progress.console_progress(experiment(document()), said.append) as told:
        told.message("a word")
        wait_for(lambda: len(pauses) > 5)
    assert pauses == [10, 20, 40, 60, 60, 60]
    assert sorted(said) == ["a word", *["tiny; starting; 0 % of the run"] * 5]
