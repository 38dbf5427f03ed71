"""What is imported for a command; the command line works without docstrings, too."""

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
import fedref.lab.plots.figures
print_modules()
main(["explain", "apfl"])
"""


def test_a_command_does_not_wait_for_libraries_that_it_does_not_need():
    """Under -OO, which drops docstrings."""
    command = [sys.executable, "-OO", "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    why = "the explanations are docstrings, which python -OO drops: run it without -OO"
    assert done.stderr == f"fedref: error: {why}\n"
    *_, help, run, plots = (set(line.split()) for line in done.stdout.splitlines())
    heavy = {"pooch", "tqdm", "scipy", "matplotlib", "distributed", "pandas", "asyncio"}
    assert not help & {*heavy, "fedref.lab.experiments", "fedref.models", "tomli_w"}
    assert not run & heavy
    assert "matplotlib.figure" in plots
    assert "matplotlib.pyplot" not in plots
