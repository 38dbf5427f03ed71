"""A tiny report, and where the real data are."""

import os
from pathlib import Path

import pytest

from fedref.lab.commands.reproduce import import_reproduce
from reproduce import pages, runs

import_reproduce()

TINY = """\
title = "Tiny"

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

[data-notes]
"Dig*" = "ten"

[base]
rounds = 2
clients-per-round = 3
steps = 1
batch-size = 5
seeds = [0, 1]
data = "digits"
model = "logistic"
lr = 0.1

[runs]
one = {}
two = { lr = 0.2, sweep = { steps = [1, 2] } }

[quick]
seeds = [0]
one = { rounds = 1 }

[data]
one = "Digits"
two = "Digits"

[methods]
fedavg = "FedAvg"
fedprox = { name = "FedProx", mu = 0.0 }

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
    (folder / "tiny.toml").write_text(TINY)
    (folder / "tiny.md").write_text(TEXT)
    (folder / "claims.md").write_text(CLAIMS)
    for module in (runs, pages):
        monkeypatch.setattr(module, "PAPERS", folder)
    return tmp_path / "made" / "results"


@pytest.fixture
def real():
    """Where the real data are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FEDREF_DATA") or beside)
    for name in ("mnist", "vehicle", "cifar10-gray", "landmine", "shakespeare"):
        if not (folder / name).is_dir():
            pytest.skip(f"needs {name} in FEDREF_DATA or ../shared/data")
    return folder
