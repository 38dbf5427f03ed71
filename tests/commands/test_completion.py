"""What the shell completes."""

import os
import subprocess
import sys

import pytest
from running import ROOT

from fedref.algorithms import ALGORITHMS
from fedref.datasets import RULES, SOURCES
from fedref.models import MODELS

pytestmark = pytest.mark.usefixtures("here")


def completed(here, line: str) -> set[str]:
    """What the shell is offered where the cursor stands at the end of a line."""
    pytest.importorskip("argcomplete")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    asked = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())), "_ARGCOMPLETE_STDOUT_FILENAME": str(here / "found"),
        "PYTHONPATH": path,
    }  # fmt: skip
    code = "import sys; sys.argv[0] = 'fedref'; from fedref.commands import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {word.strip() for word in (here / "found").read_text().splitlines()}


def test_names_files_and_options_are_completed(here):
    (here / "mine.toml").touch()
    (here / "per-split.json").touch()
    (here / "more").mkdir()
    names = {"all", *ALGORITHMS, "mine.toml", "more/"}
    assert completed(here, "fedref run ") >= names
    assert completed(here, "fedref run fedavg per-") == {n for n in ALGORITHMS if n[:4] == "per-"}
    assert completed(here, "fedref run --model ") == {*MODELS, "more/"}
    assert completed(here, "fedref run --split per") == {"per-fedavg", "per-split.json"}
    assert completed(here, "fedref run fedavg --data s") == {n for n in SOURCES if n[0] == "s"}
    assert completed(here, "fedref run --keep-p") == {"--keep-parameters"}
    assert completed(here, "fedref re") == {"resume", "reproduce"}
    assert "per-fedavg" in RULES


def test_without_a_shell_that_asks_nothing_is_imported(here):
    code = "import sys; from fedref.commands import main; main(['run', '--list']); "
    code += "sys.exit('argcomplete' in sys.modules)"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0
