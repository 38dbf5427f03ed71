"""The known mistakes: the lines that differ, what catches them, and what some do to a short run."""

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedref.conformance import suite, vectors
from fedref.conformance.edits import Edit, apply_edits, edit_source, read_source
from fedref.conformance.mistakes import MISTAKES, PUBLISHED
from fedref.teach.source import place


class Lines(NamedTuple):
    """right, wrong : the statements that differ; where : file and line of the right ones."""

    right: list[str]
    wrong: list[str]
    where: str


def differing_lines(name: str) -> Lines:
    """Return the lines that differ, both from the left margin."""
    edit = MISTAKES[name].edits[0]
    right, wrong = read_source(edit.function).splitlines(), edit_source(edit).splitlines()
    _, first = inspect.getsourcelines(inspect.unwrap(edit.function))
    start = 0
    while right[start] == wrong[start]:
        start += 1
    end = 0
    while end < min(len(right), len(wrong)) - start and right[-1 - end] == wrong[-1 - end]:
        end += 1
    if start + end == len(right):  # lines were only added: show the line after them as well
        end -= 1
    right, wrong = (text[start : len(text) - end] for text in (right, wrong))
    bare = [re.sub(r"\s*# (\[|noqa).*", "", line) for line in (*right, *wrong)]
    both = textwrap.dedent("\n".join(bare)).splitlines()
    module = importlib.import_module(edit.function.__module__)
    return Lines(both[: len(right)], both[len(right) :], place(module, first + start))


# ---- what catches a mistake ------------------------------------------------------------------------


@cache
def all_vectors() -> list[vectors.Case]:
    """Read the golden vectors, once."""
    return vectors.read()


def catching_cases(name: str) -> list[vectors.Case]:
    """Return the golden vectors that a mistake moves by more than 100 of their tolerances."""
    return [case for case in all_vectors() if name in case.catches]


def catch(name: str) -> tuple[str, str]:
    """Return a golden vector that tells a mistake from all others, and how it fails.

    It is one of the mistake's own paper, if there is one.
    """
    from fedref.conformance.report import describe_failure

    backend = MISTAKES[name].backend
    paper = MISTAKES[name].tag.split()[0]
    cheap_first = sorted(catching_cases(name), key=lambda case: len(case.catches))
    for case in sorted(cheap_first, key=lambda case: case.tag.split()[0] != paper):
        (result,) = suite.run(backend, [case])
        if result.status == suite.FAILED:
            others = len(catching_cases(name)) - 1
            more = f"; and by {others} more vector{'s' * (others > 1)}" if others else ""
            return case.name, f"[{case.tag}]: {describe_failure(result)}{more}"
    raise ValueError(f"no golden vector tells {name!r} from the others")


# ---- as text ---------------------------------------------------------------------------------------


def ordered_names() -> list[str]:
    """Return the names in the order of the list of twenty; those without a number last."""
    return sorted(PUBLISHED, key=lambda name: PUBLISHED[name].number or len(PUBLISHED))


def heading(name: str) -> str:
    """Return the name with its number, if it has one."""
    number = MISTAKES[name].number
    return f"{number}. {name}" if number else name


def as_sentence(text: str) -> str:
    """Return the text with a capital letter, unless it begins with a symbol, and a full stop."""
    first = text.split()[0]
    word = first == "a" or (len(first) > 1 and first.isalpha())
    return f"{text[0].upper() if word else text[0]}{text[1:]}."


def mistakes_text() -> Iterator[str]:
    """Yield the lines about all published mistakes for the terminal, without the runs."""
    yield from ("Known mistakes", "==============", "")
    yield "- the wrong line, + the right one, and a golden vector that tells this mistake from all others"
    for name in ordered_names():
        yield ""
        yield from mistake_text(name)


