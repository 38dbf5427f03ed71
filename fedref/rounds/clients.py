"""The clients of a round as the specification takes them: their rows are gathered when they are asked for."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.models import tree
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData, gather
from fedref.sampling import PADDING, Plan


class LocalRows(NamedTuple):
    """The rows of the k-th client at work, as read-only batches."""

    part: LocalData
    k: int

    def gather(self, index: Array) -> spec.Batch:
        return tree.freeze(spec.Batch(self.part.features(index), self.part.y.take(index)))

    def all_rows(self) -> spec.Batch:
        first, end = self.part.offsets[self.k : self.k + 2]
        return self.gather(self.part.row_index[first:end])

    def batch(self, role: str, t: int) -> spec.Batch:
        rows = self.part.rows[role][self.k, t]
        return self.gather(self.part.locate(rows[rows != PADDING], self.part.offsets[self.k]))


class Steps(Sequence[Any]):
    """The batches of a client's local steps, gathered when they are asked for."""

    def __init__(self, rows: LocalRows, roles: Sequence[str]) -> None:
        self.rows, self.roles = rows, roles

    def __len__(self) -> int:
        return int(self.rows.part.steps[self.rows.k])

    def __getitem__(self, t: Any) -> Any:
        places = range(len(self))[t]
        if isinstance(places, range):
            return [self[i] for i in places]
        return tuple([self.rows.batch(role, places) for role in self.roles])


class LazyClient(spec.Client):
    """A client whose training rows are gathered when they are asked for."""

    @cached_property
    def data(self) -> spec.Batch:
        rows: Any = self[1]
        return rows.all_rows()

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
    parts: list[Any] = [LocalRows(part, i) for i in range(len(keep))]
    steps: list[Any] = [Steps(rows, roles) for rows in parts]
    return [*map(LazyClient, k, parts, steps, per_epoch, draws, straggler)]
