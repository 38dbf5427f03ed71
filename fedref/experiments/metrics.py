"""The metrics of a run: one table that results, summaries and pictures read."""

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """One column of metrics.csv, or a sum of columns.

    title : the axis in a picture, with its unit; meaning : one line for a table of columns;
    columns : what is summed; scale : from the unit of the file
    to that of the title; total : whether it counts since round 0; always : whether every run has it.
    """

    title: str
    meaning: str
    columns: tuple[str, ...] = ()
    scale: float = 1.0
    total: bool = False
    always: bool = True


PERCENT = 100
_MB = 1e-6

#: In the order of metrics.csv: first the columns that every run has, then the others.
_METRICS = {
    "accuracy": Metric("test accuracy (%)", "share of all test rows that are right", scale=PERCENT),
    "accuracy_mean": Metric(
        "test accuracy, mean over clients (%)",
        "the same share of each client's test rows, mean over clients",
        scale=PERCENT,
    ),
    "test_loss": Metric("test loss", "mean loss over all test rows, without L2"),
    "test_loss_mean": Metric("test loss, mean over clients", "test loss, mean over clients"),
    "train_loss": Metric("training loss", "mean loss over all training rows, without L2"),
    "train_loss_mean": Metric(
        "training loss, mean over clients", "training loss, mean over clients"
    ),
    "bytes_down": Metric(
        "data sent down (MB)", "bytes from server to clients", scale=_MB, total=True
    ),
    "bytes_up": Metric("data sent up (MB)", "bytes from clients to server", scale=_MB, total=True),
    "grads": Metric("gradients computed", "gradients, one a client and batch", total=True),
    "hvps": Metric(
        "Hessian-vector products computed", "Hessian-vector products, likewise", total=True
    ),
    "flops": Metric(
        "computation (10⁹ operations)",
        "floating-point operations of gradients and Hessian-vector products",
        scale=1e-9,
        total=True,
    ),
    "stragglers": Metric("stragglers since the start", "clients that straggled", total=True),
    "dropped": Metric("clients dropped since the start", "stragglers left out", total=True),
    "failed": Metric("clients failed since the start", "clients that raised an error", total=True),
    "unseen_accuracy": Metric(
        "accuracy of unseen clients (%)",
        "accuracy on clients that never train (`unseen`)",
        scale=PERCENT,
        always=False,
    ),
    "unseen_accuracy_mean": Metric(
        "accuracy, mean over unseen clients (%)",
        "the same, mean over unseen clients",
        scale=PERCENT,
        always=False,
    ),
    "gamma": Metric(
        "inexactness γ, mean over the cohort", "FedProx's γ, mean over the cohort", always=False
    ),
    "penalty": Metric(
        "penalty, mean over the cohort", "proximal or EWC term, mean over the cohort", always=False
    ),
    "mu": Metric("proximal weight μ", "FedProx's μ, where it may adapt", always=False),
    "B": Metric("dissimilarity B", "FedProx's B (`dissimilarity`)", always=False),
    "variance": Metric(
        "variance of the clients' gradients", "of the gradients (`dissimilarity`)", always=False
    ),
    "renewed": Metric(
        "importance renewed", "1 in a round after which APFL renews its importance", always=False
    ),
}

METRICS: Mapping[str, Metric] = {
    name: metric._replace(columns=(name,)) for name, metric in _METRICS.items()
}

#: Names for sums of columns, and short names.
ALIASES: Mapping[str, Metric] = {
    "loss": METRICS["train_loss"],
    "bytes": Metric(
        "data sent up and down (MB)",
        "bytes in both directions",
        ("bytes_down", "bytes_up"),
        _MB,
        total=True,
    ),
}

#: The columns of metrics.csv that every run has, after those that name the row.
COLUMNS = tuple(name for name, metric in METRICS.items() if metric.always)

#: What a row of a record counts: totals since round 0.
TOTALS = tuple(name for name, metric in METRICS.items() if metric.total)

#: What is known of every client, as in clients.csv.
_CLIENTS = {
    "n_test": Metric("test rows of a client", "test rows"),
    "accuracy": Metric("test accuracy of a client (%)", "share that is right", scale=PERCENT),
    "test_loss": Metric("test loss of a client", "mean loss over them, without L2"),
    "n_train": Metric("training rows of a client", "training rows"),
    "train_loss": Metric("training loss of a client", "mean loss over them, without L2"),
}
CLIENTS: Mapping[str, Metric] = {
    name: metric._replace(columns=(name,)) for name, metric in _CLIENTS.items()
}
