"""The columns of measurements: one list of facts for files, summaries and pictures."""

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
MEAN_OVER_CLIENTS = "the same, mean over clients"


def with_mean(name: str, title: str, meaning: str, scale: float = 1.0) -> dict[str, Column]:
    """Return a column over all rows, and NAME_mean, its mean over clients; "{}" is their place."""
    return {
        name: Column(title.format(""), meaning, scale),
        f"{name}_mean": Column(title.format(", mean over clients"), MEAN_OVER_CLIENTS, scale),
    }


MEANS = {
    **with_mean(
        "accuracy", "test accuracy{} (%)", "share of all test rows predicted right", PERCENT
    ),
    **with_mean("test_loss", "test loss{}", "mean loss over all test rows, without L2"),
    **with_mean("train_loss", "training loss{}", "mean loss over all training rows, without L2"),
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
    **with_mean("validation_accuracy", "validation accuracy{} (%)",
                "share of validation rows predicted right (`split.validation`)", PERCENT),
    **with_mean("validation_loss", "validation loss{}", "mean loss over validation rows"),
    **with_mean("unseen_accuracy", "accuracy of unseen clients{} (%)",
                "accuracy on clients that never train (`unseen`)", PERCENT),
    **with_mean("unseen_loss", "loss of unseen clients{}", "of real targets: their mean loss"),
    **with_mean("validation_clients_accuracy", "accuracy of validation clients{} (%)",
                "the same for clients kept back for validation", PERCENT),
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
}  # fmt: skip
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

#: The columns of summary.csv, of which the printed table shows some. Without a scale they are of the score;
#: the others are a column of metrics.csv, of the same name or of that in `parts`, after the last round.
SUMMARY = {
    "average": Column("average", "test accuracy in %, mean over evaluated rounds", 0),
    "maximum": Column("maximum", "its largest value", 0),
    "minimum": Column("minimum", "of real targets, whose numbers are the test loss: its smallest", 0),
    "final": Column("final", "its value after the last round", 0),
    "unseen": Column("unseen", "accuracy on clients that never train, last round", PERCENT,
                     ("unseen_accuracy",)),
    "unseen_loss": Column("unseen loss", "of real targets: their mean loss, last round"),
    "validation_accuracy": Column("validation", "accuracy on validation rows, last round", PERCENT),
    "validation_loss": Column("validation loss", "loss on validation rows, last round"),
    "test_loss": Column("test loss", "test loss, last round"),
    "bytes_down": Column("MB down", "10⁶ bytes to clients, all rounds; kB: 10³", MB),
    "bytes_up": Column("MB up", "10⁶ bytes from clients", MB),
}  # fmt: skip
NOTE = """\
Unless a meaning says otherwise, means are over all rows alike. A cell is empty
if it was not evaluated in that round. Bytes, gradients, products, operations,
and stragglers, dropped and failed clients are totals since round 0. summary.csv
holds the printed table, unrounded: NAME and its standard deviation NAME_sd over
the seeds (sd, n − 1; of one seed none), accuracies as shares, bytes as bytes.
A text that begins with = + - @ or ' has one ' more before it in these files, so
that no spreadsheet takes it for a formula."""
