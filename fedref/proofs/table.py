"""The table: what a proof is, how one enters the table, and how all of them are run."""

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
    """One line of the table: the largest error and the worst slope of all that was compared."""

    tag: str
    claim: str
    error: float
    bound: float
    slope: float | None
    order: int | None
    verdict: str
    note: str = ""


class Proof(NamedTuple):
    """tag : the equation; claim : what is compared with what; exact : whether slope inf is right."""

    tag: str
    claim: str
    compare: Compare
    models: Sequence[Model]
    exact: bool

    def run(self, seed: int) -> Row:
        """All that is compared, on every model; an exception is a failure too."""
        reports = []
        try:
            for i, model in enumerate(self.models):
                reports += self.on(model, seed, i)
        except Exception as exception:
            note = f"{type(exception).__name__}: {exception}"
            return Row(self.tag, self.claim, math.nan, BOUND, None, None, "FAIL", note)
        slopes = [(r.slope, r.order or 0) for r in reports if r.slope is not None]
        slope, order = max(slopes, key=lambda pair: abs(pair[0] - pair[1]), default=(None, None))
        ok = all(r.ok for r in reports) and (slope != math.inf or self.exact)
        error, bound = float(np.max([r.error for r in reports])), max(r.bound for r in reports)
        return Row(self.tag, self.claim, error, bound, slope, order, "ok" if ok else "FAIL")

    def on(self, model: Model, seed: int, i: int) -> list[Report]:
        """One case. An error counts wherever it is; a slope is a statement about almost all points
        (inner steps may land beside a kink), so that a wrong one is looked at in three places."""
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
    tag: str, claim: str, models: Sequence[Model] = FAMILIES, exact: bool = False
) -> Callable[[Compare], Compare]:
    """Put what is decorated into the table."""

    def register(compare: Compare) -> Compare:
        PROOFS.append(Proof(tag, claim, compare, models, exact))
        return compare

    return register


def select(only: Sequence[str]) -> list[Proof]:
    """The proofs whose tag is one of `only`; a name that is no whole tag may be a part of some."""
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
    """The table. Each proof has its own random numbers: `only` changes no row.

    progress : what the proofs are taken from, such as `tqdm`.

    >>> [row.verdict for row in run(["per-fedavg eq.3"])]
    ['ok']
    """
    return [p.run(seed) for p in progress(select(only))]
