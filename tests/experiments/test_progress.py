"""What is told about a run as it goes."""

import builtins
import os
import re
import signal
import sys
import warnings
from functools import partial
from io import StringIO
from types import ModuleType, SimpleNamespace

import pytest
from running import algorithms, document, experiment, main, process, refused, write
from tqdm import tqdm

import fedref
from fedref.algorithm import State
from fedref.experiments import progress
from fedref.experiments.unit import Record, units

pytestmark = pytest.mark.usefixtures("here")


def record(t: int, status: str = "running", **row) -> Record:
    row = {"round": t, "accuracy": 0.5, "train_loss": 1.25, "test_loss": 1.5, **row}
    return Record(status, t, State(None, {}), [row], [], [])


def two(rounds: int = 9, **more):
    """An experiment of two units, and the units."""
    made = experiment(document(rounds=rounds, algorithms=algorithms("fedavg", "fedprox"), **more))
    return made, units(made)


def lines(rounds: int):
    """(Progress, what it said, the clock) for two units."""
    made, both = two(rounds)
    clock, said = SimpleNamespace(now=0.0), []
    return progress.report_by_lines(made, said.append, lambda: clock.now), said, clock, both


def test_a_line_at_every_tenth_of_the_run_whatever_the_order_of_its_units():
    told, said, clock, both = lines(rounds=9)  # 20 with the two starts
    for t in range(10):
        for unit in reversed(both):
            clock.now += 3
            told.round(unit, record(t, "done" if t == 9 else "running"))
    assert len(said) == 9  # not at the end: the table follows
    assert said[0] == (
        "fedavg (seed 0): round 0 of 9, training loss 1.25, accuracy 50.00 %; "
        "10% of the run, 3 s a round, about 54 s left"
    )
    assert said[-1].endswith("90% of the run, 3 s a round, about 6 s left")


def test_a_line_every_30_seconds_and_none_within_2():
    told, said, clock, both = lines(rounds=4999)
    for t in range(100):
        clock.now += 10
        told.round(both[0], record(t))
    assert len(said) == 33
    told, said, clock, both = lines(rounds=9)
    for t in range(10):
        clock.now += 0.5
        told.round(both[0], record(t))
    assert len(said) == 2


def test_rounds_that_were_done_elsewhere_are_told_when_their_unit_has_ended():
    told, said, clock, both = lines(rounds=9)
    clock.now += 60
    for t in range(9):
        told.round(both[0], record(t)._replace(state=None))
    assert said == []
    told.round(both[0], record(9, "done"))
    assert [line.partition(",")[0] for line in said] == ["fedavg (seed 0): round 9 of 9"]
    assert said[0].endswith("50% of the run, 6 s a round, about 1 min 00 s left")


def test_rounds_of_before_do_not_count_as_fast_ones():
    told, said, clock, both = lines(rounds=99)
    told.round(both[0], record(99, "done"))
    clock.now += 10
    told.round(both[1], record(50))
    # one round in 10 s, 49 to go
    assert said[-1].endswith("76% of the run, 10 s a round, about 8 min 10 s left")


def test_a_diverged_unit_is_all_done():
    count = progress.RoundCount(two(9)[0])
    for unit in two(9)[1]:
        count.add(unit, record(3, "diverged"))
    assert (count.rounds_done, count.total) == (20, 20)


def test_durations_are_said_in_at_most_two_units():
    said = [progress.duration(s) for s in (0.0123, 0.96, 9.9, 59.4, 200, 3599.6, 7500)]
    assert said == ["0.012 s", "0.96 s", "9.9 s", "59 s", "3 min 20 s", "1 h 00 min", "2 h 05 min"]


