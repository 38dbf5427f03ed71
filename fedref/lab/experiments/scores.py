"""The scores of a unit's evaluations, in a file beside its record that only grows.

A large federation's scores do not fit in memory: 40 bytes for each client and evaluation. The file is a
block for each evaluation, the columns of `Scores` one after another. A record holds the
number of valid blocks and their hash. Whatever a killed process wrote after them is overwritten.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import DataError
from fedref.boundary.files import WRITING
from fedref.rounds.evaluation import Scores


def block_of(clients: int) -> "np.dtype[Any]":
    """Return the NumPy type of a block: of each score a column with all clients."""
    kinds = ("<i8" if name.startswith("n_") else "<f8" for name in Scores._fields)
    return np.dtype([(name, kind, (clients,)) for name, kind in zip(Scores._fields, kinds)])


class Stored(NamedTuple):
    """What a record holds in the place of scores: the clients, the evaluations that count, their hash."""

    clients: int
    evaluations: int
    digest: str


EMPTY = Stored(0, 0, "")


class ScoreFile(Sequence[Scores]):
    """The first evaluations in a file. A value: `add` returns the next one."""

    def __init__(self, path: Path, stored: Stored = EMPTY) -> None:
        self.path, self.stored = path, stored

    def __len__(self) -> int:
        return self.stored.evaluations

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        block = self.block(range(len(self))[i])
        return Scores(*(block[name] for name in Scores._fields))

    def block(self, i: int) -> Any:
        """Return one evaluation. DataError if the file is too short."""
        kind = block_of(self.stored.clients)
        blocks = np.fromfile(self.path, kind, 1, offset=i * kind.itemsize)
        if not len(blocks):
            what = f"ends before evaluation {i + 1} of {len(self)}"
            raise DataError(f"{self.path}: {what}, expected all")
        return blocks[0]

    def add(self, scores: Scores) -> "ScoreFile":
        """Write the scores of one more evaluation behind those that count; return the file with them."""
        block = np.array(tuple(scores), block_of(len(scores.n_test))).tobytes()
        with WRITING:
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
            with open(os.open(self.path, flags, 0o666), "wb") as file:
                file.truncate(len(self) * len(block))
                file.seek(0, os.SEEK_END)
                file.write(block)
        stored = Stored(len(scores.n_test), len(self) + 1, chain(self.stored.digest, block))
        return ScoreFile(self.path, stored)

    def sync(self) -> None:
        """Bring to the disk what the next record counts on."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def check(self) -> "ScoreFile":
        """Return the file itself; DataError unless the blocks that count are those that were written."""
        digest = ""
        try:
            for i in range(len(self)):
                digest = chain(digest, self.block(i).tobytes())
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be read ({error.strerror}), expected the unit's scores"
            ) from error
        if digest != self.stored.digest:
            why = "its SHA-256 is not the one it was written with"
            raise DataError(f"{self.path}: is damaged ({why})")
        return self


def chain(digest: str, block: bytes) -> str:
    """Return the hash of blocks that end with this one; digest : of those before it."""
    return sha256(digest.encode() + block).hexdigest()
