"""A figure instead of its file, and a small real run."""

from types import SimpleNamespace

import pytest

from fedref.experiments import config
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.plots import runs, style


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """Draw the tables of runs, or a federation, and read the figure that would have been written."""
    kept = SimpleNamespace()
    monkeypatch.setattr(style, "save", lambda figure, path: setattr(kept, "figure", figure))

    def draw(function, what, *args, **options):
        of = "clients" if function is runs.clients else "metrics"
        if isinstance(what, Run):
            kept.figure = function(what.table(of), *args, **options)
        elif isinstance(what, dict):
            kept.figure = function(what, *args, **options)
        else:
            function(what, tmp_path / "x.png", *args, **options)
        kept.figure.draw_without_rendering()
        return kept.figure

    return draw


@pytest.fixture(scope="session")
def real() -> Run:
    table = {
        "rounds": 3,
        "clients_per_round": 3,
        "seeds": [0, 1],
        "split": {"rule": "per-fedavg", "users": 6},
        "model": {"name": "logistic"},
        "algorithms": {"fedavg": {}, "apfl": {}},
    }
    return execute(config.experiment_of(table.items()))
