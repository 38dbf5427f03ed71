"""The data of a run: a source of rows, and a split of it over clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from fedref.boundary.errors import DataError
from fedref.models.base import check_codes
from fedref.models.batch import Batch
from fedref.models.numerics import Array


@dataclass(frozen=True)
class Source:
    """Labelled rows as they are on disk, before any split.

    X : (n, p) in the file's own dtype (uint8 pixels stay uint8).
    y : (n,) int64 labels, or float64 real targets for models whose `labels` are ().
    client : (n,) int64 index of the natural client of each row (None: rows have none).
    name : what the data are called.
    test_from : rows from here on are the published test part (None: no such part).
    image : (H, W, C) if a row is an image, row-major.
    client_names : the names of the natural clients (None: their numbers).
    sha256 : of the content (X, y, client).
    full_scale : the largest value that a feature can take, by the data set's documentation.
    vocabulary : the meaning of each code in X; the code len(vocabulary) is padding (None: X holds
    numbers).
    label_names : the names of the labels 0, 1, ... if they are words (None: they are numbers).
    columns : pairs such as ("label", "outcome"), the user's names of a table's columns.
    notes : sentences on how the file was understood.
    """

    X: Array
    y: Array
    client: Array | None = None
    name: str = "arrays"
    test_from: int | None = None
    image: tuple[int, int, int] | None = None
    client_names: tuple[str, ...] | None = None
    sha256: str = ""
    full_scale: float | None = None
    vocabulary: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    columns: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def real(self) -> bool:
        """Whether y holds real targets, not labels."""
        return self.y.dtype.kind == "f"

    @property
    def inputs(self) -> str:
        """The kind of X: "numbers" or "codes", as in a model's `inputs`."""
        return "numbers" if self.vocabulary is None else "codes"

    @property
    def labels(self) -> Array:
        """The labels that occur, ascending."""
        return np.unique(self.y)


@dataclass(frozen=True)
class Part:
    """The rows of each client: client k holds rows[offsets[k]:offsets[k+1]] of the source."""

    rows: Array  # (R,) int64
    offsets: Array  # (N + 1,) int64

    def rows_of(self, k: int) -> Array:
        """Return client k's rows."""
        return self.rows[self.offsets[k] : self.offsets[k + 1]]

    @property
    def sizes(self) -> Array:
        """n_k: (N,)."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Array:
        """The client of each of `rows`: (R,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.sizes)

    def subset(self, clients: Array) -> "Part":
        """Return these clients (M,) alone, renumbered in the order given."""
        sizes = self.sizes[clients]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        start = np.repeat(self.offsets[clients] - offsets[:-1], sizes)
        return Part(self.rows[start + np.arange(offsets[-1])], offsets)


def affine(X: Array, shift: Array | None, scale: Array | None, dtype: Any) -> Array:
    """Return (X − shift) / scale in dtype; None changes nothing. X itself is never written to."""
    X = X.astype(dtype, copy=shift is not None or scale is not None)
    if shift is not None:
        X -= shift.astype(dtype, copy=False)
    if scale is not None:
        X /= scale.astype(dtype, copy=False)
    return X


