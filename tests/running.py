"""Tiny experiments, ways to run them, and readers of the files that they write."""

import csv
import os
import subprocess
import sys
import time
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import tomli_w

import fedref
from fedref import checks
from fedref.lab import commands
from fedref.lab.experiments import config, results
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.run import execute
from fedref.models import tree

ROOT = Path(__file__).resolve().parents[1]

#: 4 clients (two with 20 training rows, two with 10), 3 rounds: some milliseconds.
TINY = {
    "name": "tiny",
    "rounds": 3,
    "clients-per-round": 3,
    "epochs": 2,
    "batch-size": 8,
    "split": {"rule": "per-fedavg", "users": 4, "a": 4, "a-test": 2},
    "model": {"name": "logistic"},
    "algorithms": {"fedavg": {"lr": 0.05}},
}


#: A short run, as words of the command line.
SMALL = ["--rounds", "1", "--clients-per-round", "2", "--epochs", "1", "--quiet"]


def document(**changes) -> dict:
    """TINY with other values; keys with underscores."""
    return {**TINY, **{key.replace("_", "-"): value for key, value in changes.items()}}


def algorithms(*names, **tables) -> dict:
    """[algorithms] tables."""
    return {**{name: {} for name in names}, **tables}


def write(path: Path, table: dict) -> Path:
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return path


def experiment(table: dict, *settings: tuple) -> Experiment:
    """Make the experiment of a table with settings on top."""
    return config.experiment_of(table.items(), settings)


def play(table: dict, **how) -> results.Run:
    """Run an experiment in this process, without files."""
    return execute(experiment(table), **how)


def main(*words, command=commands.main) -> int:
    """Run the command in this process; return its exit code."""
    try:
        return command([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)


def refused(capsys, *words, command=commands.main) -> str:
    """Assert that the command prints one line of error and has exit code 2; return the line."""
    capsys.readouterr()
    code = main(*words, command=command)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("fedref: error: "), err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


def made(*words) -> Experiment:
    """Return the experiment of `fedref run` with these words."""
    with redirect_stdout(StringIO()) as shown:
        commands.parse(["run", *map(str, words), "--print-config"])()
    return config.experiment_of(tomllib.loads(shown.getvalue()).items())


def npz(path: Path, **arrays) -> Path:
    """Write a file of 20 rows, with these arrays in place of the right ones."""
    good = {"X": np.arange(40.0).reshape(20, 2), "y": np.arange(20) % 2}
    np.savez(path, **{**good, **arrays})
    return path


#: Every process that `process` started and that no test has ended: `tests/conftest.py` does.
STARTED: list[subprocess.Popen] = []
RUN = "from runpy import run_module; run_module('fedref', run_name='__main__')"


def process(*words, first: str = "", env_more: dict | None = None, **how) -> subprocess.Popen:
    """Start the command as a process, which is killed when its test ends.

    first : a statement that is run before it. env_more : variables of its environment.
    """
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = subprocess.Popen(
        [sys.executable, "-c", f"{first}\n{RUN}", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, **(env_more or {})},
        **how,
    )
    STARTED.append(started)
    return started


def end_processes() -> None:
    """End every process that was started here, and close its pipes."""
    while STARTED:
        with STARTED.pop() as started:
            started.kill()


def contents(directory: Path) -> dict[str, bytes]:
    """Return {path: content} of all files of a run directory but the pictures."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".png"
    }


def rows(path: Path, **where) -> list[dict[str, str]]:
    """Return the rows of a CSV in which some columns have these values."""
    wanted = {key: str(value) for key, value in where.items()}.items()
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if wanted <= row.items()]


def toml(path: Path) -> dict:
    return tomllib.loads(path.read_text(encoding="utf-8"))


class Screen(StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def soon(try_once) -> bool:
    """Return whether one of three tries says that it was quick: a busy machine delays some, not all."""
    return any(try_once() for _ in range(3))


def wait_for(condition) -> None:
    """Wait until a condition holds, for a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def run_beside(*algorithms, **changes) -> results.Run:
    """Run algorithms, classes and generators, on TINY with other values."""
    return fedref.run({**document(), "algorithms": {}}, algorithm=[*algorithms], **changes)


def worst_of(one, other) -> float:
    """Return the largest relative difference of two records: their models, and their rows."""
    errors = []
    for a, b in zip(one.rows, other.rows, strict=True):
        keys = {k for k in a if isinstance(a[k], float)} & b.keys()
        assert {"accuracy", "test_loss", "train_loss"} <= keys
        errors += [checks.relative_error(b[k], a[k]) for k in keys if not np.isnan(a[k])]
    w, v = (next(tree.leaves(x.state.server)) for x in (one, other))
    return max(*errors, checks.relative_error(v, w))
