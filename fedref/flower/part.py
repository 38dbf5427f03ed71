"""The rows that one node holds: a .npz of plain arrays, which anybody can write with NumPy.

    X       (n, p) features, as numbers or codes      shift, scale   optional: the features are
    y       (n,) labels, whole numbers                               (X − shift) / scale
    client  (n,) the client's number in the run       image          optional: (H, W, C)
    test    (n,) whether it is a test row             vocabulary     optional: what codes stand for

The rows of a client are counted in the order in which they stand.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import FedrefError
from fedref.boundary.files import as_data_error, data_error, write_or_raise
from fedref.datasets.formats.arrays import fingerprint
from fedref.datasets.partition import group
from fedref.flower.messages import Announced
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

NEEDED, OPTIONAL = ("X", "y", "client", "test"), ("shift", "scale", "image", "vocabulary")
EXPECTED = "a node's part: a .npz with X, y, client and test"


class Site(NamedTuple):
    """A node's clients: their numbers in the run (M,), ascending, and their rows."""

    clients: Array
    federation: Federation

    @property
    def announced(self) -> Announced:
        """What the server is told of them."""
        source = self.federation.source
        return Announced(
            self.clients.tolist(),
            self.federation.train.sizes.tolist(),
            self.federation.test.sizes.tolist(),
            source.X.shape[1],
            source.labels.tolist(),
            list(source.image or ()),
            list(source.vocabulary or ()),
        )

    @property
    def fingerprint(self) -> str:
        """Tells whether the rows are those of before; it stays on the node."""
        source, f = self.federation.source, self.federation
        rows = np.concatenate([f.train.rows, f.train.offsets, f.test.rows, f.test.offsets])
        return fingerprint(source.X, source.y, rows) + fingerprint(
            np.asarray(f.shift), np.asarray(f.scale), self.clients
        )


def write_part(path: Path, federation: Federation, clients: Iterable[int]) -> None:
    """The rows of these clients, and of nobody else."""
    own = list(clients)
    parts = [(part.of(k), k, test) for k in own for part, test in
             ((federation.train, False), (federation.test, True))]  # fmt: skip
    rows = np.concatenate([rows for rows, _, _ in parts])
    source = federation.source
    arrays: dict[str, Any] = {
        "X": source.X[rows],
        "y": source.y[rows],
        "client": np.concatenate([np.full(len(rows), k) for rows, k, _ in parts]),
        "test": np.concatenate([np.full(len(rows), test) for rows, _, test in parts]),
        "shift": np.asarray(federation.shift),
        "scale": np.asarray(federation.scale),
    }
    if source.image is not None:
        arrays["image"] = np.array(source.image)
    if source.vocabulary is not None:
        arrays["vocabulary"] = np.array(source.vocabulary)
    write_or_raise(path, partial(np.savez, **arrays))


def read_part(path: Path) -> Site:
    """A node's clients, checked as all data are; DataError if they cannot be trained on."""
    with as_data_error(path, EXPECTED), np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    odd = sorted((set(NEEDED) - set(found)) | (set(found) - {*NEEDED, *OPTIONAL}))
    if odd:
        raise data_error(path, f"missing or unknown: {', '.join(odd)}", EXPECTED)
    X, y, client, test = (found[name] for name in NEEDED)
    n = len(X)
    if X.ndim != 2 or not n or any(a.shape != (n,) for a in (y, client, test)):
        shapes = ", ".join(f"{name} {found[name].shape}" for name in NEEDED)
        raise data_error(path, shapes, "X (n, p), and y, client and test (n,)")
    if X.dtype.kind not in "iuf" or y.dtype.kind not in "iu" or client.dtype.kind not in "iu":
        raise data_error(path, f"X {X.dtype}, y {y.dtype}, client {client.dtype}", "numbers")
    if test.dtype.kind != "b" or client.min() < 0:
        raise data_error(
            path, f"test {test.dtype}, client from {client.min()}", "bool, and from 0 on"
        )
    numbers, index = np.unique(client, return_inverse=True)
    image, vocabulary = found.get("image"), found.get("vocabulary")
    source = Source(
        X,
        y.astype(np.int64),
        name=path.name,
        image=None if image is None else tuple(image.tolist()),
        vocabulary=None if vocabulary is None else tuple(vocabulary.tolist()),
    )
    rows = np.arange(n)
    train, tests = (group(index[at], len(numbers), rows[at]) for at in (~test, test))
    shift, scale = found.get("shift", np.array(0.0)), found.get("scale", np.array(1.0))
    for name, value in (("shift", shift), ("scale", scale)):
        if value.shape not in ((), X.shape[1:]) or value.dtype.kind not in "iuf":
            raise data_error(path, f"{name} {value.shape}", f"a number, or {X.shape[1]} of them")
    federation = Federation(source, train, tests, rule="flower", shift=shift, scale=scale)
    for k in np.flatnonzero(federation.train.sizes == 0):
        raise data_error(path, f"client {numbers[k]} has no training row", "at least one")
    try:
        federation.check()
    except FedrefError as error:
        raise data_error(path, error, "rows that can be trained on") from error
    return Site(numbers.astype(np.int64), federation)
