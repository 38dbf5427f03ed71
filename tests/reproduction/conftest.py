"""A tiny report, and where the real data are."""

import pytest
from dataset_files import real

from reproduce import pages, runs

__all__ = ["real"]

TINY = """\
title = "Tiny"
data = { one = "Digits", two = "Digits" }
data-notes = { "Dig*" = "ten" }
methods = { fedavg = "FedAvg", fedprox = { name = "FedProx", mu = 0.0 } }
runs = { one = {}, two = { lr = 0.2, sweep = { steps = [1, 2] } } }
quick = { seeds = [0], one = { rounds = 1 } }

[base]
data = "digits"
model = "logistic"
seeds = [0, 1]
rounds = 2
clients-per-round = 3
steps = 1
batch-size = 5
lr = 0.1

[[claims]]
what = "FedProx is above FedAvg"
quantity = "accuracy"
of = "fedprox"
to = "fedavg"
above = 0
quick = "Digits"
notes = "small"
[[claims]]
what = "privacy"
because = "nobody knows"

[[measure.cells]]
runs = ["one"]
quantities = ["accuracy", "average", "change", "MB", "before adaptation"]
[[measure.cells]]
runs = ["two"]
setting = "{steps} steps"
quantities = ["accuracy"]

[tables.all]
columns = { accuracy = 2, "above FedAvg" = { quantity = "accuracy", to = "fedavg" } }
[[page.pictures]]
kind = "curves"
runs = ["*"]
setting = "{steps} steps"
"""
TEXT = "# Tiny\n\n{table all}\n\n{claims}\n"
CLAIMS = "# All\n\n{counts}\n\n{tiny}\n\n[^small]: Small.\n\n[^ten]: Ten.\n"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The only report is `tiny`; return the OUT to reproduce it to."""
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, text in (("tiny.toml", TINY), ("tiny.md", TEXT), ("claims.md", CLAIMS)):
        (folder / name).write_text(text)
    for module in (runs, pages):
        monkeypatch.setattr(module, "PAPERS", folder)
    return tmp_path / "made" / "results"
