"""Which node holds which clients, and what the server knows of their data: sizes and kinds."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from fedref.datasets.partition import offsets
from fedref.flower.messages import Announced, Refused
from fedref.rounds.federation import Federation, Part, Source


class Described(NamedTuple):
    """All that the server knows of the data: what its models, plans and tables need."""

    n_train: list[int]
    n_test: list[int]
    features: int
    labels: list[int]
    image: list[int]
    vocabulary: list[str]


@dataclass(frozen=True)
class Roster:
    """holder : client → the node that answers for it. known : of a run that goes on, what it began
    with. rows : client → (training rows, test rows) of those that were announced since.

    pinned : a client stays with the node that announced it first, also when that is offline. Else
    another node may take over a client whose node is offline, as a node does that was restarted
    without a key and so comes with a new number.
    """

    pinned: bool = False
    holder: Mapping[int, int] = field(default_factory=dict)
    known: Described | None = None
    rows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    kind: tuple[int, list[int], list[str]] | None = None
    labels: frozenset[int] = frozenset()

    def joined(self, node: int, said: Announced, online: Collection[int], clients: int) -> "Roster":
        """With this node; Refused if it wants a client that is another's, or has other rows than
        were said. clients : N."""
        if said.clients[-1] >= clients:
            raise Refused(f"announces client {said.clients[-1]} of 0 to {clients - 1}")
        kind = said.features, said.image, said.vocabulary
        before = self.kind
        if self.known is not None:
            before = self.known.features, self.known.image, self.known.vocabulary
        if before not in (None, kind):
            raise Refused("announces other features than there were before")
        rows = dict(zip(said.clients, zip(said.n_train, said.n_test)))
        for k, now in rows.items():
            other = self.holder.get(k, node)
            if other != node and (self.pinned or other in online):
                raise Refused(f"announces client {k}, for which node {other} answers")
            then = self.rows.get(k)
            if self.known is not None:
                then = self.known.n_train[k], self.known.n_test[k]
            if then not in (None, now):
                raise Refused(f"announces {now} training and test rows of client {k}, had {then}")
        return replace(
            self,
            holder={**self.holder, **dict.fromkeys(rows, node)},
            rows={**self.rows, **rows},
            kind=kind,
            labels=self.labels | set(said.labels),
        )

    def clients_of(self, node: int) -> list[int]:
        return sorted(k for k, holder in self.holder.items() if holder == node)

    def missing(self, clients: int, online: Collection[int]) -> list[int]:
        """Who of the clients 0 to N − 1 has no node that is online and has told of it. One that is
        pinned may be said to be online while its node has not found the server again."""
        return [k for k in range(clients) if k not in self.rows or self.holder.get(k) not in online]

    def described(self) -> Described:
        """Once all clients 0 to N − 1 have a node."""
        assert self.kind is not None
        n_train, n_test = zip(*(self.rows[k] for k in range(len(self.rows))))
        return Described(
            list(n_train), list(n_test), self.kind[0], sorted(self.labels), *self.kind[1:]
        )


def stand_in(known: Described, name: str) -> Federation:
    """A federation of the same sizes, labels and shapes, whose rows all hold zeros: enough to make
    models and plans. X takes no memory."""
    n_train, n_test = np.array(known.n_train), np.array(known.n_test)
    rows = int(n_train.sum() + n_test.sum())
    source = Source(
        np.broadcast_to(np.uint8(0), (rows, known.features)),
        np.resize(np.array(known.labels, np.int64), rows),
        name=name,
        image=tuple(known.image) or None,  # type: ignore[arg-type]
        vocabulary=tuple(known.vocabulary) or None,
        sha256=sha256(json.dumps(known).encode()).hexdigest(),
    )
    cut = int(n_train.sum())
    return Federation(
        source,
        Part(np.arange(cut), offsets(n_train)),
        Part(np.arange(cut, rows), offsets(n_test)),
        rule="flower",
    )
