"""A tiny reproduction, the command that runs it, and runs that reports are given."""

import re
from collections.abc import Sequence
from typing import Any

from fedref.commands import parse
from fedref.commands.reproduce import import_reproduce
from fedref.experiments.results import Run

import_reproduce()

from reproduce import catalogue  # noqa: E402
from reproduce.claims import Claim, Finding, Place, claim_lines, claims_of, judge  # noqa: E402

TINY = """\
rounds = 2
clients-per-round = 3
steps = 1
batch-size = 5
seeds = [0, 1]
[data]
name = "digits"
[model]
name = "logistic"
[algorithms.fedavg]
lr = 0.1
[algorithms.fedprox]
lr = 0.1
"""
TEXT = """\
# Tiny

Nobody's, §0.

## Part of {WHOLE:.1f}

{nothing}

{picture}

{numbers}
"""
REPORT = """\
from reproduce.tables import Number, number_table, write_numbers

WHOLE = 1
QUICK = {"seeds": [0], "one": {"rounds": 1}}
CHECKS = {"one round was run": lambda runs: (runs["one"].experiment.rounds == 1, "measured")}


def report(runs, out, data_dir):
    (out / "one.png").write_bytes(b"")
    lines = [
        Number((stem, label), 100 * run.curve(label)[1][:, -1], 50.0, "so it is")
        for stem, run in runs.items()
        for label in run.experiment.algorithms
    ]
    write_numbers(out / "numbers.csv", ("stem", "method"), lines)
    numbers = number_table(("stem", "method"), lines)
    return {"nothing": "", "picture": "![a picture](one.png)", "numbers": numbers}
"""


def change(name: str, old: str, new: str) -> None:
    """Change something in the tiny reproduction's file `name`."""
    path = catalogue.root() / "tiny" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def command(*words: object) -> int:
    """Run `fedref reproduce` as a user types it, but with its exceptions."""
    args = parse(["reproduce", *map(str, words)])
    return int(args.run(args))


def small(
    algorithms: dict[str, Any], *, users: int = 4, clients: int = 2, **more: Any
) -> dict[str, Any]:
    """Return an experiment of one local step on digits, for reports that read something else off it."""
    return {
        "data": {"name": "digits"},
        "split": {"rule": "iid", "users": users},
        "clients-per-round": clients,
        "steps": 1,
        "algorithms": algorithms,
        **more,
    }


def with_curves(of: Run, grain: int = 1, **columns: dict[str, Sequence[float]]) -> Run:
    """Return the same with these values, of one seed, at rounds 0, grain, 2 grain ..."""
    records = []
    for unit, record in zip(of.units, of.records):
        length = max(len(curves.get(unit.label, ())) for curves in columns.values())
        rows = [
            record.rows[0]
            | {"round": grain * i}
            | {c: curves[unit.label][i] for c, curves in columns.items() if unit.label in curves}
            for i in range(length)
        ]
        records.append(record._replace(rows=rows or record.rows, round=grain * max(length - 1, 0)))
    made = of.experiment.__class__(**{**vars(of.experiment), "eval_every": grain})
    return of._replace(experiment=made, records=records)


def claims_in(name: str) -> list[Claim]:
    """Return the claims of a reproduction."""
    return claims_of(name, vars(catalogue.find(name).module))


def judge_lines(claims: Sequence[Claim], places: Sequence[Place]) -> str:
    return as_sure(judge(claims, places))


def as_sure(findings: Sequence[Finding]) -> str:
    """Return the lines of claims, where one seed counts as three that measured the same, and where no
    number of rows is too small."""
    sure = [
        found._replace(
            seeds=3 if found.seeds == 1 else found.seeds,
            least=None if found.least is None else 0.0,
        )
        for found in findings
    ]
    return re.sub(r"; 3 seeds, margin 0\.0+| ± 0\.0+\b", "", claim_lines(sure))
