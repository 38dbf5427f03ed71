"""What is imported for a command; the command line works without docstrings, too."""

import os
import subprocess
import sys

from running import ROOT

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
main(["explain", "apfl"])
"""


def test_a_command_does_not_wait_for_libraries_that_it_does_not_need():
    """Under -OO, which drops docstrings."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-OO", "-c", IMPORTED], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stderr == (
        "fedref: error: the explanations are docstrings, which python -OO drops: run it without -OO\n"
    )
    *_, help, run, plots = (set(line.split()) for line in done.stdout.splitlines())
    heavy = {"pooch", "tqdm", "scipy", "matplotlib", "distributed", "pandas", "asyncio"}
    assert not help & {*heavy, "fedref.lab.experiments", "fedref.models", "tomli_w"}
    assert not run & heavy
    assert "matplotlib.figure" in plots
    assert "matplotlib.pyplot" not in plots
