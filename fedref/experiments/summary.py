"""The table at the end of a run: average, maximum and final accuracy of every algorithm; for a
model of real targets, which has no accuracy, its average, minimum and final test loss.
"""

from typing import NamedTuple

import numpy as np

from fedref.experiments.results import Run
from fedref.experiments.unit import Record

Spread = tuple[float, float]


class Score(NamedTuple):
    """What the table is of: a column, what it is called, and which of its values is the best."""

    metric: str
    title: str
    best: str


ACCURACY = Score("accuracy", "Test accuracy in %", "maximum")
LOSS = Score("test_loss", "Test loss", "minimum")


def score_of(run: Run) -> Score:
    """The accuracy, or the test loss where no model has labels."""
    rows = (row for record in run.records for row in record.rows)
    accuracies = (row.get("accuracy") for row in rows)
    return ACCURACY if any(a is not None and a == a for a in accuracies) else LOSS


class Summary(NamedTuple):
    """One line of the table: each a (mean, standard deviation) over seeds. Of a loss, what is
    called maximum is the minimum."""

    label: str
    average: Spread
    maximum: Spread
    final: Spread
    plain_average: Spread
    plain_maximum: Spread
    plain_final: Spread
    bytes_down: float
    bytes_up: float
    unseen: tuple[Spread, ...] = ()  # final, by samples and over clients


def summaries(run: Run) -> list[Summary]:
    """Average over all evaluated rounds (round 0 included), best and final accuracy or loss."""
    score = score_of(run)
    groups: dict[str, list[Record]] = {}
    for unit, record in zip(run.units, run.records):
        point = ", ".join(f"{k}={v}" for k, v in unit.point.items())
        groups.setdefault(f"{unit.label} ({point})" if point else unit.label, []).append(record)

    table = []
    for label, records in groups.items():
        last = [record.rows[-1] for record in records]
        down, up = (
            float(np.mean([row[name] for row in last])) for name in ("bytes_down", "bytes_up")
        )
        weighted, unweighted = (
            over_seeds(records, name, score.best) for name in (score.metric, f"{score.metric}_mean")
        )
        label += " (diverged)" * any(record.status == "diverged" for record in records)
        measured = run.experiment.unseen and score is ACCURACY
        unseen = ("unseen_accuracy", "unseen_accuracy_mean") if measured else ()
        finals = tuple(over_seeds(records, name)[2] for name in unseen)
        table.append(Summary(label, *weighted, *unweighted, down, up, finals))
    return table


def over_seeds(
    records: list[Record], metric: str, best: str = "maximum"
) -> tuple[Spread, Spread, Spread]:
    """(mean, standard deviation) over seeds of a column's average over rounds, best and end."""
    extreme = np.max if best == "maximum" else np.min
    series = [[row[metric] for row in r.rows if row.get(metric) is not None] for r in records]
    found = np.array([(np.mean(s), extreme(s), s[-1]) for s in series])
    average, maximum, final = zip(found.mean(0).tolist(), found.std(0).tolist())
    return average, maximum, final


def summary_rows(run: Run) -> list[list[str]]:
    """The table as text cells, header first. Accuracies in %, with ± over seeds if there are some;
    the final accuracy on unseen clients where it was measured."""
    several, score = len(run.experiment.seeds) > 1, score_of(run)
    form = (lambda x: f"{100 * x:.2f}") if score is ACCURACY else (lambda x: f"{x:#.4g}")

    def number(value: Spread) -> str:
        mean, std = map(form, value)
        return f"{mean} ± {std}" if several else mean

    header = [
        "algorithm", "average", score.best, "final",
        "average (clients)", f"{score.best} (clients)", "final (clients)",
        *(["unseen", "unseen (clients)"] if run.experiment.unseen and score is ACCURACY else []),
        "MB down", "MB up",
    ]  # fmt: skip
    return [
        header,
        *(
            [
                s.label, *map(number, s[1:7]), *map(number, s.unseen),
                f"{s.bytes_down / 1e6:.2f}", f"{s.bytes_up / 1e6:.2f}",
            ]
            for s in summaries(run)
        ),
    ]  # fmt: skip


def markdown(rows: list[list[str]]) -> str:
    """An aligned Markdown table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: list[str]) -> str:
        name, *numbers = row
        cells = [name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(numbers, widths[1:]))]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(rows[0]), f"|{'|'.join(rule)}|", *map(line, rows[1:])])


#: What is left out first where a table is too wide; the last three stay longest.
LESS_NEEDED = (
    "maximum (clients)", "average (clients)", "MB down", "MB up", "unseen (clients)", "unseen",
    "maximum", "average", "final (clients)",
)  # fmt: skip


def fitted(rows: list[list[str]], width: int) -> tuple[list[list[str]], list[str]]:
    """(the table with columns left out until it is at most `width` wide, those columns)."""
    names, without = rows[0], set[str]()

    def chosen() -> list[list[str]]:
        kept = [i for i, name in enumerate(names) if name not in without]
        return [[row[i] for i in kept] for row in rows]

    for name in LESS_NEEDED:
        if len(markdown(chosen()).partition("\n")[0]) <= width:
            break
        without |= {name, name.replace("maximum", "minimum")}
    return chosen(), [name for name in names if name in without]


def heading(run: Run) -> str:
    """What the numbers of the table are, as one line above it."""
    score = score_of(run)
    evaluated = {
        tuple(row["round"] for row in record.rows if row.get(score.metric) is not None)
        for record in run.records
    }
    if len(evaluated) == 1:
        (rounds,) = evaluated
        over = f"{len(rounds)} evaluated rounds from 0 (the start) to {rounds[-1]}"
    else:
        over = "evaluated rounds, not the same in all"
    return f"{score.title}, over {over}; (clients): mean over clients"


def note_on_steps(run: Run) -> str:
    """Where algorithms of one run differ in the size of their steps, and so may in the table."""
    steps = {}
    for label, table in run.experiment.algorithms.items():
        name = "lr" if "lr" in table else "beta"
        if name in table and not any(key.endswith(name) for key in run.experiment.sweep):
            steps[label] = f"{name} = {table[name]:g}"
    if len({text.partition(" = ")[2] for text in steps.values()}) < 2:
        return ""
    said = ", ".join(f"{label} {text}" for label, text in steps.items())
    return f"Note: step sizes differ ({said}), and with them perhaps the ranking."
