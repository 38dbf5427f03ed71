"""The summary of a run: a row for each algorithm and point of the sweep, and tables for papers."""

from collections.abc import Iterable
from math import isfinite, nan
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, printable, unknown
from fedref.lab.plots.tables import Row, Table, extremes
from fedref.models.numerics import Array
from fedref.rounds.metrics import PERCENT, SUMMARY

#: The ends of names in summary.csv, and those of the same numbers in metrics.csv.
ENDS = {"": "", "_clients": "_mean"}


class Score(NamedTuple):
    """What algorithms are compared by: a column of metrics.csv, the name of its best value, its scale."""

    column: str
    best: str
    scale: float

    @classmethod
    def of(cls, table: Table) -> "Score":
        """Return the accuracy, or of real targets the test loss."""
        measured = (table[name] for name in ("accuracy", "unseen_accuracy") if name in table)
        labels = any(np.isfinite(column).any() for column in measured)
        return cls("accuracy", "maximum", PERCENT) if labels else cls("test_loss", "minimum", 1)


def numbers_of(rows: Table, score: Score) -> dict[str, float]:
    """Return the numbers of one unit, by the columns of summary.csv."""
    numbers = dict[str, float]()
    for end, mean in ENDS.items():
        names = (f"{name}{end}" for name in ("average", score.best, "final"))
        numbers |= zip(names, extremes(rows, score.column + mean, score.best))
    for name, column in SUMMARY.items():
        for end, mean in ENDS.items() if column.parts else [("", "")]:
            of = (column.parts or (name,))[0] + mean
            if of in rows and column.scale and (score.scale == PERCENT or "accuracy" not in of):
                numbers[name + end] = extremes(rows, of)[2]
    return numbers


class Summary(list[Row]):
    """The rows of summary.csv, which show chosen columns as a table: text, a data frame, or LaTeX.

    columns : those to show. best : "bold" marks the best of each. digits : behind the point; of losses,
    two more in all.
    """

    sent: ClassVar = ("bytes_down", "bytes_up")  # which do not vary over seeds

    def __init__(
        self, rows: Iterable[Row], score: Score, columns: Any, best: str | None, digits: int
    ) -> None:
        super().__init__(rows)
        known = [name for name in self[0] if name.removesuffix("_clients") in SUMMARY]
        usual = [name for name in known if name != "test_loss"]
        chosen = [columns] if isinstance(columns, str) else columns
        self.columns: list[str] = usual if chosen is None else list(chosen)
        self.score, self.best, self.digits = score, best, digits
        self.long = chosen is not None
        for name in self.columns:
            if name not in known:
                raise ConfigError(unknown("column", name, known))
        if best not in (None, "bold"):
            raise ConfigError(unknown("mark of the best", best, ("bold",)))

    def column(self, name: str, bold: str) -> list[str]:
        """Return the title and the cells of a column."""
        facts = SUMMARY[name.removesuffix("_clients")]
        title = facts.title + (" (clients)" if name.endswith("_clients") else "")
        scale = facts.scale or self.score.scale
        if name in self.sent and any(0 < row[sent] < 5e3 for row in self for sent in self.sent):
            title, scale = title.replace("MB", "kB"), 1e-3
        elif self.long:
            title += " (%)" if scale == PERCENT else ""
            spread = any(isfinite(row.get(f"{name}_sd", nan)) for row in self)
            title += " ± sd, n − 1" if spread else ""
        form = f"#.{self.digits + 2}g" if scale == 1 else f".{self.digits}f"
        cells, means = list[str](), []
        for row in self:
            mean, sd = f"{scale * row[name]:{form}}", scale * row.get(f"{name}_sd", nan)
            means.append(float(mean) if row["status"] == "done" else nan)
            point = f".{len(mean.partition('.')[2])}f" if isfinite(row[name]) else form
            cells.append(mean + (f" ± {sd:{form if 'e' in mean else point}}" if sd == sd else ""))
        if self.best and np.isfinite(means).any():
            loss = "loss" in name or (scale != PERCENT and "loss" in self.score.column)
            lower = loss or name in self.sent
            best = np.nanmin(means) if lower else np.nanmax(means)
            cells = [bold.format(x) if m == best else x for m, x in zip(means, cells)]
        return [title, *cells]

    def cells(self, bold: str = "**{}**") -> list[list[str]]:
        """Return the table as text, the header first."""
        ends = ("" if row["status"] == "done" else f" ({row['status']})" for row in self)
        titles = [row["title"] + end for row, end in zip(self, ends)]
        columns = (self.column(name, bold) for name in self.columns)
        return [*map(list, zip(["algorithm", *titles], *columns))]

    def __repr__(self) -> str:
        """Return the table in Markdown."""
        return markdown(self.cells())

    __str__ = __repr__

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame of text; for numbers there is `Run.to_pandas("summary")`."""
        from pandas import DataFrame

        head, *body = self.cells()
        return DataFrame(body, columns=head).set_index("algorithm")

    def to_latex(self) -> str:
        """Return the table as LaTeX's tabular, which needs no package."""
        head, *body = self.cells(r"\textbf{{{}}}")
        rows = [[*map(as_latex, head)], *([as_latex(row[0]), *row[1:]] for row in body)]
        signs = str.maketrans({"±": r"$\pm$", "−": "$-$"})
        first, *lines = (" & ".join(row).translate(signs) + r" \\" for row in rows)
        start = rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}"
        return "\n".join([start, r"\hline", first, r"\hline", *lines, r"\hline", r"\end{tabular}"])


def as_latex(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


class Difference(NamedTuple):
    """A paired difference: its mean over seeds, and the margin of that mean, by t at 95 % with n − 1.

    margin : NaN with one seed. values : (seeds,) each seed's difference.
    """

    mean: float
    margin: float
    values: Array
    seeds: list[int]
    what: str
    scale: float

    def __repr__(self) -> str:
        """Return a line: "apfl − fedavg, final test accuracy: +3.21 ± 0.54 points (...)"."""
        form, unit = ("+.2f", " points") if self.scale == PERCENT else ("+.4g", "")
        size = f"{self.scale * self.margin:{form.lstrip('+')}}"
        margin = f" ± {size}" if isfinite(self.margin) else ""
        how = f"t at 95 %, paired over {len(self.seeds)} seeds" if margin else "one seed: no margin"
        return f"{self.what}: {self.scale * self.mean:{form}}{margin}{unit} ({how})"

    @classmethod
    def between(
        cls, one: dict[int, float], other: dict[int, float], what: str, scale: float
    ) -> "Difference":
        """Return the difference of two series of numbers, seed → number, over the seeds of both."""
        from scipy.special import stdtrit  # slow to import

        seeds = sorted(one.keys() & other.keys())
        if not seeds:
            raise ConfigError(f"{what}: no seed is in both, expected the same seeds")
        values = np.array([one[seed] - other[seed] for seed in seeds])
        n, margin = len(seeds), nan
        if n > 1:
            margin = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))
        return cls(float(values.mean()), margin, values, seeds, what, scale)


def markdown(rows: list[list[str]], left: int = 1) -> str:
    """Return an aligned Markdown table; its first `left` columns are names or text.

    Characters with a meaning in Markdown or HTML are escaped.
    """
    special = str.maketrans({"|": r"\|", "<": "&lt;"})
    rows = [[printable(cell).translate(special) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rule = ["-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    lines = [
        " | ".join(f"{c:{'<>'[i >= left]}{w}}" for i, (c, w) in enumerate(zip(row, widths)))
        for row in rows
    ]
    head, *body = (f"| {line} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rule)}|", *body])
