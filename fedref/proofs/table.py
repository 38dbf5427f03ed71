"""The table of proofs: how a proof enters it, and how all are run."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.checks import BOUND, Report
from fedref.models import CNN, MLP, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.proofs.case import Case
from fedref.sampling import stream

Compare = Callable[[Case], Iterator[Report]]


class Row(NamedTuple):
    """One line of the table: the largest error and the worst slope of all comparisons."""

    tag: str
    claim: str
    error: float
    bound: float
    slope: float | None
    order: int | None
    verdict: str
    note: str = ""


class Proof(NamedTuple):
    """A claim about the equation `tag`, and its comparisons. exact : whether a slope of inf passes."""

    tag: str
    claim: str
    compare: Compare
    models: Sequence[Model]
    exact: bool

    def run(self, seed: int) -> Row:
        """Return the worst of all comparisons on every model; an exception fails too."""
        reports = []
        try:
            for i, model in enumerate(self.models):
                reports += self.compare_on(model, seed, i)
        except Exception as exception:
            note = f"{type(exception).__name__}: {exception}"
            return Row(self.tag, self.claim, math.nan, BOUND, None, None, "FAIL", note)
        slopes = [(r.slope, r.order or 0) for r in reports if r.slope is not None]
        slope, order = max(slopes, key=lambda pair: abs(pair[0] - pair[1]), default=(None, None))
        ok = all(r.ok for r in reports) and (slope != math.inf or self.exact)
        error, bound = float(np.max([r.error for r in reports])), max(r.bound for r in reports)
        return Row(self.tag, self.claim, error, bound, slope, order, "ok" if ok else "FAIL")

    def compare_on(self, model: Model, seed: int, i: int) -> list[Report]:
        """Return the comparisons of one case.

        An error counts at any point. A slope is a statement about almost all points, as inner steps may
        land beside a kink: a wrong slope is measured again at up to two other points.
        """
        for place in range(3):
            case = Case(model, stream(seed, f"check {self.tag} {self.claim}", i, place))
            reports = list(self.compare(case))
            if all(r.slope_ok for r in reports) or not all(r.error_ok for r in reports):
                break
        return reports


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
    tag: str | tuple[str, ...],
    claim: str,
    models: Sequence[Model] = FAMILIES,
    exact: bool = False,
) -> Callable[[Compare], Compare]:
    """Enter the decorated function into the table: one row for each tag."""

    def register(compare: Compare) -> Compare:
        tags = (tag,) if isinstance(tag, str) else tag
        PROOFS.extend(Proof(tag, claim, compare, models, exact) for tag in tags)
        return compare

    return register


def select(only: Sequence[str]) -> list[Proof]:
    """Return the proofs by tag; a name that is not a tag selects every tag that contains it."""
    chosen = set[str]()
    tags = list(dict.fromkeys(p.tag for p in PROOFS))
    for name in only:
        wanted = name.strip().strip("[]").lower()
        whole = [tag for tag in tags if tag.lower() == wanted]
        found = whole or [tag for tag in tags if wanted and wanted in tag.lower()]
        if not found:
            (near,) = get_close_matches(wanted, tags, n=1, cutoff=0.0)
            raise ConfigError(
                f"no proof has the tag {name!r}: did you mean {near!r}? "
                "`fedref check` without --only lists all tags"
            )
        chosen.update(found)
    return [p for p in PROOFS if p.tag in chosen or not only]


def run(
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[list[Proof]], Iterable[Proof]] = iter,
) -> list[Row]:
    """Return the table. Each proof has its own random numbers: `only` changes no row.

    progress : wraps the proofs while they run, such as `tqdm`.

    >>> [row.verdict for row in run(["per-fedavg eq.3"])]
    ['ok']
    """
    return [p.run(seed) for p in progress(select(only))]
