"""Columns of measurements: one list for files, summaries and pictures."""

from collections.abc import Mapping
from typing import NamedTuple


class Column(NamedTuple):
    """A column. title : the label of an axis, with its unit; scale : from the file's unit to that.

    parts : the columns that are summed, if it is a sum or another name.
    """

    title: str
    meaning: str
    scale: float = 1.0
    parts: tuple[str, ...] = ()


PERCENT, MB = 100, 1e-6
#: The columns that say which unit, round and client a row belongs to.
PLACE = {
    "algorithm": Column("algorithm", "its label in the experiment file"),
    "sweep.KEY": Column("", "the value of a swept KEY, one column each"),
    "seed": Column("seed", "the seed of start, cohorts and batches"),
    "round": Column("communication round", "rounds done; 0 is the start"),
}
MEANS = {
    "accuracy": Column("test accuracy (%)", "share of all test rows predicted right", PERCENT),
    "accuracy_mean": Column(
        "test accuracy, mean over clients (%)", "a client's share, mean over clients", PERCENT
    ),
    "test_loss": Column("test loss", "mean loss over all test rows, without L2"),
    "test_loss_mean": Column("test loss, mean over clients", "test loss, mean over clients"),
    "train_loss": Column("training loss", "mean loss over all training rows, without L2"),
    "train_loss_mean": Column(
        "training loss, mean over clients", "training loss, mean over clients"
    ),
}
SUMS = {
    "bytes_down": Column("data sent down (MB)", "bytes from server to clients", MB),
    "bytes_up": Column("data sent up (MB)", "bytes from clients to server", MB),
    "grads": Column("gradients computed", "gradients, each on one batch of one client"),
    "hvps": Column("Hessian-vector products computed", "Hessian-vector products, likewise"),
    "flops": Column("computation (10⁹ operations)", "floating-point operations of both", 1e-9),
    "stragglers": Column("stragglers since the start", "clients that straggled"),
    "dropped": Column("clients dropped since the start", "stragglers left out"),
    "failed": Column("clients failed since the start", "clients that raised an error"),
}
#: Columns that only some runs have.
OPTIONAL = {
    f"{kind}_accuracy{end}": Column(f"accuracy{of} {kind} clients (%)", meaning, PERCENT)
    for kind, what in (
        ("unseen", "accuracy on clients that never train (`unseen`)"),
        ("validation", "the same for clients kept back for validation"),
    )
    for end, of, meaning in (
        ("", " of", what),
        ("_mean", ", mean over", "the same, mean over clients"),
    )
} | {
    "gamma": Column("inexactness γ, mean over the cohort", "FedProx's γ, mean over the cohort"),
    "penalty": Column(
        "penalty, mean over the cohort", "proximal or EWC term, mean over the cohort"
    ),
    "mu": Column("proximal weight μ", "FedProx's μ, where it may adapt"),
    "B": Column("dissimilarity B", "FedProx's B (`dissimilarity`)"),
    "variance": Column(
        "variance of the clients' gradients", "variance of the gradients (`dissimilarity`)"
    ),
    "renewed": Column("importance renewed", "1: APFL renews its importance after the round"),
}
CLIENTS = {
    "client": Column("client", "its number"),
    "n_test": Column("test rows of a client", "test rows"),
    "accuracy": Column("test accuracy of a client (%)", "share predicted right", PERCENT),
    "test_loss": Column("test loss of a client", "mean loss over test rows, without L2"),
    "n_train": Column("training rows of a client", "training rows"),
    "train_loss": Column("training loss of a client", "mean loss over training rows"),
}
#: Short names, and sums of columns.
ALIASES = {
    "loss": Column("training loss", "", parts=("train_loss",)),
    "bytes": Column("data sent up and down (MB)", "", MB, ("bytes_down", "bytes_up")),
}
COLUMNS: Mapping[str, Column] = {**PLACE, **MEANS, **SUMS, **OPTIONAL, **ALIASES}
#: The columns that are totals since round 0.
TOTALS = tuple(SUMS)

#: The columns of the table that a run prints.
PRINTED = {
    "average": "test accuracy in %, mean over evaluated rounds",
    "maximum": "its largest value",
    "minimum": "of real targets, whose numbers are the test loss: its smallest",
    "final": "its value after the last round",
    "... (clients)": "the same, mean over clients",
    "unseen": "accuracy on clients that never train, last round",
    "MB down, MB up": "10⁶ bytes to and from clients, all rounds; kB: 10³",
}
NOTE = """\
Unless a meaning says otherwise, means are over all rows alike. A cell is empty
if it was not evaluated in that round. Bytes, gradients, products, operations,
and stragglers, dropped and failed clients are totals since round 0. summary.csv
holds the printed table, unrounded: NAME and its standard deviation NAME_sd over
the seeds, accuracies as shares, bytes as bytes."""
