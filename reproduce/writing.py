"""The page of a command beside the reports, `python -m reproduce.speed` and `.peers`."""

import time
from collections.abc import Mapping
from pathlib import Path

import fedref
from fedref.boundary.files import write_atomically
from reproduce.runs import git_commit
from reproduce.tables import duration


def write_page(template: Path, out: Path, parts: Mapping[str, str], began: float) -> Path:
    """Write OUT/table.md: the template's text with its {names} filled in, and what made it.

    began : the `time.monotonic()` of the start.
    """
    made = f"Made by fedref {fedref.__version__}, commit {git_commit()}"
    took = duration(time.monotonic() - began)
    text = template.read_text("utf-8").format_map(parts).rstrip()
    write_atomically(out / "table.md", f"{text}\n\n{made}, in {took}.\n".encode())
    return out / "table.md"