def test_without_a_training_loss_the_test_loss_is_told():
    assert progress.describe_newest(record(1, train_loss=float("nan"))) == (
        "test loss 1.5, accuracy 50.00 %"
    )
    assert progress.describe_newest(record(1, accuracy=float("nan"))) == (
        "training loss 1.25, test loss 1.5"
    )
    rows = [{"round": 0, "accuracy": 0.25, "train_loss": 2.0}, {"round": 1}]
    shown = Record("running", 1, None, rows, [], [])
    assert progress.describe_newest(shown) == "training loss 2, accuracy 25.00 %"


def test_a_bar_counts_the_rounds_of_all_units():
    made, both = two(9)
    written = StringIO()
    drawn = partial(tqdm, file=written, mininterval=0, miniters=1)
    said = []
    with progress.report_by_bar(made, drawn, said.append) as told:
        told.round(both[1], record(9, "done"))
        told.round(both[0], record(4))
        told.message("a word")
    assert said == ["a word"]
    shown = written.getvalue()
    assert re.search(r"fedprox \(seed 0\):  50%\|.* 10/20 \[.*accuracy 50.00 %\]", shown)
    assert re.search(r"fedavg \(seed 0\):  75%\|.* 15/20 \[", shown)


# ---- from Python, and as a log -------------------------------------------------------------------


def test_from_python_a_bar_or_lines(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0.0)
    fedref.run(document(rounds=12), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "round 5 of 12, training loss" in err
    assert "%|" not in err
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    fedref.run(document(rounds=12), progress=True)
    assert re.search(r"0%\|.* 0/13 \[", capsys.readouterr().err)
    fedref.run(document(rounds=12), progress=False)
    assert capsys.readouterr() == ("", "")


def test_verbose_writes_a_log_that_resume_goes_on_with(here):
    path = write(here / "t.toml", document(algorithms=algorithms("fedavg", "fedprox")))
    assert main("run", path, "-q", "-v", "-o", "a") == 0
    text = (here / "a" / "log.txt").read_text("utf-8")
    assert len(text.splitlines()) == 1 + 2 * 4
    assert re.search(
        r"^[-\d]+ [:\d]+ fedprox \(seed 0\): round 3, training loss \S+, accuracy \S+ %; done$",
        text,
        re.MULTILINE,
    )
    assert main("resume", "a", "-q", "--verbose") == 0
    assert (here / "a" / "log.txt").read_text("utf-8").startswith(text)
    assert main("run", path, "-q", "-o", "b") == 0
    assert not (here / "b" / "log.txt").exists()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links")
def test_a_log_that_is_a_link_is_not_followed(here, capsys):
    (here / "mine.txt").write_text("mine")
    assert main("run", write(here / "t.toml", document(rounds=1)), "-q", "-o", "a") == 0
    (here / "a" / "log.txt").symlink_to(here / "mine.txt")
    assert "a/log.txt: cannot be read or written" in refused(capsys, "resume", "-v", "-q", "a")
    assert (here / "mine.txt").read_text() == "mine"


def test_ctrl_c_says_how_to_resume_with_words_that_a_shell_takes(here):
    if sys.platform == "win32":
        pytest.skip("no such signal")
    path = write(here / "t.toml", document(rounds=100000))
    first = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    run = process("run", path, "-o", "my run", first=first)
    assert run.stderr.readline() == "fedref: results go to my run/\n"
    run.send_signal(signal.SIGINT)  # whatever it is doing then
    _, err = run.communicate()
    assert err.splitlines()[-1].endswith("resume with: fedref resume 'my run'")
    assert run.returncode == 130


def test_a_notebook_without_widgets_gets_a_bar_and_no_warning(monkeypatch):
    """There tqdm warns that ipywidgets are missing."""
    for name in [name for name in sys.modules if name.startswith("tqdm.auto")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("tqdm.auto", raising=False)
    monkeypatch.delattr("tqdm.autonotebook", raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", ModuleType("ipykernel.zmqshell"))
    shell = SimpleNamespace(get_ipython=lambda: None)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr("tqdm.notebook.IProgress", None)
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with progress.console_progress(two()[0]) as report:
            assert report is not None
    assert seen == []
