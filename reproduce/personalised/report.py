"""All personalised methods on the same clients and batches, with rates that validation clients choose."""

from collections.abc import Mapping
from pathlib import Path

from fedref.experiments.results import Run
from reproduce.measures import at_best, final
from reproduce.tables import markdown, spread

TINY = {"rounds": 2, "eval-every": 2, "clients-every": 2}
QUICK = {"seeds": [0], **TINY}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    rows = [["experiment", "method", "all clients"]]
    for stem, run in runs.items():
        labels = list(run.experiment.algorithms)
        best = at_best(run, labels, "accuracy")
        rows += [[stem, label, spread(final(best, label))] for label in labels]
    return {"accuracies": markdown(rows, left=2)}
