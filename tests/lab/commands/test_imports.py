"""What is imported for a command, and what works without docstrings."""

import json
import os
import subprocess
import sys

from running import ROOT

from fedref.lab.commands import COMMANDS

IMPORTED = """
import sys
from fedref.lab.commands import main, parse
def print_modules():
    print(*sys.modules)
try:
    main(["--help"])
except SystemExit:
    print("\\nafter help:")
print_modules()
parse(["run"])
print_modules()
import fedref.lab.plots.runs
print_modules()
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


def test_a_command_does_not_wait_for_libraries_that_it_does_not_need():
    *_, help, run, plots = (set(line.split()) for line in python(IMPORTED).splitlines())
    heavy = {*["pooch", "tqdm", "scipy", "matplotlib", "distributed", "pandas", "asyncio"]}
    assert not help & {*heavy, "fedref.lab.experiments", "fedref.models", "tomli_w"}
    assert not run & heavy
    assert "matplotlib.figure" in plots
    assert "matplotlib.pyplot" not in plots


EVERY_COMMAND = """
import contextlib, io, json, sys
from fedref.lab.commands import main
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
    lines = ["run --list", "run fedavg --rounds 1 --dry-run", "data rules", "explain apfl"]
    lines += [f"{name} --help" for name in COMMANDS]
    printed = python(EVERY_COMMAND, json.dumps([line.split() for line in lines]), flags=("-OO",))
    for words, code, out, err in map(json.loads, printed.splitlines()):
        if words == ["explain", "apfl"]:
            assert (code, err.count("\n")) == (2, 1)
            assert "run it without -OO" in err
        else:
            assert (code, bool(out)) == (0, True), (words, err)