@dataclass(frozen=True)
class Federation:
    """N clients with train and test rows of one source, and some for validation, if `validation` is given.

    Features are (X − shift) / scale. The source stays in its own dtype; only gathered batches become
    floating point.

    source : the rows, a `Source`.
    train : the clients' training rows, a `Part`.
    test : the clients' test rows, a `Part`.
    rule : the name of the rule that made the split.
    parameters : the parameters of the rule.
    seed : the seed of the split, a whole number ≥ 0.
    shift : what is subtracted from features, a number or (p,).
    scale : what features are divided by, a number or (p,).
    client_names : the clients' names, N of them (None: their numbers).
    validation : the clients' validation rows, a `Part` (None: there are none).
    unseen : the test rows of clients without a training row, which are none of the N (None: there are no
    such clients).
    unseen_names : their names.
    """

    source: Source
    train: Part
    test: Part
    rule: str = "given"
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 0
    shift: Array | float = 0.0
    scale: Array | float = 1.0
    client_names: tuple[str, ...] | None = None
    validation: Part | None = None
    unseen: Part | None = None
    unseen_names: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        """The N clients' parts by name: train, test, and validation if there is one."""
        more = {} if self.validation is None else {"validation": self.validation}
        return {"train": self.train, "test": self.test, **more}

    @property
    def every_part(self) -> dict[str, Part]:
        """All parts by name: those of the N clients, and unseen if there is one."""
        return self.parts | ({} if self.unseen is None else {"unseen": self.unseen})

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return len(self.train.offsets) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each client: its own where clients are natural, else its number."""
        return self.client_names or tuple(map(str, range(self.clients)))

    def subset(self, clients: Array) -> "Federation":
        """Return these clients (M,) alone, renumbered in the order given, with their names."""
        names = self.names
        parts: dict[str, Any] = {name: part.subset(clients) for name, part in self.parts.items()}
        return replace(self, **parts, client_names=tuple(names[k] for k in clients.tolist()))

    @cached_property
    def shift_and_scale(self) -> tuple[Array | None, Array | None]:
        """(shift, scale), each None if it changes nothing; decided once, not in every batch."""
        shift, scale = np.asarray(self.shift), np.asarray(self.scale)
        return shift if np.any(shift != 0) else None, scale if np.any(scale != 1) else None

    def batch(self, rows: Array, dtype: Any = np.float64) -> Batch:
        """Return rows of the source, any shape (...), as a Batch: X (..., p) in dtype; codes stay codes."""
        # gathered in the source's dtype first: for pixels that moves an eighth of the bytes
        X = self.source.X.take(rows, 0)
        if self.source.vocabulary is None:
            X = affine(X, *self.shift_and_scale, dtype)
        return Batch(X, self.source.y.take(rows))

    def check(self) -> None:
        """Refuse a federation that cannot be trained on; name client and row."""
        n = len(self.source.y)
        if len(self.source.X) != n:
            raise DataError(
                f"{self.source.name}: {len(self.source.X)} rows of X and {n} labels, "
                "expected as many of both"
            )
        for name, part in self.every_part.items():
            _check_part(name, part, n, self.source.name)
            if name != "unseen" and len(part.offsets) != len(self.train.offsets):
                raise DataError(
                    f"{self.clients} clients with training rows and {len(part.offsets) - 1} with "
                    f"{name} rows, expected as many of both (a client without {name} rows has 0)"
                )
        empty = np.flatnonzero(self.train.sizes == 0)
        if empty.size:
            raise DataError(
                f"client {empty[0]} has no training row: every client needs at least one"
            )
        _check_leak(self)
        _check_finite(self)


def _check_part(name: str, part: Part, n: int, source: str) -> None:
    """Refuse offsets that do not climb from 0 to the number of rows, and rows beyond the source."""
    ends = part.offsets[:1].tolist() + part.offsets[-1:].tolist()
    if len(part.offsets) < 2 or ends != [0, len(part.rows)] or (part.sizes < 0).any():
        raise DataError(
            f"{name} offsets must climb from 0 to {len(part.rows)} (the number of rows), "
            f"with one entry more than clients; got {part.offsets[:5]}..."
        )
    if part.rows.size and not 0 <= part.rows.min() <= part.rows.max() < n:
        raise DataError(
            f"{name} rows run from {part.rows.min()} to {part.rows.max()}, "
            f"expected 0 to {n - 1} ({source})"
        )


def _check_leak(federation: Federation) -> None:
    """Refuse a row that is in two parts, of any client."""
    for (name, part), (other, also) in combinations(federation.every_part.items(), 2):
        in_part = np.zeros(len(federation.source.y), bool)
        in_part[part.rows] = True
        leaks = np.flatnonzero(in_part[also.rows])
        if leaks.size:
            row = also.rows[leaks[0]]
            holder = part.owners[part.rows == row][0]
            word = "training" if name == "train" else name
            raise DataError(
                f"row {row} is a {other} row of client {also.owners[leaks[0]]} and a {word} row of "
                f"client {holder}: expected every row in one part only"
            )


def _check_finite(federation: Federation) -> None:
    """Refuse features and labels that are not finite numbers."""
    X, y = federation.source.X, federation.source.y
    if y.dtype.kind not in "iuf":
        raise DataError(f"{federation.source.name}: labels are {y.dtype}, expected whole numbers")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{federation.source.name}: y is {y[row]} in row {row}, expected numbers")
    if federation.source.vocabulary is not None:
        _check_codes(federation, len(federation.source.vocabulary))
    for name, value in (("shift", federation.shift), ("scale", federation.scale)):
        if not np.isfinite(value).all():
            raise DataError(f"{name} of the features holds NaN or infinity; expected numbers")
        if name == "scale" and np.any(np.less_equal(value, 0)):
            raise DataError(f"scale of the features is {np.min(value):g}; expected numbers above 0")
    # the extremes tell at once whether any value is not finite, without a mask of X's size
    if X.dtype.kind != "f" or not X.size or (np.isfinite(X.min()) and np.isfinite(X.max())):
        return
    for part in federation.every_part.values():
        for k, row in zip(part.owners, part.rows):
            bad = np.flatnonzero(~np.isfinite(X[row]))
            if bad.size:
                raise DataError(
                    f"{federation.source.name}: row {row} (client {k}) has {X[row, bad[0]]} in "
                    f"feature {bad[0]}, expected a finite number"
                )


def _check_codes(federation: Federation, padding: int) -> None:
    """Refuse codes outside the vocabulary, and codes that would be scaled."""
    try:
        check_codes(federation.source.X, padding)
    except ValueError as error:
        raise DataError(f"{federation.source.name}: {error}") from error
    if federation.shift_and_scale != (None, None):
        raise DataError(f"{federation.source.name}: codes are not scaled, expected scaling=none")
