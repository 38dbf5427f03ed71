"""The table at the end of a run: average, maximum and final accuracy of every algorithm."""

from typing import NamedTuple

import numpy as np

from fedref.experiments.results import Run
from fedref.experiments.unit import Record

Spread = tuple[float, float]


class Summary(NamedTuple):
    """One line of the table: each a (mean, standard deviation) over seeds."""

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
    """Average over all evaluated rounds (round 0 included), maximum and final accuracy."""
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
        weighted, unweighted = (over_seeds(records, name) for name in ("accuracy", "accuracy_mean"))
        label += " (diverged)" * any(record.status == "diverged" for record in records)
        unseen = ("unseen_accuracy", "unseen_accuracy_mean") if run.experiment.unseen else ()
        finals = tuple(over_seeds(records, name)[2] for name in unseen)
        table.append(Summary(label, *weighted, *unweighted, down, up, finals))
    return table


def over_seeds(records: list[Record], metric: str) -> tuple[Spread, Spread, Spread]:
    """(mean, standard deviation) over seeds of a column's average over rounds, maximum and end."""
    series = [[row[metric] for row in r.rows if row.get(metric) is not None] for r in records]
    found = np.array([(np.mean(s), np.max(s), s[-1]) for s in series])
    average, maximum, final = zip(found.mean(0).tolist(), found.std(0).tolist())
    return average, maximum, final


def summary_rows(run: Run) -> list[list[str]]:
    """The table as text cells, header first. Accuracies in %, with ± over seeds if there are some;
    the final accuracy on unseen clients where it was measured."""
    several = len(run.experiment.seeds) > 1

    def percent(value: Spread) -> str:
        mean, std = value
        return f"{100 * mean:.2f} ± {100 * std:.2f}" if several else f"{100 * mean:.2f}"

    header = [
        "algorithm", "average", "maximum", "final",
        "average (clients)", "maximum (clients)", "final (clients)",
        *(["unseen", "unseen (clients)"] if run.experiment.unseen else []), "MB down", "MB up",
    ]  # fmt: skip
    return [
        header,
        *(
            [
                s.label, *map(percent, s[1:7]), *map(percent, s.unseen),
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
        without.add(name)
    return chosen(), [name for name in names if name in without]


def heading(run: Run) -> str:
    """What the numbers of the table are, as one line above it."""
    evaluated = {
        tuple(row["round"] for row in record.rows if row.get("accuracy") is not None)
        for record in run.records
    }
    if len(evaluated) == 1:
        (rounds,) = evaluated
        over = f"{len(rounds)} evaluated rounds from 0 (the start) to {rounds[-1]}"
    else:
        over = "evaluated rounds, not the same in all"
    return f"Test accuracy in %, over {over}; (clients): mean over clients"


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
