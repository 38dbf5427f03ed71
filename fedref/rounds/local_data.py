"""The training data of a round's clients, and the rows of each of their batches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import Participant
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, affine
from fedref.sampling import PADDING, Plan

#: Features up to this size are made floating point once a round, larger ones block by block.
GATHER_BYTES = 1 << 23


class LocalData(NamedTuple):
    """The training data of a few clients, and their part of the Plan: a worker needs no more.

    The k-th of them is client clients[k]. Its data are the rows row_index[offsets[k]:offsets[k+1]] of
    (X − shift)/scale, or of X itself if it holds codes. rows : role → (K, S, W), −1 = padding. weights :
    (K,) their weights among all that are at work in the round.
    """

    clients: Array
    round: int
    X: Array
    y: Array
    row_index: Array
    offsets: Array
    rows: Mapping[str, Array]
    steps: Array
    per_epoch: Array
    weights: Array
    shift: Any
    scale: Any
    dtype: Any
    codes: bool = False

    def participant(self, k: int) -> Participant:
        """Return what an algorithm may know of the k-th client before it starts."""
        n = self.offsets[k + 1] - self.offsets[k]
        return Participant(int(self.clients[k]), int(n), float(self.weights[k]))

    def batch(self, role: str, k: int, t: int) -> Batch:
        """Return the k-th client's batch at step t: X (W, p)."""
        rows = self.rows[role][k, t]
        index, real = self.locate(rows, self.offsets[k]), rows != PADDING
        s = None if real.all() else real.astype(self.dtype)
        return Batch(self.features(index), self.y.take(index), s)

    def all_rows(self, k: int) -> Batch:
        """Return all training data of the k-th client."""
        index = self.row_index[self.offsets[k] : self.offsets[k + 1]]
        return Batch(self.features(index), self.y.take(index))

    def features(self, index: Array) -> Array:
        """Return these rows of X in the form that the model takes: numbers scaled, codes unchanged."""
        X = self.X.take(index, 0)
        return X if self.codes else affine(X, self.shift, self.scale, self.dtype)

    def locate(self, rows: Array, offset: Array) -> Array:
        """Return indices into X. Padding maps to an arbitrary valid row."""
        return self.row_index.take(np.maximum(rows, 0) + offset)

    def subset(self, ks: Sequence[int] | Array) -> "LocalData":
        """Return the data of some of the clients, as views of the same X and y."""
        parts = [self.row_index[self.offsets[k] : self.offsets[k + 1]] for k in ks]
        return self._replace(
            clients=self.clients[ks],
            row_index=np.concatenate(parts),
            offsets=np.cumsum([0, *map(len, parts)]),
            rows={role: rows[ks] for role, rows in self.rows.items()},
            steps=self.steps[ks],
            per_epoch=self.per_epoch[ks],
            weights=self.weights[ks],
        )

    def subset_rows(self, ks: Sequence[int] | Array) -> "LocalData":
        """Return the data of some of the clients, with X and y of their rows alone."""
        subset = self.subset(ks)
        X, y = self.X.take(subset.row_index, 0), self.y.take(subset.row_index)
        return subset._replace(X=X, y=y, row_index=np.arange(len(subset.row_index)))

    def materialise(self) -> "LocalData":
        """Return the data with their features already floating point, if these are few."""
        size = len(self.row_index) * self.X[:1].size * np.dtype(self.dtype).itemsize
        if self.codes or size > GATHER_BYTES:
            return self
        X, y = self.features(self.row_index), self.y.take(self.row_index)
        rows = np.arange(len(self.row_index))
        return self._replace(X=X, y=y, row_index=rows, shift=None, scale=None)


def gather(
    plan: Plan, federation: Federation, dtype: Any, keep: Array, weights: Array
) -> LocalData:
    """Return the data of the clients `keep` (indices into the plan's cohort): a view of the source."""
    rows = [federation.train.rows_of(k) for k in plan.clients[keep]]
    return LocalData(
        plan.clients[keep],
        plan.round,
        federation.source.X,
        federation.source.y,
        np.concatenate(rows),
        np.cumsum([0, *map(len, rows)]),
        {role: batches[keep] for role, batches in plan.rows.items()},
        plan.steps[keep],
        plan.per_epoch[keep],
        weights,
        *federation.shift_and_scale,
        np.dtype(dtype),
        federation.source.vocabulary is not None,
    )
