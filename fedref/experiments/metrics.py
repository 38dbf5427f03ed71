"""The metrics of a run: one table that results, summaries and pictures read."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """One column of metrics.csv, or a sum of columns.

    title : the axis in a picture, with its unit; meaning : one line for a table of columns;
    columns : what is summed; scale : from the unit of the file
    to that of the title; total : whether it counts since round 0; always : whether every run has it.
    """

    title: str
    columns: tuple[str, ...]
    scale: float = 1.0
    meaning: str = ""
    total: bool = False
    always: bool = True


def _metric(title: str, meaning: str, columns: tuple[str, ...] = (), **more: Any) -> Metric:
    return Metric(title, columns, meaning=meaning, **more)


PERCENT = 100
_MB = 1e-6

#: In the order of metrics.csv: first the columns that every run has, then the others.
_METRICS = {
    "accuracy": _metric(
        "test accuracy (%)", "share of all test rows that are right", scale=PERCENT
    ),
    "accuracy_mean": _metric(
        "test accuracy, mean over clients (%)",
        "share of a client's rows, mean over clients",
        scale=PERCENT,
    ),
    "test_loss": _metric("test loss", "mean loss over all test rows, without L2"),
    "test_loss_mean": _metric("test loss, mean over clients", "test loss, mean over clients"),
    "train_loss": _metric("training loss", "mean loss over all training rows, without L2"),
    "train_loss_mean": _metric(
        "training loss, mean over clients", "training loss, mean over clients"
    ),
    "bytes_down": _metric(
        "data sent down (MB)", "bytes from server to clients", scale=_MB, total=True
    ),
    "bytes_up": _metric("data sent up (MB)", "bytes from clients to server", scale=_MB, total=True),
    "grads": _metric("gradients computed", "gradients, one a client and batch", total=True),
    "hvps": _metric(
        "Hessian-vector products computed", "Hessian-vector products, likewise", total=True
    ),
    "flops": _metric(
        "computation (10⁹ operations)",
        "floating-point operations of both",
        scale=1e-9,
        total=True,
    ),
    "stragglers": _metric("stragglers since the start", "clients that straggled", total=True),
    "dropped": _metric("clients dropped since the start", "stragglers left out", total=True),
    "failed": _metric("clients failed since the start", "clients that raised an error", total=True),
    "unseen_accuracy": _metric(
        "accuracy of unseen clients (%)",
        "accuracy on clients that never train (`unseen`)",
        scale=PERCENT,
        always=False,
    ),
    "unseen_accuracy_mean": _metric(
        "accuracy, mean over unseen clients (%)",
        "the same, mean over unseen clients",
        scale=PERCENT,
        always=False,
    ),
    "validation_accuracy": _metric(
        "accuracy of validation clients (%)",
        "the same of clients held back to choose by",
        scale=PERCENT,
        always=False,
    ),
    "validation_accuracy_mean": _metric(
        "accuracy, mean over validation clients (%)",
        "the same, mean over validation clients",
        scale=PERCENT,
        always=False,
    ),
    "gamma": _metric(
        "inexactness γ, mean over the cohort", "FedProx's γ, mean over the cohort", always=False
    ),
    "penalty": _metric(
        "penalty, mean over the cohort", "proximal or EWC term, mean over the cohort", always=False
    ),
    "mu": _metric("proximal weight μ", "FedProx's μ, where it may adapt", always=False),
    "B": _metric("dissimilarity B", "FedProx's B (`dissimilarity`)", always=False),
    "variance": _metric(
        "variance of the clients' gradients", "of the gradients (`dissimilarity`)", always=False
    ),
    "renewed": _metric(
        "importance renewed", "1: APFL renews its importance after the round", always=False
    ),
}

METRICS: Mapping[str, Metric] = {
    name: metric._replace(columns=(name,)) for name, metric in _METRICS.items()
}

#: Names for sums of columns, and short names.
ALIASES: Mapping[str, Metric] = {
    "loss": METRICS["train_loss"],
    "bytes": _metric(
        "data sent up and down (MB)",
        "bytes in both directions",
        columns=("bytes_down", "bytes_up"),
        scale=_MB,
        total=True,
    ),
}

#: The columns of metrics.csv that every run has, after those that name the row.
COLUMNS = tuple(name for name, metric in METRICS.items() if metric.always)

#: What a row of a record counts: totals since round 0.
TOTALS = tuple(name for name, metric in METRICS.items() if metric.total)

#: What is known of every client, as in clients.csv.
_CLIENTS = {
    "n_test": _metric("test rows of a client", "test rows"),
    "accuracy": _metric("test accuracy of a client (%)", "share that is right", scale=PERCENT),
    "test_loss": _metric("test loss of a client", "mean loss over them, without L2"),
    "n_train": _metric("training rows of a client", "training rows"),
    "train_loss": _metric("training loss of a client", "mean loss over them, without L2"),
}
CLIENTS: Mapping[str, Metric] = {
    name: metric._replace(columns=(name,)) for name, metric in _CLIENTS.items()
}


# ---- what the columns mean -----------------------------------------------------------------------

#: Of the table that a run prints.
_TABLE = {
    "average": "test accuracy in %, mean over evaluated rounds",
    "maximum": "its largest value",
    "final": "its value after the last round",
    "... (clients)": "the same, mean over clients",
    "unseen": "accuracy on clients that never train, last round",
    "MB down, MB up": "10⁶ bytes to clients and from them, in all rounds",
}

#: Of metrics.csv and clients.csv: where a row stands.
_PLACE = {
    "algorithm": "its label in the experiment file",
    "sweep.KEY": "the value of a swept KEY, one column each",
    "seed": "of start, cohorts and batches",
    "round": "rounds done; 0 is the start",
}

_NOTE = """\
Where nothing else is said, every row counts the same. What was not evaluated in
a round is empty there. Bytes, gradients, products, operations, and stragglers,
dropped and failed clients are totals since round 0."""


def columns_help() -> str:
    """What the columns of the printed table and of both files mean: Markdown, 80 columns wide."""
    tables = {
        "the printed table": _TABLE,
        "metrics.csv": {**_PLACE, **{name: m.meaning for name, m in METRICS.items()}},
        "clients.csv": {
            **_PLACE, "client": "its number", **{name: m.meaning for name, m in CLIENTS.items()}
        },
    }  # fmt: skip
    return "\n\n".join([*(_listed(*table) for table in tables.items()), _NOTE])


def _listed(title: str, meanings: Mapping[str, str]) -> str:
    """A Markdown table of names and what they mean."""
    rows = [(title, "what it is"), *((f"`{name}`", said) for name, said in meanings.items())]
    name, said = (max(len(row[i]) for row in rows) for i in (0, 1))
    lines = [f"| {row[0]:<{name}} | {row[1]:<{said}} |" for row in rows]
    return "\n".join([lines[0], f"|{'-' * (name + 2)}|{'-' * (said + 2)}|", *lines[1:]])
