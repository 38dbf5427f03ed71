"""Pictures of runs and of splits, as PNG, SVG or PDF by the file's name.

`curves`, `bars` and `clients` take the table of a run, `Run.table()`, and return a figure; `save` writes
it. The same table always gives the same bytes. `holdings` draws a federation.
"""

from importlib import import_module
from typing import Any

#: Names that are imported at their first use, as matplotlib is slow to import.
LATER = {
    "curves": "lab.plots.figures", "bars": "lab.plots.figures", "clients": "lab.plots.figures",
    "holdings": "lab.plots.splits", "join_tables": "lab.plots.tables",
    "format_of": "boundary.style", "save": "boundary.style", "as_html": "boundary.style",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"fedref.{LATER[name]}"), name)
    raise AttributeError(f"module 'fedref.lab.plots' has no attribute {name!r}")
