"""The table of proofs: how a proof enters it, and how all are run."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.checks import BOUND, Report
from fedref.models import CNN, MLP, LinearSVM, Logistic, tree
from fedref.models.base import Model
from fedref.proofs.setting import Setting, equal
from fedref.sampling import stream

Compare = Callable[[Setting], Iterator[Report]]
Values = Callable[[Setting], Any]


class Row(NamedTuple):
    """One line of the table: the largest error of all comparisons. note : an exception, if one rose."""

    tag: str
    claim: str
    error: float
    bound: float
    verdict: str
    note: str = ""


class Proof(NamedTuple):
    """A claim about the equation `tag`, and its comparisons on each of the models."""

    tag: str
    claim: str
    compare: Compare
    models: Sequence[Model]

    def run(self, seed: int) -> Row:
        """Return the worst of all comparisons; an exception fails too."""
        try:
            reports = list(self.compare_all(seed))
        except Exception as exception:
            note = f"{type(exception).__name__}: {exception}"
            return Row(self.tag, self.claim, math.nan, BOUND, "FAIL", note)
        error, bound = float(np.max([r.error for r in reports])), max(r.bound for r in reports)
        verdict = "ok" if all(r.ok for r in reports) else "FAIL"
        return Row(self.tag, self.claim, error, bound, verdict)

    def compare_all(self, seed: int) -> Iterator[Report]:
        """Yield the comparisons, model by model."""
        for i, model in enumerate(self.models):
            rng = stream(seed, f"check {self.tag} {self.claim}", i)
            yield from self.compare(Setting(model, rng))


#: The models that the algorithms are checked on, one a family; SMOOTH are those without kinks.
SMOOTH = (
    Logistic(3, 3, l2=0.1),
    MLP(3, (4,), 3, "tanh"),
    CNN((6, 5), (2,), 3, 3, 3, "tanh", "mean"),
)
FAMILIES = (*SMOOTH, LinearSVM(4, l2=0.1, squared=True))
ONE = SMOOTH[:1]  # for what does not depend on the model

PROOFS: list[Proof] = []


def proof(
    tag: str | tuple[str, ...], claim: str, models: Sequence[Model] = FAMILIES
) -> Callable[[Compare], Compare]:
    """Enter the decorated function into the table: one row for each tag."""

    def register(compare: Compare) -> Compare:
        tags = (tag,) if isinstance(tag, str) else tag
        PROOFS.extend(Proof(tag, claim, compare, models) for tag in tags)
        return compare

    return register


def equation(
    tag: str, claim: str, got: Values, expected: Values, models: Sequence[Model] = FAMILIES
) -> None:
    """Enter a proof that compares what fedref computes with what is expected, item by item."""

    def compare(c: Setting) -> Iterator[Report]:
        for pair in zip(tree.leaves(got(c)), tree.leaves(expected(c)), strict=True):
            yield equal(*pair)

    proof(tag, claim, models)(compare)


def select(only: Sequence[str]) -> list[Proof]:
    """Return the proofs by tag; a name that is not a tag selects every tag that contains it."""
    chosen = set[str]()
    tags = list(dict.fromkeys(p.tag for p in PROOFS))
    for name in only:
        wanted = name.strip().strip("[]").lower()
        whole = [tag for tag in tags if tag.lower() == wanted]
        found = whole or [tag for tag in tags if wanted and wanted in tag.lower()]
        if not found:
            wrong = unknown("tag of a proof", name, tags)
            raise ConfigError(f"{wrong} (`fedref check` without --only lists all tags)")
        chosen.update(found)
    return [p for p in PROOFS if p.tag in chosen or not only]


def run(
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[list[Proof]], Iterable[Proof]] = iter,
) -> list[Row]:
    """Return the table. Each proof has its own random numbers: `only` changes no row.

    progress : wraps the proofs while they run, such as `tqdm`.

    >>> {row.verdict for row in run(["per-fedavg eq.3"])}
    {'ok'}
    """
    return [p.run(seed) for p in progress(select(only))]
