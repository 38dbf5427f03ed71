"""What the shell completes, and what is imported for a command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT

from fedref.algorithms import ALGORITHMS
from fedref.commands import COMMANDS
from fedref.datasets import RULES, SOURCES
from fedref.models import MODELS

#: The shell's question, once for each of the lines that are given.
COMPLETE = """
import json, os, sys
from fedref.commands import parse
for i, line in enumerate(json.loads(sys.argv[1])):
    os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1",
                   "_ARGCOMPLETE_IFS": "\\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(i)}
    try:
        parse([])
    except SystemExit as end:
        assert end.code == 0
"""

IMPORTED = """
import sys
from fedref.commands import main, parse
def said():
    print(*sys.modules)
try:
    main(["--help"])
except SystemExit:
    print("\\nafter help:")
said()
parse(["run"])
said()
import fedref.plots.runs
said()
"""


def python(code: str, *words: str, flags: tuple[str, ...] = ()) -> str:
    """Return what a process of its own prints."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    script = [sys.executable, *flags, "-c", code, *words]
    done = subprocess.run(
        script, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_names_files_and_options_are_completed(here):
    pytest.importorskip("argcomplete")
    for name in ("mine.toml", "per-split.json"):
        (here / name).touch()
    (here / "more").mkdir()
    offered = {
        "fedref run fedavg per-": {name for name in ALGORITHMS if name[:4] == "per-"},
        "fedref run --model ": {*MODELS, "more/"},
        "fedref run --split per": {"per-fedavg", "per-split.json"},
        "fedref run fedavg --data s": {name for name in SOURCES if name[0] == "s"},
        "fedref run --clients-p": {"--clients-per-round"},
        "fedref re": {"resume", "reproduce"},
        "fedref run ": {"all", *ALGORITHMS, "mine.toml", "more/"},
    }
    assert python(COMPLETE, json.dumps([*offered])) == ""
    for i, (line, names) in enumerate(offered.items()):
        found = {word.strip() for word in Path(str(i)).read_text().splitlines()}
        assert found >= names if line == "fedref run " else found == names, line
    assert "per-fedavg" in RULES


def test_a_command_does_not_wait_for_libraries_that_it_does_not_need():
    *_, help, run, plots = (set(line.split()) for line in python(IMPORTED).splitlines())
    heavy = {
        "pooch",
        "tqdm",
        "scipy",
        "matplotlib",
        "distributed",
        "pandas",
        "asyncio",
        "argcomplete",
    }
    assert not help & {*heavy, "fedref.experiments", "fedref.models", "tomli_w"}
    assert not run & heavy
    assert "matplotlib.figure" in plots
    assert "matplotlib.pyplot" not in plots


EVERY_COMMAND = """
import contextlib, io, json, sys
from fedref.commands import main
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    print(json.dumps([words, code, out.getvalue(), err.getvalue()]))
"""


def test_without_docstrings_every_command_works_or_says_one_line(here):
    """python -OO leaves no docstring."""
    lines = [
        "run --list", "run --print-config", "run fedavg --rounds 1 --dry-run", "data list",
        "data rules", "exercise list", "explain apfl", *(f"{name} --help" for name in COMMANDS),
    ]  # fmt: skip
    printed = python(EVERY_COMMAND, json.dumps([line.split() for line in lines]), flags=("-OO",))
    for words, code, out, err in map(json.loads, printed.splitlines()):
        if words == ["explain", "apfl"]:
            assert (code, err.count("\n")) == (2, 1)
            assert "run it without -OO" in err
        else:
            assert (code, bool(out)) == (0, True), (words, err)
