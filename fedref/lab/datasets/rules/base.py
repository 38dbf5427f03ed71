"""The base class of split rules, and functions that choose and group the rows to divide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds
from fedref.lab.datasets import partition
from fedref.lab.datasets.scaling import SCALINGS
from fedref.models.numerics import Array
from fedref.rounds.federation import Part, Source

Generator = np.random.Generator


class Division(NamedTuple):
    """What a rule returns: the clients' training and test rows, and their names; None: numbers.

    unseen : the test rows of clients that have no other, with their names; None: there is no such client.
    """

    train: Part
    test: Part
    client_names: tuple[str, ...] | None = None
    unseen: Part | None = None
    unseen_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A split rule. Its fields are its parameters; None means that the value depends on the data.

    help : the first line of the docstring, for users.
    elsewhere : what other libraries do under this name. leftover : which rows are in no part.
    bounds, choices : the values that fields may have, see `fedref.boundary.values`.

    scaling : features as none | unit (x / full scale) | standardise ((x − mean)/(std + 0.001)); default:
      unit for images of bytes, none for other features
    validation : share of each client's training rows that it is validated on, and never trained on; 0:
      none
    users : number of clients
    pool : rows to split: all, or the published training part
    train_fraction : fraction of each client's rows for training; a client with two rows or more has a
      training row and a test row at least, a single row is for training
    alpha : concentration: small is uneven, large is even
    min_rows : least number of rows per client
    shards : shards per client
    of : another rule: shuffle the rows between its clients and keep their sizes; its parameters may be
      given, too
    classes : classes per client
    base : least number of rows of each class that a client holds
    sigma : width of the lognormal shares
    mu : mean of log n
    a : training rows per class, even; default: 196, or the most that fits
    a_test : test rows per class, even; default: the most that fits
    """

    scaling: str | None = None
    validation: float = 0.0

    help: ClassVar[str]
    elsewhere: ClassVar[str] = ""
    leftover: ClassVar[str] = ""
    bounds: ClassVar[Mapping[str, tuple[float, ...] | Bounds]] = {
        **dict.fromkeys(("users", "min_rows", "shards", "classes", "base"), (1,)),
        **dict.fromkeys(("a", "a_test"), (2,)),
        "train_fraction": (0, 1),
        "validation": Bounds(0, 1, open="high"),
        "alpha": (1e-3, 1e6),
        "sigma": (0, 100),
        "mu": (-20, 20),
    }
    choices: ClassVar[dict[str, Sequence[str]]] = {"scaling": SCALINGS, "pool": ("all", "train")}

    def __init_subclass__(cls) -> None:
        cls.help = (cls.__doc__ or "").partition("\n")[0]

    def fill(self, source: Source) -> Self:
        """Return the rule with all values set that depend on the data."""
        return self

    def split(self, source: Source, rng: Generator) -> Division:
        """Return each client's rows. Randomness comes from `rng` alone."""
        raise NotImplementedError


def rows_of(source: Source, pool: str) -> Array:
    """Return the row numbers of the whole source, or of its published training part."""
    end = source.test_from if pool == "train" else None
    return np.arange(len(source.y) if end is None else end)


def classes_of(source: Source) -> Array:
    """Return the labels that occur, ascending. Refuse data with real targets."""
    if source.real:
        raise ConfigError(
            f"{source.name} has real targets and so no classes; expected a rule that needs none: "
            "natural, iid or quantity"
        )
    return source.labels


def by_class(source: Source, rows: Array) -> Part:
    """Group the rows by class, as if each class were a client: ascending labels, source order."""
    classes = classes_of(source)
    return partition.group_by_client(np.searchsorted(classes, source.y[rows]), len(classes), rows)


def require_rows(users: int, each: int, rows: Array, source: Source) -> None:
    """Refuse more users than there are rows for, if every user needs `each` rows."""
    if users * each > len(rows):
        raise ConfigError(
            f"users={users} with at least {each} rows each need {users * each} rows, "
            f"{source.name} has {len(rows)}"
        )
