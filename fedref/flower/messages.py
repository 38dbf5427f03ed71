"""What travels between the server and a node: packets of named records.

A packet is records by name, a record is values by name: all of them arrays, or all of them plain
(numbers, text, lists of them). Nothing is pickled. The server asks

    {"hello": {}}                                     which clients do you hold?
    {"call": Call, "sent": arrays, "sent numbers": numbers,
     "evaluate": Evaluating, "train": Training}       one of the two, or both

and a node answers for each of its clients, e.g. client 7, with

    "upload 7", "upload 7 numbers", "log 7", "work 7" its part of the round
    "scores 7"                                        how good its model is
    "lost 7"                                          why there is nothing of the kind

Trees of arrays travel under the names of their fields ("w", "importance"); a bare array is "w".
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.boundary.errors import FedrefError

Record = Mapping[str, Any]
Packet = Mapping[str, Record]

#: In a list of states: the client has none yet.
NONE = -1


class Refused(FedrefError):
    """A message that is not what it must be: says why."""


class Call(NamedTuple):
    """Whose round this is: of which run and unit, after how many rounds; echoed by the answer.

    labels : those that occur anywhere in the federation, ascending, from which models are made.
    """

    run: str
    stamp: str
    unit: int
    round: int
    labels: list[int]


class Training(NamedTuple):
    """Who is to train: their epochs or steps, the round that their own state is of (−1: none), and
    the width W of the cohort's batches for each of the algorithm's roles."""

    clients: list[int]
    amounts: list[int]
    states: list[int]
    widths: list[int]


class Evaluating(NamedTuple):
    """Who is to be evaluated; train : also on the training rows."""

    clients: list[int]
    states: list[int]
    train: bool


class Announced(NamedTuple):
    """What a node says of its rows: nothing but sizes and kinds."""

    clients: list[int]  # ascending
    n_train: list[int]
    n_test: list[int]
    features: int
    labels: list[int]
    image: list[int]  # empty: none
    vocabulary: list[str]  # empty: X holds numbers


def tree_of(template: tree.Tree, leaves: Mapping[str, Any]) -> tree.Tree:
    """`tree.unflatten` of what came from outside."""
    try:
        return tree.unflatten(template, leaves)
    except ValueError as error:
        raise Refused(str(error)) from None


def is_plain(leaf: Any) -> bool:
    """Whether a leaf is a number of Python's own, which travels as such and costs no array."""
    return type(leaf) in (bool, int, float)


def packed(value: tree.Tree, name: str) -> dict[str, Record]:
    """A tree as the records `name`, of its arrays, and `name numbers`, of its plain numbers."""
    leaves = tree.flatten(value)
    arrays = {key: np.asarray(leaf) for key, leaf in leaves.items() if not is_plain(leaf)}
    numbers = {key: leaf for key, leaf in leaves.items() if is_plain(leaf)}
    records = {name: arrays, f"{name} numbers": numbers}
    return {key: record for key, record in records.items() if record}


def unpacked(packet: Packet, name: str) -> dict[str, Any]:
    """The leaves of the tree that `packed` put under this name; arrays of no axis as numbers."""
    arrays, numbers = packet.get(name, {}), packet.get(f"{name} numbers", {})
    if not all(isinstance(leaf, np.ndarray) for leaf in arrays.values()):
        raise Refused(f"{name} holds plain values, expected arrays")
    if not all(map(is_plain, numbers.values())) or numbers.keys() & arrays.keys():
        raise Refused(f"{name} numbers holds other than numbers, or a name twice")
    return {**{key: leaf if leaf.ndim else leaf[()] for key, leaf in arrays.items()}, **numbers}


#: What the fields of the tuples above may hold, by the names of their types.
def _fits(value: Any, kind: Any) -> bool:
    if kind == list[int]:
        return isinstance(value, list) and all(type(one) is int for one in value)
    if kind == list[str]:
        return isinstance(value, list) and all(type(one) is str for one in value)
    return type(value) is kind


def record(values: NamedTuple) -> dict[str, Any]:
    """A tuple of the kinds above as a record; an empty list is left out."""
    return {name: value for name, value in values._asdict().items() if value != []}


def read(kind: Any, packet: Packet, name: str) -> Any:
    """The record `name` as a tuple of that kind; Refused unless it has its fields and no other."""
    found = packet.get(name)
    if found is None:
        raise Refused(f"has no record {name}")
    types = kind.__annotations__
    odd = sorted(found.keys() - types.keys())
    for field, expected in types.items():
        value = found.get(field, [] if expected in (list[int], list[str]) else None)
        if not _fits(value, expected):
            odd.append(field)
    if odd:
        raise Refused(f"{name} has missing, unknown or misshapen fields: {', '.join(odd)}")
    return kind(**{field: found.get(field, []) for field in types})
