"""The metrics of a run, in one table for results, summaries and pictures."""

from collections.abc import Mapping
from typing import NamedTuple

from fedref.boundary.errors import printable


class Metric(NamedTuple):
    """One column of metrics.csv, or a sum of columns.

    title : the label of an axis, with its unit. meaning : a line for the list of columns. scale :
    the factor from the unit of the file to that of the title. columns : the columns that are summed.
    """

    title: str
    meaning: str
    scale: float = 1.0
    columns: tuple[str, ...] = ()


PERCENT = 100
_MB = 1e-6

_MEANS = {
    "accuracy": Metric("test accuracy (%)", "share of all test rows predicted right", PERCENT),
    "accuracy_mean": Metric(
        "test accuracy, mean over clients (%)",
        "the same share for a client, mean over clients",
        PERCENT,
    ),
    "test_loss": Metric("test loss", "mean loss over all test rows, without L2"),
    "test_loss_mean": Metric("test loss, mean over clients", "test loss, mean over clients"),
    "train_loss": Metric("training loss", "mean loss over all training rows, without L2"),
    "train_loss_mean": Metric(
        "training loss, mean over clients", "training loss, mean over clients"
    ),
}
_TOTALS = {
    "bytes_down": Metric("data sent down (MB)", "bytes from server to clients", _MB),
    "bytes_up": Metric("data sent up (MB)", "bytes from clients to server", _MB),
    "grads": Metric("gradients computed", "gradients, each on one batch of one client"),
    "hvps": Metric("Hessian-vector products computed", "Hessian-vector products, likewise"),
    "flops": Metric("computation (10⁹ operations)", "floating-point operations of both", 1e-9),
    "stragglers": Metric("stragglers since the start", "clients that straggled"),
    "dropped": Metric("clients dropped since the start", "stragglers left out"),
    "failed": Metric("clients failed since the start", "clients that raised an error"),
}
#: Columns that only some runs have.
_OPTIONAL = {
    "unseen_accuracy": Metric(
        "accuracy of unseen clients (%)", "accuracy on clients that never train (`unseen`)", PERCENT
    ),
    "unseen_accuracy_mean": Metric(
        "accuracy, mean over unseen clients (%)", "the same, mean over unseen clients", PERCENT
    ),
    "validation_accuracy": Metric(
        "accuracy of validation clients (%)",
        "the same for clients kept back for validation",
        PERCENT,
    ),
    "validation_accuracy_mean": Metric(
        "accuracy, mean over validation clients (%)",
        "the same, mean over validation clients",
        PERCENT,
    ),
    "gamma": Metric("inexactness γ, mean over the cohort", "FedProx's γ, mean over the cohort"),
    "penalty": Metric(
        "penalty, mean over the cohort", "proximal or EWC term, mean over the cohort"
    ),
    "mu": Metric("proximal weight μ", "FedProx's μ, where it may adapt"),
    "B": Metric("dissimilarity B", "FedProx's B (`dissimilarity`)"),
    "variance": Metric(
        "variance of the clients' gradients", "variance of the gradients (`dissimilarity`)"
    ),
    "renewed": Metric("importance renewed", "1: APFL renews its importance after the round"),
}

#: The columns of metrics.csv that every run has, after those that identify the row.
COLUMNS = (*_MEANS, *_TOTALS)

#: The columns that are totals since round 0.
TOTALS = tuple(_TOTALS)


def _with_columns(metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    """Return the metrics with `columns` set: each is the column of its own name."""
    return {name: metric._replace(columns=(name,)) for name, metric in metrics.items()}


#: In the order of metrics.csv.
METRICS: Mapping[str, Metric] = _with_columns(_MEANS | _TOTALS | _OPTIONAL)

#: Names for sums of columns, and short names.
ALIASES: Mapping[str, Metric] = {
    "loss": METRICS["train_loss"],
    "bytes": Metric(
        "data sent up and down (MB)", "bytes in both directions", _MB, ("bytes_down", "bytes_up")
    ),
}

#: The columns of clients.csv, after those that identify the row.
CLIENTS: Mapping[str, Metric] = _with_columns(
    {
        "n_test": Metric("test rows of a client", "test rows"),
        "accuracy": Metric("test accuracy of a client (%)", "share predicted right", PERCENT),
        "test_loss": Metric("test loss of a client", "mean loss over test rows, without L2"),
        "n_train": Metric("training rows of a client", "training rows"),
        "train_loss": Metric("training loss of a client", "mean loss over training rows"),
    }
)


def markdown(rows: list[list[str]], left: int = 1) -> str:
    """Return an aligned Markdown table; its first `left` columns are names or text.

    Characters with a meaning in Markdown or HTML are escaped.
    """
    special = str.maketrans({"|": r"\|", "<": "&lt;"})
    rows = [[printable(cell).translate(special) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rule = ["-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    lines = [
        " | ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    head, *body = (f"| {line} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rule)}|", *body])


def bytes_as_text(sizes: list[float]) -> tuple[str, list[str]]:
    """Return ("MB", texts), or ("kB", texts) where MB would show 0.00 for some bytes."""
    unit, size = ("kB", 1e3) if any(0 < b < 5e3 for b in sizes) else ("MB", 1e6)
    return unit, [f"{b / size:.2f}" for b in sizes]


# ---- what the columns mean -----------------------------------------------------------------------

#: The meanings of the columns of the table that a run prints.
_TABLE = {
    "average": "test accuracy in %, mean over evaluated rounds",
    "maximum": "its largest value",
    "final": "its value after the last round",
    "... (clients)": "the same, mean over clients",
    "unseen": "accuracy on clients that never train, last round",
    "test loss": "that of the last round, if worse than guessing",
    "MB down, MB up": "10⁶ bytes to and from clients, all rounds; kB: 10³",
}

#: The meanings of the columns of metrics.csv and clients.csv that identify a row.
_PLACE = {
    "algorithm": "its label in the experiment file",
    "sweep.KEY": "the value of a swept KEY, one column each",
    "seed": "the seed of start, cohorts and batches",
    "round": "rounds done; 0 is the start",
}

_NOTE = """\
Unless a meaning says otherwise, means are over all rows alike. A cell is empty
if it was not evaluated in that round. Bytes, gradients, products, operations,
and stragglers, dropped and failed clients are totals since round 0."""


def columns_help() -> str:
    """Explain the columns of the printed table and of both files, as Markdown 80 characters wide."""
    tables = {
        "the printed table": _TABLE,
        "metrics.csv": {**_PLACE, **{name: m.meaning for name, m in METRICS.items()}},
        "clients.csv": {
            **_PLACE, "client": "its number", **{name: m.meaning for name, m in CLIENTS.items()}
        },
    }  # fmt: skip
    texts = [
        markdown([[title, "what it is"], *([f"`{k}`", text] for k, text in table.items())], left=2)
        for title, table in tables.items()
    ]
    return "\n\n".join([*texts, _NOTE])
