"""A figure instead of its file."""

from types import SimpleNamespace

import pytest

from fedref.boundary import style
from fedref.lab.experiments.results import Run
from fedref.lab.plots import runs


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """Draw a run, a table or a federation, and read the figure that would have been written."""
    kept = SimpleNamespace()
    monkeypatch.setattr(style, "save", lambda figure, path: setattr(kept, "figure", figure))

    def draw(function, what, *args, **options):
        if isinstance(what, Run):
            what = what.table("clients" if function is runs.clients else "metrics")
        if isinstance(what, dict):
            kept.figure = function(what, *args, **options)
        else:
            function(what, tmp_path / "x.png", *args, **options)
        kept.figure.draw_without_rendering()
        return kept.figure

    return draw
