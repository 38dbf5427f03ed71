"""Processes that are stopped in bad moments, odd streams, another machine."""

import json
import signal
import sys
from pathlib import Path

import pytest
from running import algorithms, contents, document, main, process, write

from fedref.experiments import run_directory
from fedref.experiments.unit import units

pytestmark = pytest.mark.usefixtures("here")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and links")


@pytest.fixture
def begun(here) -> Path:
    """A finished run in the folder a, whose checkpoint can be replaced."""
    table = document(rounds=2, algorithms=algorithms("fedavg"))
    assert main("run", write(here / "t.toml", table), "--out", "a", "--quiet") == 0
    return here / "a"


def test_what_a_killed_write_has_left_is_cleared(begun):
    before = contents(begun)
    for folder in (begun, begun / "checkpoints"):
        (folder / f".fedref-{'0' * 16}.new").write_bytes(b"half")
    (begun / ".mine").write_bytes(b"kept")
    assert main("resume", "a", "--quiet") == 0
    assert contents(begun) == {**before, ".mine": b"kept"}


# ---- stopped -------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, 143, "fedref: stopped by SIGTERM; resume with: fedref resume a\n"),
        (signal.SIGINT, 130, "fedref: interrupted; resume with: fedref resume a\n"),
        (None, 141, ""),  # whoever reads the output goes away
    ],
)
def test_a_run_that_is_stopped_leaves_a_checkpoint_and_one_line(here, number, code, said):
    path = write(here / "t.toml", document(rounds=3000, eval_every=100))
    run = process("run", path, "--out", "a", "--json", "--checkpoint-every", "1000")
    out = [run.stdout.readline() for _ in range(20)]
    if number is None:
        run.stdout.close()
    else:
        run.send_signal(number)
        out += run.stdout.readlines()
        run.stdout.close()
    assert run.stderr.read() == said
    run.stderr.close()
    assert run.wait(60) == code
    made = run_directory.read_experiment(here / "a")
    record = run_directory.load_record(here / "a", units(made)[0])
    assert record.status == "running"
    assert record.round >= len(out) - 1  # no round that was told is lost


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full")
def test_a_full_standard_output_is_one_line_and_results_are_kept(here):
    path = write(here / "t.toml", document())
    with open("/dev/full", "w") as full:
        run = process("run", path, "--out", "a", stdout=full)
        _, err = run.communicate()
    assert run.returncode == 2
    where, problem = err.splitlines()
    assert where == "fedref: results go to a/"
    assert problem.startswith("fedref: error: standard output: No space left")
    assert (here / "a" / "metrics.csv").exists()


@pytest.mark.parametrize("words", [(), ("--quiet",)])
def test_a_closed_standard_error_is_no_error(here, capsys, monkeypatch, words):
    path = write(here / "t.toml", document())
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert main("run", path, "--out", "a", *words) == 0
    out = capsys.readouterr().out
    assert ("| algorithm |" in out) is not bool(words)
    assert "fedref: " not in out  # print(file=None) would write there


# ---- another machine, another encoding -----------------------------------------------------------


def test_another_kernel_of_blas_is_said_in_one_line(begun, capsys):
    path = begun / "environment.json"
    found = json.loads(path.read_text())
    assert set(found) == {"python", "numpy", "machine", "blas", "kernel"}
    capsys.readouterr()
    path.write_text(json.dumps({**found, "kernel": "Z80"}))
    assert main("resume", "a", "--quiet") == 0
    assert capsys.readouterr().err == (
        f"fedref: a: begun with kernel Z80, now {found['kernel']}: the last digits may differ\n"
    )
    for odd in (b"", b"[]", b'{"kernel": {}}', b"[" * 100_000):
        path.write_bytes(odd)
        assert main("resume", "a", "--quiet") == 0
        assert json.loads(path.read_text()) == found  # it is mended
        assert "environment.json was gone or damaged" in capsys.readouterr().err


def test_ascii_streams_show_help_and_tables(here):
    path = write(here / "t.toml", document(seeds=[0, 1]))
    for words, said in (
        (["run", "--help"], ""),
        (["run", path, "-o", "a"], "fedref: results go to a/\n"),
    ):
        run = process(*words, encoding="ascii", env_more={"PYTHONIOENCODING": "ascii"})
        out, err = run.communicate()
        assert (run.returncode, err) == (0, said)
        assert out
