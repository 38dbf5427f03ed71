"""A tiny report, and the command that runs reports."""

from typing import Any

from fedref.commands import main
from fedref.commands.reproduce import import_reproduce

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
data.name = "digits"
model.name = "logistic"

[base.algorithms]
fedavg = { lr = 0.1 }
fedprox = { lr = 0.1, mu = 0.0 }

[runs]
one = {}
two = { "algorithms.*.lr" = 0.2, sweep = { steps = [1, 2] } }

[quick]
seeds = [0]
one.rounds = 1

[data]
one = "Digits"
two = "Digits"

[methods]
fedavg = "FedAvg"
fedprox = "FedProx"

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
CLAIMS = "# All\n\n{counts}\n\n{tiny}\n\n[^small]: Small.\n\n[^ten]: Ten.\n\n[^odd]: Odd.\n"


def command(*words: Any) -> int:
    """Run `fedref reproduce` as a user types it."""
    return main(["reproduce", *map(str, words)])