def mistake_text(name: str) -> Iterator[str]:
    """Yield the lines about one mistake."""
    yield heading(name)
    said = as_sentence(MISTAKES[name].line)
    yield from textwrap.wrap(said, 96, initial_indent="  ", subsequent_indent="  ")
    yield f"  {MISTAKES[name].kind}: {MISTAKES[name].effect}"
    if any(isinstance(edit, Edit) for edit in MISTAKES[name].edits[:1]):
        lines = differing_lines(name)
        yield f"  {lines.where}"
        yield from (f"    - {line}" for line in lines.wrong)
        yield from (f"    + {line}" for line in lines.right)
    yield f"  caught by {' '.join(catch(name))}"


# ---- what some do to a short run on the digits -----------------------------------------------------

#: Rows of a mini-batch, also in wrong lines that use B.
B = 40


class Run(NamedTuple):
    """A run that shows a mistake: the algorithm, a column of metrics.csv, and the settings."""

    algorithm: str
    column: str
    hyper: Mapping[str, Any]
    settings: Mapping[str, Any]


UNEQUAL: dict[str, Any] = {"split": {"rule": "power-law", "users": 50}, "clients_per_round": 10}
ADAM = {"alpha": 0.5, "beta": 0.05, "server": "adam"}

RUNS: dict[str, Run] = {
    "penalty not squared": Run("fedprox", "train_loss", {"mu": 5.0}, {"steps": 20}),
    "first order: the inner step's graph was cut": Run(
        "fedmeta-maml", "test_loss", {"alpha": 2.0, "beta": 0.5}, {}
    ),
    "the server's Adam starts afresh every round": Run(
        "fedmeta-maml", "test_loss", ADAM, {"rounds": 40}
    ),
    "weights count batches": Run("fedavg", "train_loss", {}, UNEQUAL),
    "gradients add up from step to step": Run("fedavg", "train_loss", {"lr": 0.2}, {"steps": 20}),
    "adapted to the test batch": Run(
        "per-fedavg", "accuracy", {"alpha": 2.0, "beta": 0.1}, {"eval_train": False}
    ),
    "own term subtracted from a sum it is no part of": Run("fedcurv", "test_loss", {}, {}),
    "D, D′ and D″ are the same rows": Run(
        "per-fedavg", "test_loss", {"alpha": 0.5, "beta": 0.1}, {"batch_size": 4}
    ),
    "HF: divided by δ": Run("per-fedavg-hf", "test_loss", {"alpha": 4.0, "beta": 0.2}, {}),
    "FedMAML averages": Run("fedmaml", "test_loss", {"alpha": 0.5, "beta": 0.1}, {}),
}


def run_column(run: Run) -> list[float]:
    """Return the run's column round by round, with the edits that are made just now."""
    from fedref.algorithms import ALGORITHMS
    from fedref.teach.pictures import run_on_digits  # matplotlib takes its time

    settings = {"rounds": 15, "batch_size": B, **run.settings}
    with np.errstate(all="ignore"):
        record = run_on_digits(ALGORITHMS[run.algorithm](**run.hyper), **settings)[-1]
    return [float(row.get(run.column, np.nan)) for row in record.rows]


@cache
def run_both(name: str) -> tuple[list[float], list[float]]:
    """Return the same run's column without the mistake and with it."""
    right = run_column(RUNS[name])
    with apply_edits(*MISTAKES[name].edits, rows=B):
        return right, run_column(RUNS[name])


def harmless_mistakes() -> list[str]:
    """Return the mistakes whose final loss is not worse than the correct run's."""
    runs = {name: run_both(name) for name, run in RUNS.items() if "loss" in run.column}
    return [name for name, (a, b) in runs.items() if len(a) == len(b) and b[-1] <= a[-1]]


def outcome(name: str) -> tuple[str, str, str]:
    """Return the measured quantity with its round, and its values without and with the mistake."""
    right, wrong = run_both(name)
    what = RUNS[name].column.replace("_", " ").replace("train", "training")
    ends = f"{wrong[-1]:.3g}" if len(wrong) == len(right) else f"diverges in round {len(wrong)}"
    return f"{what} after round {len(right) - 1}", f"{right[-1]:.3g}", ends
