"""The clients of a round as the specification takes them: their rows are gathered when they are asked for."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedref import spec
from fedref.models import tree
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData, gather
from fedref.sampling import Plan


def real_rows(D: Batch) -> spec.Batch:
    """Return a batch without its padding, read-only."""
    X, y = (D.X, D.y) if D.s is None else (D.X[D.s > 0], D.y[D.s > 0])
    return tree.freeze(spec.Batch(X, y))


class Steps(Sequence[Any]):
    """The batches of the local steps of the k-th client at work, gathered when they are asked for."""

    def __init__(self, part: LocalData, k: int, roles: Sequence[str]) -> None:
        self.part, self.k, self.roles = part, k, roles

    def __len__(self) -> int:
        return int(self.part.steps[self.k])

    def __getitem__(self, t: Any) -> Any:
        places = range(len(self))[t]
        if isinstance(places, range):
            return [self[i] for i in places]
        return tuple([real_rows(self.part.batch(role, self.k, places)) for role in self.roles])


class LazyClient(spec.Client):
    """A client whose training rows are gathered when they are asked for."""

    @cached_property
    def data(self) -> spec.Batch:
        part, k = self[1]
        return real_rows(part.all_rows(k))

    @property
    def n(self) -> int:
        part, k = self[1]
        return int(part.offsets[k + 1] - part.offsets[k])


def clients_of(
    plan: Plan, keep: Array, federation: Federation, roles: Sequence[str], dtype: Any
) -> list[spec.Client]:
    """Return a round's clients. keep : those that take part, as indices into the plan's cohort."""
    part = gather(plan, federation, dtype, keep, np.ones(len(keep))).materialise()
    columns = plan.clients, plan.per_epoch, plan.counts, plan.straggler
    k, per_epoch, draws, straggler = (x[keep].tolist() for x in columns)
    steps: list[Any] = [Steps(part, i, roles) for i in range(len(keep))]
    parts: list[Any] = [(part, i) for i in range(len(keep))]
    return [*map(LazyClient, k, parts, steps, per_epoch, draws, straggler)]
