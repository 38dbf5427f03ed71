"""What is told about a run as it goes."""

import builtins
import re
import signal
import sys
import warnings
from types import ModuleType, SimpleNamespace

import pytest
from running import Screen, document, experiment, process, write

import fedref
from fedref.algorithm import State
from fedref.lab.experiments import progress
from fedref.lab.experiments.unit import Record, units

pytestmark = pytest.mark.usefixtures("here")


def record(t: int, status: str = "running", **row) -> Record:
    row = {"round": t, "accuracy": 0.5, "train_loss": 1.25, "test_loss": 1.5, **row}
    return Record(status, t, State(None, {}), [row], [], [])


def test_without_a_terminal_there_are_lines_with_what_is_left(monkeypatch):
    """However the units are run: here the first was done before, the third runs elsewhere."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    made = experiment(document(rounds=9, seeds=[0, 1, 2]))
    one, two, three = units(made)
    said = []
    with progress.console_progress(made, said.append) as told:
        told.round(one, record(9, "done"))
        told.round(two, record(4))
        told.elsewhere({three.number: 1})
        told.elsewhere({three.number: 4})
        told.message("a word")
        told.round(two, record(5, "diverged"))
    shares = [int(n) for line in said for n in re.findall(r"(\d+)% of the run, .* left$", line)]
    assert shares[1:] == [33, 50, 53, 63, 80]
    assert said[2].startswith("fedavg (seed 1), accuracy 50.00 %; 50% of the run, ")
    assert "a word" in said


def test_a_bar_on_a_terminal_and_in_a_notebook_and_nothing_unasked(capsys, monkeypatch):
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        fedref.run(document(rounds=12), progress=True)
    assert re.search(r"0%\|.* 0/13 \[", screen.getvalue())
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    fedref.run(document(rounds=12), progress=True)
    assert re.search(r"0%\|.* 0/13 \[", capsys.readouterr().err)
    fedref.run(document(rounds=12), progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_newest_score_that_there_is():
    assert progress.describe_newest(record(1)) == "accuracy 50.00 %"
    real = record(1, accuracy=float("nan"))
    assert progress.describe_newest(real) == "test loss 1.5"
    not_evaluated = real._replace(rows=[*record(0).rows, {"round": 1}])
    assert progress.describe_newest(not_evaluated) == "accuracy 50.00 %"


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
        with progress.console_progress(experiment(document())) as report:
            assert report is not None
    assert seen == []
